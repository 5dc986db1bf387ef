"""Whether probabilities are kept: of what is given 0.8, eight in ten should be so."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from boxmend.data.types import Floats, Mask
from boxmend.scoring.ranking import share

NUM_BINS = 15  # of equal width from 0 to 1; a probability on an edge belongs to the bin above it


@dataclass(frozen=True)
class Bin:
    """The probabilities between two edges: how many, their mean, and how often it was so."""

    low: float
    high: float
    number: int
    mean: float | None
    """None where there are none, as is `happened`."""
    happened: float | None


@dataclass(frozen=True)
class Calibration:
    """Probabilities held against what was so."""

    number: int
    expected: float | None
    """The mean probability; None where there are none, as are those below."""
    happened: float | None
    error: float | None
    """Expected calibration error: the mean over all of |mean - happened| of their bins."""
    bins: tuple[Bin, ...]
    """The reliability table."""

    def to_json(self) -> dict[str, Any]:
        """Give plain data: numbers, None, lists and dictionaries."""
        return {**asdict(self), "bins": [asdict(one) for one in self.bins]}


def calibration(probabilities: Floats, is_so: Mask, num_bins: int = NUM_BINS) -> Calibration:
    """Hold probabilities from 0 to 1 against what was so; NaN are left out."""
    is_told = ~np.isnan(probabilities)
    told, was_so = probabilities[is_told], is_so[is_told]
    place = np.minimum((told * num_bins).astype(np.int64), num_bins - 1)
    counts = np.bincount(place, minlength=num_bins)
    sums = np.bincount(place, weights=told, minlength=num_bins)
    hits = np.bincount(place, weights=was_so, minlength=num_bins)
    return Calibration(
        number=len(told),
        expected=share(told.sum(), len(told)),
        happened=share(was_so.sum(), len(told)),
        error=share(np.abs(sums - hits).sum(), len(told)),
        bins=tuple(
            Bin(
                low=k / num_bins,
                high=(k + 1) / num_bins,
                number=int(counts[k]),
                mean=share(sums[k], counts[k]),
                happened=share(hits[k], counts[k]),
            )
            for k in range(num_bins)
        ),
    )
