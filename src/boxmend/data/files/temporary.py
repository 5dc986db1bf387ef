"""Temporary files and folders beside their target, reused after a kill.

A temporary path has a number: `.NAME.boxmend-partial`, `.NAME.boxmend-partial-1`, and so on. A
process locks the path that it writes, and the lock ends with the process. A writer takes the first
number that is not locked and removes what a killed process left there. On systems without such
locks (Windows, some network file systems) the name is random, and leftovers stay until someone
removes them.
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
MAX_NAME_BYTES = 180  # of the target's name; systems allow 255 for the whole temporary name
MAX_WRITERS = 1000  # processes that write one target at the same time

_NAME = re.compile(rf"\..+\.{MARK}(-\w+)?", re.DOTALL)


def temporary_path(path: Path, number: int | str = 0) -> Path:
    """Return the temporary path of a target with this number."""
    name = os.fsdecode(os.fsencode(path.name)[:MAX_NAME_BYTES])
    return path.with_name(f".{name}.{MARK}" + (f"-{number}" if number else ""))


def is_temporary(name: str) -> bool:
    """Return whether a name is that of a temporary file or folder."""
    return _NAME.fullmatch(name) is not None


@contextmanager
def temporary_file(path: Path) -> Iterator[Path]:
    """Create an empty file beside `path` for this process alone; remove it at the end.

    A hard kill leaves it behind, and the next writer of the same target reuses it.
    """
    with _hold_temporary(path, _create_file) as temporary:
        os.truncate(temporary, 0)
        with _remove_at_end(temporary):
            yield temporary


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Create an empty folder beside `path` for this process alone; remove it at the end."""
    with _hold_temporary(path, os.mkdir) as temporary:
        for child in temporary.iterdir():
            _remove(child)
        with _remove_at_end(temporary):
            yield temporary


@contextmanager
def _remove_at_end(path: Path) -> Iterator[None]:
    """Remove a path after the block, unless it was renamed: another process may own it by then."""
    created = os.lstat(path)
    try:
        yield
    finally:
        with suppress(OSError):
            if os.path.samestat(created, os.lstat(path)):
                _remove(path)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files and folders in `folder` whose process has ended."""
    with suppress(OSError):
        names = [name for name in os.listdir(folder) if is_temporary(name)]
        for path in (folder / name for name in names):
            with suppress(OSError), try_lock(path) as is_locked:
                if is_locked:
                    _remove(path)


@contextmanager
def _hold_temporary(path: Path, create: Callable[[Path], None]) -> Iterator[Path]:
    """Create or reuse a temporary path and hold its lock during the block."""
    for number in range(MAX_WRITERS):
        temporary = temporary_path(path, number)
        is_new = _create_if_absent(temporary, create)
        with try_lock(temporary) as is_locked:
            if is_locked and (is_new or _is_same_kind(temporary, create)):
                yield temporary
                return
        if is_locked is None:
            if is_new:
                _remove(temporary)
            break
    temporary = temporary_path(path, secrets.token_hex(8))
    create(temporary)
    yield temporary


def _create_if_absent(path: Path, create: Callable[[Path], None]) -> bool:
    """Create a file or folder; return False if the path exists already."""
    try:
        create(path)
    except FileExistsError:
        return False
    return True


def _create_file(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))


def _is_same_kind(path: Path, create: Callable[[Path], None]) -> bool:
    return path.is_file() if create is _create_file else path.is_dir()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
