"""Files that are whole or absent, even if the process is killed or the power fails."""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from boxmend.data.files.syncing import sync_files, sync_folder
from boxmend.data.files.temporary import temporary_file
from boxmend.errors import OutputError

FILES_PER_BATCH = 256  # open at the same time; systems allow at least 1,024


@contextmanager
def wrap_os_errors(path: Path) -> Iterator[None]:
    """Turn every OSError into an OutputError that names the file or folder to write."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"{path}: could not be written ({reason})") from error


@contextmanager
def open_atomic(
    path: Path, *, overwrite: bool = True, sync_name: bool = True
) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` if the block succeeds and is removed otherwise.

    After a kill or a power cut `path` is the old file or the new one. If two processes replace the
    same file, the last one wins; with `overwrite=False` the first one wins and the other gets an
    OutputError. Every OSError becomes an OutputError. Without `sync_name`, a power cut may undo
    the whole replacement; use it for one of many files in a folder.
    """
    with wrap_os_errors(path):
        with temporary_file(path) as temporary:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if overwrite:
                temporary.replace(path)
            else:
                _link_new(temporary, path)
        if sync_name:
            sync_folder(path.parent)


def _link_new(temporary: Path, path: Path) -> None:
    """Rename a file to `path`; raise an OutputError if something exists there."""
    try:
        os.link(temporary, path)
    except FileExistsError as error:
        raise OutputError(
            f"{path}: another process wrote it in the meantime; nothing was overwritten"
        ) from error
    except (OSError, NotImplementedError):  # a file system without hard links
        if os.path.lexists(path):
            raise OutputError(f"{path}: exists already; nothing was overwritten") from None
        temporary.replace(path)


def replace_files(contents: Iterable[tuple[Path, bytes]]) -> None:
    """Replace many files, each as `open_atomic` does, with one sync per batch of files."""
    remaining = iter(contents)
    while batch := list(islice(remaining, FILES_PER_BATCH)):
        with wrap_os_errors(batch[0][0]):
            with ExitStack() as stack:
                pairs = []
                for path, content in batch:
                    temporary = stack.enter_context(temporary_file(path))
                    temporary.write_bytes(content)
                    pairs.append((temporary, path))
                sync_files([temporary for temporary, _ in pairs])
                for temporary, path in pairs:
                    temporary.replace(path)
            for folder in {path.parent for path, _ in batch}:
                sync_folder(folder)
