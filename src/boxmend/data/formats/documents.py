"""Documents to write: the bytes of a source with a few spans replaced, or new bytes."""

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

DECIMALS = 6  # of a pixel; far finer than any annotation


@dataclass(frozen=True)
class Document:
    """A file to write: its path relative to the output folder, and its bytes in pieces."""

    path: str
    pieces: Iterable[bytes]


class Edit(NamedTuple):
    """A replacement of the bytes from `start` to `end` by `new`."""

    start: int
    end: int
    new: bytes


EditTuple = tuple[int, int, bytes]
"""An Edit as a plain tuple, which is faster to create a million times."""


def apply_edits(data: bytes, edits: Iterable[EditTuple]) -> Iterator[bytes]:
    """Yield the bytes of `data` with the edits applied; edits must be sorted and not overlap."""
    position = 0
    pieces: list[bytes] = []
    for start, end, new in edits:
        if start < position:
            raise ValueError(f"edits overlap at byte {start}")
        pieces.append(data[position:start])
        pieces.append(new)
        position = end
        if len(pieces) >= 4096:  # join small pieces: writing and hashing cost time per piece
            yield b"".join(pieces)
            pieces.clear()
    pieces.append(data[position:])
    yield b"".join(pieces)


def format_number(value: float, decimals: int = DECIMALS) -> str:
    """Return a number as people write it: no exponent, no trailing zeros, no minus zero."""
    text = repr(round(float(value), decimals))  # float: NumPy's numbers have another repr
    if text.endswith(".0"):
        text = text[:-2]
    elif "e" in text:  # repr uses exponents below 1e-4 and above 1e16
        text = f"{value:.{decimals}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def format_numbers(values: NDArray[np.float64]) -> list[bytes]:
    """Return the texts of many finite numbers as from `format_number`, twenty times as fast."""
    values = values.ravel()
    if not len(values):
        return []
    with np.errstate(over="ignore", invalid="ignore"):  # beyond 1e300, handled by format_number
        scaled = values * 10.0**DECIMALS
        rounded = np.rint(scaled)
        scaled -= rounded
        is_fast = np.abs(scaled, out=scaled) < 0.498  # near one half, scaling may round wrongly
        rounded /= 10.0**DECIMALS
    size = np.abs(rounded)
    is_fast &= (size > 1e-3) & (size < 8e6)  # no exponents, and scaled to less than 2**43
    texts = msgspec.json.encode(rounded.tolist())[1:-1].split(b",")
    for k in np.flatnonzero(is_fast & (rounded == np.trunc(rounded))).tolist():
        texts[k] = b"%d" % rounded[k]
    for k in np.flatnonzero(~is_fast).tolist():
        texts[k] = format_number(float(values[k])).encode()
    return texts


@contextmanager
def pause_garbage_collector() -> Iterator[None]:
    """Pause the garbage collector, which would search a million entries without cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
