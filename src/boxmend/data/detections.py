"""Detections in columns: the predictions of a detector for the images of a dataset."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boxmend.data.types import AnyFloats, Floats, Rows


@dataclass(frozen=True, eq=False)
class Detections:
    """The detections of a detector, one row each, in any order."""

    image_rows: Rows  # [n] any numbers >= 0 with the same meaning as in TrueBoxes
    labels: Rows  # [n] 0..C-1
    scores: NDArray[np.float64] | NDArray[np.float32]  # [n] finite or infinite, never NaN
    boxes: AnyFloats  # [n, 4] xyxy; one without area, or with NaN, overlaps nothing


@dataclass(frozen=True, eq=False)
class SizedDetections(Detections):
    """Detections that keep the width and height of their document.

    If a document has x and width, x2 = x + width is rounded, so x2 - x may differ from the width by
    a last bit. That is enough to miss an IoU of exactly 0.5.
    """

    sizes: Floats  # [n, 2] width, height
