"""Snapshots of folders, and the differences between them."""

import hashlib
import os
import stat
from fnmatch import fnmatch
from pathlib import Path

Snapshot = dict[str, str]
LEFTOVERS = ("*partial*", ".lock", "*.lock", "*.tmp", ".tmp*")


def snapshot(folder: Path) -> Snapshot:
    """Map every path below a folder to a hash or a description; open no special files."""
    contents: Snapshot = {}
    waiting = [""]
    while waiting:
        inner = waiting.pop()
        for entry in os.scandir(os.path.join(folder, inner)):
            path = f"{inner}/{entry.name}".lstrip("/")
            contents[path] = _describe_entry(entry)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)
    return contents


def _describe_entry(entry: os.DirEntry[str]) -> str:
    mode = entry.stat(follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        return f"link to {os.readlink(entry.path)}"
    if stat.S_ISREG(mode):
        with open(entry.path, "rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    return "folder" if stat.S_ISDIR(mode) else f"special {stat.S_IFMT(mode):o}"


def changed_paths(before: Snapshot, after: Snapshot) -> list[str]:
    """Return the paths that differ, sorted."""
    return sorted(
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    )


def match_patterns(paths: list[str], patterns: tuple[str, ...]) -> list[str]:
    """Return the paths that match one of the patterns; `*` matches slashes too."""
    return [path for path in paths if any(fnmatch(path, pattern) for pattern in patterns)]


def find_leftovers(after: Snapshot) -> list[str]:
    """Return the paths with names of temporary files, which a command should have removed."""
    names = {path: path.rpartition("/")[2] for path in after}
    return [
        path for path, name in names.items() if any(fnmatch(name, pattern) for pattern in LEFTOVERS)
    ]
