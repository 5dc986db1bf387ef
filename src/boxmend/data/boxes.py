"""Box geometry: boxes in NumPy arrays, as x1, y1, x2, y2 in pixels."""

from collections.abc import Iterator

import numpy as np

from boxmend.data.types import Floats, Mask, Rows

PAIRS_AT_ONCE = 2**20  # about 200 MB while the boxes of so many pairs are compared


def is_close(a: Floats, b: Floats, tolerance: float) -> Mask:
    """Mark boxes no side of which differs by more than the tolerance; two NaN do not differ."""
    with np.errstate(invalid="ignore", over="ignore"):  # infinite sides; a == b knows them
        close = (np.abs(a - b) <= tolerance) | (a == b) | (np.isnan(a) & np.isnan(b))
    marks: Mask = np.logical_and.reduce(close, axis=-1)
    return marks


def overlaps(a: Floats, b: Floats, *, equal_without_area: float = 1.0) -> Floats:
    """Compute the intersection over union of boxes that broadcast.

    Equal boxes overlap by 1. Those without an area, or with one beyond measure, overlap by
    `equal_without_area` if they are equal, and else by 0.
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        width = np.minimum(a[..., 2], b[..., 2]) - np.maximum(a[..., 0], b[..., 0])
        height = np.minimum(a[..., 3], b[..., 3]) - np.maximum(a[..., 1], b[..., 1])
        shared = np.maximum(width, 0) * np.maximum(height, 0)
        union = areas(a) + areas(b) - shared
        iou: Floats = shared / union
    is_odd = ~(np.isfinite(union) & (union > 0))  # without area, beyond measure, or no box at all
    if is_odd.any():
        is_equal = np.logical_and.reduce(a == b, axis=-1)
        iou = np.where(is_odd, np.where(is_equal, equal_without_area, 0.0), iou)
    return iou


def areas(boxes: Floats) -> Floats:
    """Compute the areas of boxes [..., 4]; 0 for those turned inside out."""
    with np.errstate(invalid="ignore", over="ignore"):
        widths = np.maximum(boxes[..., 2] - boxes[..., 0], 0)
        found: Floats = widths * np.maximum(boxes[..., 3] - boxes[..., 1], 0)
    return found


def shares_inside(boxes: Floats, others: Floats) -> Floats:
    """[n] Compute the share of the area of each box that lies within the other one of its row."""
    low, high = np.maximum(boxes[:, :2], others[:, :2]), np.minimum(boxes[:, 2:], others[:, 2:])
    shared, own = areas(np.concatenate([low, high], axis=1)), areas(boxes)
    shares: Floats = np.divide(shared, own, out=np.zeros(len(boxes)), where=own > 0)
    return shares


def clip_boxes(boxes: Floats, sizes: Floats) -> Floats:
    """Clip boxes [..., 4] to images of these widths and heights [..., 2].

    Where a width or height is 0, it is unknown, and boxes are clipped at 0 alone.
    """
    limits = np.where(sizes > 0, sizes, np.inf)
    clipped: Floats = np.clip(boxes, 0, np.concatenate([limits, limits], axis=-1))
    return clipped


def pairs_of_images(image_rows: Rows, other_rows: Rows) -> Iterator[tuple[Rows, Rows]]:
    """Yield all pairs of places in two columns that hold the same image.

    The pairs are in the order of the first column, then of the second, about PAIRS_AT_ONCE at a
    time.
    """
    order = np.argsort(other_rows, kind="stable")
    starts = np.searchsorted(other_rows[order], image_rows, side="left")
    counts = np.searchsorted(other_rows[order], image_rows, side="right") - starts
    chunks = np.cumsum(counts) // PAIRS_AT_ONCE
    for chunk in np.unique(chunks):
        members = np.flatnonzero(chunks == chunk)
        first = np.repeat(members, counts[members])  # of each pair
        begin = np.repeat(np.cumsum(counts[members]) - counts[members], counts[members])
        yield first, order[starts[first] + np.arange(len(first)) - begin]


def best_overlaps(image_rows: Rows, boxes: Floats, other_rows: Rows, other_boxes: Floats) -> Floats:
    """[n] Find the highest IoU of each box with another of its image; 0 where there is none."""
    best = np.zeros(len(boxes))
    for first, second in pairs_of_images(image_rows, other_rows):
        np.maximum.at(best, first, overlaps(boxes[first], other_boxes[second]))
    return best
