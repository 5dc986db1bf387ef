"""What to run first: cells by what they are worth to the comparison on photographs.

    must    the table `core`: 40/40 with every method first, then its other settings, then further
            seeds of the clean reference, `baseline` and `mend`
    should  the second stage, the parts at 40 %, rates told, 60 % labels, other kinds of noise, and
            the methods that `core` leaves out of its other settings
    could   all else

What others are compared with goes before them, and a long training before a short one, so that
none is begun last; a cell counts as long as all that waits for it.
"""

from collections.abc import Iterable, Sequence
from functools import cache

from boxmend.bench.grids.cells import Cell, cells_of
from boxmend.bench.grids.layouts import LAYOUTS, TWICE, Layout
from boxmend.errors import UsageError

WORTHS = ("must", "should", "could")
COMPARED = ("baseline", "mend")
"""Methods of which further seeds are a must, and which go before others."""
CLEAN = "baseline"
"""The method of the clean reference."""
FIRST_NOISE = "label40-box40"
SHOULD = ("two-stage", "auto", "pair", "gaussian")
"""Tables of which the first seed should be run."""
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


def worth(cell: Cell) -> str:
    """Say what a cell is worth: must, should or could."""
    return WORTHS[min(max(_step(cell) - 2, 0), 2)]


def by_worth(cells: Sequence[Cell]) -> list[Cell]:
    """Put the cells that are worth most first; a cell still stands after the one it needs."""
    lengths = {cell: _cost(cell) for cell in cells}
    for cell in cells:
        if cell.needs is not None:
            lengths[cell.needs] = max(lengths.get(cell.needs, 0.0), _cost(cell.needs) + _cost(cell))
    ordered = sorted(
        cells, key=lambda one: (_step(one), one.seed, one.method not in COMPARED, -lengths[one])
    )
    return _after_needs(ordered)


def of_worth(cells: Sequence[Cell], worths: Iterable[str]) -> list[Cell]:
    """Keep the cells that are worth so much, all of them where nothing is said.

    What they need comes along. A UsageError tells of a word that is none of the three, or that no
    cell is worth so much.
    """
    wanted = tuple(worths)
    for one in wanted:
        if one not in WORTHS:
            raise UsageError(f"--worth {one!r}: expected {', '.join(WORTHS)}, or several of them")
    kept = [cell for cell in cells if not wanted or worth(cell) in wanted]
    if not kept:
        raise UsageError(f"--worth {','.join(wanted)} leaves no cell")
    needed = {cell.needs for cell in kept}
    return [cell for cell in cells if cell in kept or cell in needed]


def _step(cell: Cell) -> int:
    """0 to 2: must; 3: should; 4: could."""
    first = Cell(cell.labels, cell.boxes, cell.method, cell.variant)
    if first in _core():
        if cell.seed == 0:
            is_first = cell.noise_name == FIRST_NOISE or (cell.is_clean and first.method == CLEAN)
            return 0 if is_first else 1
        return 2 if cell.method in COMPARED else 4
    return 3 if cell.seed == 0 and first in _should() else 4


@cache
def _core() -> frozenset[Cell]:
    return _of_seed_0(LAYOUTS["core"])


@cache
def _should() -> frozenset[Cell]:
    found = {cell for name in SHOULD for cell in _of_seed_0(LAYOUTS[name])}
    parts = {cell for name in PARTS for cell in _of_seed_0(LAYOUTS[name])}
    found |= {cell for cell in parts if cell.noise_name in PARTS_AT}
    found |= {cell for cell in _of_seed_0(LAYOUTS["table1"]) if cell.noise_name == HEAVY_LABELS}
    noises = {(cell.labels, cell.boxes) for cell in _core() if not cell.is_clean}
    methods = {cell.method for cell in _core()}
    found |= {Cell(*noise, method) for noise in noises for method in methods}
    return frozenset(found)


def _of_seed_0(layout: Layout) -> frozenset[Cell]:
    return frozenset(cells_of(layout, (0,)))


def _cost(cell: Cell) -> float:
    passes = 2.0 if dict(cell.variant).get("epochs") == TWICE else 1.0
    return passes * COSTS.get(cell.method, USUAL_COST)


def _after_needs(cells: Sequence[Cell]) -> list[Cell]:
    found: dict[Cell, None] = {}
    for cell in cells:
        if cell.needs is not None and cell.needs in cells:
            found.setdefault(cell.needs)
        found.setdefault(cell)
    return list(found)
