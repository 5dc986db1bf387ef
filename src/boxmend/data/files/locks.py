"""Locks on files and folders that end with the process that holds them, however it ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from boxmend.errors import OutputError


@contextmanager
def locking(path: Path) -> Iterator[bool | None]:
    """Lock an existing file or folder; False where another holds it, None without such locks.

    False also where the path is gone, or leads elsewhere by the time of the lock. The lock itself
    leaves no trace on disk.
    """
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ModuleNotFoundError:  # Windows
        yield None
        return
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        yield False
        return
    try:
        try:
            flock(handle, LOCK_EX | LOCK_NB)
            answer: bool | None = os.path.samestat(os.fstat(handle), os.lstat(path))
        except (BlockingIOError, FileNotFoundError):
            answer = False
        except OSError:  # this file system has no locks
            answer = None
        yield answer
    finally:
        os.close(handle)


@contextmanager
def only_writer(path: Path, message: str) -> Iterator[None]:
    """Hold the lock of an existing file or folder, or raise an OutputError with the message."""
    with locking(Path(os.path.realpath(path))) as is_locked:
        if is_locked is False:
            raise OutputError(message)
        yield
