"""Open files that users name: only regular files, and only up to a size limit.

Opening a pipe waits until somebody writes into it, and reading `/dev/zero` never ends. `open_file`
opens every file that a user, or a file of a user, names.
"""

import os
import stat
from io import BufferedReader
from pathlib import Path

from boxmend.data.files.limits import describe_excess, ensure_within_limit
from boxmend.errors import DataError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
# With these flags, opening a pipe does not wait and opening a terminal does not take it over.
_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
SMALL_BYTES = 2**20  # this much JSON decodes into less than 100 MB, even if it is all brackets


class NotRegularError(OSError):
    """The path leads to a folder, a pipe, a device or a socket."""


def open_file(path: str | Path) -> BufferedReader:
    """Open a regular file for reading; raise a NotRegularError (an OSError) for anything else.

    The check of the open file cannot be evaded by an exchange of the file. The check before it
    is needed because opening some devices has effects.
    """
    _ensure_regular(os.stat(path))
    handle = os.open(path, _FLAGS)
    try:
        _ensure_regular(os.fstat(handle))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_limited(path: str | Path, limit_name: str) -> bytes:
    """Return the content of a regular file; raise an OSError if it is unreadable or too large."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if message := describe_excess(limit_name, size):
            raise OSError(message)
        return file.read(size)


def read_bytes(path: Path, limit_name: str = "annotation_bytes") -> bytes:
    """Return the content of a regular file; raise a DataError with its path and the reason."""
    try:
        return read_limited(path, limit_name)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise DataError(f"{path}: cannot be read ({describe_os_error(error)})") from error


def read_record(path: Path) -> bytes:
    """Return the content of a JSON file that boxmend wrote.

    Raise an OSError if it is unreadable or too large, a DataError if it has too many values.
    """
    data = read_limited(path, "record_bytes")
    ensure_few_values(data, path)
    return data


def describe_os_error(error: Exception) -> str:
    """Return why a file could not be opened or read, without its path."""
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


def ensure_few_values(data: bytes, path: str | Path, limit_name: str = "record_values") -> None:
    """Raise a DataError if JSON may hold more values than the limit.

    A comma or a bracket follows each value, so their count bounds the number of objects that a
    decoder creates. Commas and brackets within texts count, too.
    """
    if len(data) > SMALL_BYTES:
        amount = sum(map(data.count, (b",", b"[", b"{")))
        ensure_within_limit(limit_name, amount, path)


def _ensure_regular(status: os.stat_result) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise NotRegularError(f"{_KINDS.get(kind, 'something else')}, not a regular file")
