"""`boxmend bench cells`: the cells of tables, their states, and where their results are."""

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
from boxmend.web.text import display_text

SCALE_HELP = "; ".join(f"{scale.name}: {scale.summary}" for scale in SCALES.values())
Names = Annotated[str, Parameter(name="TABLE", help=f"Tables: {', '.join(LAYOUTS)}.")]
ScaleName = Annotated[str, Parameter(help=f"Size of the trainings. {SCALE_HELP}.")]
MAX_SEED_DIGITS = 10
COLUMNS = ("cell", "priority", "state", "tries", "seconds", "from")


@Parameter(name="*")
@dataclass(frozen=True)
class CellOptions:
    """The choice of cells, and the folder of their results."""

    out: Annotated[Path, Parameter(help="Folder of all results.")] = Path("bench")
    seeds: Annotated[
        str, Parameter(help="Seeds, separated by commas; each seed is a cell of its own.")
    ] = "0"
    only: Annotated[
        str,
        Parameter(
            help="Patterns of cell names, separated by commas, like 'label40-box40-*,*-mend-?'; "
            "all by default."
        ),
    ] = ""
    methods: Annotated[
        str, Parameter(help="Methods, separated by commas; by default all methods of the tables.")
    ] = ""
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
            help="Result file of another machine, or a folder with such files; cells with a result "
            "there do not run again. May be repeated.",
            negative="",
        ),
    ] = ()

    def request(self, names: tuple[str, ...], scale_name: str, **more: Any) -> GridRequest:
        """Return these options as the library takes them; raise a UsageError for invalid seeds."""
        seeds = split(self.seeds)
        if not all(seed.isdecimal() and len(seed) <= MAX_SEED_DIGITS for seed in seeds):
            text = display_text(self.seeds, 80)
            raise UsageError(
                f"--seeds is {text!r}; expected numbers separated by commas, like 0,1,2"
            )
        return GridRequest(
            names=names,
            scale=scale_name,
            out=self.out,
            seeds=tuple(map(int, seeds)),
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
    """List the cells of tables and their states."""
    request = (part or CellOptions()).request(names, scale)
    plan = make_plan(request)
    return list_cells(plan, match_by_name(plan, request), json=json)


def list_cells(whole: Plan, remaining: Plan, *, json: bool) -> int:
    """Print all cells of a plan; `remaining` knows which of them have a result elsewhere."""
    for warning in remaining.warnings:
        say(f"warning: {warning}")
    rows = [_row(remaining, cell.name, priority(cell)) for cell in whole.cells]
    if json:
        print_json([dict(zip(COLUMNS, row, strict=True)) for row in rows])
    else:
        print_table(COLUMNS, [[*row[:-1], row[-1] or ""] for row in rows])
        for cell, dependent in remaining.retrained.items():
            say(retraining_message(cell, dependent))
        number = "1 cell" if len(rows) == 1 else f"{len(rows):,} cells"
        say(f"{number} under {whole.root}, {sum(row[2] != 'done' for row in rows):,} not done")
    return ExitStatus.FINE


def retraining_message(cell: str, dependent: str) -> str:
    """Return why a cell is trained again."""
    return f"{cell} is trained again: {dependent} needs its run, and only its result is here"


def _parse_priorities(text: str) -> tuple[int, ...]:
    known = {str(number): number for number in PRIORITIES}
    for part in split(text):
        if part not in known:
            raise UsageError(f"--priority {display_text(part, 80)!r}: expected 1, 2 or 3, like 1,2")
    return tuple(known[part] for part in split(text))


def _row(plan: Plan, name: str, rank: int) -> tuple[object, ...]:
    folder = plan.root / "cells" / name
    state, tries = state_of(folder), read_tries(folder)
    line = plan.previous.get(name)
    if line is not None and state is not State.DONE:
        attempt, seconds = line.result.attempt, round(line.result.seconds)
        return name, rank, State.DONE.value, attempt, seconds, line.place
    place = str(plan.root / RESULTS_FILE) if state in (State.DONE, State.FAILED) else None
    return name, rank, state.value, tries.number, round(tries.seconds), place


def split(text: str) -> tuple[str, ...]:
    """Split a list at its commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
