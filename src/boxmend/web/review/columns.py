"""The fixes as the page reads them: columns of numbers, and texts that are safe to show."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from boxmend.auditing.fixes.sampling import CHECK_EVERY, check_order, sample_order
from boxmend.auditing.fixes.table import Fixes
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats
from boxmend.web.text import display_text

MAX_REASON_CHARACTERS = 500
MIN_IMAGE_PIXELS = 16  # width and height of an image whose size is unknown


def columns_json(name: str, dataset: Dataset, fixes: Fixes) -> bytes:
    """Return all fixes as JSON, with the random orders in which the page shows some of them."""
    used, file = np.unique(fixes.image_rows, return_inverse=True)
    reasons = sorted(set(fixes.reasons))
    reason_of = {text: number for number, text in enumerate(reasons)}
    columns = {
        "name": display_text(name),
        "labels": [display_text(label_name) for label_name in dataset.label_names],
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
        "p_wrong": _round(fixes.p_wrong),
        "p_fix": _round(fixes.p_fix),
        "gain": _round(fixes.iou_gain),
        "reasons": [display_text(reason, MAX_REASON_CHARACTERS) for reason in reasons],
        "reason": [reason_of[reason] for reason in fixes.reasons],
        "sample": sample_order(fixes).tolist(),
        "checks": check_order(fixes).tolist(),
        "check_every": CHECK_EVERY,
    }
    return _json(columns)


def places_json(
    dataset: Dataset, image_rows: Sequence[int], places: Sequence[dict[str, Any]]
) -> bytes:
    """Return images with their sizes or problems, and their annotations, as JSON."""
    images = []
    for image, place in zip(image_rows, places, strict=True):
        rows = np.flatnonzero(dataset.image_rows == image)
        boxes = dataset.boxes[rows]
        is_box = np.isfinite(boxes).all(axis=1)
        annotations = {
            "image": image,
            "rows": rows[is_box].tolist(),
            "labels": dataset.labels[rows[is_box]].tolist(),
            "boxes": np.round(boxes[is_box], 2).tolist(),
        }
        images.append(annotations | place)
    return _json(images)


def least_size(boxes: Floats, size: tuple[int, int]) -> tuple[int, int]:
    """Return the size of an image or, if it is unknown, one that contains these boxes."""
    if min(size) > 0:
        return size
    ends = boxes[np.isfinite(boxes).all(axis=1)][:, 2:].reshape(-1, 2)
    width, height = np.ceil(ends.max(axis=0, initial=MIN_IMAGE_PIXELS)).tolist()
    return int(width), int(height)


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def _id(dataset: Dataset, row: int) -> str:
    return "" if row == UNKNOWN else display_text(str(dataset.annotation_ids[row]))


def _boxes(boxes: Floats) -> list[list[float] | None]:
    return [None if np.isnan(sides).any() else sides for sides in np.round(boxes, 2).tolist()]


def _round(values: Floats) -> list[float]:
    rounded: list[float] = np.round(np.nan_to_num(values), 4).tolist()
    return rounded
