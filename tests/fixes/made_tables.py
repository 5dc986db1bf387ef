"""Tables of fixes made by hand, on a COCO file made by hand: two images of 100 x 100 pixels."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path

import numpy as np

from boxmend.dataset import Dataset
from boxmend.fixes.table import Fixes, Kind
from boxmend.formats import load

Box = tuple[float, float, float, float]
NAMES = ("van", "truck", "bus")
NO_BOX: Box = (nan, nan, nan, nan)


@dataclass(frozen=True)
class Fix:
    """One row of a table; what is not given is as annotated, or empty."""

    id: str
    kind: Kind
    row: int = -1
    p_fix: float = 0.5
    label: int | None = None
    box: Box | None = None
    image: int = 0
    kept: int = -1
    p_wrong: float = 0.75


def dataset_in(folder: Path, *, num: int = 6, crowd: int | None = None) -> Dataset:
    """Annotations 10, 11, .. by turns on both images, van, truck and bus by turns, 20 px wide."""
    document = {
        "images": [{"id": k, "file_name": f"{k}.png", "width": 100, "height": 100} for k in (1, 2)],
        "annotations": [
            {
                "id": 10 + row,
                "image_id": 1 + row % 2,
                "category_id": 1 + row % 3,
                "bbox": [10 * row, 5, 20, 20],
                "iscrowd": int(row == crowd),
            }
            for row in range(num)
        ],
        "categories": [{"id": 1 + k, "name": name} for k, name in enumerate(NAMES)],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "instances_train.json"
    path.write_text(json.dumps(document))
    return load(str(path))


def table_of(dataset: Dataset, made: Sequence[Fix]) -> Fixes:
    n = len(made)
    rows = np.array([one.row for one in made], np.int64)
    is_missing = rows < 0
    is_removal = np.array([one.kind in (Kind.SPURIOUS, Kind.DUPLICATE) for one in made], bool)
    old_labels = np.where(is_missing, -1, dataset.labels[rows]) if n else np.zeros(0, np.int64)
    old_boxes = np.full((n, 4), nan)
    old_boxes[~is_missing] = dataset.boxes[rows[~is_missing]]
    images = np.array([one.image for one in made], np.int64)
    images[~is_missing] = dataset.image_rows[rows[~is_missing]]
    labels = np.array(
        [old_labels[k] if one.label is None else one.label for k, one in enumerate(made)], np.int64
    )
    boxes = np.array(
        [old_boxes[k] if one.box is None else one.box for k, one in enumerate(made)], np.float64
    ).reshape(n, 4)
    return Fixes(
        ids=[one.id for one in made],
        kinds=np.array([one.kind for one in made], np.int8),
        rows=rows,
        image_rows=images,
        old_labels=old_labels,
        new_labels=np.where(is_removal, -1, labels),
        old_boxes=old_boxes,
        new_boxes=np.where(is_removal[:, None], nan, boxes),
        kept_rows=np.array([one.kept for one in made], np.int64),
        p_wrong=np.array([one.p_wrong for one in made], np.float64),
        p_fix=np.array([one.p_fix for one in made], np.float64),
        iou_gain=np.zeros(n),
        reasons=[f"why {one.id}" for one in made],
    )
