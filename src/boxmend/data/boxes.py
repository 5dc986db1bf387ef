"""Geometry of boxes in NumPy arrays, as x1, y1, x2, y2 in pixels."""

from collections.abc import Iterator

import numpy as np

from boxmend.data.types import Floats, Mask, Rows

PAIRS_PER_CHUNK = 2**20  # comparing this many pairs of boxes takes about 200 MB


def is_close(a: Floats, b: Floats, tolerance: float) -> Mask:
    """Mark boxes whose sides all differ by at most the tolerance; NaN equals NaN here."""
    with np.errstate(invalid="ignore", over="ignore"):  # a == b covers infinite sides
        close = (np.abs(a - b) <= tolerance) | (a == b) | (np.isnan(a) & np.isnan(b))
    marks: Mask = np.logical_and.reduce(close, axis=-1)
    return marks


def compute_iou(a: Floats, b: Floats, *, equal_without_area: float = 1.0) -> Floats:
    """Compute the intersection over union of boxes; the arrays broadcast.

    Boxes without area, or with an infinite one, have an IoU of `equal_without_area` if they are
    equal, and 0 otherwise.
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        width = np.minimum(a[..., 2], b[..., 2]) - np.maximum(a[..., 0], b[..., 0])
        height = np.minimum(a[..., 3], b[..., 3]) - np.maximum(a[..., 1], b[..., 1])
        shared = np.maximum(width, 0) * np.maximum(height, 0)
        union = compute_areas(a) + compute_areas(b) - shared
        iou: Floats = shared / union
    is_degenerate = ~(np.isfinite(union) & (union > 0))  # no area, or not finite
    if is_degenerate.any():
        is_equal = np.logical_and.reduce(a == b, axis=-1)
        iou = np.where(is_degenerate, np.where(is_equal, equal_without_area, 0.0), iou)
    return iou


def compute_areas(boxes: Floats) -> Floats:
    """Compute the areas of boxes [..., 4]; 0 for boxes with x2 < x1 or y2 < y1."""
    with np.errstate(invalid="ignore", over="ignore"):
        widths = np.maximum(boxes[..., 2] - boxes[..., 0], 0)
        box_areas: Floats = widths * np.maximum(boxes[..., 3] - boxes[..., 1], 0)
    return box_areas


def compute_shares_inside(boxes: Floats, others: Floats) -> Floats:
    """Compute the share [n] of each box's area that lies within the other box of its row."""
    low, high = np.maximum(boxes[:, :2], others[:, :2]), np.minimum(boxes[:, 2:], others[:, 2:])
    shared, full = compute_areas(np.concatenate([low, high], axis=1)), compute_areas(boxes)
    shares: Floats = np.divide(shared, full, out=np.zeros(len(boxes)), where=full > 0)
    return shares


def clip_boxes(boxes: Floats, sizes: Floats) -> Floats:
    """Clip boxes [..., 4] to images of these widths and heights [..., 2].

    A width or height of 0 is unknown: boxes are then clipped only at 0.
    """
    limits = np.where(sizes > 0, sizes, np.inf)
    clipped: Floats = np.clip(boxes, 0, np.concatenate([limits, limits], axis=-1))
    return clipped


def are_at_border(boxes: Floats, sizes: Floats, margin_px: float) -> Mask:
    """Mark boxes [n, 4] with an edge within a margin of the border of their image, of sizes [n, 2].

    A width or height of 0 is unknown: boxes are then compared only with the edges at 0.
    """
    is_low: Mask = boxes[:, :2] <= margin_px
    is_high: Mask = (sizes > 0) & (boxes[:, 2:] >= sizes - margin_px)
    at_border: Mask = np.logical_or.reduce(np.concatenate([is_low, is_high], axis=1), axis=1)
    return at_border


def iterate_image_pairs(image_rows: Rows, other_rows: Rows) -> Iterator[tuple[Rows, Rows]]:
    """Yield all pairs of positions in two columns that hold the same image.

    The pairs are in the order of the first column, then of the second, about PAIRS_PER_CHUNK at
    a time.
    """
    order = np.argsort(other_rows, kind="stable")
    starts = np.searchsorted(other_rows[order], image_rows, side="left")
    counts = np.searchsorted(other_rows[order], image_rows, side="right") - starts
    chunks = np.cumsum(counts) // PAIRS_PER_CHUNK
    for chunk in np.unique(chunks):
        members = np.flatnonzero(chunks == chunk)
        first = np.repeat(members, counts[members])  # of each pair
        begins = np.repeat(np.cumsum(counts[members]) - counts[members], counts[members])
        yield first, order[starts[first] + np.arange(len(first)) - begins]


def find_best_iou(image_rows: Rows, boxes: Floats, other_rows: Rows, other_boxes: Floats) -> Floats:
    """Compute the highest IoU [n] of each box with another box of its image; 0 without one."""
    best = np.zeros(len(boxes))
    for first, second in iterate_image_pairs(image_rows, other_rows):
        np.maximum.at(best, first, compute_iou(boxes[first], other_boxes[second]))
    return best
