"""Priorities of cells: what they are worth to the comparison on photographs.

    must    the table `core`: 40/40 with every method first, then its other settings, then further
            seeds of the clean reference, `baseline` and `mend`
    should  in this order: the second stage, the parts at 40 %, rates told, 60 % labels, pair and
            gaussian noise, and the methods that `core` leaves out of its other settings
    could   all else: first OA-MIL's box noise, then missing and spurious annotations; also `br`
            without box noise and `lr` without label noise, which do nothing

What others are compared with goes before them, and a long training before a short one, so that
none is begun last; a cell counts as long as all that waits for it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from boxmend.bench.grids.cells import Cell, cells_of
from boxmend.bench.grids.layouts import LAYOUTS
from boxmend.bench.grids.table_spec import TWICE_EPOCHS
from boxmend.errors import UsageError

PRIORITIES = ("must", "should", "could")
COMPARED = ("baseline", "mend")
"""Methods of which further seeds are a must, and which go before others."""
CLEAN = "baseline"
"""The method of the clean reference."""
FIRST_NOISE = "label40-box40"
LAST_MUST = 2  # steps: 40/40, the other settings, further seeds
PARTS = ("ablation-boxes", "ablation-labels")
PARTS_AT = ("label0-box40", "label40-box0")
HEAVY_LABELS = "label60-box0"
COSTS = {
    "co-teaching": 1.97,
    "note-rcnn": 1.32,
    "ca-bbc": 1.39,
    "oa-mil": 1.35,
    "disco": 1.38,
    "baseline": 1.0,
    "two-stage": 1.0,
}
"""Time of a step against that of `baseline`, as measured at `voc320`."""
USUAL_COST = 1.09  # of mend, the published method and its parts


def priority(cell: Cell) -> str:
    """Return the priority of a cell: must, should or could."""
    step = _step(cell)
    return "must" if step <= LAST_MUST else "should" if step < _could() else "could"


def by_priority(cells: Sequence[Cell]) -> list[Cell]:
    """Sort cells by priority; a cell still stands after the one it needs."""
    lengths = {cell: _cost(cell) for cell in cells}
    for cell in cells:
        if cell.needs is not None:
            lengths[cell.needs] = max(lengths.get(cell.needs, 0.0), _cost(cell.needs) + _cost(cell))
    ordered = sorted(
        cells, key=lambda one: (_step(one), one.seed, one.method not in COMPARED, -lengths[one])
    )
    return _after_needs(ordered)


def with_priority(cells: Sequence[Cell], priorities: Iterable[str]) -> list[Cell]:
    """Keep the cells of these priorities, all of them where none is given.

    What they need comes along. A UsageError tells of a word that is none of the three, or that no
    cell has that priority.
    """
    wanted = tuple(priorities)
    for one in wanted:
        if one not in PRIORITIES:
            raise UsageError(
                f"--worth {one!r}: expected {', '.join(PRIORITIES)}, or several of them"
            )
    kept = [cell for cell in cells if not wanted or priority(cell) in wanted]
    if not kept:
        raise UsageError(f"--worth {','.join(wanted)} leaves no cell")
    needed = {cell.needs for cell in kept}
    return [cell for cell in cells if cell in kept or cell in needed]


def _step(cell: Cell) -> int:
    """When its turn is: up to LAST_MUST a must, from `_could()` on could, between them should."""
    first = replace(cell, seed=0)
    if first in _core():
        if cell.seed > 0:
            return LAST_MUST if cell.method in COMPARED else _last()
        is_first = cell.noise_name == FIRST_NOISE or (cell.is_clean and cell.method == CLEAN)
        return 0 if is_first else 1
    if cell.seed == 0 and not _does_nothing(cell):
        for number, group in enumerate((*_should(), *_first_could()), LAST_MUST + 1):
            if first in group:
                return number
    return _last()


def _does_nothing(cell: Cell) -> bool:
    """Whether it is `baseline` by another name: half of the published method, of the other half."""
    return (cell.method == "br" and not cell.boxes) or (cell.method == "lr" and not cell.labels)


def _could() -> int:
    return LAST_MUST + 1 + len(_should())


def _last() -> int:
    return _could() + len(_first_could())


@cache
def _core() -> frozenset[Cell]:
    return _of_seed_0("core")


@cache
def _should() -> tuple[frozenset[Cell], ...]:
    """Groups of cells, the first of them first."""
    parts = frozenset[Cell]().union(*(_of_seed_0(name) for name in PARTS))
    noises = {(cell.labels, cell.boxes) for cell in _core() if not cell.is_clean}
    methods = {cell.method for cell in _core()}
    return (
        _of_seed_0("two-stage"),
        frozenset(cell for cell in parts if cell.noise_name in PARTS_AT),
        _of_seed_0("auto"),
        frozenset(cell for cell in _of_seed_0("table1") if cell.noise_name == HEAVY_LABELS),
        _of_seed_0("pair"),
        _of_seed_0("gaussian"),
        frozenset(Cell(*noise, method) for noise in noises for method in methods),
    )


@cache
def _first_could() -> tuple[frozenset[Cell], ...]:
    """Groups of cells that go before all others that could be run."""
    return _of_seed_0("box-noise"), _of_seed_0("presence")


def _of_seed_0(name: str) -> frozenset[Cell]:
    return frozenset(cells_of(LAYOUTS[name], (0,)))


def _cost(cell: Cell) -> float:
    passes = 2.0 if dict(cell.variant).get("epochs") == TWICE_EPOCHS else 1.0
    return passes * COSTS.get(cell.method, USUAL_COST)


def _after_needs(cells: Sequence[Cell]) -> list[Cell]:
    found: dict[Cell, None] = {}
    for cell in cells:
        if cell.needs is not None and cell.needs in cells:
            found.setdefault(cell.needs)
        found.setdefault(cell)
    return list(found)
