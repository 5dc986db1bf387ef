"""Files that are there whole or not at all, even if the process is killed while writing."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from boxmend.errors import OutputError


def partial(path: Path) -> Path:
    """Where `replacing` writes: a hidden file beside, always the same, so that none pile up."""
    return path.with_name(f".{path.name}.partial")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends well, else vanishes.

    After a kill there is the old file or the new one, and at worst a hidden `partial` beside it.
    An OSError becomes an OutputError.
    """
    beside = partial(path)
    try:
        try:
            with beside.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise
        sync_folder(path.parent)
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"{path}: could not be written ({reason})") from error


def sync_folder(folder: Path) -> None:
    """Have the names in a folder survive a power cut, where the system can do that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
