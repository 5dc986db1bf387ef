"""Means over seeds, and the share of the lost accuracy that a method recovers.

Cells of one seed share their noise. Comparisons therefore use the seeds that all sides have, and
differences are taken per seed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Values = Mapping[int, float]
"""A figure by seed."""

MIN_LOSS = 0.01  # of a figure in 0..1: equal trainings differ by up to a point


@dataclass(frozen=True)
class SeedSummary:
    """A figure over seeds."""

    mean: float
    deviation: float | None
    """Sample standard deviation; None for one seed."""
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Gain:
    """A comparison over the seeds that all sides have."""

    value: float | None
    """None if it is not defined."""
    error: float | None
    """Standard error by paired seeds; None for fewer than two."""
    seeds: tuple[int, ...]
    left_out: tuple[int, ...]
    """Seeds that only some of the sides have."""


def summarize_seeds(values: Values) -> SeedSummary | None:
    """Return mean and deviation of a figure; None without values."""
    if not values:
        return None
    seeds = tuple(sorted(values))
    numbers = [values[seed] for seed in seeds]
    return SeedSummary(_compute_mean(numbers), _compute_deviation(numbers), seeds)


def recovered_share(method: Values, baseline: Values, clean: Values) -> Gain:
    """Return (method - baseline) / (clean - baseline) of the means over common seeds.

    It is not defined if the noise costs less than a point. The standard error is that of a ratio
    of two means to first order: it follows from the deviation of gain - ratio x loss over seeds.
    """
    seeds, left_out = _split_seeds(method, baseline, clean)
    gains = [method[seed] - baseline[seed] for seed in seeds]
    losses = [clean[seed] - baseline[seed] for seed in seeds]
    loss = _compute_mean(losses) if seeds else 0.0
    if loss < MIN_LOSS:
        return Gain(None, None, seeds, left_out)
    ratio = _compute_mean(gains) / loss
    rests = [gain - ratio * lost for gain, lost in zip(gains, losses, strict=True)]
    error = _compute_error(rests)
    return Gain(ratio, None if error is None else error / loss, seeds, left_out)


def mean_difference(method: Values, baseline: Values) -> Gain:
    """Return method - baseline as a mean over common seeds."""
    seeds, left_out = _split_seeds(method, baseline)
    if not seeds:
        return Gain(None, None, seeds, left_out)
    numbers = [method[seed] - baseline[seed] for seed in seeds]
    return Gain(_compute_mean(numbers), _compute_error(numbers), seeds, left_out)


def _split_seeds(*sides: Values) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the seeds that all sides have, and those that only some have."""
    all_seeds = set[int]().union(*sides)
    common = all_seeds.intersection(*sides)
    return tuple(sorted(common)), tuple(sorted(all_seeds - common))


def _compute_mean(numbers: Sequence[float]) -> float:
    return math.fsum(numbers) / len(numbers)


def _compute_deviation(numbers: Sequence[float]) -> float | None:
    if len(numbers) < 2:
        return None
    mean = _compute_mean(numbers)
    return math.sqrt(math.fsum((number - mean) ** 2 for number in numbers) / (len(numbers) - 1))


def _compute_error(numbers: Sequence[float]) -> float | None:
    """Return the standard error of the mean."""
    deviation = _compute_deviation(numbers)
    return None if deviation is None else deviation / math.sqrt(len(numbers))
