"""Locks on files and folders; a lock ends with its process, even if the process is killed.

`filelock` locks the handles that this module opens. Its locks by path leave a lock file behind;
these lock folders and data files themselves and leave no trace. Nothing is locked on Windows,
where a folder cannot be opened and an open file cannot be renamed, nor on file systems without
locks.
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

    False means that another process holds it, None that the system has no such locks.
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
    """Lock an existing file or folder; yield whether this process holds the lock.

    Yield False if another process holds it, or if the path no longer leads to the locked file.
    Yield None if the system has no such locks.
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
        is_locked = lock_handle(handle, wait=False)
        yield is_locked and _leads_to(path, handle)
    finally:
        os.close(handle)


def _leads_to(path: Path, handle: int) -> bool | None:
    """Return whether a path still names an open file; None if that cannot be checked."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False
    except OSError:
        return None


@contextmanager
def require_lock(path: Path, message: str) -> Iterator[None]:
    """Hold the lock of an existing file or folder; raise an OutputError if another process does."""
    with try_lock(Path(os.path.realpath(path))) as is_locked:
        if is_locked is False:
            raise OutputError(message)
        yield


@contextmanager
def wait_for_lock(path: Path) -> Iterator[None]:
    """Wait for the lock of a lock file and hold it; create the file and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        lock_handle(file.fileno(), wait=True)
        yield


@contextmanager
def hold_lock(path: Path, max_wait_seconds: float = MAX_WAIT_SECONDS) -> Iterator[None]:
    """Create a lock file and hold its lock; raise a HeldError if another process keeps it."""
    with path.open("ab") as file:
        deadline = time.monotonic() + max_wait_seconds
        while lock_handle(file.fileno(), wait=False) is False:
            if time.monotonic() >= deadline:
                raise HeldError(f"{path}: held by another process")
            time.sleep(POLL_INTERVAL_SECONDS)
        yield


def is_held(path: Path) -> bool:
    """Return whether a process holds a lock; False without a file or without such locks."""
    if not path.exists():
        return False
    try:
        with hold_lock(path, max_wait_seconds=0):
            return False
    except HeldError:
        return True
    except OSError:  # the folder belongs to another user, or was just removed
        return False
