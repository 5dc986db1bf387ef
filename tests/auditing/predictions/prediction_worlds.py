"""Datasets on disk, and detections of them that other detectors might have written."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import boxmend
from boxmend.data.dataset import Dataset

WIDTH, HEIGHT = 200, 100
LABEL_NAMES = ("cat", "dog", "traffic light")
CATEGORY_IDS = (3, 9, 5)


def annotated_boxes(num_images: int = 30) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Two boxes (x, y, width, height) an image, of changing labels."""
    k = np.arange(2 * num_images)
    columns = (20 + (7 * k) % 80, 10 + (5 * k) % 30, 30 + (11 * k) % 40, 20 + (3 * k) % 25)
    return np.stack(columns, axis=1).astype(float), ((k * k + k // 3) % 3).tolist()


def coco(folder: Path, num_images: int = 30, **image: Any) -> Dataset:
    """A COCO dataset with ids that are no numbers of files: 100 is 000000.jpg."""
    boxes, labels = annotated_boxes(num_images)
    size = {"width": WIDTH, "height": HEIGHT} | image
    document = {
        "images": [{"id": 100 + k, "file_name": f"{k:06d}.jpg", **size} for k in range(num_images)],
        "categories": [
            {"id": number, "name": name}
            for number, name in zip(CATEGORY_IDS, LABEL_NAMES, strict=True)
        ],
        "annotations": [
            {
                "id": k + 1,
                "image_id": 100 + k // 2,
                "category_id": CATEGORY_IDS[label],
                "bbox": box,
            }
            for k, (box, label) in enumerate(zip(boxes.tolist(), labels, strict=True))
        ],
    }
    path = folder / "instances_train.json"
    path.write_text(json.dumps(document))
    return boxmend.load(path)


def yolo(folder: Path, num_images: int = 30) -> Dataset:
    """The same as YOLO; images are there, since shares need their sizes."""
    boxes, labels = annotated_boxes(num_images)
    for part in ("images", "labels"):
        (folder / part / "train").mkdir(parents=True)
    for image in range(num_images):
        place = folder / "images" / "train" / f"{image:06d}.png"
        Image.new("L", (WIDTH, HEIGHT)).save(place)
        rows = (2 * image, 2 * image + 1)
        lines = [" ".join(map(str, (labels[row], *shares(boxes[row])))) for row in rows]
        label_file = folder / "labels" / "train" / f"{image:06d}.txt"
        label_file.write_text("\n".join(lines) + "\n")
    names = "\n".join(f"  {k}: {name}" for k, name in enumerate(LABEL_NAMES))
    (folder / "data.yaml").write_text(f"train: images/train\nval: images/train\nnames:\n{names}\n")
    return boxmend.load(folder / "data.yaml")


def shares(box: Any) -> list[float]:
    """Centre and size in shares of the image, of x, y, width and height."""
    x, y, width, height = map(float, box)
    return [(x + width / 2) / WIDTH, (y + height / 2) / HEIGHT, width / WIDTH, height / HEIGHT]


def results(numbers: tuple[int, ...] = CATEGORY_IDS, num_images: int = 30) -> list[dict[str, Any]]:
    """COCO results that find every annotation, one pixel off, with these numbers of classes."""
    boxes, labels = annotated_boxes(num_images)
    return [
        {
            "image_id": 100 + k // 2,
            "category_id": numbers[label],
            "bbox": (box + 1).tolist(),
            "score": round(0.5 + k / 1000, 4),
        }
        for k, (box, label) in enumerate(zip(boxes, labels, strict=True))
    ]


def expected_boxes(num_images: int = 30) -> np.ndarray[Any, Any]:
    """The corners of what `results` finds."""
    boxes = annotated_boxes(num_images)[0] + 1
    return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)


def as_json(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path
