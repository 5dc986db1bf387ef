"""The results of cells: one JSON line per try, in OUT/SCALE/results.jsonl.

The file only grows. `append` writes a line at once and alone, so that several processes can share
a file and a kill tears the last line at most; `read` leaves such a line out and says so. Every
other line is checked by its digest (`boxmend.data.files.digests`; earlier versions wrote none) and
field by field, since files come from anywhere. Of several lines of a cell `counting` gives the one
that counts.

Figures are fractions, and what is not defined is None: a NaN becomes null when it is written.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import DecodeError, Meta, Struct, ValidationError, convert, field, to_builtins
from msgspec.json import Decoder, Encoder

from boxmend.bench.grids.upgrade import FORMAT, upgrade_line
from boxmend.data.files.atomic import wrap_os_errors
from boxmend.data.files.digests import add_json_digest, verify_json_lines
from boxmend.data.files.locks import lock_handle
from boxmend.data.files.reading import read_limited
from boxmend.data.files.text import escape_surrogates
from boxmend.errors import DataError

RESULTS_FILE = "results.jsonl"
MARK = b"\xef\xbb\xbf"  # that some editors put before a text
REMEDY = "remove or mend that line, or read it with the version of boxmend that wrote it"
NAMED_BY = "name a file that `boxmend bench run` wrote, or its folder"

Name = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._~+-]{0,199}\Z")]
Rate = Annotated[
    str, Meta(pattern=r"\A[a-z][a-z0-9_-]{0,30}:(0(\.[0-9]{1,6})?|1(\.0{1,6})?)\Z", max_length=50)
]
Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Count = Annotated[int, Meta(ge=0, lt=2**53)]
Amount = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Setting = bool | int | float | str | None


class Noise(Struct, frozen=True, forbid_unknown_fields=True):
    """How the training annotations were spoilt; clean data have none of it."""

    labels: Rate | None = None
    """KIND:RATE as `boxmend noise --labels` takes it: symmetric:0.4, pair:0.2."""
    boxes: Rate | None = None
    """KIND:AMOUNT as `boxmend noise --boxes` takes it: uniform:0.4, gaussian:0.25, jitter:0.4."""
    seed: Count = 0
    """Of the draws."""
    presence: Rate | None = None
    """missing:RATE or spurious:RATE, as `boxmend noise --missing` and `--spurious` take them."""


class Data(Struct, frozen=True, forbid_unknown_fields=True):
    """What was trained and evaluated on; hashes are those of `boxmend.data.fingerprint`."""

    train_sha256: Sha256
    """The training annotations as they were before noise."""
    noisy_sha256: Sha256
    """The training annotations as the cell was trained on: with their noise, or those before
    where there is none; of a second stage, mended."""
    val_sha256: Sha256
    addresses: dict[str, list[str]] = field(default_factory=dict)
    """Where they lay, by "train" and "val"."""


class Result(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One try of one cell, finished or failed."""

    cell: Name
    """Its name, like label40-box40-mend-0; the same cell has the same name at every try."""
    scale: Name
    noise: Noise
    method: Name
    variant: dict[str, Setting] = field(default_factory=dict)
    """Settings that differ from the method's cell without a variant, by their dotted names."""
    seed: Count
    settings: dict[str, Any]
    """Resolved, nested as `settings.json` of a run has them."""
    data: Data
    versions: dict[str, str]
    code: str = ""
    """The first digits of a hash of boxmend's own source; empty in lines before there was one."""
    hardware: str
    started: str
    """ISO 8601, with its zone."""
    seconds: Amount
    images_per_second: Amount | None = None
    scores: dict[str, Share | None]
    """By metric: voc_ap50_area, voc_ap50_11point, coco_ap, coco_ap50, coco_ap75 and so on; empty
    where the cell failed."""
    scores_by_label: dict[str, dict[str, float | None]] = field(default_factory=dict)
    mending: dict[str, Any] | None = None
    """`boxmend.scoring.corrections.Assessment.to_json()`, where the method left a ledger."""
    estimates: dict[str, float | None] | None = None
    """Noise rates as the run found them, with _low and _high."""
    error: str | None = None
    """What went wrong; None: nothing did."""
    attempt: Annotated[int, Meta(ge=1)] = 1
    format: Literal[2] = FORMAT
    """Of the line. Lines of format 1 are read with today's names; other numbers are refused."""


@dataclass(frozen=True)
class Read:
    """The results of a file in the order of its lines, and what was odd about it."""

    results: list[Result]
    warnings: list[str]
    numbers: list[int] = dataclasses.field(default_factory=list, compare=False)
    """Of the lines, from 1 on."""


