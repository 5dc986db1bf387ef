"""Random numbers that are the same on every machine, one independent stream per kind of noise.

NumPy guarantees that the raw bits of a bit generator never change. It does not guarantee that for
the methods of its `Generator`, so this module uses the raw bits alone.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Stream(IntEnum):
    """The numbers of the streams. A number never changes and is never reused."""

    SUBSET = 1
    LABEL_CHOICE = 2  # which annotations are relabelled
    LABEL_TARGET = 3  # to which label
    BOXES = 4
    MISSING = 5
    SPURIOUS = 6
    DUPLICATE_CHOICE = 7  # which annotations are annotated twice
    DUPLICATE_BOXES = 8
    LOOK_ALIKE = 9  # which annotations get the label of a look-alike
    GROSS_CHOICE = 10  # which boxes are grossly off
    GROSS_BOXES = 11
    SPURIOUS_PART = 12  # which objects get an annotation on a half
    SPURIOUS_HALF = 13  # on which half
    SPURIOUS_CLUTTER = 14
    SPURIOUS_CLUTTER_BOXES = 15
    SPURIOUS_CORNERS = 16
    SPURIOUS_IMAGES = 17  # the order in which images get such annotations


def uniforms(seed: int, stream: Stream, count: int) -> NDArray[np.float64]:
    """Return `count` draws from [0, 1); a longer sequence begins with the shorter one."""
    return _as_uniform(_bits(seed, stream, 0).random_raw(count))


def uniform_rows(
    seed: int, stream: Stream, rows: NDArray[np.int64], width: int, attempt: int = 0
) -> NDArray[np.float64]:
    """Return draws [len(rows), width] from [0, 1) for the ascending `rows`.

    The draws of a row depend on its number alone, not on the other rows. Each `attempt` is a
    stream of its own.
    """
    bits = _bits(seed, stream, attempt)
    end = int(rows[-1]) + 1 if len(rows) else 0
    if 16 * len(rows) >= end:  # drawing all is cheaper than skipping
        drawn = bits.random_raw(end * width).reshape(end, width)
        return _as_uniform(drawn if len(rows) == end else drawn[rows])
    raw = np.empty((len(rows), width), np.uint64)
    position = 0
    for k, row in enumerate(rows.tolist()):
        bits.advance((row - position) * width)
        raw[k] = bits.random_raw(width)
        position = row + 1
    return _as_uniform(raw)


def choose_smallest(keys: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the rows of the `count` smallest keys, ascending.

    With the same keys, the rows of a small count are among those of a larger count.
    """
    if count <= 0:
        return np.empty(0, np.int64)
    if count >= len(keys):
        return np.arange(len(keys))
    return np.sort(np.argsort(keys, kind="stable")[:count])


def pick_choices(draws: NDArray[np.float64], choices: int) -> NDArray[np.int64]:
    """Turn draws from [0, 1) into equally probable integers from 0 to `choices` - 1."""
    return (draws * choices).astype(np.int64)


def count_of_rate(rate: float, count: int) -> int:
    """Return the rate of a count as an integer: the nearest one, halves to even."""
    return round(rate * count)


def _bits(seed: int, stream: Stream, attempt: int) -> np.random.PCG64:
    # Only the seed may be longer than one word. It comes last, so no two streams are equal.
    return np.random.PCG64(np.random.SeedSequence([int(stream), attempt, seed]))


def _as_uniform(raw: NDArray[np.uint64]) -> NDArray[np.float64]:
    raw >>= np.uint64(11)  # keeps 53 bits, as many as a float holds exactly
    draws = raw.astype(np.float64)
    draws *= 2.0**-53
    return draws
