"""Read what `boxmend export` wrote by the importers of the tools it was written for.

    python tools/check_export.py FOLDER [FOLDER ...]

Needs nothing of boxmend, so that it runs in an environment with only such a tool in it. Each
folder is read by whatever is installed of label-studio-sdk, datumaro, cvat-sdk, fiftyone and
pycocotools, and compared with its export.json. Exit status 1 if any of them objects.
"""

import json
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

MAX_ERROR_PIXELS = 1e-3  # of a side that was written as a percentage or share

Manifest = dict[str, Any]
Check = Callable[[Path, Manifest], str]


def list_annotations(manifest: Manifest) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield every annotation with its image, as export.json lists them."""
    for image in manifest["images"]:
        for annotation in image["annotations"]:
            yield image, annotation


def suggestion_of(annotation: dict[str, Any]) -> tuple[str, list[float]]:
    """Return the label name and box that a tool should show."""
    is_suspect = annotation["status"] == "suspect"
    keys = ("label", "box") if is_suspect else ("old_label", "old_box")
    return annotation[keys[0]], annotation[keys[1]]


def ensure_close(box: Any, wanted: Any, what: str) -> None:
    """Raise an AssertionError unless a box is where it should be."""
    if max(abs(a - b) for a, b in zip(box, wanted, strict=True)) > MAX_ERROR_PIXELS:
        raise AssertionError(f"{what}: box {box}, but {wanted} was exported")


def ensure_equal(actual: Any, wanted: Any, what: str) -> None:
    """Raise an AssertionError if two values differ."""
    if actual != wanted:
        raise AssertionError(f"{what}: {actual!r}, but {wanted!r} was exported")


def written_names(manifest: Manifest) -> dict[str, str]:
    """Return how the tool writes each label name."""
    return {label["label_name"]: label["written_as"] for label in manifest["labels"]}


def by_label_studio_sdk(folder: Path, manifest: Manifest) -> str:
    """Check with the parser, the validation and the models of the SDK."""
    interface_of = import_module("label_studio_sdk.label_interface").LabelInterface
    objects = import_module("label_studio_sdk.label_interface.objects")
    interface = interface_of((folder / "config.xml").read_text("utf-8"))
    interface.validate()
    names = written_names(manifest)
    ensure_equal(set(interface.get_control("label").labels), set(names.values()), "labels")
    tasks = json.loads((folder / "tasks.json").read_bytes())
    regions = {}
    for task in tasks:
        objects.TaskValue(**task)
        for prediction in task["predictions"]:
            ensure_equal(interface.validate_prediction(prediction, return_errors=True), [], "task")
        ids_of_regions = {one["region"]: one["annotation_id"] for one in task["data"]["boxmend"]}
        for region in task["predictions"][0]["result"]:
            regions[ids_of_regions[region["id"]]] = region
    for _, annotation in list_annotations(manifest):
        identity = annotation["annotation_id"]
        region = regions.pop(identity)
        label, box = suggestion_of(annotation)
        ensure_equal(region["value"]["rectanglelabels"], [names[label]], str(identity))
        ensure_close(_pixels(region), _cut(box, region), str(identity))
    ensure_equal(regions, {}, "regions left over")
    return f"{len(tasks)} tasks validated, all regions where they belong"


def _pixels(region: dict[str, Any]) -> list[float]:
    width, height, value = region["original_width"], region["original_height"], region["value"]
    x1, y1 = value["x"] * width / 100, value["y"] * height / 100
    return [x1, y1, x1 + value["width"] * width / 100, y1 + value["height"] * height / 100]


def _cut(box: list[float], region: dict[str, Any]) -> list[float]:
    limits = (region["original_width"], region["original_height"]) * 2
    return [min(max(side, 0), limit) for side, limit in zip(box, limits, strict=True)]


def by_datumaro(folder: Path, manifest: Manifest) -> str:
    """Check with Datumaro's reader of CVAT's XML, which CVAT itself uses for projects."""
    datumaro = import_module("datumaro")
    dataset = datumaro.Dataset.import_from(str(folder), "cvat")
    label_names = [
        category.name for category in dataset.categories()[datumaro.AnnotationType.label]
    ]
    names, result = written_names(manifest), {}
    ensure_equal(label_names, list(names.values()), "labels")
    for item in dataset:
        for one in item.annotations:
            result[one.attributes["annotation_id"]] = one
    for _, annotation in list_annotations(manifest):
        identity = str(annotation["annotation_id"])
        one = result.pop(identity)
        label, box = suggestion_of(annotation)
        ensure_equal(label_names[one.label], names[label], identity)
        ensure_close(one.points, box, identity)
        ensure_equal(one.attributes["status"], annotation["status"], identity)
        if annotation["status"] == "suspect":
            ensure_equal(one.attributes["reason"], annotation["reason"], identity)
            ensure_equal(float(one.attributes["doubt"] or "nan"), annotation["doubt"], identity)
    ensure_equal(result, {}, "boxes left over")
    return f"{len(dataset)} images read, all boxes and attributes there"


def by_cvat_sdk(folder: Path, manifest: Manifest) -> str:
    """Check CVAT's limits on labels and attributes, from the schema of its interface."""
    models = import_module("cvat_sdk.models")
    labels = json.loads((folder / "labels.json").read_bytes())
    for label in labels:
        attributes = [models.AttributeRequest(**one) for one in label["attributes"]]
        models.PatchedLabelRequest(name=label["name"], type=label["type"], attributes=attributes)
    num_values = 0
    for box in import_module("xml.etree.ElementTree").parse(folder / "annotations.xml").iter("box"):
        for attribute in box:
            models.AttributeValRequest(spec_id=1, value=attribute.text or "")
            num_values += 1
    return f"{len(labels)} labels and {num_values} values of attributes within limits"


