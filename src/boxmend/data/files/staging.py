"""Output folders that are complete or absent: written beside the target, synced and renamed."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from boxmend.data.files.syncing import sync_folder, sync_tree
from boxmend.data.files.temporary import remove_leftovers, temporary_folder
from boxmend.errors import OutputError

OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def stage_folder(out: Path, *, sync: bool = True) -> Iterator[Path]:
    """Create a folder that replaces `out` if the block succeeds and is removed otherwise.

    `out` must be new or empty. The folder lies beside it and is renamed in one step, so after a
    kill `out` is complete or unchanged. With `sync` this holds after a power cut, too. If two
    processes write the same `out`, one gets an OutputError.
    """
    ensure_vacant(out)
    target = Path(os.path.abspath(out))
    with _wrap_output_errors(out), _create_parents(target):
        remove_leftovers(target.parent)
        with temporary_folder(target) as folder:
            yield folder
            if sync:
                sync_tree(folder)
            _rename(folder, target)
        if sync:
            sync_folder(target.parent)


def ensure_vacant(out: Path) -> None:
    """Raise an OutputError unless an output folder is new or empty; nothing is ever overwritten."""
    with _wrap_output_errors(out):
        if out.is_symlink() or (out.exists() and not out.is_dir()):
            raise OutputError(f"{out}: exists already and is not a folder; name a new one")
        if not out.is_dir():
            return
        if any(out.iterdir()):
            raise OutputError(f"{out}: the folder is not empty; name a new or an empty one")
        if out.samefile(".") or os.path.ismount(out):
            kind = "the current folder" if out.samefile(".") else "a mount point"
            raise OutputError(
                f"{out}: is {kind}, which cannot be replaced in one step; name a new folder "
                f"inside, such as {out / 'out'}"
            )


def _rename(folder: Path, out: Path) -> None:
    """Rename a folder to `out`, which is absent or an empty folder; keep the mode of the latter."""
    try:
        if out.is_dir():
            shutil.copymode(out, folder)
            if os.name == "nt":  # Windows does not replace a folder, not even an empty one
                out.rmdir()
        folder.rename(out)
    except OSError as error:
        if error.errno in OCCUPIED:
            raise OutputError(
                f"{out}: another process wrote there in the meantime; nothing was overwritten"
            ) from error
        raise


@contextmanager
def _wrap_output_errors(out: Path) -> Iterator[None]:
    """Turn every OSError into an OutputError that names the output folder."""
    try:
        yield
    except OSError as error:
        reason = "the disk is full" if error.errno in DISK_FULL else error.strerror or str(error)
        message = f"{out}: could not be written ({reason}); nothing was left behind"
        raise OutputError(message) from error


@contextmanager
def _create_parents(out: Path) -> Iterator[None]:
    """Create the folders above `out`; on failure, remove those that it created."""
    missing = [parent for parent in out.parents if not parent.exists()]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for parent in missing:  # the innermost first
            with suppress(OSError):
                parent.rmdir()
        raise
