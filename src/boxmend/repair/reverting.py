"""Taking back what `apply` changed: all files are checked first, then restored one by one."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from boxmend.data.files.atomic import replace_files
from boxmend.data.files.locks import require_lock
from boxmend.data.files.reading import read_bytes
from boxmend.data.files.syncing import sync_folder
from boxmend.data.files.temporary import remove_leftovers
from boxmend.errors import DataError, OutputError, UsageError
from boxmend.repair import patches

CHANGES_FILE = "changes.csv"
PATCH_FILE = "patch.json"


def revert(folder: str | Path) -> list[str]:
    """Restore the annotation files that `apply` wrote to what they were without the mending.

    Returns their names. Nothing is touched where one was edited since, which a DataError names.
    One that was interrupted can be repeated. `changes.csv` and `patch.json` go at the end.
    """
    base = Path(folder)
    if not os.path.isdir(base):
        raise UsageError(f"{base}: no such folder")
    if not os.path.exists(base / PATCH_FILE):
        raise DataError(
            f"{base}: there is no {PATCH_FILE}, so nothing to revert: `boxmend apply` did not "
            "write this folder, or it has been reverted"
        )
    with require_lock(base, f"{base}: another process is writing there; run revert again later"):
        return _restore(base)


def _restore(base: Path) -> list[str]:
    """Check and restore all files of a folder that has a patch.json."""
    way_back = patches.read_patches(base / PATCH_FILE)
    _ensure_own(base, way_back)
    now = {name: _hash_now(base / name, patch) for name, patch in way_back.items()}
    _ensure_unedited(base, way_back, now)
    left = [name for name, patch in way_back.items() if now[name] != patch.before]
    written = [name for name in left if way_back[name].before is not None]
    _ensure_removable(base)
    for name in written:
        patches.restored(base / name, way_back[name])  # all of it is checked before any is written
        (base / name).parent.mkdir(parents=True, exist_ok=True)
    replace_files((base / name, patches.restored(base / name, way_back[name])) for name in written)
    for name in set(left).difference(written):  # the mending made them
        _remove(base / name)
    for folder in {(base / name).parent for name in way_back}:
        remove_leftovers(folder)  # of a revert that was killed
        sync_folder(folder)
    for name in (CHANGES_FILE, PATCH_FILE):  # the way back last: until then it can be repeated
        _remove(base / name)
    return sorted(way_back)


def _ensure_own(base: Path, names: Iterable[str]) -> None:
    """Refuse files that links put elsewhere: what others hand on could lead to any file."""
    root = os.path.realpath(base)
    for name in names:
        if not Path(os.path.realpath(base / name)).is_relative_to(root):
            raise DataError(
                f"{base / name}: is a link out of the folder, which `boxmend apply` does not "
                "write; nothing was reverted. Put the file itself there"
            )


def _hash_now(path: Path, patch: patches.FilePatch) -> str | None:
    """The hash of a file; None where it is not there and need not be."""
    if None in (patch.before, patch.after) and not os.path.exists(path):
        return None
    return patches.sha256(read_bytes(path))


def _ensure_unedited(
    base: Path, way_back: Mapping[str, patches.FilePatch], now: Mapping[str, str | None]
) -> None:
    edited = [
        name for name, patch in way_back.items() if now[name] not in (patch.before, patch.after)
    ]
    if edited:
        more = f" (and {len(edited) - 1:,} more)" if len(edited) > 1 else ""
        raise DataError(
            f"{base / edited[0]}{more}: was edited since `boxmend apply` wrote it; nothing was "
            "reverted. Bring back the file as it was written, or apply the run to a new folder"
        )


def _ensure_removable(base: Path) -> None:
    """Refuse a folder in the place of a file that goes at the end, before anything is touched."""
    if (base / CHANGES_FILE).is_dir():
        raise DataError(
            f"{base / CHANGES_FILE}: is a folder, which `boxmend apply` does not write; nothing "
            "was reverted. Move it away"
        )


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"{path}: could not be removed ({reason}); run revert again") from error
