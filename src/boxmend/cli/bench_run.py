"""`boxmend bench run` and `boxmend bench cells`: grids of trainings, cell by cell."""

import math
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from boxmend.bench.grids.executors import Executor, Local
from boxmend.bench.grids.jobs import State, state_of
from boxmend.bench.grids.planning import GridRequest, Plan, make_plan, prepare, preview
from boxmend.bench.grids.results import RESULTS_FILE
from boxmend.bench.grids.running import GridOutcome, run_grid
from boxmend.bench.grids.scales import get_scale
from boxmend.cli.bench_cells import (
    CellOptions,
    Names,
    ScaleName,
    again_words,
    cells,
    list_cells,
    split,
)
from boxmend.cli.bench_progress import watching
from boxmend.cli.options import Json
from boxmend.cli.output import print_json, print_table, say
from boxmend.cli.panels import Panels
from boxmend.errors import ExitStatus, UsageError
from boxmend.web.text import shown

Listed = Parameter(consume_multiple=True, negative="")
PANELS = {
    "Which cells": (
        *("scale", "seeds", "only", "methods", "priority", "out", "done", "ignore-differing"),
        *("retry-failed", "dry-run"),
    ),
    "Data and settings": ("data", "val", "weights", "set", "keep-weights", "keep-figures"),
    "Where they run": ("jobs", "gpus", "executor", "slurm", "stop-after"),
}
OF_CELLS = {
    "method": "--methods chooses those of a table",
    "seed": "give --seeds",
    "preset": "--scale paper has the published one",
    "label_noise": "rows of `auto` and `sensitivity-rate` are told rates",
    "box_noise": "rows of `auto` are told rates",
}
"""Settings that belong to the cells of a table, and where they come from."""
WITHOUT_FILE = ("default", "none")  # weights that are no file
GPU = re.compile(r"[0-9]{1,4}|(GPU|MIG)-[0-9A-Za-z/-]+")  # as CUDA_VISIBLE_DEVICES takes them
_LOOKS = Panels(PANELS, is_terminal=sys.stdout.isatty())

ABOUT = """\
A cell is one training with one noise, method and seed. It is never run twice: what is done for \
one table is done for all of that scale. Ctrl-C and SIGTERM save and leave, and a kill costs what \
came after the last checkpoint; the same command goes on. A cell that fails is recorded and does \
not stop the others. `boxmend bench table NAME` shows what came out.

Exit status: 0 all cells are done, or left by --stop-after, 2 wrong usage, 3 some failed or are \
not done."""

run_app = App(name="run", help_format="plaintext", help_formatter=_LOOKS, help_epilogue=ABOUT)
cells_app = App(name="cells", help_format="plaintext", help_formatter=_LOOKS)
cells_app.default(cells)


