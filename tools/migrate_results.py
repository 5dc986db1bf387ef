"""Rewrite a file of results that an earlier version wrote, with the names that count today.

    python tools/migrate_results.py results/voc320.jsonl

`boxmend` reads such a file as it is (`boxmend.bench.grids.upgrade` has the tables of names). This
tool brings published lines up to date with their documentation: names change, figures do not, and
every line gets a digest. A second run changes nothing.
"""

import argparse
from pathlib import Path

import msgspec

from boxmend.bench.grids.results import REMEDY, read_results
from boxmend.bench.grids.upgrade import upgrade_line
from boxmend.data.files.atomic import open_atomic
from boxmend.data.files.digests import add_json_digest, verify_json_lines


def migrate(path: Path) -> int:
    """Rewrite a file of results; returns the number of its lines."""
    before = read_results(path)  # refuses a file with a damaged line
    lines = [
        add_json_digest(msgspec.json.encode(upgrade_line(msgspec.json.decode(line))))
        for line in verify_json_lines(path, path.read_bytes(), REMEDY)
        if line.strip()
    ]
    with open_atomic(path) as file:
        file.write(b"".join(lines))
    if read_results(path).results != before.results:
        raise SystemExit(f"{path}: the rewritten lines say something else; take the old file back")
    return len(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    print(f"{arguments.file}: {migrate(arguments.file)} lines")
