"""One number for the threshold of the verdicts, even if each annotation has its own."""

import numpy as np
from numpy.typing import NDArray

from boxmend.data.types import Floats, Singles

CLOSEST_SHARE = 0.1  # of the visits, by distance from loss to threshold


def contested_thresholds(losses: Singles, thresholds: Singles) -> Floats:
    """Return the thresholds of the tenth of visits whose losses are closest to them, unordered.

    If all annotations share one threshold, this is that threshold. If each has its own, only the
    close ones show where verdicts change. Empty if none is finite.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # infinities
        distances: NDArray[np.float32] = np.abs(losses - thresholds)
    usable = np.flatnonzero(np.isfinite(distances))
    count = int(np.ceil(CLOSEST_SHARE * len(usable)))
    if count == 0:
        return np.empty(0)
    nearest = np.argpartition(distances[usable], count - 1)[:count]
    return thresholds[usable[nearest]].astype(np.float64)
