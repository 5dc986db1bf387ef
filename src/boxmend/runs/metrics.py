"""The lines of a run's `metrics.jsonl`: one JSON object each, with its "step".

Each line is appended by one call, so a killed process can tear the last one only.
"""

import json
import os
from pathlib import Path
from typing import Any

from boxmend.data.files.atomic import open_atomic, wrap_os_errors
from boxmend.data.files.digests import add_json_digest, verify_json_lines
from boxmend.data.files.reading import read_limited
from boxmend.errors import DataError, OutputError

Record = dict[str, Any]
REMEDY = "remove that line"


def append(path: Path, line: bytes) -> None:
    """Append one line, which ends in a line feed, with its digest."""
    sealed = add_json_digest(line)
    with wrap_os_errors(path), path.open("ab", buffering=0) as file:
        written = file.write(sealed)
    if written != len(sealed):
        raise OutputError(f"{path}: could not be written (the disk is full)")


def read(path: Path) -> list[tuple[bytes, Record]]:
    """Return each complete line as bytes and parsed; a DataError names a damaged one."""
    lines = enumerate(_read_complete_lines(path), 1)
    return [(line, _parse_line(path, number, text)) for number, (line, text) in lines]


def sync(path: Path) -> int:
    """Sync the file to disk and return its size in bytes; 0 if there is no file yet."""
    if not os.path.exists(path):
        return 0
    with wrap_os_errors(path), path.open("rb+") as file:
        os.fsync(file.fileno())
        return file.seek(0, os.SEEK_END)


def rewind(path: Path, step: int | None, num_bytes: int | None = None) -> None:
    """Remove the lines that were written after a checkpoint; a resumed run writes them again.

    The checkpoint was saved at `step` (None: no checkpoint, so all lines go), when the file had
    `num_bytes` (None: a checkpoint of an earlier version, which does not record it). The step alone
    is not enough: the lines at the end of an epoch have the step of the checkpoint, which may have
    been saved before them.
    """
    if not os.path.exists(path):
        return
    kept, size = [], 0
    for line, record in read(path):
        size += len(line)
        is_early = num_bytes is None or size <= num_bytes
        if is_early and step is not None and record["step"] <= step:
            kept.append(line)
    with open_atomic(path) as file:
        file.writelines(kept)


def drop_torn_line(path: Path) -> None:
    """Remove the incomplete last line that a killed process left."""
    complete = b"".join(line for line, _ in _read_complete_lines(path))
    if os.path.exists(path) and path.stat().st_size > len(complete):
        with open_atomic(path) as file:
            file.write(complete)


def is_step(value: Any) -> bool:
    """Return whether a value can be the "step" of a line: an integer, not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def _read_complete_lines(path: Path) -> list[tuple[bytes, bytes]]:
    """Return the complete lines, each as it is and without its digest."""
    try:
        data = read_limited(path, "record_bytes")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    lines = (line + b"\n" for line in data.split(b"\n")[:-1])
    return list(zip(lines, verify_json_lines(path, data, REMEDY)[:-1], strict=True))


def _parse_line(path: Path, number: int, text: bytes) -> Record:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: line {number} is not JSON ({error}); {REMEDY}") from error
    if not isinstance(record, dict) or not is_step(record.get("step")):
        raise DataError(f"{path}: line {number} is not an object with an integer 'step'; {REMEDY}")
    return record
