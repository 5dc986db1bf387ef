"""Probabilities from planted errors: how much the observed looks like what is known to be wrong.

Some number tells how suspicious a thing is. Of errors that were planted its distribution is known;
what is observed is a mixture of errors, in an unknown share, and of what is fine. The share cannot
be larger than what is observed beyond any limit, over what is planted beyond it; where the fine
ones have died out, it is that. The probability of being wrong at a value is the share times the
density of the planted, over the density of the observed, and it never falls with the suspicion.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from boxmend.data.types import Floats


@dataclass(frozen=True)
class CalibrationConstants:
    """How shares and curves are measured."""

    num_limits: int = 200  # places at which the share is measured
    min_tail_share: float = 0.1  # of the planted that must lie beyond a limit to measure by it
    num_cells: int = 1000  # of equally many values, into which they are sorted before a fit
    caution_deviations: float = 3.0  # standard deviations added before the lowest share is chosen
    max_probability: float = 0.99  # something fine may always look as wrong as can be
    max_raise_factor: float = 1.3  # what is cut off at certainty is made up for, within limits
    interval_deviations: float = 1.96  # standard deviations on either side of a 95 % interval


CALIBRATION = CalibrationConstants()


@dataclass(frozen=True)
class Share:
    """A share with its bounds, at least at 95 %."""

    value: float
    low: float
    high: float

    @property
    def cautious(self) -> float:
        """A quarter of the way to the lower bound: what is fine never dies out entirely."""
        return self.value - (self.value - self.low) / 4

    @property
    def halved(self) -> "Share":
        """The share halfway to the lower bound, which becomes both value and bounds."""
        middle = (self.value + self.low) / 2
        return Share(middle, middle, middle)

    def less_certain(self, margin: float) -> "Share":
        """Return the share with wider bounds: a share up to `margin` looks like none."""
        return Share(self.value, max(self.low - margin, 0.0), min(self.high + margin / 2, 1.0))

    def times(self, factor: float) -> "Share":
        """The same of a part, or a multiple."""
        return Share(self.value * factor, self.low * factor, self.high * factor)


NOT_MEASURED = Share(0.0, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Curve:
    """A rising curve: what is probable at which suspicion."""

    places: Floats  # [k] ascending
    values: Floats  # [k]

    def at(self, suspicions: Floats) -> Floats:
        """Look values up, in between by straight lines."""
        if not len(self.places):
            return np.zeros(len(suspicions))
        found: Floats = np.interp(suspicions, self.places, self.values)
        return found


@dataclass(frozen=True, eq=False)
class WeightedSample:
    """Suspicions, each with a weight."""

    suspicions: Floats  # [n]
    weights: Floats  # [n]

    def __len__(self) -> int:
        return len(self.suspicions)

    @property
    def total(self) -> float:
        """The sum of the weights."""
        return float(self.weights.sum())

    def beyond(self, limits: Floats) -> Floats:
        """The weight of what is at least as suspicious as each limit."""
        order = np.argsort(self.suspicions)
        below = np.concatenate([[0.0], np.cumsum(self.weights[order])])
        found: Floats = below[-1] - below[np.searchsorted(self.suspicions[order], limits)]
        return found


def sample(suspicions: Floats, weights: Floats | None = None) -> WeightedSample:
    """Return a sample; all weights are 1 by default."""
    return WeightedSample(suspicions, np.ones(len(suspicions)) if weights is None else weights)


def share_of_errors(
    observed: WeightedSample,
    planted: WeightedSample,
    caution: float = CALIBRATION.caution_deviations,
    min_tail: float = CALIBRATION.min_tail_share,
) -> Share:
    """Measure which share of the observed is like the planted.

    Of all limits that one counts which gives the lowest upper bound: further out there are few to
    count, further in there are more that are fine. The bound is as many standard deviations up as
    `caution` says, so that chance does not choose, and it is the upper bound of the share. At least
    `min_tail` of the planted lie beyond a limit: real errors are not quite like them.
    """
    return lowest_share([(observed, planted, caution)], min_tail)


def lowest_share(
    samples: Sequence[tuple[WeightedSample, WeightedSample, float]],
    min_tail: float = CALIBRATION.min_tail_share,
) -> Share:
    """The same over several pairs of samples, each with its caution, that have the same share."""
    best, found = math.inf, NOT_MEASURED
    for observed, planted, caution in samples:
        if observed.total <= 0 or planted.total <= 0:
            continue
        tails, counts = _tails(observed, planted, min_tail)
        bounds = (counts + caution * np.sqrt(counts) + caution) / tails / observed.total
        k = int(bounds.argmin())
        if bounds[k] < best:
            best, factor = float(bounds[k]), 1 / (float(tails[k]) * observed.total)
            number = float(counts[k])
            low = _least(number)
            found = Share(min(number * factor, 1.0), min(low * factor, 1.0), min(best, 1.0))
    return found


def _tails(
    observed: WeightedSample, planted: WeightedSample, min_tail: float
) -> tuple[Floats, Floats]:
    """Shares of the planted beyond limits, none too small, and the weight of the observed there."""
    places = np.quantile(
        planted.suspicions, np.linspace(0, 1, CALIBRATION.num_limits, endpoint=False)
    )
    tails = planted.beyond(places) / planted.total
    is_enough = tails >= min_tail  # the first one is 1
    return tails[is_enough], observed.beyond(places[is_enough])


def error_curve(observed: WeightedSample, planted: WeightedSample, share: float) -> Curve:
    """Fit the probability of being wrong for every suspicion, given the share of errors."""
    if observed.total <= 0 or planted.total <= 0 or share <= 0:
        return Curve(np.zeros(0), np.zeros(0))
    edges = _cells(observed, planted)
    seen = _weights_in(edges, observed)
    wrong = _weights_in(edges, planted) * (share * observed.total / planted.total)
    both = seen + wrong
    is_there = both > 0
    places = ((edges[:-1] + edges[1:]) / 2)[is_there]
    seen, wrong, both = seen[is_there], wrong[is_there], both[is_there]
    fitted = isotonic_regression(wrong / both, weights=both)  # its best block was lucky, too
    blocks = fitted.blocks
    counts = np.repeat(np.add.reduceat(seen, blocks[:-1]), np.diff(blocks))
    ratio = fitted.x / np.maximum(1 - fitted.x, 1e-12)
    is_best = np.arange(len(counts)) >= blocks[-2]
    doubt = 1 + np.where(is_best, np.sqrt(counts) / 2, 0.0)  # of few nothing is certain
    factor = _restoring(ratio, seen / seen.sum(), share)
    values = (
        CALIBRATION.max_probability * np.minimum(factor * ratio, 1.0) * counts / (counts + doubt)
    )
    return Curve(places, np.maximum.accumulate(values))


def _restoring(ratio: Floats, weights: Floats, share: float) -> float:
    """By how much to raise ratios that are cut at 1 so that their mean is the share again."""
    low, high = 1.0, CALIBRATION.max_raise_factor
    for _ in range(30):
        middle = (low + high) / 2
        is_less = float(weights @ np.minimum(middle * ratio, 1.0)) < share
        low, high = (middle, high) if is_less else (low, middle)
    return low


def mean_curve(given: WeightedSample, values: Floats) -> Curve:
    """Fit the mean of values in 0..1 that rise with the suspicion."""
    if given.total <= 0:
        return Curve(np.zeros(0), np.zeros(0))
    edges = _cells(given, given)
    weights = _weights_in(edges, given)
    sums = _weights_in(edges, WeightedSample(given.suspicions, given.weights * values))
    is_there = weights > 0
    fitted = isotonic_regression(sums[is_there] / weights[is_there], weights=weights[is_there])
    return Curve(((edges[:-1] + edges[1:]) / 2)[is_there], fitted.x)


def _least(count: float) -> float:
    """The lower 95 % bound of a mean of which `count` were seen."""
    return max(0.0, (math.sqrt(count + 0.25) - CALIBRATION.interval_deviations / 2) ** 2 - 0.25)


def _cells(first: WeightedSample, second: WeightedSample) -> Floats:
    """Bounds of cells; what lies in one is not told apart."""
    shares = np.linspace(0, 1, CALIBRATION.num_cells // 2 + 1)
    both = [np.quantile(one.suspicions, shares) for one in (first, second)]
    edges = np.unique(np.concatenate(both))
    end = np.nextafter(edges[-1], np.inf) if len(edges) == 1 else edges[-1]
    found: Floats = np.append(edges, end) if len(edges) == 1 else edges
    return found


def _weights_in(edges: Floats, given: WeightedSample) -> Floats:
    found: Floats = np.histogram(given.suspicions, edges, weights=given.weights)[0]
    return found
