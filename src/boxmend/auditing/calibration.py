"""Turn suspicions into probabilities, by comparing observed objects with planted errors.

A suspicion is any number that is larger for errors. Its distribution among planted errors is known.
The observed objects are a mixture of errors, in an unknown share, and of correct objects. For every
limit, the share of errors is at most the observed fraction beyond the limit divided by the planted
fraction beyond it; in the tail, where only errors remain, it equals this ratio.

The probability that an object with some suspicion is an error is the share of errors times the
density of the planted errors, divided by the density of the observed objects. Isotonic regression
makes it rise with the suspicion.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from boxmend.data.types import Floats


@dataclass(frozen=True)
class CalibrationConstants:
    """Constants of the estimates of shares and curves."""

    num_limits: int = 200  # at which the share is measured
    min_tail_share: float = 0.1  # of the planted errors that must lie beyond a limit
    num_cells: int = 1000  # with equally many values each, which a fit treats as one
    caution_deviations: float = 3.0  # standard deviations added before the lowest share is chosen
    max_probability: float = 0.99  # some correct objects look like errors at any suspicion
    max_raise_factor: float = 1.3  # makes up for ratios that are cut off at 1
    interval_deviations: float = 1.96  # standard deviations on either side of a 95% interval


CALIBRATION = CalibrationConstants()


@dataclass(frozen=True)
class Share:
    """A share with bounds of at least 95% confidence."""

    value: float
    low: float
    high: float

    def __repr__(self) -> str:
        """Return the share with its bounds, with four digits each."""
        return f"Share({self.value:.4g}, low={self.low:.4g}, high={self.high:.4g})"

    @property
    def cautious(self) -> float:
        """The value, moved a quarter of the way to its lower bound.

        Even in the tail some objects are correct, so the value tends to be too large.
        """
        return self.value - (self.value - self.low) / 4

    def widen_bounds(self, margin: float) -> "Share":
        """Return the share with wider bounds, so that a share up to `margin` may be 0."""
        return Share(self.value, max(self.low - margin, 0.0), min(self.high + margin / 2, 1.0))

    def scale(self, factor: float) -> "Share":
        """Return the share times a factor, with its bounds."""
        return Share(self.value * factor, self.low * factor, self.high * factor)


NOT_MEASURED = Share(0.0, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Curve:
    """A curve that gives a probability for each suspicion and never falls."""

    places: Floats  # [k] suspicions, ascending
    values: Floats  # [k] probabilities

    def at(self, suspicions: Floats) -> Floats:
        """Return the probabilities [n] at these suspicions, by linear interpolation."""
        if not len(self.places):
            return np.zeros(len(suspicions))
        values: Floats = np.interp(suspicions, self.places, self.values)
        return values


@dataclass(frozen=True, eq=False)
class WeightedSample:
    """Suspicions of objects, each with a weight."""

    suspicions: Floats  # [n]
    weights: Floats  # [n]

    def __len__(self) -> int:
        return len(self.suspicions)

    @property
    def total(self) -> float:
        """The sum of the weights."""
        return float(self.weights.sum())

    def weigh_beyond(self, limits: Floats) -> Floats:
        """Return the weight [limits] of all suspicions that are at least each limit."""
        order = np.argsort(self.suspicions)
        below = np.concatenate([[0.0], np.cumsum(self.weights[order])])
        weights: Floats = below[-1] - below[np.searchsorted(self.suspicions[order], limits)]
        return weights


def make_sample(suspicions: Floats, weights: Floats | None = None) -> WeightedSample:
    """Return a sample; all weights are 1 by default."""
    return WeightedSample(suspicions, np.ones(len(suspicions)) if weights is None else weights)


def estimate_error_share(
    observed: WeightedSample,
    planted: WeightedSample,
    caution: float = CALIBRATION.caution_deviations,
    min_tail: float = CALIBRATION.min_tail_share,
) -> Share:
    """Estimate which share of the observed objects are errors like the planted ones.

    The limit with the lowest upper bound is used: beyond higher limits there are few objects to
    count, beyond lower ones there are more correct objects. The upper bound lies `caution` standard
    deviations above the count, so that the choice does not favour limits with a low count by
    chance. At least `min_tail` of the planted errors lie beyond a limit, since real errors differ
    somewhat from planted ones.
    """
    return estimate_lowest_share([(observed, planted, caution)], min_tail)


def estimate_lowest_share(
    samples: Sequence[tuple[WeightedSample, WeightedSample, float]],
    min_tail: float = CALIBRATION.min_tail_share,
) -> Share:
    """Estimate the share as `estimate_error_share` does, over several samples with the same share.

    Each item has observed objects, planted errors and a caution; the lowest upper bound counts.
    """
    best, share = math.inf, NOT_MEASURED
    for observed, planted, caution in samples:
        if observed.total <= 0 or planted.total <= 0:
            continue
        tails, counts = _measure_tails(observed, planted, min_tail)
        bounds = (counts + caution * np.sqrt(counts) + caution) / tails / observed.total
        k = int(bounds.argmin())
        if bounds[k] < best:
            best, factor = float(bounds[k]), 1 / (float(tails[k]) * observed.total)
            number = float(counts[k])
            low = find_lower_bound(number)
            share = Share(min(number * factor, 1.0), min(low * factor, 1.0), min(best, 1.0))
    return share


def _measure_tails(
    observed: WeightedSample, planted: WeightedSample, min_tail: float
) -> tuple[Floats, Floats]:
    """Return the shares of planted errors beyond limits, and the weights observed beyond them.

    Limits with fewer than `min_tail` of the planted errors are left out.
    """
    places = np.quantile(
        planted.suspicions, np.linspace(0, 1, CALIBRATION.num_limits, endpoint=False)
    )
    tails = planted.weigh_beyond(places) / planted.total
    is_enough = tails >= min_tail  # always true for the first limit, whose share is 1
    return tails[is_enough], observed.weigh_beyond(places[is_enough])


def fit_error_curve(observed: WeightedSample, planted: WeightedSample, share: float) -> Curve:
    """Fit the probability that an observed object is an error, given the share of errors."""
    if observed.total <= 0 or planted.total <= 0 or share <= 0:
        return Curve(np.zeros(0), np.zeros(0))
    edges = _find_cell_edges(observed, planted)
    seen = _sum_weights(edges, observed)
    wrong = _sum_weights(edges, planted) * (share * observed.total / planted.total)
    both = seen + wrong
    is_there = both > 0
    places = ((edges[:-1] + edges[1:]) / 2)[is_there]
    seen, wrong, both = seen[is_there], wrong[is_there], both[is_there]
    fitted = isotonic_regression(wrong / both, weights=both)  # overrates its highest block
    blocks = fitted.blocks
    counts = np.repeat(np.add.reduceat(seen, blocks[:-1]), np.diff(blocks))
    ratio = fitted.x / np.maximum(1 - fitted.x, 1e-12)
    is_best = np.arange(len(counts)) >= blocks[-2]
    doubt = 1 + np.where(is_best, np.sqrt(counts) / 2, 0.0)  # few observations give no certainty
    factor = _find_raise_factor(ratio, seen / seen.sum(), share)
    values = (
        CALIBRATION.max_probability * np.minimum(factor * ratio, 1.0) * counts / (counts + doubt)
    )
    return Curve(places, np.maximum.accumulate(values))


def _find_raise_factor(ratio: Floats, weights: Floats, share: float) -> float:
    """Return the factor for which the weighted mean of ratios, cut off at 1, is the share."""
    low, high = 1.0, CALIBRATION.max_raise_factor
    for _ in range(30):
        middle = (low + high) / 2
        is_less = float(weights @ np.minimum(middle * ratio, 1.0)) < share
        low, high = (middle, high) if is_less else (low, middle)
    return low


def fit_mean_curve(observations: WeightedSample, values: Floats) -> Curve:
    """Fit the mean of values [n] between 0 and 1 by a curve that never falls with the suspicion."""
    if observations.total <= 0:
        return Curve(np.zeros(0), np.zeros(0))
    edges = _find_cell_edges(observations, observations)
    weights = _sum_weights(edges, observations)
    weighted = WeightedSample(observations.suspicions, observations.weights * values)
    sums = _sum_weights(edges, weighted)
    is_there = weights > 0
    fitted = isotonic_regression(sums[is_there] / weights[is_there], weights=weights[is_there])
    return Curve(((edges[:-1] + edges[1:]) / 2)[is_there], fitted.x)


def find_lower_bound(count: float) -> float:
    """Return the lower 95% bound of a Poisson mean, given an observed count."""
    return max(0.0, (math.sqrt(count + 0.25) - CALIBRATION.interval_deviations / 2) ** 2 - 0.25)


def _find_cell_edges(first: WeightedSample, second: WeightedSample) -> Floats:
    """Return the edges of cells of suspicions, from the quantiles of both samples."""
    shares = np.linspace(0, 1, CALIBRATION.num_cells // 2 + 1)
    quantiles = [np.quantile(side.suspicions, shares) for side in (first, second)]
    edges: Floats = np.unique(np.concatenate(quantiles))
    return np.append(edges, np.nextafter(edges[-1], np.inf)) if len(edges) == 1 else edges


def _sum_weights(edges: Floats, observations: WeightedSample) -> Floats:
    """Return the total weight of the suspicions in each cell."""
    sums: Floats = np.histogram(observations.suspicions, edges, weights=observations.weights)[0]
    return sums
