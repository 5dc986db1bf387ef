"""The fixes as the page reads them: columns of numbers, and texts that are fit to be shown."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from boxmend.auditing.fixes.table import Fixes
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats
from boxmend.web.text import display_text

LONGEST_REASON = 500  # characters
NARROWEST = 16  # pixels that an image without a known size is taken to have


def columns_json(name: str, dataset: Dataset, fixes: Fixes, sample: Sequence[int]) -> bytes:
    """All fixes as JSON; `sample` is the order in which the page asks about them at random."""
    used, file = np.unique(fixes.image_rows, return_inverse=True)
    names = sorted(set(fixes.reasons))
    reason_of = {text: number for number, text in enumerate(names)}
    columns = {
        "name": display_text(name),
        "labels": [display_text(one) for one in dataset.label_names],
        "files": [display_text(dataset.images.file_names[row]) for row in used.tolist()],
        "images": used.tolist(),
        "file": file.tolist(),
        "kind": fixes.kinds.tolist(),
        "row": fixes.rows.tolist(),
        "kept": fixes.kept_rows.tolist(),
        "id": [_id(dataset, row) for row in fixes.rows.tolist()],
        "old": fixes.old_labels.tolist(),
        "new": fixes.new_labels.tolist(),
        "old_box": _boxes(fixes.old_boxes),
        "new_box": _boxes(fixes.new_boxes),
        "p_wrong": _rounded(fixes.p_wrong),
        "p_fix": _rounded(fixes.p_fix),
        "gain": _rounded(fixes.iou_gain),
        "reasons": [display_text(one, LONGEST_REASON) for one in names],
        "reason": [reason_of[one] for one in fixes.reasons],
        "sample": list(sample),
    }
    return _json(columns)


def places_json(
    dataset: Dataset, image_rows: Sequence[int], places: Sequence[dict[str, Any]]
) -> bytes:
    """Images with their sizes or problems, and all annotations on them."""
    found = []
    for image, place in zip(image_rows, places, strict=True):
        rows = np.flatnonzero(dataset.image_rows == image)
        boxes = dataset.boxes[rows]
        is_box = np.isfinite(boxes).all(axis=1)
        told = {
            "image": image,
            "rows": rows[is_box].tolist(),
            "labels": dataset.labels[rows[is_box]].tolist(),
            "boxes": np.round(boxes[is_box], 2).tolist(),
        }
        found.append(told | place)
    return _json(found)


def least_size(boxes: Floats, size: tuple[int, int]) -> tuple[int, int]:
    """A size of an image that is not recorded: one that holds these boxes."""
    if min(size) > 0:
        return size
    ends = boxes[np.isfinite(boxes).all(axis=1)][:, 2:].reshape(-1, 2)
    width, height = np.ceil(ends.max(axis=0, initial=NARROWEST)).tolist()
    return int(width), int(height)


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def _id(dataset: Dataset, row: int) -> str:
    return "" if row == UNKNOWN else display_text(str(dataset.annotation_ids[row]))


def _boxes(boxes: Floats) -> list[list[float] | None]:
    return [None if np.isnan(one).any() else one for one in np.round(boxes, 2).tolist()]


def _rounded(values: Floats) -> list[float]:
    rounded: list[float] = np.round(np.nan_to_num(values), 4).tolist()
    return rounded
