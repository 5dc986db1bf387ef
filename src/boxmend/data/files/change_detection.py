"""Input files that must not change between being read and being written about."""

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from boxmend.data.files.limits import describe_excess
from boxmend.data.files.reading import open_file
from boxmend.errors import DataError

RECENT_NS = 2 * 10**9
"""Time stamps of some file systems are this coarse: a second change within it may not show."""
REMEDY = "run the command again when nothing writes to it"

State = tuple[int, int, int]


class ReadFile(NamedTuple):
    """A file as it was when it was read."""

    path: str
    state: State | None
    """Size, time of modification, time of change; None where only the bytes can be compared."""
    content: bytes | None
    """None where there was no file."""


def read_file(path: str | Path, limit_name: str = "annotation_bytes") -> ReadFile:
    """Read a whole file; a DataError where it changes meanwhile.

    An OSError where it cannot be read, is no regular file, or is larger than the limit.
    """
    with open_file(path) as file:
        before = os.fstat(file.fileno())
        if message := describe_excess(limit_name, before.st_size):
            raise OSError(message)
        content = file.read()
        after = os.fstat(file.fileno())
    if _state(before) != _state(after) or len(content) != after.st_size:
        raise DataError(f"{path}: changed while boxmend was reading it; {REMEDY}")
    newest = max(after.st_mtime_ns, after.st_ctime_ns)
    is_recent = time.time_ns() - newest < RECENT_NS
    return ReadFile(_absolute(path), None if is_recent else _state(after), content)


def read_states(paths: Iterable[str | Path]) -> dict[str, State | None]:
    """Size and times of files that are to be read by other code; None for one that is not there."""
    return {_absolute(path): _state_at(path) for path in paths}


def ensure_states_unchanged(states: Mapping[str, State | None]) -> None:
    """Raise a DataError that names the first file whose size or times differ from `states`."""
    for path, state in states.items():
        if _state_at(path) != state:
            raise _changed(path)


def record_missing_file(path: str | Path) -> ReadFile:
    """A file that was looked for and not found."""
    return ReadFile(_absolute(path), None, None)


def ensure_unchanged(files: Iterable[ReadFile]) -> None:
    """Raise a DataError that names the first file whose bytes differ from those that were read.

    A file whose size and times are the same is not read again.
    """
    for path, state, content in files:
        try:
            now = os.stat(path)
        except OSError:
            is_same = content is None
        else:
            is_same = state == _state(now) or _content(path) == content
        if not is_same:
            raise _changed(path)


def _absolute(path: str | Path) -> str:
    """A path that leads to the same file after a change of the working folder."""
    text = str(path)
    return text if os.path.isabs(text) else os.path.abspath(text)


def _state(status: os.stat_result) -> State:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _state_at(path: str | Path) -> State | None:
    try:
        return _state(os.stat(path))
    except OSError:
        return None


def _changed(path: str) -> DataError:
    return DataError(
        f"{path}: changed after boxmend had begun to read it, so nothing was written; {REMEDY}"
    )


def _content(path: str) -> bytes | None:
    """Return the bytes of a regular file; None where there is none."""
    try:
        with open_file(path) as file:
            return file.read()
    except OSError:
        return None