_encoder = Encoder()
_decoder = Decoder(dict[str, Any])


def decode_result(text: bytes) -> Result:
    """Read one line; raise a DecodeError (or its subclass ValidationError) if it is invalid."""
    return convert(upgrade_line(_decoder.decode(text)), Result)


def append(path: Path, result: Result) -> None:
    """Append a result to a file; create the file and its folder if necessary.

    Several processes may append at once. An incomplete last line is replaced. Raises a ValueError
    if `read` would refuse the result, an OutputError if it cannot be written, and a DataError if
    the last line is damaged. The file does not change then.
    """
    try:
        text = _encoder.encode(_encodable(to_builtins(result)))
        decode_result(text)
    except (DecodeError, TypeError) as error:
        raise ValueError(f"not a sound result: {error}") from error
    with wrap_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _open_locked(path) as handle:
            _append(path, handle, add_json_digest(text))


def read(path: Path) -> Read:
    """Read all results of a file; a DataError names the first invalid line and its fault."""
    try:
        content = read_limited(path, "record_bytes")
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path}: cannot be read ({reason}); {NAMED_BY}") from error
    *lines, rest = verify_json_lines(path, content.removeprefix(MARK), REMEDY)
    numbers = [number for number, line in enumerate(lines, 1) if line.strip()]
    results = [_parse_line(path, number, lines[number - 1]) for number in numbers]
    if not rest.strip():
        return Read(results, [], numbers)
    last = len(lines) + 1
    try:  # a file from an editor may lack its last line end
        return Read([*results, decode_result(rest)], [], [*numbers, last])
    except (DecodeError, UnicodeDecodeError, RecursionError):
        torn = f"{path}: line {last} was cut off and is left out: its cell counts as open"
        return Read(results, [torn], numbers)


def read_all(paths: Sequence[Path]) -> Read:
    """Read several files, one after the other."""
    found = [read(path) for path in paths]
    return Read(
        [result for one in found for result in one.results],
        [warning for one in found for warning in one.warnings],
        [number for one in found for number in one.numbers],
    )


def effective_results(results: Iterable[Result]) -> list[Result]:
    """Return one result per cell of a scale, in the order in which the cells first appear.

    It is the last result without an error, or the last one if all have an error.
    """
    by_cell: dict[tuple[str, str], Result] = {}
    for result in results:
        key = (result.scale, result.cell)
        before = by_cell.get(key)
        if before is None or result.error is None or before.error is not None:
            by_cell[key] = result
    return list(by_cell.values())


def _encodable(value: Any) -> Any:
    """Copy a value and escape lone surrogates, which file names may contain."""
    if isinstance(value, dict):
        return {_encodable(name): _encodable(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(one) for one in value]
    return escape_surrogates(value) if isinstance(value, str) else value


def _parse_line(path: Path, number: int, line: bytes) -> Result:
    try:
        return decode_result(line)
    except ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        where = f"{place.rstrip('`').lstrip('.')}: " if place.rstrip("`") else ""
        wrong = f"line {number} is no result: {where}{reason}"
        raise DataError(f"{path}: {wrong}; {REMEDY}") from error
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}: line {number} is no JSON ({error}); {REMEDY}") from error


@contextmanager
def _open_locked(path: Path) -> Iterator[int]:
    """Open a file for appending, locked against other processes if the system has locks."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
    try:
        lock_handle(handle, wait=True)
        yield handle
    finally:
        os.close(handle)  # and so unlocks


def _append(path: Path, handle: int, line: bytes) -> None:
    size = os.fstat(handle).st_size
    end, rest = _end_of_lines(handle, size)
    (text,) = verify_json_lines(path, rest, REMEDY)
    if rest and _is_result(text):
        end, line = size, b"\n" + line
    elif rest:
        os.ftruncate(handle, end)  # an incomplete line is useless and would damage the next
    if os.write(handle, line) != len(line):
        os.ftruncate(handle, end)
        raise OSError("the disk is full")
    os.fsync(handle)


def _end_of_lines(handle: int, size: int) -> tuple[int, bytes]:
    """Return the end of the last complete line, and the bytes after it."""
    rest, at = b"", size
    while at > 0 and b"\n" not in rest:
        step = min(at, 1 << 16)
        at -= step
        os.lseek(handle, at, os.SEEK_SET)
        rest = os.read(handle, step) + rest
    end = at + rest.rfind(b"\n") + 1
    return end, rest[end - at :]


def _is_result(line: bytes) -> bool:
    try:
        decode_result(line)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
