"""Locks that go with the process that holds them, however that ends."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from boxmend.errors import BoxmendError

PATIENCE = 1.0  # seconds: a look by `is_held` takes the lock for a moment, too
PAUSE = 0.05


class Held(BoxmendError):
    """Another process holds the lock."""


@contextmanager
def waiting_for(path: Path) -> Iterator[None]:
    """Hold a lock while the block lasts, after whoever holds it now; makes the file's folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        _lock(file, path, wait=True)
        yield


@contextmanager
def sole(path: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Hold a lock while the block lasts; raises Held where another process keeps it."""
    with path.open("ab") as file:
        until = time.monotonic() + patience
        while True:
            try:
                _lock(file, path, wait=False)
                break
            except Held:
                if time.monotonic() >= until:
                    raise
                time.sleep(PAUSE)
        yield


def is_held(path: Path) -> bool:
    """Tell whether a process holds a lock; False where there is no file, or no such locks."""
    if not path.exists():
        return False
    try:
        with sole(path, patience=0):
            return False
    except Held:
        return True
    except OSError:  # a folder of others, or one that has just gone
        return False


def _lock(file: IO[bytes], path: Path, *, wait: bool) -> None:
    """Lock a file until it is closed; where the system has no such locks, go without."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Held(f"{path}: held by another process") from error
    except OSError:  # a file system without locks
        return
