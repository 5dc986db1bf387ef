"""The content of a folder without times, to compare outputs of the same command."""

import json
import os
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from snapshots import Snapshot, snapshot

State = dict[str, Any]
LEFTOVER_PATTERNS = (
    "*partial*",
    ".lock",
    "*.lock",
    "*.tmp",
    "*.staging*",
    "*.journal*",
    ".boxmend*",
)
LINES = ".jsonl"


def is_leftover(path: str) -> bool:
    """Return whether a path is, or lies in, something that a command should have removed."""
    return any(fnmatch(part, glob) for part in path.split("/") for glob in LEFTOVER_PATTERNS)


def read_state(folder: Path, unstable: dict[str, set[str]]) -> State:
    """Map every path to its content, without the named values of unstable files."""
    state: State = dict(snapshot(folder))
    for path, keys in unstable.items():
        if path in state:
            state[path] = _read_without(folder / path, keys)
    return state


def find_unstable(folders: list[Path], more: set[str]) -> dict[str, set[str]]:
    """Map files that differ between equal runs to the names of values that differ, and `more`."""
    states = [snapshot(folder) for folder in folders]
    shared = set.intersection(*(set(state) for state in states))
    unstable: dict[str, set[str]] = {}
    for path in sorted(shared):
        if len({state[path] for state in states}) > 1:
            flats = [dict(_flatten(_parse_file(folder / path))) for folder in folders]
            places = set().union(*flats)
            unstable[path] = more | {
                place.rpartition("/")[2]
                for place in places
                if len({repr(flat.get(place)) for flat in flats}) > 1
            }
    return unstable


def _parse_file(path: Path) -> Any:
    try:
        data = path.read_bytes()
        if path.suffix == LINES:
            lines = [json.loads(line) for line in data.splitlines() if line.strip()]
            return [line for line in lines if not _is_failed_try(line)]
        return json.loads(data)
    except (ValueError, OSError):
        return {"": "not JSON"}


def _is_failed_try(line: Any) -> bool:
    """Return whether a line records a failed cell of a grid, which stays in the file by design."""
    return isinstance(line, dict) and isinstance(line.get("error"), str)


def _flatten(value: Any, place: str = "") -> list[tuple[str, Any]]:
    """Return all values with their paths; list positions are in a path but not in its last name."""
    if isinstance(value, dict):
        return [leaf for key in value for leaf in _flatten(value[key], f"{place}/{key}")]
    if isinstance(value, list):
        parts = [
            _flatten(item, f"{place.rpartition('/')[0]}/{k}/{place.rpartition('/')[2]}")
            for k, item in enumerate(value)
        ]
        return [leaf for part in parts for leaf in part]
    return [(place, value)]


def _read_without(path: Path, keys: set[str]) -> Any:
    if path.is_symlink() or not path.is_file():
        return "not a file"
    flat = _flatten(_parse_file(path))
    return sorted(
        (place, repr(leaf)) for place, leaf in flat if place.rpartition("/")[2] not in keys
    )


def is_complete(state: State, reference: State, before: Snapshot) -> bool:
    """Return whether all changes of a run that is not killed have been made."""
    made = [path for path in reference if reference[path] != before.get(path)]
    gone = [path for path in before if path not in reference]
    return all(state.get(path) == reference[path] for path in made) and not any(
        path in state for path in gone
    )


def find_mixed_files(state: State, reference: State, before: State) -> list[str]:
    """Return the files with neither their old content nor that of a run that is not killed."""
    return [
        path
        for path in state
        if not is_leftover(path) and state[path] not in (before.get(path), reference.get(path))
    ]


def has_half_output(state: State, reference: State) -> bool:
    """Return whether some files of the output folder exist and others do not."""
    own = [path for path in reference if path.startswith("out/")]
    there = [path for path in own if path in state]
    return bool(there) and len(there) < len(own)


def read_inode(path: Path) -> str:
    """Return the inode of a file, by which sync events name it."""
    return str(os.lstat(path).st_ino)
