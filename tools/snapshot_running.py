"""Run boxmend for `snapshot.py`, and turn what it leaves into values that can be compared."""

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset
from safetensors import safe_open

TIMEOUT_SECONDS = 1800  # of one child process; the grid takes 3 to 10 minutes
FAILED = "failed"  # key of the message of a step that failed
MAX_COUNTED_VALUES = 12  # of a column whose summary counts each of them
MAX_TEXT_BYTES = 4000  # of files that are stored as text
TEXT_SUFFIXES = {".md", ".yaml"}
PICTURE_SUFFIXES = {".png", ".jpg"}

# Keys of written documents that hold times, speeds, or digests of text that contains them; `code`
# is a digest of boxmend's own source.
VOLATILE_KEY = re.compile(r"digest|code|started|seconds|\w+_seconds|\w+_per_second")
VOLATILE_TEXT = (
    (re.compile(r"\d[\d,.]* images/s"), "<speed> images/s"),
    (re.compile(r"\d+:\d\d(:\d\d)? left"), "<time> left"),
    (re.compile(r"about \d+:\d\d(:\d\d)? to go"), "about <time> to go"),
    (re.compile(r"\(\d+ cores?\)"), "(<cores>)"),
    (re.compile(r" at 0x[0-9a-f]+"), ""),
)


class Workspace(NamedTuple):
    """Name the checkout whose code runs, and the folder that it runs in."""

    root: Path
    folder: Path


class StepFailed(Exception):
    """Report a child process that ended in another way than expected."""


def check_import(space: Workspace) -> None:
    """Raise StepFailed unless child processes import boxmend from the checkout."""
    result = python(space, "import boxmend; print(boxmend.__file__)").strip()
    if not Path(result).resolve().is_relative_to(space.root / "src"):
        raise StepFailed(f"boxmend is imported from {result}, not from {space.root / 'src'}")