def by_fiftyones_cvat_reader(folder: Path, manifest: Manifest) -> str:
    """Check with FiftyOne's reader of CVAT's XML."""
    reader = import_module("fiftyone.utils.cvat")
    _, labels, images = reader.load_cvat_image_annotations(str(folder / "annotations.xml"))
    ensure_equal(
        {label["name"] for label in labels.labels}, set(written_names(manifest).values()), "labels"
    )
    num_boxes = sum(len(image.boxes) for image in images)
    ensure_equal(num_boxes, sum(1 for _ in list_annotations(manifest)), "number of boxes")
    return f"{len(images)} images with {num_boxes} boxes read"


def by_fiftyone(folder: Path, manifest: Manifest) -> str:
    """Check with FiftyOne's importer, and with its database if that starts."""
    importers = import_module("fiftyone.utils.data.importers")
    importer = importers.FiftyOneDatasetImporter(str(folder))
    with importers._handle_legacy_formats(importer) as reader:
        samples = list(reader)
    collected: dict[tuple[str, str], tuple[Any, Any]] = {}
    for sample in samples:
        for field in ("annotated", "mended"):
            for detection in sample[field].detections:
                collected[field, detection.annotation_id] = (detection, sample.metadata)
    for _, annotation in list_annotations(manifest):
        identity = str(annotation["annotation_id"])
        one, size = collected.pop(("annotated", identity))
        ensure_equal(one.label, annotation["old_label"], identity)
        ensure_close(_from_shares(one, size), annotation["old_box"], identity)
        if annotation["status"] == "suspect":
            one, size = collected.pop(("mended", identity))
            ensure_equal(one.label, annotation["label"], identity)
            ensure_close(_from_shares(one, size), annotation["box"], identity)
            ensure_equal(one.confidence, annotation.get("score"), identity)
            ensure_equal(one.suspicion, annotation["suspicion"], identity)
    ensure_equal(collected, {}, "detections left over")
    return f"{len(samples)} samples read, all detections there; {_in_a_database(folder)}"


def _from_shares(detection: Any, size: Any) -> list[float]:
    x, y, width, height = detection.bounding_box
    x1, y1 = x * size.width, y * size.height
    return [x1, y1, x1 + width * size.width, y1 + height * size.height]


def _in_a_database(folder: Path) -> str:
    fiftyone = import_module("fiftyone")
    try:
        dataset = fiftyone.Dataset.from_dir(
            str(folder), dataset_type=fiftyone.types.FiftyOneDataset, dynamic=True
        )
    except Exception as error:  # a missing MongoDB raises various errors
        return f"its database did not start ({type(error).__name__})"
    known = dataset.get_field_schema(flat=True)
    ensure_equal("mended.detections.suspicion" in known, True, "suspicion is declared")
    dataset.delete()
    return "and through its database"


def by_pycocotools(folder: Path, manifest: Manifest) -> str:
    """Check with COCO's own reader."""
    coco = import_module("pycocotools.coco").COCO(str(folder / "instances_suggested.json"))
    annotations = {
        annotation["boxmend"]["annotation_id"]: annotation
        for annotation in coco.loadAnns(coco.getAnnIds())
    }
    for image, annotation in list_annotations(manifest):
        one = annotations.pop(annotation["annotation_id"])
        label, (x1, y1, x2, y2) = suggestion_of(annotation)
        ensure_equal(coco.loadCats(one["category_id"])[0]["name"], label, str(one["id"]))
        ensure_close(one["bbox"], [x1, y1, x2 - x1, y2 - y1], str(one["id"]))
        ensure_equal(coco.loadImgs(one["image_id"])[0]["file_name"], image["file_name"], "image")
    ensure_equal(annotations, {}, "annotations left over")
    return f"{len(coco.imgs)} images with {len(coco.anns)} annotations read"


CHECKS: dict[str, dict[str, Check]] = {
    "label-studio": {"label-studio-sdk": by_label_studio_sdk},
    "cvat": {
        "datumaro": by_datumaro,
        "cvat-sdk": by_cvat_sdk,
        "fiftyone": by_fiftyones_cvat_reader,
    },
    "fiftyone": {"fiftyone": by_fiftyone},
    "coco": {"pycocotools": by_pycocotools},
}


def outcome_of(package: str, check: Check, folder: Path, manifest: Manifest) -> tuple[str, str]:
    """Run one check; return PASS, FAIL or SKIP, and a message."""
    try:
        release = version(package)
    except PackageNotFoundError:
        return "SKIP", f"{package} is not installed"
    try:
        return "PASS", f"{package} {release}: {check(folder, manifest)}"
    except Exception as error:  # an importer may raise anything
        return "FAIL", f"{package} {release}: {type(error).__name__}: {error}"


def main(folders: list[str]) -> int:
    """Check every folder with every package that reads it."""
    if not folders:
        print(__doc__)
        return 2
    outcomes = set[str]()
    for folder in map(Path, folders):
        manifest = json.loads((folder / "export.json").read_bytes())
        for package, check in CHECKS[manifest["to"]].items():
            outcome, message = outcome_of(package, check, folder, manifest)
            outcomes.add(outcome)
            print(f"{outcome} {folder} ({manifest['to']}): {message}")
    return 1 if "FAIL" in outcomes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
