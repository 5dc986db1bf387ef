"""Documents on their way to disk: bytes that are kept, with a few spans replaced."""

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

DECIMALS = 6  # of a pixel; far below what any annotation can mean


@dataclass(frozen=True)
class Document:
    """One file to write, relative to the output folder, as pieces to be put one after another."""

    path: str
    pieces: Iterable[bytes]


class Edit(NamedTuple):
    """Replace the bytes from `start` to `end` by `new`."""

    start: int
    end: int
    new: bytes


EditTuple = tuple[int, int, bytes]
"""An Edit without its name: where there are a million, the name alone costs time."""


def apply_edits(data: bytes, edits: Iterable[EditTuple]) -> Iterator[bytes]:
    """The bytes of `data` with the edits made; they must come in order and not overlap."""
    position = 0
    pieces: list[bytes] = []
    for start, end, new in edits:
        if start < position:
            raise ValueError(f"edits overlap at byte {start}")
        pieces.append(data[position:start])
        pieces.append(new)
        position = end
        if len(pieces) >= 4096:  # many small pieces as one: writing and hashing cost per piece
            yield b"".join(pieces)
            pieces.clear()
    pieces.append(data[position:])
    yield b"".join(pieces)


def format_number(value: float, decimals: int = DECIMALS) -> str:
    """A number as people write it: no exponent, no trailing zeros, no minus zero."""
    text = repr(round(float(value), decimals))  # float: NumPy's own have another repr
    if text.endswith(".0"):
        text = text[:-2]
    elif "e" in text:  # repr turns to exponents below a ten-thousandth and above 1e16
        text = f"{value:.{decimals}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def format_numbers(values: NDArray[np.float64]) -> list[bytes]:
    """The texts of many finite numbers, as `number` writes them, at a twentieth of its cost."""
    values = values.ravel()
    if not len(values):
        return []
    with np.errstate(over="ignore", invalid="ignore"):  # beyond 1e300: `number` sees to those
        scaled = values * 10.0**DECIMALS
        rounded = np.rint(scaled)
        scaled -= rounded
        is_easy = np.abs(scaled, out=scaled) < 0.498  # about half-way, scaling may round wrongly
        rounded /= 10.0**DECIMALS
    size = np.abs(rounded)
    is_easy &= (size > 1e-3) & (size < 8e6)  # no exponents, and scaled to less than 2**43
    texts = msgspec.json.encode(rounded.tolist())[1:-1].split(b",")
    for k in np.flatnonzero(is_easy & (rounded == np.trunc(rounded))).tolist():
        texts[k] = b"%d" % rounded[k]
    for k in np.flatnonzero(~is_easy).tolist():
        texts[k] = format_number(float(values[k])).encode()
    return texts


@contextmanager
def pause_garbage_collector() -> Iterator[None]:
    """Keep the garbage collector from looking through a million entries that form no cycle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
