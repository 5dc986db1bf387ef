"""Box geometry: areas and overlaps of boxes in NumPy arrays, as x1, y1, x2, y2 in pixels."""

import numpy as np
from numpy.typing import NDArray

from boxmend.data.types import Floats


def is_close(a: Floats, b: Floats, tolerance: float) -> NDArray[np.bool_]:
    """Mark boxes no side of which differs by more than the tolerance; two NaN do not differ."""
    with np.errstate(invalid="ignore", over="ignore"):  # infinite sides; a == b knows them
        close = (np.abs(a - b) <= tolerance) | (a == b) | (np.isnan(a) & np.isnan(b))
    marks: NDArray[np.bool_] = np.logical_and.reduce(close, axis=-1)
    return marks


def overlaps(a: Floats, b: Floats) -> NDArray[np.float64]:
    """Intersection over union of boxes that broadcast; 1 for equal ones, even without area."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        width = np.minimum(a[..., 2], b[..., 2]) - np.maximum(a[..., 0], b[..., 0])
        height = np.minimum(a[..., 3], b[..., 3]) - np.maximum(a[..., 1], b[..., 1])
        shared = np.maximum(width, 0) * np.maximum(height, 0)
        union = areas(a) + areas(b) - shared
        iou: NDArray[np.float64] = shared / union
    is_odd = ~(np.isfinite(union) & (union > 0))  # without area, beyond measure, or no box at all
    if is_odd.any():
        is_equal = np.logical_and.reduce(a == b, axis=-1)
        iou = np.where(is_odd, np.where(is_equal, 1.0, 0.0), iou)
    return iou


def areas(boxes: Floats) -> NDArray[np.float64]:
    """Areas of boxes [..., 4]; 0 for those turned inside out."""
    with np.errstate(invalid="ignore", over="ignore"):
        widths = np.maximum(boxes[..., 2] - boxes[..., 0], 0)
        found: NDArray[np.float64] = widths * np.maximum(boxes[..., 3] - boxes[..., 1], 0)
    return found
