"""Add lines of other machines to a file under results/.

    python tools/add_results.py results.jsonl --to results/voc320.jsonl

Failed cells are left out, and so are lines that the file has already. Addresses of data and
absolute paths in settings are shortened to their names, because the paths are private and hashes
distinguish the data.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from boxmend.bench.grids.results import Result, append_result, read_results


def add_lines(sources: Sequence[Path], target: Path) -> tuple[int, int]:
    """Add lines to a file; return how many were added and how many left out."""
    before = {_key(result) for result in read_results(target).results} if target.exists() else set()
    new, left_out = list[Result](), 0
    for source in sources:
        for result in read_results(source).results:
            if result.error is not None or _key(result) in before:
                left_out += 1
                continue
            before.add(_key(result))
            new.append(shorten_paths(result))
    for result in new:
        append_result(target, result)
    return len(new), left_out


def shorten_paths(result: Result) -> Result:
    """Return a result in which addresses of data, and paths in settings, are names."""
    names = {
        name: [Path(address).name for address in addresses]
        for name, addresses in result.data.addresses.items()
    }
    data = msgspec.structs.replace(result.data, addresses=names)
    settings = _shorten_settings(result.settings)
    return msgspec.structs.replace(result, data=data, settings=settings)


def _shorten_settings(value: Any) -> Any:
    """Return nested settings with the names of absolute paths instead of the paths."""
    if isinstance(value, dict):
        return {name: _shorten_settings(setting) for name, setting in value.items()}
    is_path = isinstance(value, str) and Path(value).is_absolute()
    return Path(value).name if is_path else value


def _key(result: Result) -> tuple[str, str, str]:
    """Return what identifies a line: a cell starts only once at a time."""
    return result.scale, result.cell, result.started


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sources", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--to", type=Path, required=True)
    options = parser.parse_args()
    number, left_out = add_lines(options.sources, options.to)
    print(f"{number} lines added to {options.to}, {left_out} left out (failed, or there already)")
