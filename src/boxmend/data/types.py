"""Type aliases for columns and boxes, shared by all packages."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
"""Row numbers, labels and counts."""
Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Mask = NDArray[np.bool_]
Ids = NDArray[Any]
"""Ids of images or annotations: int64, or objects (integers and texts)."""
AnyFloats = NDArray[np.float64] | NDArray[np.float32]
Box = tuple[float, float, float, float]
"""One box: x1, y1, x2, y2 in pixels."""
