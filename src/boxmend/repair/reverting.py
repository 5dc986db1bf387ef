"""Revert the changes of `apply`: check all files first, then restore them one by one."""

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
    """Restore the original annotation files in a folder that `apply` wrote, and return their names.

    Raises a DataError and restores nothing if a file was edited since. An interrupted call can be
    repeated. `changes.csv` and `patch.json` are removed at the end.
    """
    base = Path(folder)
    if not os.path.isdir(base):
        raise UsageError(f"{base}: no such folder")
    if not os.path.exists(base / PATCH_FILE):
        raise DataError(
            f"{base}: has no {PATCH_FILE}, so there is nothing to revert: `boxmend apply` did not "
            "write this folder, or it was reverted already"
        )
    with require_lock(base, f"{base}: another process is writing into it; run revert again later"):
        return _restore(base)


def _restore(base: Path) -> list[str]:
    """Check and restore all files of a folder that has a patch.json."""
    file_patches = patches.read_patches(base / PATCH_FILE)
    _ensure_inside(base, file_patches)
    hashes = {name: _hash_file(base / name, patch) for name, patch in file_patches.items()}
    _ensure_unedited(base, file_patches, hashes)
    to_revert = [name for name, patch in file_patches.items() if hashes[name] != patch.before]
    to_write = [name for name in to_revert if file_patches[name].before is not None]
    _ensure_removable(base)
    for name in to_write:  # check all files before the first one is written
        patches.read_original(base / name, file_patches[name])
        (base / name).parent.mkdir(parents=True, exist_ok=True)
    replace_files(
        (base / name, patches.read_original(base / name, file_patches[name])) for name in to_write
    )
    for name in set(to_revert).difference(to_write):  # `apply` created them
        _remove(base / name)
    for folder in {(base / name).parent for name in file_patches}:
        remove_leftovers(folder)  # of a revert that was killed
        sync_folder(folder)
    for name in (CHANGES_FILE, PATCH_FILE):  # the patch last: until then revert can be repeated
        _remove(base / name)
    return sorted(file_patches)


def _ensure_inside(base: Path, names: Iterable[str]) -> None:
    """Refuse links out of the folder: a folder from others could overwrite any file."""
    root = os.path.realpath(base)
    for name in names:
        if not Path(os.path.realpath(base / name)).is_relative_to(root):
            raise DataError(
                f"{base / name}: is a link out of the folder, which `boxmend apply` does not "
                "write; nothing was reverted. Replace the link by the file"
            )


def _hash_file(path: Path, patch: patches.FilePatch) -> str | None:
    """Return the hash of a file; None for a missing file if the patch allows it."""
    if None in (patch.before, patch.after) and not os.path.exists(path):
        return None
    return patches.sha256(read_bytes(path))


def _ensure_unedited(
    base: Path, file_patches: Mapping[str, patches.FilePatch], hashes: Mapping[str, str | None]
) -> None:
    edited = [
        name
        for name, patch in file_patches.items()
        if hashes[name] not in (patch.before, patch.after)
    ]
    if edited:
        more = f" (and {len(edited) - 1:,} more)" if len(edited) > 1 else ""
        raise DataError(
            f"{base / edited[0]}{more}: was edited since `boxmend apply` wrote it; nothing was "
            "reverted. Restore the file as it was written, or apply the run to a new folder"
        )


def _ensure_removable(base: Path) -> None:
    """Refuse a folder in the place of changes.csv, which is removed at the end."""
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
