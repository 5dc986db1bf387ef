"""Detections in columns: what a detector predicts for the images of a dataset."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boxmend.data.types import AnyFloats, Floats, Rows


@dataclass(frozen=True, eq=False)
class Detections:
    """What a detector found, one row each, in any order."""

    image_rows: Rows  # [n] any numbers >= 0 that mean the same as in TrueBoxes
    labels: Rows  # [n] 0..C-1
    scores: NDArray[np.float64] | NDArray[np.float32]  # [n] finite or infinite, never NaN
    boxes: AnyFloats  # [n, 4] xyxy; one without area, or with NaN, overlaps nothing


@dataclass(frozen=True, eq=False)
class SizedDetections(Detections):
    """Detections that keep the width and height they were read with.

    Where a document says x and width, x2 = x + width is rounded, and x2 - x differs from the
    width by a last bit: enough to miss an IoU of exactly 0.5.
    """

    sizes: Floats  # [n, 2] width, height
