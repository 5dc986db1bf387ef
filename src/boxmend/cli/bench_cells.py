"""`boxmend bench cells`: which cells tables have, how far each is, and where its result is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from boxmend.bench.grids.jobs import State, read_tries, state_of
from boxmend.bench.grids.layouts import LAYOUTS
from boxmend.bench.grids.planning import GridRequest, Plan, make_plan, match_by_name
from boxmend.bench.grids.priorities import PRIORITIES, priority
from boxmend.bench.grids.results import RESULTS_FILE
from boxmend.bench.grids.scales import SCALES
from boxmend.cli.options import Json
from boxmend.cli.output import print_json, print_table, say
from boxmend.errors import ExitStatus, UsageError
from boxmend.web.text import shown

SCALE_HELP = "; ".join(f"{one.name}: {one.summary}" for one in SCALES.values())
Names = Annotated[str, Parameter(help=f"Which tables: {', '.join(LAYOUTS)}.")]
ScaleName = Annotated[str, Parameter(help=f"Size of the trainings. {SCALE_HELP}.")]
SEED_DIGITS = 10  # those of the largest seed
COLUMNS = ("cell", "priority", "state", "tries", "seconds", "from")


@Parameter(name="*")
@dataclass(frozen=True)
class CellOptions:
    """Which cells, and where they lie."""

    out: Annotated[Path, Parameter(help="Folder of all results.")] = Path("bench")
    seeds: Annotated[str, Parameter(help="Seeds, with commas: each is a cell of its own.")] = "0"
    only: Annotated[
        str, Parameter(help="Patterns of cells, with commas, like 'label40-box40-*,*-mend-?'.")
    ] = ""
    methods: Annotated[str, Parameter(help="Methods, with commas.")] = ""
    priority: Annotated[
        str,
        Parameter(
            help="Priorities of cells in the comparison on photographs: 1, 2, 3, or several with "
            "commas. Cells always run in this order."
        ),
    ] = ""
    done: Annotated[
        tuple[Path, ...],
        Parameter(
            help="File of results from elsewhere, or folder with some: cells that have a line "
            "there are not run again. May be repeated.",
            negative="",
        ),
    ] = ()

    def request(self, names: tuple[str, ...], scale_name: str, **more: Any) -> GridRequest:
        """Put the choices together; a UsageError tells of seeds that are no numbers."""
        if not all(one.isdecimal() and len(one) <= SEED_DIGITS for one in split(self.seeds)):
            given = shown(self.seeds, 80)
            raise UsageError(f"--seeds is {given!r}; expected numbers with commas, like 0,1,2")
        return GridRequest(
            names=names,
            scale=scale_name,
            out=self.out,
            seeds=tuple(int(one) for one in split(self.seeds)),
            only=split(self.only),
            methods=split(self.methods),
            priorities=_parse_priorities(self.priority),
            done=self.done,
            **more,
        )


def cells(
    *names: Names,
    scale: ScaleName,
    part: CellOptions | None = None,
    json: Json = False,
) -> int:
    """List the cells of tables, how far each is and where its result is.

    A cell is open, running, stopped, done or failed. Lines of --done are found by the names of
    cells alone here; `bench run --dry-run` compares their settings, and their data where it is
    given any.
    """
    request = (part or CellOptions()).request(names, scale)
    plan = make_plan(request)
    return list_cells(plan, match_by_name(plan, request), json=json)


def list_cells(whole: Plan, left: Plan, *, json: bool) -> int:
    """Print all cells of a plan; `left` knows which of them have a line elsewhere."""
    for warning in left.warnings:
        say(f"warning: {warning}")
    rows = [_row(left, cell.name, priority(cell)) for cell in whole.cells]
    if json:
        print_json([dict(zip(COLUMNS, row, strict=True)) for row in rows])
    else:
        print_table(COLUMNS, [[*row[:-1], row[-1] or ""] for row in rows])
        for cell, by in left.retrained.items():
            say(again_words(cell, by))
        number = "1 cell" if len(rows) == 1 else f"{len(rows):,} cells"
        say(f"{number} under {whole.root}, {sum(row[2] != 'done' for row in rows):,} not done")
    return ExitStatus.FINE


def again_words(cell: str, by: str) -> str:
    """Say why a cell is trained again."""
    return f"{cell} is trained again: {by} needs its run, and of that there is only a line"


def _parse_priorities(text: str) -> tuple[int, ...]:
    known = {str(number): number for number in PRIORITIES}
    for part in split(text):
        if part not in known:
            raise UsageError(f"--priority {shown(part, 80)!r}: expected 1, 2 or 3, like 1,2")
    return tuple(known[part] for part in split(text))


def _row(plan: Plan, name: str, rank: int) -> tuple[object, ...]:
    folder = plan.root / "cells" / name
    state, tries = state_of(folder), read_tries(folder)
    line = plan.previous.get(name)
    if line is not None and state is not State.DONE:
        told = line.result.attempt, round(line.result.seconds), line.place
        return name, rank, State.DONE.value, *told
    place = str(plan.root / RESULTS_FILE) if state in (State.DONE, State.FAILED) else None
    return name, rank, state.value, tries.number, round(tries.seconds), place


def split(text: str) -> tuple[str, ...]:
    """Part a list with commas."""
    return tuple(one.strip() for one in text.split(",") if one.strip())
