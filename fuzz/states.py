"""What a folder says, apart from times: for comparing outputs of the same command."""

import json
import os
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from snapshots import Snapshot, snapshot

State = dict[str, Any]
HIDDEN = ("*partial*", ".lock", "*.lock", "*.tmp", "*.staging*", "*.journal*", ".boxmend*")
LINES = ".jsonl"


def is_leftover(path: str) -> bool:
    """Whether a path lies in, or is, what a command should have removed again."""
    return any(fnmatch(part, one) for part in path.split("/") for one in HIDDEN)


def read_state(folder: Path, unstable: dict[str, set[str]]) -> State:
    """Every path with its content; of files that hold times, the content without them."""
    state: State = dict(snapshot(folder))
    for path, keys in unstable.items():
        if path in state:
            state[path] = _without(folder / path, keys)
    return state


def find_unstable(folders: list[Path], more: set[str]) -> dict[str, set[str]]:
    """The files that differ between equal runs, and the names of the values that do, with more."""
    states = [snapshot(folder) for folder in folders]
    shared = set.intersection(*(set(state) for state in states))
    found: dict[str, set[str]] = {}
    for path in sorted(shared):
        if len({state[path] for state in states}) > 1:
            flats = [dict(_flat(_parsed(folder / path))) for folder in folders]
            places = set().union(*flats)
            found[path] = more | {
                place.rpartition("/")[2]
                for place in places
                if len({repr(flat.get(place)) for flat in flats}) > 1
            }
    return found


def _parsed(path: Path) -> Any:
    try:
        data = path.read_bytes()
        if path.suffix == LINES:
            lines = [json.loads(line) for line in data.splitlines() if line.strip()]
            return [line for line in lines if not _is_failed_try(line)]
        return json.loads(data)
    except (ValueError, OSError):
        return {"": "not JSON"}


def _is_failed_try(line: Any) -> bool:
    """Whether a line records a failed cell of a grid, which stays in the file by design."""
    return isinstance(line, dict) and isinstance(line.get("error"), str)


def _flat(value: Any, place: str = "") -> list[tuple[str, Any]]:
    """All values with their places; numbers of lists are part of a place but not of its name."""
    if isinstance(value, dict):
        return [one for key in value for one in _flat(value[key], f"{place}/{key}")]
    if isinstance(value, list):
        parts = [
            _flat(one, f"{place.rpartition('/')[0]}/{k}/{place.rpartition('/')[2]}")
            for k, one in enumerate(value)
        ]
        return [one for part in parts for one in part]
    return [(place, value)]


def _without(path: Path, keys: set[str]) -> Any:
    if path.is_symlink() or not path.is_file():
        return "not a file"
    flat = _flat(_parsed(path))
    return sorted((place, repr(one)) for place, one in flat if place.rpartition("/")[2] not in keys)


def is_complete(state: State, reference: State, before: Snapshot) -> bool:
    """Whether all that an undisturbed run makes or changes is there."""
    made = [path for path in reference if reference[path] != before.get(path)]
    gone = [path for path in before if path not in reference]
    return all(state.get(path) == reference[path] for path in made) and not any(
        path in state for path in gone
    )


def mixed_files(state: State, reference: State, before: State) -> list[str]:
    """Files that are neither as before nor as an undisturbed run leaves them."""
    return [
        path
        for path in state
        if not is_leftover(path) and state[path] not in (before.get(path), reference.get(path))
    ]


def has_half_output(state: State, reference: State) -> bool:
    """Whether some files of the output folder are there and others are not."""
    own = [path for path in reference if path.startswith("out/")]
    there = [path for path in own if path in state]
    return bool(there) and len(there) < len(own)


def inode(path: Path) -> str:
    """The number by which a sync names a file."""
    return str(os.lstat(path).st_ino)
