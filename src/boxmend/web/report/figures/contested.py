"""The threshold that verdicts went by, as one number where every annotation has its own."""

import numpy as np
from numpy.typing import NDArray

from boxmend.data.types import Floats, Singles

SHARE = 0.1  # of the visits, those that came closest to their threshold


def contested_thresholds(losses: Singles, thresholds: Singles) -> Floats:
    """The thresholds of the tenth of visits whose losses came closest to them, in no order.

    With one threshold for all this is just that one. Where each annotation has its own, those far
    from being doubted say little about where verdicts divide. Empty where none is finite.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # between infinities
        distances: NDArray[np.float32] = np.abs(losses - thresholds)
    usable = np.flatnonzero(np.isfinite(distances))
    count = int(np.ceil(SHARE * len(usable)))
    if count == 0:
        return np.empty(0)
    nearest = np.argpartition(distances[usable], count - 1)[:count]
    return thresholds[usable[nearest]].astype(np.float64)
