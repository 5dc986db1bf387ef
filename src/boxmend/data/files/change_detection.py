"""Detect input files that change while boxmend works with them."""

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from boxmend.data.files.limits import describe_excess
from boxmend.data.files.reading import open_file
from boxmend.errors import DataError

RECENT_NS = 2 * 10**9
"""Some file systems have time stamps this coarse: a second change within it may stay invisible."""
REMEDY = "run the command again when nothing writes to it"

State = tuple[int, int, int]


class ReadFile(NamedTuple):
    """The content and state of a file at the time it was read."""

    path: str
    state: State | None
    """Size, modification time and change time; None if only the bytes can be compared."""
    content: bytes | None
    """None if there was no file."""


def read_file(path: str | Path, limit_name: str = "annotation_bytes") -> ReadFile:
    """Read a whole file; raise a DataError if it changes during the read.

    Raise an OSError if it cannot be read, is not a regular file, or is larger than the limit.
    """
    with open_file(path) as file:
        before = os.fstat(file.fileno())
        if message := describe_excess(limit_name, before.st_size):
            raise OSError(message)
        content = file.read()
        after = os.fstat(file.fileno())
    if _to_state(before) != _to_state(after) or len(content) != after.st_size:
        raise DataError(f"{path}: changed while boxmend was reading it; {REMEDY}")
    newest = max(after.st_mtime_ns, after.st_ctime_ns)
    is_recent = time.time_ns() - newest < RECENT_NS
    return ReadFile(_make_absolute(path), None if is_recent else _to_state(after), content)


def read_states(paths: Iterable[str | Path]) -> dict[str, State | None]:
    """Return the states of files that other code will read; None for a missing file."""
    return {_make_absolute(path): _read_state(path) for path in paths}


def ensure_states_unchanged(states: Mapping[str, State | None]) -> None:
    """Raise a DataError that names the first file whose size or times differ from `states`."""
    for path, state in states.items():
        if _read_state(path) != state:
            raise _make_change_error(path)


def record_missing_file(path: str | Path) -> ReadFile:
    """Return the record of a file that does not exist."""
    return ReadFile(_make_absolute(path), None, None)


def ensure_unchanged(files: Iterable[ReadFile]) -> None:
    """Raise a DataError that names the first file whose bytes differ from those read.

    A file with the same size and times is not read again.
    """
    for path, state, content in files:
        try:
            now = os.stat(path)
        except OSError:
            is_same = content is None
        else:
            is_same = state == _to_state(now) or _read_content(path) == content
        if not is_same:
            raise _make_change_error(path)


def _make_absolute(path: str | Path) -> str:
    """Return the absolute path, which stays valid when the working folder changes."""
    text = str(path)
    return text if os.path.isabs(text) else os.path.abspath(text)


def _to_state(status: os.stat_result) -> State:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _read_state(path: str | Path) -> State | None:
    try:
        return _to_state(os.stat(path))
    except OSError:
        return None


def _make_change_error(path: str) -> DataError:
    return DataError(
        f"{path}: changed after boxmend began to read it, so nothing was written; {REMEDY}"
    )


def _read_content(path: str) -> bytes | None:
    """Return the bytes of a regular file; None if there is no such file."""
    try:
        with open_file(path) as file:
            return file.read()
    except OSError:
        return None
