"""Flip single bits in every kind of file that boxmend writes and reads again.

    python fuzz/flip_bits.py [--flips 500] [--seed 0] [--kind NAME ...]

The script writes a small file of each kind, flips one random bit at a time and reads the file. The
reader must raise a BoxmendError or return the same value as before. The script prints a table. Its
exit status is 1 if a file was read wrongly or raised another exception. `--flips 0` flips every bit
of every file.
"""

import argparse
import logging
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from boxmend.errors import BoxmendError
from flip_samples import KINDS, Sample

OUTCOMES = ("refused", "same value", "read wrongly", "other exception")


def to_text(value: Any) -> str:
    """Return a value as text that is equal for equal values, NaN included."""
    if isinstance(value, pa.Table):
        return repr(value.to_pydict())
    if isinstance(value, msgspec.Struct):
        return to_text(msgspec.structs.asdict(value))
    if is_dataclass(value) and not isinstance(value, type):
        return to_text({field.name: getattr(value, field.name) for field in fields(value)})
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return f"{value.dtype}{value.tolist()!r}"
    if isinstance(value, dict):
        return repr({key: to_text(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return repr([to_text(item) for item in value])
    return repr(value)


def try_flips(sample: Sample, bits: Sequence[int]) -> Iterator[tuple[int, str, str]]:
    """Flip one bit at a time and read; yield the bit, one of OUTCOMES, and the exception."""
    content = sample.path.read_bytes()
    expected = to_text(sample.read())
    try:
        for bit in bits:
            damaged = bytearray(content)
            damaged[bit // 8] ^= 1 << bit % 8
            sample.path.write_bytes(damaged)
            try:
                is_same = to_text(sample.read()) == expected
            except BoxmendError as error:
                yield bit, "refused", str(error)
            except Exception as error:
                yield bit, "other exception", repr(error)
            else:
                yield bit, "same value" if is_same else "read wrongly", ""
    finally:
        sample.path.write_bytes(content)


def flip_file(kind: str, flips: int, seed: int) -> list[tuple[int, str, str]]:
    """Flip `flips` random bits of a new file of a kind, or every bit if `flips` is 0."""
    with tempfile.TemporaryDirectory() as folder:
        sample = KINDS[kind](Path(folder))
        num_bits = 8 * sample.path.stat().st_size
        rng = random.Random(f"{kind} {seed}")
        bits = [rng.randrange(num_bits) for _ in range(flips)] if flips else range(num_bits)
        return list(try_flips(sample, bits))


def main(arguments: Sequence[str]) -> int:
    """Flip bits in files of all kinds and print the outcomes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--flips", type=int, default=500, help="for each kind; 0: every bit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    options = parser.parse_args(arguments)
    logging.getLogger("boxmend").setLevel(logging.ERROR)  # hide warnings about missing digests
    print("".join(word.rjust(16) for word in ("flips", *OUTCOMES)).rjust(100))
    total = Counter[str]()
    for kind in options.kind or KINDS:
        flips = flip_file(kind, options.flips, options.seed)
        counts = Counter(outcome for _, outcome, _ in flips)
        total += counts
        print_row(kind, counts)
        for bit, outcome, raised in flips:
            if outcome in OUTCOMES[2:]:
                print(f"    bit {bit}: {outcome} {raised}")
    print_row("all", total)
    return int(any(total[outcome] for outcome in OUTCOMES[2:]))


def print_row(name: str, counts: Counter[str]) -> None:
    """Print a row of the table."""
    numbers = (counts.total(), *(counts[outcome] for outcome in OUTCOMES))
    print(name.ljust(20) + "".join(f"{number:16,}" for number in numbers), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
