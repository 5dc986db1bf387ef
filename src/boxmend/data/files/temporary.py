"""Temporary files and folders beside their target: reused after a kill, never while in use.

A temporary path has a number: `.NAME.boxmend-partial`, `.NAME.boxmend-partial-1`, and so on. A
process holds a lock on the one that it writes, and the lock ends with the process. A writer takes
the first number that no living process holds, and removes what a killed one left there.
Where the system has no such locks (Windows, some network file systems) a random name is used, and
leftovers stay until someone removes them.
"""

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from boxmend.data.files.locks import try_lock

MARK = "boxmend-partial"
MAX_NAME_BYTES = 180  # of the target in a temporary name: systems allow 255 in all
MAX_WRITERS = 1000  # living processes that write one target at the same time

_NAME = re.compile(rf"\..+\.{MARK}(-\w+)?", re.DOTALL)


def temporary_path(path: Path, number: int | str = 0) -> Path:
    """Return the temporary path of a target by its number."""
    name = os.fsdecode(os.fsencode(path.name)[:MAX_NAME_BYTES])
    return path.with_name(f".{name}.{MARK}" + (f"-{number}" if number else ""))


def is_temporary(name: str) -> bool:
    """Tell whether a file or folder has the name of a temporary one."""
    return _NAME.fullmatch(name) is not None


@contextmanager
def temporary_file(path: Path) -> Iterator[Path]:
    """Make an empty file beside `path` for this process alone; removed at the end if still there.

    A hard kill leaves it behind. The next writer of the same target takes it over.
    """
    with _held(path, _make_file) as temporary:
        os.truncate(temporary, 0)
        with _removed_at_the_end(temporary):
            yield temporary


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Make an empty folder beside `path` for this process alone; removed at the end if there."""
    with _held(path, os.mkdir) as temporary:
        for child in temporary.iterdir():
            _remove(child)
        with _removed_at_the_end(temporary):
            yield temporary


@contextmanager
def _removed_at_the_end(path: Path) -> Iterator[None]:
    """Remove a path unless it was renamed, after which it may belong to another process."""
    own = os.lstat(path)
    try:
        yield
    finally:
        with suppress(OSError):
            if os.path.samestat(own, os.lstat(path)):
                _remove(path)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files and folders in `folder` whose process is dead."""
    with suppress(OSError):
        names = [name for name in os.listdir(folder) if is_temporary(name)]
        for path in (folder / name for name in names):
            with suppress(OSError), try_lock(path) as is_locked:
                if is_locked:
                    _remove(path)


@contextmanager
def _held(path: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Make or take over a temporary path, and hold its lock while the block lasts."""
    for number in range(MAX_WRITERS):
        temporary = temporary_path(path, number)
        is_new = _made(temporary, make)
        with try_lock(temporary) as is_locked:
            if is_locked and (is_new or _is_of_kind(temporary, make)):
                yield temporary
                return
        if is_locked is None:
            if is_new:
                _remove(temporary)
            break
    temporary = temporary_path(path, secrets.token_hex(8))
    make(temporary)
    yield temporary


def _made(path: Path, make: Callable[[Path], None]) -> bool:
    """Make a file or folder; return False where the path exists already."""
    try:
        make(path)
    except FileExistsError:
        return False
    return True


def _make_file(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))


def _is_of_kind(path: Path, make: Callable[[Path], None]) -> bool:
    return path.is_file() if make is _make_file else path.is_dir()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
