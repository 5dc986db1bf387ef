"""Ticks: the round numbers that an axis shows."""

import math
from collections.abc import Sequence

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def nice_ticks(low: float, high: float, count: int = 5, *, whole: bool = False) -> list[float]:
    """Return about `count` round numbers from `low` to `high`, including the ends if round.

    Steps are 1, 2, 2.5 or 5 times a power of ten; with `whole`, they are whole numbers. Equal ends
    give one tick. Raise a ValueError for an end that is not finite, or for `low` above `high`.
    """
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        raise ValueError(f"no ticks from {low} to {high}; expected finite numbers in this order")
    if low == high:
        return [low]
    step = _step((high - low) / max(count, 1), whole)
    slack = 1e-9  # of a step, for rounding errors
    first, last = math.ceil(low / step - slack), math.floor(high / step + slack)
    return [round(number * step, 12) + 0.0 for number in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten from `low` to `high`; up to two decades also 2 and 5 times them.

    Both ends must be above 0.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low <= 100 else (1,)
    ticks = [float(f"{factor}e{power}") for power in powers for factor in factors]
    return [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]


def round_below(value: float) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten up to a number above 0."""
    power = math.floor(math.log10(value))
    steps = [factor * 10.0**exponent for exponent in (power - 1, power) for factor in (1, 2, 5)]
    return max(step for step in steps if step <= value * (1 + 1e-9))


def round_above(value: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten from a number above 0."""
    power = math.floor(math.log10(value))
    steps = [factor * 10.0**exponent for exponent in (power, power + 1) for factor in (1, 2, 5)]
    return min(step for step in steps if step >= value * (1 - 1e-9))


def tick_texts(ticks: Sequence[float]) -> list[str]:
    """Format the ticks, all with the same number of decimals."""
    decimals = max((_decimals(tick) for tick in ticks), default=0)
    return [f"{tick:,.{decimals}f}" for tick in ticks]


def percent_texts(ticks: Sequence[float]) -> list[str]:
    """Format ticks that are shares as percentages, all with the same number of decimals."""
    return [f"{text} %" for text in tick_texts([tick * 100 for tick in ticks])]


def _step(least: float, whole: bool) -> float:
    """Return the smallest round step of at least about `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in _STEPS if factor * power >= least * 0.999)
    if not whole:
        return step
    return max(1.0, step if step == int(step) else math.ceil(step))


def _decimals(tick: float) -> int:
    text = f"{tick:.10f}".rstrip("0")
    return len(text.split(".")[1])