def gather(space: Workspace, steps: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Return what each step returns; a step that fails is recorded, and the others go on."""
    collected = {}
    for name, step in steps.items():
        try:
            collected[name] = step()
        except (StepFailed, OSError, LookupError, ValueError) as error:
            message = plain(space, f"{type(error).__name__}: {error}")
            print(f"{name} failed: {message}", file=sys.stderr, flush=True)
            collected[name] = {FAILED: message}
    return collected


def python(space: Workspace, code: str) -> str:
    """Run a piece of Python that may import boxmend, and return what it prints."""
    return _run_checked(space, [sys.executable, "-c", code], "python", (0,)).stdout


def call(
    space: Workspace, *words: object, statuses: Sequence[int] = (0,)
) -> subprocess.CompletedProcess[str]:
    """Run a command of boxmend in the workspace; an exit status not listed is an error."""
    command = [sys.executable, "-m", "boxmend", *map(str, words)]
    return _run_checked(space, command, " ".join(map(str, words))[:100], statuses)


def _run_checked(
    space: Workspace, command: list[str], name: str, statuses: Sequence[int]
) -> subprocess.CompletedProcess[str]:
    """Run a child process, tell how long it took, and raise StepFailed if it failed."""
    begin = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=space.folder,
            env=environment(space),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StepFailed(f"{name}: stopped after {TIMEOUT_SECONDS} s\n{error.stderr!r}") from error
    progress(name, begin)
    if statuses and done.returncode not in statuses:
        raise StepFailed(f"{name}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def progress(name: str, begin: float) -> None:
    """Tell on stderr which step is done and how long it took."""
    print(f"  {time.monotonic() - begin:6.1f} s  {name}", file=sys.stderr, flush=True)


def environment(space: Workspace) -> dict[str, str]:
    """Return the environment of child processes: the checkout's code, one thread, no GPU."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("BOXMEND_")}
    return kept | {
        "PYTHONPATH": str(space.root / "src"),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "COLUMNS": "200",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
    }


def answer(space: Workspace, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return exit status and output of a child process."""
    return {
        "exit": done.returncode,
        "stdout": plain(space, done.stdout),
        "stderr": plain(space, done.stderr),
    }


def plain(space: Workspace, text: str) -> str:
    """Replace the places, the machine, speeds and times that a text names."""
    for value, name in _places(space):
        text = text.replace(value, name)
    text = text.replace(platform.platform(), "<platform>")
    for pattern, name in VOLATILE_TEXT:
        text = pattern.sub(name, text)
    return text


def _places(space: Workspace) -> list[tuple[str, str]]:
    """Return the paths that differ between two runs, and what they are replaced with."""
    work = str(space.folder)
    places = [(work, "<work>"), (str(space.root), "<root>")]
    # Addresses of Label Studio's local files leave out the slash in front.
    return [*places, (work.removeprefix("/"), "<work without slash>")]


def digest(data: bytes | str) -> str:
    """Return the beginning of the SHA-256 of data."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:24]


def read_json(space: Workspace, path: Path) -> Any:
    """Read a JSON file; places are replaced, times and digests left out."""
    return steady(json.loads(plain(space, path.read_text())))


def read_lines(space: Workspace, path: Path) -> list[Any]:
    """Read a file with a JSON document on every line, in the same way."""
    return [steady(json.loads(line)) for line in plain(space, path.read_text()).splitlines()]


def steady(value: Any) -> Any:
    """Return a document without the keys that differ from run to run."""
    if isinstance(value, dict):
        return {k: steady(v) for k, v in value.items() if not VOLATILE_KEY.fullmatch(k)}
    return [steady(item) for item in value] if isinstance(value, list) else value


def by_key(lines: Iterable[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of each key over lines, each with the number of its line."""
    values: dict[str, list[Any]] = {}
    for number, line in enumerate(lines):
        for key, value in line.items():
            values.setdefault(key, []).append([number, value])
    return values


def read_table(path: Path) -> dict[str, Any]:
    """Return type, digest of the decoded values and a summary of every column of Parquet files."""
    return read_columns(pyarrow.dataset.dataset(path, format="parquet").to_table())


def read_columns(table: Any) -> dict[str, Any]:
    """Return the same of every column of a table in memory."""
    return {name: read_column(table.column(name)) for name in table.column_names}


def read_column(column: Any) -> dict[str, Any]:
    """Return type, digest of the decoded values and a summary of a column."""
    values = column.to_pylist()
    return {
        "type": str(column.type),
        "values": digest(json.dumps(values)),
        "summary": _summary(values, pa.types.is_floating(column.type)),
    }


def _summary(values: list[Any], is_number: bool) -> Any:
    """Return how often each of a few values occurs, or the range of numbers."""
    counts = Counter(map(str, values))
    if not is_number and len(counts) <= MAX_COUNTED_VALUES:
        return dict(sorted(counts.items()))
    known = [value for value in values if is_number and value is not None and value == value]
    if not known:
        return f"{len(values)} values, {len(counts)} different"
    mean = sum(known) / len(known)
    return f"{len(known)} of {len(values)}, {min(known):.5g} to {max(known):.5g}, mean {mean:.5g}"


def read_model(path: Path) -> dict[str, Any]:
    """Return the metadata and the digest of every tensor of a safetensors file."""
    with safe_open(path, framework="np") as file:
        metadata: dict[str, str] = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
    digests = {
        name: f"{tensor.dtype} {list(tensor.shape)} {digest(tensor.tobytes())}"
        for name, tensor in tensors.items()
    }
    return {"metadata": dict(sorted(metadata.items())), "tensors": digests}


def names_in(folder: Path) -> list[str]:
    """Return the sorted relative paths of the files in a folder."""
    files = (path for path in folder.rglob("*") if not path.is_dir())
    return sorted(path.relative_to(folder).as_posix() for path in files)


def read_tree(space: Workspace, folder: Path) -> dict[str, str]:
    """Return the digest of every file of a folder by relative path; short pages as text.

    Pictures of a folder share a digest, with the number of those that are symbolic links.
    """
    collected: dict[str, str] = {}
    pictures: dict[str, list[Path]] = {}
    for name in names_in(folder):
        path = folder / name
        if path.suffix in PICTURE_SUFFIXES:
            pictures.setdefault(f"{Path(name).parent.as_posix()}/*{path.suffix}", []).append(path)
        else:
            collected[name] = read_bytes(space, path)
    return collected | {name: _pictures(paths) for name, paths in pictures.items()}


def _pictures(paths: list[Path]) -> str:
    """Return number, links and a common digest of pictures; their names count, too."""
    links = sum(path.is_symlink() for path in paths)
    content = digest("\n".join(f"{path.name} {digest(path.read_bytes())}" for path in paths))
    return f"{len(paths)} pictures, {links} links, {content}"


def read_bytes(space: Workspace, path: Path) -> str:
    """Return the digest of a file, or its text if it is a short page."""
    data = path.read_bytes()
    text = data.decode(errors="surrogateescape")
    if any(place in text for place, _ in _places(space)):
        # The digest that a file carries about itself covers the paths in it.
        text = re.sub(r'"digest": ?"sha256:\w+"', "<digest>", plain(space, text))
        data = text.encode(errors="surrogateescape")
    return text if path.suffix in TEXT_SUFFIXES and len(data) <= MAX_TEXT_BYTES else digest(data)
