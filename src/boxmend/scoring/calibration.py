"""Measure calibration: eight in ten events with a probability of 0.8 should happen."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from boxmend.data.types import Floats, Mask
from boxmend.scoring.ranking import share

NUM_BINS = 15  # of equal width from 0 to 1; a bin contains its lower edge


@dataclass(frozen=True)
class Bin:
    """The probabilities between two edges: their number, mean, and observed frequency."""

    low: float
    high: float
    number: int
    mean: float | None
    """The mean probability; None in an empty bin, like `happened`."""
    happened: float | None


@dataclass(frozen=True)
class Calibration:
    """Probabilities compared with the observed frequency of events."""

    number: int
    expected: float | None
    """The mean probability; None without probabilities, like `happened` and `error`."""
    happened: float | None
    error: float | None
    """Expected calibration error: the mean |mean - happened| of the bins, weighted by number."""
    bins: tuple[Bin, ...]
    """The reliability table."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data: numbers, None, lists and dictionaries."""
        return {**asdict(self), "bins": [asdict(bin_) for bin_ in self.bins]}


def measure_calibration(
    probabilities: Floats, happened: Mask, num_bins: int = NUM_BINS
) -> Calibration:
    """Compare probabilities from 0 to 1 with events; NaN probabilities are left out."""
    is_known = ~np.isnan(probabilities)
    values, events = probabilities[is_known], happened[is_known]
    place = np.minimum((values * num_bins).astype(np.int64), num_bins - 1)
    counts = np.bincount(place, minlength=num_bins)
    sums = np.bincount(place, weights=values, minlength=num_bins)
    hits = np.bincount(place, weights=events, minlength=num_bins)
    return Calibration(
        number=len(values),
        expected=share(values.sum(), len(values)),
        happened=share(events.sum(), len(values)),
        error=share(np.abs(sums - hits).sum(), len(values)),
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
