"""Add lines that were brought back from elsewhere to a file under results/.

    python tools/add_results.py results.jsonl --to results/voc320.jsonl

Cells that failed are left out, and so are lines that the file has already. Places of data are
shortened to their names: where they lay is nobody's business, and their hashes tell them apart.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec

from boxmend.bench.grids.results import Result, append_result, read_results


def added(sources: Sequence[Path], target: Path) -> tuple[int, int]:
    """Add lines to a file; returns how many were added and how many left out."""
    before = {_key(one) for one in read_results(target).results} if target.exists() else set()
    new, left_out = list[Result](), 0
    for source in sources:
        for one in read_results(source).results:
            if one.error is not None or _key(one) in before:
                left_out += 1
                continue
            before.add(_key(one))
            new.append(shortened(one))
    for one in new:
        append_result(target, one)
    return len(new), left_out


def shortened(one: Result) -> Result:
    """Give a result with its data called by their names."""
    addresses = {
        name: [Path(address).name for address in options]
        for name, options in one.data.addresses.items()
    }
    data = msgspec.structs.replace(one.data, addresses=addresses)
    return msgspec.structs.replace(one, data=data)


def _key(one: Result) -> tuple[str, str, str]:
    """What makes a line the same as another: a cell is begun once at a time."""
    return one.scale, one.cell, one.started


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sources", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--to", type=Path, required=True)
    options = parser.parse_args()
    number, left_out = added(options.sources, options.to)
    print(f"{number} lines added to {options.to}, {left_out} left out (failed, or there already)")