@Parameter(name="*")
@dataclass(frozen=True)
class CellInputs:
    """What cells are trained on and with."""

    data: Annotated[
        tuple[str, ...], Listed, Parameter(help="Clean data to train on: PATH or PATH:SPLIT.")
    ] = ()
    val: Annotated[tuple[str, ...], Listed, Parameter(help="Clean data to score on.")] = ()
    weights: Annotated[
        Path | None, Parameter(help="Weights to start from, as in `boxmend train`.")
    ] = None
    set: Annotated[
        tuple[str, ...],
        Parameter(
            help="Setting of all cells, KEY=VALUE, like epochs=6; may be repeated.", negative=""
        ),
    ] = ()
    keep_weights: Annotated[
        bool, Parameter(help="Keep the weights of cells that are done.", negative="")
    ] = False
    keep_figures: Annotated[
        bool | None,
        Parameter(
            help="Write figures and a picture of the mending into cells/CELL/artifacts; by "
            "default for cells of seed 0."
        ),
    ] = None
    ignore_differing: Annotated[
        bool,
        Parameter(
            help="Run cells anew whose lines in --done are of other settings or data.", negative=""
        ),
    ] = False

    def more(self) -> dict[str, Any]:
        """The same for `GridRequest`."""
        changes = dict(_changed(one) for one in self.set)
        is_file = self.weights is not None and str(self.weights) not in WITHOUT_FILE
        if self.weights is not None and not is_file:
            changes["weights"] = str(self.weights)
        return {
            "data": self.data,
            "val": self.val,
            "weights": self.weights if is_file else None,
            "changes": changes,
            "keep_weights": self.keep_weights,
            "keep_figures": self.keep_figures,
            "ignore_differing": self.ignore_differing,
        }


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Where and how cells run."""

    jobs: Annotated[
        int | None,
        Parameter(
            help="Cells side by side; by default one for each GPU named, one for each core at "
            "--scale smoke, else one. Of SLURM: those of an array that may run at once."
        ),
    ] = None
    gpus: Annotated[
        str, Parameter(help="GPUs to spread the cells over, with commas, like 0,1.")
    ] = ""
    executor: Annotated[
        Literal["local", "submitit", "submitit-local"],
        Parameter(help="Processes here, arrays of SLURM, or submitit's own processes, to try it."),
    ] = "local"
    slurm: Annotated[
        dict[str, str] | None,
        Parameter(
            help="Options of sbatch, like --slurm.partition gpu --slurm.gpus 1 "
            "--slurm.timeout-minutes 240 --slurm.cpus 8 --slurm.mem 32G."
        ),
    ] = None
    retry_failed: Annotated[bool, Parameter(help="Try cells again that failed.", negative="")] = (
        False
    )
    stop_after: Annotated[
        float | None,
        Parameter(
            help="Seconds after which no further cell is started; those that run come to their "
            "end, and the rest is left."
        ),
    ] = None

    def build(self, plan: Plan, scale_name: str) -> Executor:
        """Make what starts the cells; a UsageError tells of choices that do not go together."""
        if self.jobs is not None and self.jobs < 1:
            raise UsageError(f"--jobs is {self.jobs}; expected 1 or more")
        if self.stop_after is not None and not 0 < self.stop_after < math.inf:
            raise UsageError(f"--stop-after is {self.stop_after}; expected seconds, like 600")
        if self.executor != "local":
            if self.gpus:
                raise UsageError("--gpus is for this machine; ask SLURM by --slurm.gpus 1")
            from boxmend.bench.grids.slurm import Submitit

            is_local = self.executor == "submitit-local"
            return Submitit(plan.root, self.jobs, self.slurm or {}, is_local=is_local)
        if self.slurm:
            raise UsageError("--slurm is for --executor submitit; give that, too")
        gpus = split(self.gpus)
        for one in gpus:
            if not GPU.fullmatch(one):
                raise UsageError(f"--gpus {shown(one)}: expected numbers of GPUs, like 0,1")
        cores = (os.cpu_count() or 1) if get_scale(scale_name).is_embedded else 1
        return Local(self.jobs or len(gpus) or cores, gpus)


@run_app.default
def run(
    *names: Names,
    scale: ScaleName,
    part: CellOptions | None = None,
    given: CellInputs | None = None,
    where: Where | None = None,
    dry_run: Annotated[
        bool, Parameter(help="List the cells and what is left to do; run nothing.", negative="")
    ] = False,
    json: Json = False,
) -> int:
    """Run the trainings of tables, cell by cell; called again, it goes on where it was."""
    part, given, where = part or CellOptions(), given or CellInputs(), where or Where()
    request = part.request(names, scale, **given.more())
    whole = make_plan(request)
    if dry_run:
        return list_cells(whole, preview(whole, request), json=json)
    executor = where.build(whole, scale)
    plan = prepare(whole, request)
    if not json:
        _tell(plan)
    with watching(quiet=json) as show:
        outcome = run_grid(
            plan,
            executor,
            retry_failed=where.retry_failed,
            stop_after=where.stop_after,
            show=show,
        )
    if json:
        print_json({"out": str(plan.root), **_told(plan, outcome)})
    else:
        _report(plan, outcome, request)
        if outcome.was_stopped and executor.outlives:
            say("its jobs go on in the queue, and the same command waits for them")
    return ExitStatus.FINE if _is_fine(outcome) else ExitStatus.FAILURE


def _tell(plan: Plan) -> None:
    """Say what is going to be done, where some of it is done already."""
    for warning in plan.warnings:
        say(f"warning: {warning}")
    if not plan.previous and not plan.retrained:
        return
    files: dict[Path, int] = {}
    for line in plan.previous.values():
        files[line.path] = files.get(line.path, 0) + 1
    for path, number in files.items():
        say(f"{number:,} of the cells {'is' if number == 1 else 'are'} done by {path}")
    for cell, by in plan.retrained.items():
        say(again_words(cell, by))
    left = sum(state_of(plan.folder(cell)) is not State.DONE for cell in plan.cells)
    say(f"{left:,} {'is' if left == 1 else 'are'} left to run under {plan.root}")


def _report(plan: Plan, outcome: GridOutcome, request: GridRequest) -> None:
    rows = [(state, number) for state, number in _counts(plan, outcome).items() if number]
    print_table(("cells", "number"), rows)
    for cell, error in outcome.failed.items():
        say(f"{cell} failed: {error}")
    for cell in outcome.stopped:
        say(f"{cell} was stopped; the same command goes on with it")
    if outcome.was_stopped:
        say("stopped before the end; the same command goes on")
    elif outcome.left:
        say(f"left: {', '.join(outcome.left)}; the same command goes on")
    if outcome.failed:
        say(f"their logs are {plan.root / 'cells'}/CELL/log.txt; --retry-failed tries them again")
    here = plan.root / RESULTS_FILE
    results = " ".join(f"--results {one}" for one in (*request.done, here) if one.exists())
    for name in request.names if results else ():
        say(f"the table: boxmend bench table {name} {results}")


def _told(plan: Plan, outcome: GridOutcome) -> dict[str, Any]:
    return {
        "done": outcome.done,
        "failed": outcome.failed,
        "stopped": outcome.stopped,
        "was_stopped": outcome.was_stopped,
        "left": outcome.left,
        "earlier": {name: line.place for name, line in plan.previous.items()},
        "again": dict(plan.retrained),
    }


def _counts(plan: Plan, outcome: GridOutcome) -> dict[str, int]:
    return {
        "done": len(outcome.done),
        "done elsewhere": len(plan.previous),
        "failed": len(outcome.failed),
        "stopped": len(outcome.stopped),
        "left": len(outcome.left),
    }


def _is_fine(outcome: GridOutcome) -> bool:
    return not (outcome.failed or outcome.stopped or outcome.was_stopped)


def _changed(text: str) -> tuple[str, str]:
    """KEY=VALUE, parted."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {text}: expected KEY=VALUE, like epochs=6")
    if key in OF_CELLS:
        raise UsageError(f"--set {key}: each cell of a table has its own; {OF_CELLS[key]}")
    if key == "weights" and value not in WITHOUT_FILE:
        raise UsageError(f"--set weights={value}: give --weights {value}, which are then checked")
    return key, value
