"""Record a small benchmark grid for `snapshot.py`."""

import json
from functools import partial
from typing import Any

from snapshot_running import (
    Workspace,
    by_key,
    call,
    gather,
    plain,
    read_bytes,
    read_json,
    read_lines,
    read_table,
    read_tree,
    steady,
)

TABLE_SUFFIXES = ("md", "csv", "json", "html", "svg")


def bench(space: Workspace) -> dict[str, Any]:
    """Return results, cells and tables of the grid `core` on drawn toys."""
    inner = Workspace(space.root, space.folder / "grid")
    inner.folder.mkdir()
    call(inner, "bench", "run", "core", "--scale", "smoke", "--jobs", 1)
    grid = inner.folder / "bench/smoke"
    lines = read_lines(inner, grid / "results.jsonl")
    listed = call(inner, "bench", "cells", "core", "--scale", "smoke", "--json")
    cells = sorted(path.name for path in grid.glob("cells/*"))
    return {
        "results": {line["cell"]: line for line in lines},
        "cells": gather(inner, {name: partial(cell, inner, name) for name in cells}),
        "noise": {path.name: read_tree(inner, path) for path in sorted(grid.glob("noise/*/"))},
        "listed": steady(json.loads(plain(inner, listed.stdout))),
        **gather(inner, {"tables": partial(tables, inner)}),
    }


def cell(space: Workspace, name: str) -> dict[str, Any]:
    """Return what a cell of the grid leaves."""
    folder = space.folder / "bench/smoke/cells" / name
    artifacts = folder / "artifacts"
    return {
        "cell": read_json(space, folder / "cell.json"),
        "ledger": read_table(folder / "run/ledger"),
        "metrics": by_key(read_lines(space, folder / "run/metrics.jsonl")),
        "evaluation": read_json(space, folder / "run/evaluation.json"),
        "artifacts": read_tree(space, artifacts) if artifacts.exists() else {},
    }


def tables(space: Workspace) -> dict[str, Any]:
    """Return tables of the results, as text and in every format that they are written in."""
    names = ("core", "refined-boxes", "refined-labels")
    shown = {name: plain(space, call(space, "bench", "table", name).stdout) for name in names}
    outs = [word for suffix in TABLE_SUFFIXES for word in ("--out", f"core.{suffix}")]
    call(space, "bench", "table", "core", *outs)
    written = {suffix: space.folder / f"core.{suffix}" for suffix in TABLE_SUFFIXES}
    return {
        "shown": shown,
        "as JSON": read_json(space, written["json"]),
        "written": {suffix: read_bytes(space, path) for suffix, path in written.items()},
    }
