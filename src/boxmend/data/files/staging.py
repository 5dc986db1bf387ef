"""Output folders that are whole or absent: written beside the target, synced, then renamed."""

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
    """Make a folder that takes the place of `out` when the block ends well, and else vanishes.

    `out` must be new or empty. The folder lies beside it and is renamed in one step, so that after
    a kill `out` is complete or as it was. With `sync` this holds after a power cut, too. Of two
    processes that write the same `out`, one gets an OutputError.
    """
    ensure_vacant(out)
    target = Path(os.path.abspath(out))
    with _output_errors(out), _parents(target):
        remove_leftovers(target.parent)
        with temporary_folder(target) as folder:
            yield folder
            if sync:
                sync_tree(folder)
            _rename(folder, target)
        if sync:
            sync_folder(target.parent)


def ensure_vacant(out: Path) -> None:
    """Refuse an output folder that cannot be new: nothing is ever overwritten."""
    with _output_errors(out):
        if out.is_symlink() or (out.exists() and not out.is_dir()):
            raise OutputError(f"{out}: exists already and is not a folder; name a new one")
        if not out.is_dir():
            return
        if any(out.iterdir()):
            raise OutputError(f"{out}: the folder is not empty; name a new or an empty one")
        if out.samefile(".") or os.path.ismount(out):
            what = "the current folder" if out.samefile(".") else "a mount point"
            raise OutputError(
                f"{out}: is {what}, which cannot be replaced in one step; name a new folder "
                f"inside, such as {out / 'out'}"
            )


def _rename(folder: Path, out: Path) -> None:
    """Rename a folder to `out`, which is absent or an empty folder whose mode is kept."""
    try:
        if out.is_dir():
            shutil.copymode(out, folder)
            if os.name == "nt":  # Windows replaces no folder, not even an empty one
                out.rmdir()
        folder.rename(out)
    except OSError as error:
        if error.errno in OCCUPIED:
            raise OutputError(
                f"{out}: another process has written there meanwhile; nothing is overwritten"
            ) from error
        raise


@contextmanager
def _output_errors(out: Path) -> Iterator[None]:
    """Turn every OSError into an OutputError that names the output."""
    try:
        yield
    except OSError as error:
        reason = "the disk is full" if error.errno in DISK_FULL else error.strerror or str(error)
        message = f"{out}: could not be written ({reason}); nothing was left behind"
        raise OutputError(message) from error


@contextmanager
def _parents(out: Path) -> Iterator[None]:
    """Make the folders above `out`; remove those that were new on failure."""
    missing = [parent for parent in out.parents if not parent.exists()]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for parent in missing:  # the innermost first
            with suppress(OSError):
                parent.rmdir()
        raise
