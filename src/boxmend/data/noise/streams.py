"""Random numbers that are the same on every machine, one independent stream per kind of noise.

NumPy promises that the raw bits of a bit generator never change, but not what its `Generator`
makes of them. So only the raw bits are used, and every transform is written here.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Stream(IntEnum):
    """The streams by number; a number, once given, is never changed or used again."""

    SUBSET = 1
    LABEL_CHOICE = 2  # which annotations are relabelled
    LABEL_TARGET = 3  # to which label
    BOXES = 4
    MISSING = 5
    SPURIOUS = 6
    DUPLICATE_CHOICE = 7  # which annotations are annotated twice
    DUPLICATE_BOXES = 8


def uniforms(seed: int, stream: Stream, count: int) -> NDArray[np.float64]:
    """Draw `count` numbers from [0, 1); a longer draw begins with the shorter one."""
    return _as_uniform(_bits(seed, stream, 0).random_raw(count))


def uniform_rows(
    seed: int, stream: Stream, rows: NDArray[np.int64], width: int, attempt: int = 0
) -> NDArray[np.float64]:
    """Draw `width` numbers from [0, 1) for each of the ascending `rows`.

    What a row gets depends on its number alone, not on which other rows are asked for. Each
    `attempt` is a stream of its own. Returns [len(rows), width].
    """
    bits = _bits(seed, stream, attempt)
    end = int(rows[-1]) + 1 if len(rows) else 0
    if 16 * len(rows) >= end:  # dense: cheaper to draw all and pick
        drawn = bits.random_raw(end * width).reshape(end, width)
        return _as_uniform(drawn if len(rows) == end else drawn[rows])
    raw = np.empty((len(rows), width), np.uint64)
    position = 0
    for k, row in enumerate(rows.tolist()):
        bits.advance((row - position) * width)
        raw[k] = bits.random_raw(width)
        position = row + 1
    return _as_uniform(raw)


def chosen(keys: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Choose the rows of the `count` smallest keys, ascending.

    With the same keys, what a small count chooses is part of what a larger one does.
    """
    if count <= 0:
        return np.empty(0, np.int64)
    if count >= len(keys):
        return np.arange(len(keys))
    return np.sort(np.argsort(keys, kind="stable")[:count])


def picks(draws: NDArray[np.float64], choices: int) -> NDArray[np.int64]:
    """Turn draws from [0, 1) into equally probable integers from 0 to `choices` - 1."""
    return (draws * choices).astype(np.int64)


def share(rate: float, count: int) -> int:
    """Count how many of `count` a rate means: the nearest integer, halves to the even one."""
    return round(rate * count)


def _bits(seed: int, stream: Stream, attempt: int) -> np.random.PCG64:
    # The seed comes last: it alone may be longer than one word, so no two streams can meet.
    return np.random.PCG64(np.random.SeedSequence([int(stream), attempt, seed]))


def _as_uniform(raw: NDArray[np.uint64]) -> NDArray[np.float64]:
    raw >>= np.uint64(11)  # 53 bits stay: as many as a float holds exactly
    draws = raw.astype(np.float64)
    draws *= 2.0**-53
    return draws
