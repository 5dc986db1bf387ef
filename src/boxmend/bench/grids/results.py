"""The results of cells: one JSON line per try, in OUT/SCALE/results.jsonl.

The file only grows. `append_result` writes a line in one call, so several processes can share a
file, and a kill can cut off only the last line; `read_results` leaves out such a line with a
warning. Every other line is checked by its digest (`boxmend.data.files.digests`; lines of earlier
versions have none) and field by field, because a file may come from anywhere. Of several lines of
a cell, `effective_results` returns the one that counts.

Figures are fractions, and undefined figures are None: a NaN becomes null when it is written.
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

from boxmend.bench.grids.upgrade import FORMAT_VERSION, upgrade_line
from boxmend.data.files.atomic import wrap_os_errors
from boxmend.data.files.digests import add_json_digest, verify_json_lines
from boxmend.data.files.locks import lock_handle
from boxmend.data.files.reading import read_limited
from boxmend.data.files.text import escape_surrogates
from boxmend.errors import DataError

RESULTS_FILE = "results.jsonl"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors put it before a text
REMEDY = "remove or correct the line, or read it with the version of boxmend that wrote it"
FILE_REMEDY = "name a file that `boxmend bench run` wrote, or its folder"

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
    """The noise in the training annotations; clean data have none."""

    labels: Rate | None = None
    """KIND:RATE as `boxmend noise --labels` takes it: symmetric:0.4, pair:0.2."""
    boxes: Rate | None = None
    """KIND:AMOUNT as `boxmend noise --boxes` takes it: uniform:0.4, gaussian:0.25, jitter:0.4."""
    seed: Count = 0
    """The seed of the noise."""
    presence: Rate | None = None
    """missing:RATE, spurious:RATE or una:RATE, as `boxmend noise` takes them by `--missing`,
    `--spurious` and `--preset`."""


class Data(Struct, frozen=True, forbid_unknown_fields=True):
    """The data of a cell; hashes are those of `boxmend.data.fingerprint`."""

    train_sha256: Sha256
    """Hash of the clean training annotations."""
    noisy_sha256: Sha256
    """Hash of the annotations that the cell trained on: noisy, clean if there is no noise, or
    mended for a second stage."""
    val_sha256: Sha256
    addresses: dict[str, list[str]] = field(default_factory=dict)
    """The addresses of the data, by "train" and "val"."""


class Result(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One try of one cell, finished or failed."""

    cell: Name
    """The name of the cell, like label40-box40-mend-0; it is the same at every try."""
    scale: Name
    noise: Noise
    method: Name
    variant: dict[str, Setting] = field(default_factory=dict)
    """Settings that differ from those of the cell without a variant, by their dotted names."""
    seed: Count
    settings: dict[str, Any]
    """Resolved settings, nested as in `settings.json` of a run."""
    data: Data
    versions: dict[str, str]
    code: str = ""
    """The first digits of a hash of boxmend's source; empty in lines of earlier versions."""
    hardware: str
    started: str
    """The time in ISO 8601 with time zone."""
    seconds: Amount
    images_per_second: Amount | None = None
    scores: dict[str, Share | None]
    """Scores by metric: voc_ap50_area, voc_ap50_11point, coco_ap, coco_ap50, coco_ap75 and so on;
    empty if the cell failed."""
    scores_by_label: dict[str, dict[str, float | None]] = field(default_factory=dict)
    mending: dict[str, Any] | None = None
    """`boxmend.scoring.corrections.Assessment.to_json()`, if the run has a ledger."""
    estimates: dict[str, float | None] | None = None
    """Noise rates that the run estimated, with _low and _high."""
    error: str | None = None
    """Why the cell failed; None if it did not fail."""
    attempt: Annotated[int, Meta(ge=1)] = 1
    format: Literal[2] = FORMAT_VERSION
    """The format of the line. Lines of format 1 are read with the present names; other formats are
    refused."""


@dataclass(frozen=True)
class ReadResults:
    """The results of a file in the order of its lines, and warnings about the file."""

    results: list[Result]
    warnings: list[str]
    numbers: list[int] = dataclasses.field(default_factory=list, compare=False)
    """The numbers of the lines, from 1 on."""


_encoder = Encoder()
_decoder = Decoder(dict[str, Any])


def decode_result(text: bytes) -> Result:
    """Decode one line; raise a DecodeError (or its subclass ValidationError) if that fails."""
    return convert(upgrade_line(_decoder.decode(text)), Result)


def append_result(path: Path, result: Result) -> None:
    """Append a result to a file; create the file and its folder if necessary.

    Several processes may append at once. An incomplete last line is replaced. Raises a ValueError
    if `read_results` would refuse the result, an OutputError if it cannot be written, and a
    DataError if the last line is damaged. The file does not change in these cases.
    """
    try:
        text = _encoder.encode(_escape_texts(to_builtins(result)))
        decode_result(text)
    except (DecodeError, TypeError) as error:
        raise ValueError(f"not a valid result: {error}") from error
    with wrap_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _open_locked(path) as handle:
            _append(path, handle, add_json_digest(text))


def read_results(path: Path) -> ReadResults:
    """Read all results of a file; a DataError names the first invalid line and its fault."""
    try:
        content = read_limited(path, "record_bytes")
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path}: cannot be read ({reason}); {FILE_REMEDY}") from error
    *lines, rest = verify_json_lines(path, content.removeprefix(BYTE_ORDER_MARK), REMEDY)
    numbers = [number for number, line in enumerate(lines, 1) if line.strip()]
    results = [_parse_line(path, number, lines[number - 1]) for number in numbers]
    if not rest.strip():
        return ReadResults(results, [], numbers)
    last = len(lines) + 1
    try:  # a file from an editor may lack its last line end
        return ReadResults([*results, decode_result(rest)], [], [*numbers, last])
    except (DecodeError, UnicodeDecodeError, RecursionError):
        torn = f"{path}: line {last} was cut off and is left out: its cell counts as open"
        return ReadResults(results, [torn], numbers)


def read_all_results(paths: Sequence[Path]) -> ReadResults:
    """Read several files, one after the other."""
    files = [read_results(path) for path in paths]
    return ReadResults(
        [result for file in files for result in file.results],
        [warning for file in files for warning in file.warnings],
        [number for file in files for number in file.numbers],
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


def _escape_texts(value: Any) -> Any:
    """Copy a value and escape lone surrogates, which file names may contain."""
    if isinstance(value, dict):
        return {_escape_texts(name): _escape_texts(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escape_texts(item) for item in value]
    return escape_surrogates(value) if isinstance(value, str) else value


def _parse_line(path: Path, number: int, line: bytes) -> Result:
    try:
        return decode_result(line)
    except ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        where = f"{place.rstrip('`').lstrip('.')}: " if place.rstrip("`") else ""
        wrong = f"line {number} is not a result: {where}{reason}"
        raise DataError(f"{path}: {wrong}; {REMEDY}") from error
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}: line {number} is not valid JSON ({error}); {REMEDY}") from error


@contextmanager
def _open_locked(path: Path) -> Iterator[int]:
    """Open a file for appending, locked against other processes if the system has locks."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
    try:
        lock_handle(handle, wait=True)
        yield handle
    finally:
        os.close(handle)  # this also unlocks the file


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
