"""Locks on files and folders that end with the process that holds them, however it ends.

`filelock` takes the locks, by handles that this module opens. Its own locks by path need a lock
file that stays behind; these also lock folders and files of data, and leave no trace. On Windows
nothing is locked: a folder cannot be opened there, nor an open file renamed. The same holds for
file systems without locks.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from boxmend.errors import BoxmendError, OutputError

MAX_WAIT_SECONDS = 1.0  # `is_held` takes a lock for a moment, too
POLL_INTERVAL_SECONDS = 0.05


class HeldError(BoxmendError):
    """Another process holds the lock."""


def lock_handle(handle: int, *, wait: bool) -> bool | None:
    """Lock an open file until its handle is closed; return whether this process holds the lock.

    False means that another one holds it, None that the system has no such locks.
    """
    if os.name == "nt":
        return None
    from filelock import lock_descriptor

    try:
        return lock_descriptor(handle, blocking=wait, poll_interval=POLL_INTERVAL_SECONDS)
    except OSError:  # this file system has no locks
        return None


@contextmanager
def try_lock(path: Path) -> Iterator[bool | None]:
    """Lock an existing file or folder; False where another holds it, None without such locks.

    False also where the path is gone, or leads elsewhere by the time of the lock. The lock itself
    leaves no trace on disk.
    """
    if os.name == "nt":
        yield None
        return
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        yield False
        return
    try:
        answer = lock_handle(handle, wait=False)
        yield answer and _leads_to(path, handle)
    finally:
        os.close(handle)


def _leads_to(path: Path, handle: int) -> bool | None:
    """Tell whether a path still names an open file; None where it cannot be asked."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False
    except OSError:
        return None


@contextmanager
def require_lock(path: Path, message: str) -> Iterator[None]:
    """Hold the lock of an existing file or folder, or raise an OutputError with the message."""
    with try_lock(Path(os.path.realpath(path))) as is_locked:
        if is_locked is False:
            raise OutputError(message)
        yield


@contextmanager
def wait_for_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a lock file, after all who hold it now; make the file and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        lock_handle(file.fileno(), wait=True)
        yield


@contextmanager
def hold_lock(path: Path, max_wait: float = MAX_WAIT_SECONDS) -> Iterator[None]:
    """Hold the lock of a lock file, which is made; raise a HeldError where another one keeps it."""
    with path.open("ab") as file:
        until = time.monotonic() + max_wait
        while lock_handle(file.fileno(), wait=False) is False:
            if time.monotonic() >= until:
                raise HeldError(f"{path}: held by another process")
            time.sleep(POLL_INTERVAL_SECONDS)
        yield


def is_held(path: Path) -> bool:
    """Tell whether a process holds a lock; False where there is no file, or no such locks."""
    if not path.exists():
        return False
    try:
        with hold_lock(path, max_wait=0):
            return False
    except HeldError:
        return True
    except OSError:  # a folder of others, or one that has just gone
        return False
