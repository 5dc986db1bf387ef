"""What lies in a folder, and what has changed there."""

import hashlib
import os
import stat
from fnmatch import fnmatch
from pathlib import Path

Snapshot = dict[str, str]
LEFTOVERS = ("*partial*", ".lock", "*.lock", "*.tmp", ".tmp*")


def snapshot(folder: Path) -> Snapshot:
    """Every path below a folder with what lies there; special files are not opened."""
    found: Snapshot = {}
    waiting = [""]
    while waiting:
        inner = waiting.pop()
        for entry in os.scandir(os.path.join(folder, inner)):
            path = f"{inner}/{entry.name}".lstrip("/")
            found[path] = _told(entry)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)
    return found


def _told(entry: os.DirEntry[str]) -> str:
    mode = entry.stat(follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        return f"link to {os.readlink(entry.path)}"
    if stat.S_ISREG(mode):
        with open(entry.path, "rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    return "folder" if stat.S_ISDIR(mode) else f"special {stat.S_IFMT(mode):o}"


def changed(before: Snapshot, after: Snapshot) -> list[str]:
    """The paths that differ, sorted."""
    return sorted(
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    )


def matching(paths: list[str], patterns: tuple[str, ...]) -> list[str]:
    """The paths that one of the patterns matches; `*` matches slashes, too."""
    return [path for path in paths if any(fnmatch(path, one) for one in patterns)]


def leftovers(after: Snapshot) -> list[str]:
    """The paths whose names say that a command was to remove them."""
    names = {path: path.rpartition("/")[2] for path in after}
    return [path for path, name in names.items() if any(fnmatch(name, one) for one in LEFTOVERS)]
