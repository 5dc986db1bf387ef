"""Priorities of cells in the comparison on photographs.

    1    the table `core`: first 40/40 with every method, then its other settings, then further
         seeds of the clean reference, `baseline` and `mend`
    2    in this order: the second stage, the ablations at 40 %, known noise rates, 60 % label
         noise, pair and gaussian noise, and the methods that `core` omits in its other settings
    3    all other cells: first those on equal footing, then OA-MIL's box noise, then missing and
         spurious annotations. `br` without box noise and `lr` without label noise belong here too,
         since they do nothing

Within a priority, references run before the methods that are compared with them, and long
trainings before short ones. The length of a cell includes the cells that wait for it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from boxmend.bench.grids.cells import Cell, list_table_cells
from boxmend.bench.grids.layouts import LAYOUTS
from boxmend.bench.grids.table_spec import TWICE_EPOCHS
from boxmend.errors import UsageError

PRIORITIES = (1, 2, 3)
REFERENCE_METHODS = ("baseline", "mend")
"""Methods whose further seeds have priority 1; they run before other methods."""
CLEAN_METHOD = "baseline"
"""The method of the clean reference."""
FIRST_NOISE = "label40-box40"
LAST_STEP_OF_FIRST = 2  # steps of priority 1: 40/40, the other settings, further seeds
ABLATIONS = ("ablation-boxes", "ablation-labels")
ABLATION_NOISES = ("label0-box40", "label40-box0")
HEAVY_LABEL_NOISE = "label60-box0"
RELATIVE_COSTS = {
    "co-teaching": 1.97,
    "note-rcnn": 1.32,
    "ca-bbc": 1.39,
    "oa-mil": 1.35,
    "disco": 1.38,
    "baseline": 1.0,
    "two-stage": 1.0,
}
"""Time of a step relative to `baseline`, measured at `voc320`."""
OTHER_RELATIVE_COST = 1.09  # of mend, the published method and its ablations


def priority(cell: Cell) -> int:
    """Return the priority of a cell: 1, 2 or 3."""
    step = _get_step(cell)
    if step <= LAST_STEP_OF_FIRST:
        return 1
    return 2 if step < _first_step_of_third() else 3


def sort_by_priority(cells: Sequence[Cell]) -> list[Cell]:
    """Sort cells by priority; a cell comes after the one it needs."""
    lengths = {cell: _estimate_cost(cell) for cell in cells}
    for cell in cells:
        if cell.needs is not None:
            lengths[cell.needs] = max(
                lengths.get(cell.needs, 0.0), _estimate_cost(cell.needs) + _estimate_cost(cell)
            )
    ordered = sorted(
        cells,
        key=lambda cell: (
            *(_get_step(cell), cell.seed, cell.method not in REFERENCE_METHODS),
            -lengths[cell],
        ),
    )
    return _sort_after_needs(ordered)


def with_priority(cells: Sequence[Cell], priorities: Iterable[int]) -> list[Cell]:
    """Return the cells with these priorities, and the cells that they need; all if none is given.

    Raises a UsageError for an unknown priority, and where no cell has one of them.
    """
    requested = tuple(priorities)
    for number in requested:
        if number not in PRIORITIES:
            raise UsageError(f"--priority {number}: expected 1, 2 or 3, or several of them")
    kept = [cell for cell in cells if not requested or priority(cell) in requested]
    if not kept:
        raise UsageError(f"--priority {','.join(map(str, requested))} leaves no cell")
    needed = {cell.needs for cell in kept}
    return [cell for cell in cells if cell in kept or cell in needed]


def _get_step(cell: Cell) -> int:
    """Return the position of a cell in the order of all groups.

    Up to LAST_STEP_OF_FIRST it has priority 1, from `_first_step_of_third()` on priority 3.
    """
    first = replace(cell, seed=0)
    if first in _core_cells():
        if cell.seed > 0:
            return LAST_STEP_OF_FIRST if cell.method in REFERENCE_METHODS else _last_step()
        is_reference = cell.is_clean and cell.method == CLEAN_METHOD
        return 0 if cell.noise_name == FIRST_NOISE or is_reference else 1
    if cell.seed == 0 and not _does_nothing(cell):
        groups = (*_second_groups(), *_third_groups())
        for number, group in enumerate(groups, LAST_STEP_OF_FIRST + 1):
            if first in group:
                return number
    return _last_step()


def _does_nothing(cell: Cell) -> bool:
    """Return whether a cell equals `baseline`: box repair without box noise, or the like."""
    return (cell.method == "br" and not cell.boxes) or (cell.method == "lr" and not cell.labels)


def _first_step_of_third() -> int:
    return LAST_STEP_OF_FIRST + 1 + len(_second_groups())


def _last_step() -> int:
    return _first_step_of_third() + len(_third_groups())


@cache
def _core_cells() -> frozenset[Cell]:
    return _is_of_seed_0("core")


@cache
def _second_groups() -> tuple[frozenset[Cell], ...]:
    """Return the groups of priority 2 in their order."""
    ablations = frozenset[Cell]().union(*(_is_of_seed_0(name) for name in ABLATIONS))
    noises = {(cell.labels, cell.boxes) for cell in _core_cells() if not cell.is_clean}
    methods = {cell.method for cell in _core_cells()}
    return (
        _is_of_seed_0("two-stage"),
        frozenset(cell for cell in ablations if cell.noise_name in ABLATION_NOISES),
        _is_of_seed_0("auto"),
        frozenset(cell for cell in _is_of_seed_0("table1") if cell.noise_name == HEAVY_LABEL_NOISE),
        _is_of_seed_0("pair"),
        _is_of_seed_0("gaussian"),
        frozenset(Cell(*noise, method) for noise in noises for method in methods),
    )


@cache
def _third_groups() -> tuple[frozenset[Cell], ...]:
    """Return the groups that run before all other cells of priority 3."""
    return tuple(_is_of_seed_0(name) for name in ("equal-footing", "box-noise", "presence"))


def _is_of_seed_0(name: str) -> frozenset[Cell]:
    return frozenset(list_table_cells(LAYOUTS[name], (0,)))


def _estimate_cost(cell: Cell) -> float:
    factor = 2.0 if dict(cell.variant).get("epochs") == TWICE_EPOCHS else 1.0
    return factor * RELATIVE_COSTS.get(cell.method, OTHER_RELATIVE_COST)


def _sort_after_needs(cells: Sequence[Cell]) -> list[Cell]:
    ordered: dict[Cell, None] = {}
    for cell in cells:
        if cell.needs is not None and cell.needs in cells:
            ordered.setdefault(cell.needs)
        ordered.setdefault(cell)
    return list(ordered)
