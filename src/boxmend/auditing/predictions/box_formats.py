"""What the four numbers of a box are: as the file should have them, or as they fit better.

Boxes in a wrong format overlap the annotations less. Where another format fits clearly better, it
is the one that is meant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.predictions.overlap import Annotated, best_annotations
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
    """When boxes are read in another format than the expected one, or refused."""

    max_share: float = 2.0  # boxes may reach beyond their image, but not far
    min_detections: int = 10  # of fewer nothing is concluded
    min_detections_to_refuse: int = 50
    good_mean_iou: float = 0.3  # of boxes that are read as they are meant, with the annotations
    bad_mean_iou: float = 0.1  # of boxes that have nothing to do with the annotations
    min_iou_lead: float = 0.1  # of another format over the expected one
    min_iou_ratio: float = 1.3  # likewise
    min_beyond_chance: float = 0.1  # of the way from chance to a perfect fit


FORMATS = FormatConstants()


def words(format: BoxFormat) -> str:
    """A format as people read it."""
    return LAYOUTS[format.layout] + (" in shares of the image" if format.is_share else " in pixels")


def corners(numbers: Floats, format: BoxFormat, sizes: Floats | None = None) -> Floats:
    """Return the boxes [m, 4] as xyxy pixels; shares need the `sizes` [m, 2] of their images."""
    a, b = numbers[:, :2], numbers[:, 2:]
    with np.errstate(over="ignore", invalid="ignore"):
        if format.layout == "xywh":
            low, high = a, a + b
        elif format.layout == "cxcywh":
            low, high = a - b / 2, a + b / 2
        else:
            low, high = (a, b) if format.layout == "xyxy" else (a[:, ::-1], b[:, ::-1])
        boxes: Floats = np.concatenate([low, high], axis=1)
        if not format.is_share:
            return boxes
        assert sizes is not None
        scaled: Floats = boxes * np.concatenate([sizes, sizes], axis=1)
        return scaled


def fits(
    found: RawDetections, rows: Rows, image_rows: Rows, sizes: Floats, known: Annotated
) -> dict[BoxFormat, float]:
    """How well the boxes at `rows` overlap the annotations in each format: the mean best IoU.

    `image_rows` and `sizes` are those of the images at `rows`.
    """
    numbers = found.boxes[rows]
    formats = [BoxFormat(layout) for layout in LAYOUTS]
    if np.abs(numbers).max(initial=0) <= FORMATS.max_share:
        formats += [BoxFormat(layout, is_share=True) for layout in LAYOUTS]
    if found.format not in formats:
        formats.append(found.format)
    return {
        one: _mean(best_annotations(image_rows, corners(numbers, one, sizes), known)[1])
        for one in formats
    }


def chosen(
    found: RawDetections, fit: dict[BoxFormat, float], num: int
) -> tuple[BoxFormat, list[str]]:
    """The format to read by, and what is to be said about it; `num` detections were asked."""
    expected, best = found.format, max(fit, key=lambda one: fit[one])
    if num >= FORMATS.min_detections_to_refuse and fit[best] < FORMATS.bad_mean_iou:
        raise DataError(
            f"{found.told_files}: the boxes hardly overlap the annotations, in whatever format "
            f"they are read (mean best IoU {fit[best]:.2f} of {num:,}); are they of these images, "
            f"in pixels of the image as stored? Expected {words(expected)}"
        )
    is_clear = fit[best] >= max(
        FORMATS.good_mean_iou,
        fit[expected] + FORMATS.min_iou_lead,
        FORMATS.min_iou_ratio * fit[expected],
    )
    if best == expected or num < FORMATS.min_detections or not is_clear:
        return expected, []
    return best, [
        f"the boxes in {found.told_files} are {words(best)}, not {words(expected)} as expected of "
        f"{found.kind}: so they overlap the annotations by {fit[best]:.2f} instead of "
        f"{fit[expected]:.2f} in the mean. They were read as {words(best)}"
    ]


def by_chance(image_rows: Rows, boxes: Floats, known: Annotated) -> float:
    """How well boxes overlap the annotations of other images than theirs: the mean best IoU."""
    images = np.unique(image_rows)
    if len(images) < 2:
        return 0.0
    others = np.roll(images, len(images) // 2)  # far away, since neighbours may be one video
    return _mean(best_annotations(others[np.searchsorted(images, image_rows)], boxes, known)[1])


def ensure_images(found: RawDetections, fit: float, chance: float, num: int) -> list[str]:
    """Refuse boxes that fit other images as well; say so where all images are alike.

    `num` detections were asked.
    """
    needed = chance + FORMATS.min_beyond_chance * (1 - chance)
    if num < FORMATS.min_detections_to_refuse or fit >= needed:
        return []
    told = (
        "overlap the annotations of other images as well as those of their own (mean best IoU "
        f"{chance:.2f} and {fit:.2f})"
    )
    if fit < FORMATS.good_mean_iou:
        raise DataError(
            f"{found.told_files}: the boxes {told}; are they of these images, under their right "
            "names?"
        )
    return [f"the boxes in {found.told_files} {told}: nothing tells whether the images are right"]


def ensure_boxes(found: RawDetections, boxes: Floats, format: BoxFormat) -> None:
    """Refuse boxes with negative sides, or beyond all measure."""
    with np.errstate(over="ignore", invalid="ignore"):
        sides = boxes[:, 2:] - boxes[:, :2]
    if fault := first_fault(boxes, sides, f"expected {words(format)}"):
        row, why = fault
        raise found.refused(row, f"the box {found.boxes[row].tolist()} {why}")


def first_fault(boxes: Floats, sides: Floats, expected: str) -> tuple[int, str] | None:
    """Return the row of a box that is none, and why; `sides` [m, 2] are widths and heights."""
    with np.errstate(over="ignore", invalid="ignore"):
        is_large = ~np.isfinite(boxes).all(axis=1) | ~np.isfinite(sides[:, 0] * sides[:, 1])
    for is_wrong, why in (
        (is_large, "is too large to measure"),
        ((sides < 0).any(axis=1), f"has a negative width or height; {expected}"),
    ):
        if is_wrong.any():
            return int(np.argmax(is_wrong)), why
    return None


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0
