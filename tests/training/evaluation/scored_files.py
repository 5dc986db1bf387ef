"""Datasets and files of detections to be scored, and pycocotools on the same files."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

Entry = dict[str, Any]
COCO_KEYS = [
    *("AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large"),
    *("AR_1", "AR_10", "AR_100", "AR_small", "AR_medium", "AR_large"),
]
KEYS = [*COCO_KEYS, "voc_ap50_11point", "voc_ap50_area"]

# Worked out in tests/scoring/test_coco_scores.py. By VOC's rule it is T F T of two: precision 1 up
# to recall 1/2, 2/3 up to 1. 11 points: (6 * 1 + 5 * 2/3) / 11; area: (1 + 2/3) / 2.
AT_50 = (51 + 100 / 3) / 101
EXPECTED: dict[str, float | None] = {
    "AP": (7 * AT_50 + 3 * 51 / 101) / 10,
    "AP50": AT_50,
    "AP75": AT_50,
    "AP_small": 1.0,
    "AP_medium": None,
    "AP_large": 0.35,
    "AR_1": 0.5,
    "AR_10": 0.85,
    "AR_100": 0.85,
    "AR_small": 1.0,
    "AR_medium": None,
    "AR_large": 0.7,
    "voc_ap50_11point": 28 / 33,
    "voc_ap50_area": 5 / 6,
}
DETECTIONS: list[Entry] = [
    {"image_id": 9, "category_id": 5, "bbox": [10, 10, 20, 20], "score": 0.9},
    {"image_id": 4, "category_id": 5, "bbox": [300, 300, 100, 100], "score": 0.8},
    {"image_id": 4, "category_id": 5, "bbox": [0, 0, 100, 82], "score": 0.7},
]


def two_images(folder: Path, **changes: Any) -> Path:
    """A COCO file: a small cat in image 9, a large one in image 4, and a class without objects."""
    document = {
        "images": [
            {"id": 9, "file_name": "nine.jpg", "width": 640, "height": 480},
            {"id": 4, "file_name": "four.jpg", "width": 640, "height": 480},
        ],
        "annotations": [
            {"id": 1, "image_id": 9, "category_id": 5, "bbox": [10, 10, 20, 20], "iscrowd": 0},
            {"id": 2, "image_id": 4, "category_id": 5, "bbox": [0, 0, 100, 100], "iscrowd": 0},
        ],
        "categories": [{"id": 5, "name": "cat"}, {"id": 2, "name": "dog"}],
    }
    return as_json(folder / "instances_val.json", document | changes)


def as_json(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def random_files(folder: Path, seed: int) -> tuple[Path, Path]:
    """A COCO file and one of detections: ids in disorder, boxes with decimals, ties, crowds."""
    rng = np.random.default_rng(seed)
    image_ids = rng.permutation(np.arange(3, 60, 5))
    categories = [{"id": int(one), "name": f"class {one}"} for one in (40, 3, 17, 8)]
    annotations = [
        {
            "id": 100 - k,
            "image_id": int(rng.choice(image_ids)),
            "category_id": int(rng.choice([40, 3, 17])),
            "bbox": _box(rng),
            "area": float(rng.integers(1, 15_000)) / 10 * float(rng.integers(1, 10)),
            "iscrowd": int(rng.random() < 0.1),
        }
        for k in range(60)
    ]
    images = [{"id": int(image_id), "file_name": f"{image_id:06d}.jpg"} for image_id in image_ids]
    truth = {"images": images, "annotations": annotations, "categories": categories}
    listed = [_detection(rng, annotations, image_ids) for _ in range(600)]
    where = folder / str(seed)
    return as_json(where / "instances_val.json", truth), as_json(where / "found.json", listed)


def _box(rng: np.random.Generator) -> list[float]:
    """x, y, width and height in tenths, where corners are rounded otherwise than widths."""
    return [float(value) / 10 for value in rng.integers(1, 1500, 4)]


def _detection(rng: np.random.Generator, annotations: list[Entry], image_ids: Any) -> Entry:
    score = float(rng.integers(0, 20)) / 20
    if rng.random() < 0.3:
        place = {"image_id": int(rng.choice(image_ids)), "category_id": int(rng.choice([3, 8]))}
        return place | {"bbox": _box(rng), "score": score}
    like = annotations[int(rng.integers(0, len(annotations)))]
    x, y, width, height = like["bbox"]
    box = [x, y, width * float(rng.choice([1, 0.5, 0.75, 0.9])), height]
    return {key: like[key] for key in ("image_id", "category_id")} | {"bbox": box, "score": score}


def by_pycocotools(truth: Path, predictions: Path) -> dict[str, float | None]:
    """COCO's figures of the same files; None for its -1."""
    with contextlib.redirect_stdout(io.StringIO()):
        asked = COCO(str(truth))
        evaluator = COCOeval(asked, asked.loadRes(str(predictions)), "bbox")
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    values = [None if value == -1 else float(value) for value in evaluator.stats]
    return dict(zip(COCO_KEYS, values, strict=True))
