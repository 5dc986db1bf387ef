"""Record what boxmend does, to prove that a refactoring changes no behaviour.

    python tools/snapshot.py make FILE.json [--root CHECKOUT] [--only PART ...]
    python tools/snapshot.py compare A.json B.json

`make` runs the code of a checkout (by default the one that holds this file) in a temporary folder
and writes digests and small readable values of everything it returns, prints and writes. `compare`
prints every value that differs between two such files and exits with 1 if there is any. A step that
fails is recorded with its message; `make` then exits with 2. Parts that `--only` left out of one
file are not compared.

Only the command line, the names in `boxmend.__all__` and other libraries are used, so that the
same script runs before and after modules move. Trainings run on the CPU with one thread; files of
different machines or versions of libraries are not comparable.
"""

import argparse
import difflib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PARTS = ("interface", "training", "audit", "files", "bench")
ABOUT = "about"  # says where a snapshot comes from; not compared
MAX_SHOWN_CHARACTERS = 500  # of one value
MISSING = object()


def main() -> int:
    """Run the chosen command and return its exit status."""
    asked = _parser().parse_args()
    if asked.command == "make":
        return make(asked.file, asked.root.resolve(), asked.only or list(PARTS))
    return compare(asked.a, asked.b)


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make", help="run the code of a checkout and write a snapshot")
    making.add_argument("file", type=Path, metavar="FILE.json")
    making.add_argument("--root", type=Path, default=Path(__file__).parents[1], metavar="CHECKOUT")
    making.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    comparing = commands.add_parser("compare", help="print the values that differ")
    comparing.add_argument("a", type=Path, metavar="A.json")
    comparing.add_argument("b", type=Path, metavar="B.json")
    return parser


def make(file: Path, root: Path, parts: list[str]) -> int:
    """Write the snapshot of a checkout; the file is replaced after every part."""
    # `compare` needs none of these, nor the libraries that they import
    import snapshot_bench
    import snapshot_files
    import snapshot_interface
    import snapshot_training
    from snapshot_running import StepFailed, Workspace, check_import

    makers = {
        "interface": snapshot_interface.interface,
        "training": snapshot_training.training,
        "audit": snapshot_training.audit,
        "files": snapshot_files.files,
        "bench": snapshot_bench.bench,
    }
    document: dict[str, Any] = {ABOUT: _about(root, parts)}
    with tempfile.TemporaryDirectory(prefix="boxmend-") as temporary:
        # The name of this folder is fixed because reports show the last two parts of a path.
        folder = Path(temporary).resolve() / "snapshot"
        folder.mkdir()
        space = Workspace(root, folder)
        try:
            check_import(space)
            for part in (name for name in PARTS if name in parts):
                begin = time.monotonic()
                document[part] = makers[part](space)
                document[ABOUT]["seconds"][part] = round(time.monotonic() - begin, 1)
                file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
                print(f"{part}: {time.monotonic() - begin:.0f} s in all", file=sys.stderr)
        except StepFailed as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    failed = list(_failures(document))
    for key in failed:
        print(f"failed: {key}", file=sys.stderr)
    return 2 if failed else 0


def _failures(value: Any, key: str = "") -> Iterator[str]:
    """Yield the keys of steps that are recorded as failed."""
    if isinstance(value, dict):
        if list(value) == ["failed"]:  # as `snapshot_running.gather` records it
            yield key
        for name, inner in value.items():
            yield from _failures(inner, f"{key} / {name}" if key else name)


def _about(root: Path, parts: list[str]) -> dict[str, Any]:
    """Return where a snapshot comes from."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return {"root": str(root), "commit": commit, "made": made, "parts": parts, "seconds": {}}


def compare(a: Path, b: Path) -> int:
    """Print the values that differ and return 1 if there are any, else 0."""
    documents = [json.loads(path.read_text()) for path in (a, b)]
    skipped = _skipped_keys(documents)
    first, second = (
        {key: value for key, value in document.items() if key not in skipped}
        for document in documents
    )
    differing = 0
    for key, old, new in differences(first, second):
        differing += 1
        print(key)
        print(*(f"  {line}" for line in _difference_lines(old, new)), sep="\n")
    if skipped - {ABOUT}:
        print(f"not compared, as not asked for in both: {', '.join(sorted(skipped - {ABOUT}))}")
    print(f"{differing} differences, {_count(first)} values in {a} and {_count(second)} in {b}")
    return 1 if differing else 0


def _skipped_keys(documents: list[dict[str, Any]]) -> set[str]:
    """Return the keys that are not compared: parts that `--only` left out of one snapshot."""
    asked = [set(document.get(ABOUT, {}).get("parts", PARTS)) for document in documents]
    return {ABOUT, *(asked[0] ^ asked[1])}


def differences(old: Any, new: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield key, old and new value of everything that differs; a missing one is MISSING.

    Dictionaries are compared key by key, lists of equal length item by item.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            inner = f"{key} / {name}" if key else str(name)
            yield from differences(old.get(name, MISSING), new.get(name, MISSING), inner)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, f"{key} / {number}")
    elif not _is_same(old, new):
        yield key, old, new


def _is_same(old: Any, new: Any) -> bool:
    """Return whether two values have equal type and value; NaN equals NaN."""
    return type(old) is type(new) and (old == new or (old != old and new != new))


def _difference_lines(old: Any, new: Any) -> list[str]:
    """Return lines that show two differing values; of long texts only the lines that differ."""
    if isinstance(old, str) and isinstance(new, str) and "\n" in old + new:
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "A", "B", "", "", 0, "")
        return [_cut(line) for line in lines]
    return [f"A: {_cut(_text(old))}", f"B: {_cut(_text(new))}"]


def _text(value: Any) -> str:
    """Return a value as text."""
    return "(missing)" if value is MISSING else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    """Return the beginning of a text that is too long to show."""
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]} …"


def _count(value: Any) -> int:
    """Return the number of values in a document."""
    if isinstance(value, dict):
        return sum(map(_count, value.values()))
    return sum(map(_count, value)) if isinstance(value, list) else 1


if __name__ == "__main__":
    sys.exit(main())
