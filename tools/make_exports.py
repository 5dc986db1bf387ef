"""Make the exports in tests/data/formats/exports with the annotation tools themselves.

Usage: python tools/make_exports.py FOLDER [TOOL ...]

It needs a virtual environment of its own with the packages label-studio-sdk, datumaro, fiftyone,
supervision and ultralytics; FOLDER/README.md lists the versions that it prints. Every export has
the same three drawn images and four annotations. Absolute paths of this machine in the exports are
replaced by /exports, and nothing else is changed.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from PIL import Image

NAMES = ("cat", "dog")
SIZES = {"a b.png": (20, 10), "c.png": (16, 16), "d.png": (12, 12)}
BOXES = {  # label, x1, y1, x2, y2
    "a b.png": [(0, 2, 2, 12, 6)],
    "c.png": [(1, 0, 0, 8, 8), (0, 8, 8, 12, 12)],
    "d.png": [(1, 3, 3, 9, 9)],
}
SPLITS = {"a b.png": "train", "c.png": "train", "d.png": "val"}
LABEL_STUDIO_CONFIG = """<View>
  <Image name="image" value="$image"/>
  <RectangleLabels name="label" toName="image">
    <Label value="cat"/>
    <Label value="dog"/>
  </RectangleLabels>
</View>"""
PLACEHOLDER = "/exports"


def main(folder: str, *tools: str) -> None:
    """Make the exports of all tools, or of the named ones."""
    target = Path(folder).absolute()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        draw_images(work / "images")
        os.chdir(work)
        for tool in tools or TOOLS:
            print(tool, version(tool))
            TOOLS[tool](work)
        shutil.rmtree(work / "images")
        for path in sorted(work.rglob("*")):
            if path.is_file():
                place = target / path.relative_to(work)
                place.parent.mkdir(parents=True, exist_ok=True)
                data = path.read_bytes()
                place.write_bytes(data.replace(str(work).encode(), PLACEHOLDER.encode()))


def draw_images(folder: Path) -> None:
    """Draw the images: plain, each in another shade."""
    folder.mkdir()
    for shade, (name, size) in enumerate(SIZES.items()):
        Image.new("L", size, 40 * shade).save(folder / name)


def make_label_studio(work: Path) -> None:
    """Export uploaded files and one file of a local storage, as COCO, YOLO and VOC."""
    converter = import_module("label_studio_sdk.converter").Converter
    written = {
        "a b.png": "/data/upload/1/1a2b3c4d-a%20b.png",
        "c.png": "/data/upload/1/5e6f7a8b-c.png",
        "d.png": "/data/local-files/?d=photos/d.png",
    }
    tasks = [
        {"id": number, "data": {"image": written[name]}, "annotations": [_annotate(number, name)]}
        for number, name in enumerate(SIZES, 1)
    ]
    Path("tasks.json").write_text(json.dumps(tasks))
    for kind in ("COCO", "YOLO", "VOC"):
        out = work / f"label-studio-{kind.lower()}"
        tool = converter(config=LABEL_STUDIO_CONFIG, project_dir=None, download_resources=False)
        tool.convert("tasks.json", str(out), kind, is_dir=False)
        # The server puts the images there, under the names that they have on its disk.
        (out / "images").mkdir(exist_ok=True)
        for name, url in written.items():
            stored = Path(url.partition("?d=")[2] or url).name.replace("%20", " ")
            shutil.copyfile(work / "images" / name, out / "images" / stored)
    Path("tasks.json").unlink()


def _annotate(number: int, name: str) -> dict[str, Any]:
    width, height = SIZES[name]
    results = [
        {
            "id": f"{number}-{k}",
            "type": "rectanglelabels",
            "from_name": "label",
            "to_name": "image",
            "original_width": width,
            "original_height": height,
            "image_rotation": 0,
            "value": {
                "x": 100 * x1 / width,
                "y": 100 * y1 / height,
                "width": 100 * (x2 - x1) / width,
                "height": 100 * (y2 - y1) / height,
                "rotation": 0,
                "rectanglelabels": [NAMES[label]],
            },
        }
        for k, (label, x1, y1, x2, y2) in enumerate(BOXES[name])
    ]
    return {"id": number, "completed_by": 1, "result": results}


def make_datumaro(work: Path) -> None:
    """Export in the formats that CVAT writes with Datumaro."""
    dm = import_module("datumaro")
    media = import_module("datumaro.components.media").Image
    items, identity = [], 0
    for name in SIZES:
        annotations = []
        for label, x1, y1, x2, y2 in BOXES[name]:
            identity += 1
            box = dm.Bbox(x1, y1, x2 - x1, y2 - y1, label=label, id=identity, group=identity)
            annotations.append(box)
        image = media.from_file(path=str(work / "images" / name))
        item = dm.DatasetItem(
            id=name[:-4], subset=SPLITS[name], media=image, annotations=annotations
        )
        items.append(item)
    dataset = dm.Dataset.from_iterable(items, categories=list(NAMES))
    for kind in ("yolo", "yolo_ultralytics", "coco_instances", "voc_detection"):
        out = work / f"datumaro-{kind.replace('_', '-')}"
        dataset.export(str(out), kind, save_media=True)


def make_fiftyone(work: Path) -> None:
    """Export with the exporters of FiftyOne, which need no database when used directly."""
    os.environ["FIFTYONE_DISABLE_SERVICES"] = "1"
    fo = import_module("fiftyone")
    metadata = import_module("fiftyone.core.metadata").ImageMetadata
    yolo, coco, voc = (import_module(f"fiftyone.utils.{name}") for name in ("yolo", "coco", "voc"))
    names = list(NAMES)
    out = str(work / "fiftyone-")
    exporters = (
        coco.COCODetectionDatasetExporter(f"{out}coco", classes=names),
        voc.VOCDetectionDatasetExporter(f"{out}voc"),
        yolo.YOLOv4DatasetExporter(f"{out}yolov4", classes=names),
        yolo.YOLOv5DatasetExporter(f"{out}yolov5", split="train", classes=names),
        yolo.YOLOv5DatasetExporter(
            f"{out}yolov5-confidence", split="val", classes=names, include_confidence=True
        ),
    )
    for exporter in exporters:
        with exporter:
            for name, (width, height) in SIZES.items():
                found = fo.Detections(
                    detections=[
                        fo.Detection(
                            label=NAMES[label],
                            bounding_box=[
                                *(x1 / width, y1 / height),
                                *((x2 - x1) / width, (y2 - y1) / height),
                            ],
                            confidence=0.9,
                        )
                        for label, x1, y1, x2, y2 in BOXES[name]
                    ]
                )
                size = metadata(width=width, height=height, num_channels=1)
                exporter.export_sample(str(work / "images" / name), found, metadata=size)


def make_supervision(work: Path) -> None:
    """Export as COCO, YOLO and VOC."""
    sv, np = import_module("supervision"), import_module("numpy")
    detections = {
        str(work / "images" / name): sv.Detections(
            xyxy=np.array([box[1:] for box in boxes], float),
            class_id=np.array([box[0] for box in boxes]),
        )
        for name, boxes in BOXES.items()
    }
    dataset = sv.DetectionDataset(
        classes=list(NAMES), images=list(detections), annotations=detections
    )
    out = "supervision-"
    dataset.as_coco(
        images_directory_path=f"{out}coco/images", annotations_path=f"{out}coco/annotations.json"
    )
    dataset.as_yolo(
        images_directory_path=f"{out}yolo/images",
        annotations_directory_path=f"{out}yolo/labels",
        data_yaml_path=f"{out}yolo/data.yaml",
    )
    dataset.as_pascal_voc(
        images_directory_path=f"{out}voc/images", annotations_directory_path=f"{out}voc/annotations"
    )


def make_ultralytics(work: Path) -> None:
    """Split images by lists as `autosplit` does; write predictions as `save_txt` does."""
    os.environ["YOLO_CONFIG_DIR"] = str(work / "images")
    split = import_module("ultralytics.data.split").autosplit
    results = import_module("ultralytics.engine.results").Results
    np, torch = import_module("numpy"), import_module("torch")
    out = work / "ultralytics-autosplit"
    shutil.copytree(work / "images", out / "images")
    (out / "labels").mkdir()
    split(out / "images", weights=(0.7, 0.3, 0.0))
    names = dict(enumerate(NAMES))
    lists = {"train": "autosplit_train.txt", "val": "autosplit_val.txt"}
    import_module("ultralytics.utils").YAML.save(out / "data.yaml", {**lists, "names": names})
    for name, (width, height) in SIZES.items():
        boxes = [[x1, y1, x2, y2, 0.9, label] for label, x1, y1, x2, y2 in BOXES[name]]
        image = np.zeros((height, width, 3), np.uint8)
        result = results(image, path=name, names=names, boxes=torch.tensor(boxes).float())
        stem = Path(name).stem
        result.save_txt(out / "labels" / f"{stem}.txt")
        result.save_txt(work / f"ultralytics-predictions/{stem}.txt", save_conf=True)


TOOLS: dict[str, Callable[[Path], None]] = {
    "label-studio-sdk": make_label_studio,
    "datumaro": make_datumaro,
    "fiftyone": make_fiftyone,
    "supervision": make_supervision,
    "ultralytics": make_ultralytics,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
