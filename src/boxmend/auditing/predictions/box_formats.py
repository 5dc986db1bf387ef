"""Find the box format of a prediction file: the documented one, or one that fits clearly better.

Boxes that are read in a wrong format overlap the annotations less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.predictions.overlap import KnownAnnotations, find_best_annotations
from boxmend.auditing.predictions.raw import BoxFormat, RawDetections
from boxmend.data.types import Floats, Rows
from boxmend.errors import DataError

LAYOUTS = {
    "xywh": "x, y, width and height",
    "xyxy": "two corners x1, y1, x2, y2",
    "cxcywh": "centre x, centre y, width and height",
    "yxyx": "two corners y1, x1, y2, x2",
}


@dataclass(frozen=True)
class FormatConstants:
    """Thresholds for reading boxes in another format than the documented one, or refusing them."""

    max_share: float = 2.0  # of the image; boxes may extend a little beyond it
    min_detections: int = 10  # fewer are too few to choose another format
    min_detections_to_refuse: int = 50  # fewer are too few to refuse a file
    good_mean_iou: float = 0.3  # with the annotations, for boxes in the right format
    bad_mean_iou: float = 0.1  # below it, boxes and annotations are unrelated
    min_iou_lead: float = 0.1  # of another format over the documented one
    min_iou_ratio: float = 1.3  # of the IoU in another format to the IoU in the documented one
    min_beyond_chance: float = 0.1  # of the IoU above the chance IoU, as a share of the way to 1


FORMATS = FormatConstants()


def describe_format(format: BoxFormat) -> str:
    """Return the description of a format for a message."""
    return LAYOUTS[format.layout] + (" in shares of the image" if format.is_share else " in pixels")


def to_corners(numbers: Floats, format: BoxFormat, sizes: Floats | None = None) -> Floats:
    """Return the boxes [m, 4] as xyxy pixels; shares need the `sizes` [m, 2] of their images."""
    first_two, last_two = numbers[:, :2], numbers[:, 2:]
    with np.errstate(over="ignore", invalid="ignore"):
        if format.layout == "xywh":
            low, high = first_two, first_two + last_two
        elif format.layout == "cxcywh":
            low, high = first_two - last_two / 2, first_two + last_two / 2
        else:
            low, high = (
                (first_two, last_two)
                if format.layout == "xyxy"
                else (first_two[:, ::-1], last_two[:, ::-1])
            )
        boxes: Floats = np.concatenate([low, high], axis=1)
        if not format.is_share:
            return boxes
        assert sizes is not None
        scaled: Floats = boxes * np.concatenate([sizes, sizes], axis=1)
        return scaled


def fit_by_format(
    raw: RawDetections, rows: Rows, image_rows: Rows, sizes: Floats, known: KnownAnnotations
) -> dict[BoxFormat, float]:
    """Return, for each format, the mean best IoU of the boxes at `rows` with the annotations.

    `image_rows` and `sizes` are those of the images at `rows`.
    """
    numbers = raw.boxes[rows]
    formats = [BoxFormat(layout) for layout in LAYOUTS]
    if np.abs(numbers).max(initial=0) <= FORMATS.max_share:
        formats += [BoxFormat(layout, is_share=True) for layout in LAYOUTS]
    if raw.format not in formats:
        formats.append(raw.format)
    return {
        format: _mean(
            find_best_annotations(image_rows, to_corners(numbers, format, sizes), known)[1]
        )
        for format in formats
    }


def choose_format(
    raw: RawDetections, ious: dict[BoxFormat, float], num_checked: int
) -> tuple[BoxFormat, list[str]]:
    """Return the format to use, and notes about it; `num_checked` detections were compared."""
    expected, best = raw.format, max(ious, key=lambda format: ious[format])
    if num_checked >= FORMATS.min_detections_to_refuse and ious[best] < FORMATS.bad_mean_iou:
        raise DataError(
            f"{raw.files_text}: the boxes hardly overlap the annotations in any known format "
            f"(mean best IoU {ious[best]:.2f} of {num_checked:,} boxes); check that they belong to "
            "these images, in pixels of the image as stored. Expected "
            f"{describe_format(expected)}"
        )
    is_clear = ious[best] >= max(
        FORMATS.good_mean_iou,
        ious[expected] + FORMATS.min_iou_lead,
        FORMATS.min_iou_ratio * ious[expected],
    )
    if best == expected or num_checked < FORMATS.min_detections or not is_clear:
        return expected, []
    return best, [
        f"the boxes in {raw.files_text} are read as {describe_format(best)}, not "
        f"{describe_format(expected)} as expected of {raw.kind}, since their mean IoU with the "
        f"annotations is then {ious[best]:.2f} instead of {ious[expected]:.2f}"
    ]


def chance_iou(image_rows: Rows, boxes: Floats, known: KnownAnnotations) -> float:
    """Return the mean best IoU of boxes with the annotations of other images."""
    images = np.unique(image_rows)
    if len(images) < 2:
        return 0.0
    # Neighbours may be frames of one video, so boxes are compared with images far away.
    others = np.roll(images, len(images) // 2)
    return _mean(
        find_best_annotations(others[np.searchsorted(images, image_rows)], boxes, known)[1]
    )


def ensure_own_images(raw: RawDetections, iou: float, chance: float, num_checked: int) -> list[str]:
    """Raise a DataError for boxes that fit other images as well as their own.

    If they fit both well, return a note, since all images may be alike. `num_checked` detections
    were compared.
    """
    needed = chance + FORMATS.min_beyond_chance * (1 - chance)
    if num_checked < FORMATS.min_detections_to_refuse or iou >= needed:
        return []
    agreement_text = (
        "overlap the annotations of other images as well as those of their own (mean best IoU "
        f"{chance:.2f} and {iou:.2f})"
    )
    if iou < FORMATS.good_mean_iou:
        raise DataError(
            f"{raw.files_text}: the boxes {agreement_text}; check that they belong to "
            "these images, and that the image names are right"
        )
    return [
        f"the boxes in {raw.files_text} {agreement_text}; check that they belong to these images"
    ]


def ensure_valid_boxes(raw: RawDetections, boxes: Floats, format: BoxFormat) -> None:
    """Raise a DataError for boxes with negative or infinite sides."""
    with np.errstate(over="ignore", invalid="ignore"):
        sides = boxes[:, 2:] - boxes[:, :2]
    if bad_box := find_bad_box(boxes, sides, f"expected {describe_format(format)}"):
        row, why = bad_box
        raise raw.error_at(row, f"the box {raw.boxes[row].tolist()} {why}")


def find_bad_box(boxes: Floats, sides: Floats, expected: str) -> tuple[int, str] | None:
    """Return the row of the first invalid box, and why; `sides` [m, 2] are widths and heights."""
    with np.errstate(over="ignore", invalid="ignore"):
        is_large = ~np.isfinite(boxes).all(axis=1) | ~np.isfinite(sides[:, 0] * sides[:, 1])
    for is_wrong, why in (
        (is_large, "is too large"),
        ((sides < 0).any(axis=1), f"has a negative width or height; {expected}"),
    ):
        if is_wrong.any():
            return int(np.argmax(is_wrong)), why
    return None


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0
