"""`boxmend bench run`: run a grid of trainings, cell by cell."""

import math
import os
import re
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
    cells,
    list_cells,
    retraining_message,
    split,
)
from boxmend.cli.bench_progress import progress_display
from boxmend.cli.help_layout import HelpLayout
from boxmend.cli.options import Json
from boxmend.cli.output import print_json, print_table, say
from boxmend.errors import ExitStatus, UsageError
from boxmend.web.text import display_text

SeveralValues = Parameter(consume_multiple=True, negative="")
PANELS = {
    "Which cells": (
        *("scale", "seeds", "only", "methods", "priority", "out", "done", "ignore-differing"),
        *("retry-failed", "dry-run"),
    ),
    "Data and settings": ("data", "val", "weights", "set", "keep-weights", "keep-figures"),
    "Where they run": ("jobs", "gpus", "executor", "slurm", "stop-after"),
}
CELL_SETTINGS = {
    "method": "--methods chooses from those of a table",
    "seed": "give --seeds",
    "preset": "--scale paper uses the published one",
    "label_noise": "the tables `auto` and `sensitivity-rate` set it",
    "box_noise": "the table `auto` sets it",
}
"""Settings that each cell of a table has of its own, and how to choose them."""
WEIGHTS_WITHOUT_FILE = ("default", "none")
GPU = re.compile(r"[0-9]{1,4}|(GPU|MIG)-[0-9A-Za-z/-]+")  # as CUDA_VISIBLE_DEVICES takes them
_LAYOUT = HelpLayout(PANELS)

EXIT_STATUS = """\
Exit status: 0 all cells are done, or left because of --stop-after;
2 wrong usage; 3 some cells failed or are not done."""

run_app = App(
    name="run",
    usage="boxmend bench run --scale SCALE [OPTIONS] TABLE...",
    help_formatter=_LAYOUT,
    help_epilogue=EXIT_STATUS,
)
cells_app = App(
    name="cells",
    usage="boxmend bench cells --scale SCALE [OPTIONS] TABLE...",
    help_formatter=_LAYOUT,
)
cells_app.default(cells)


@Parameter(name="*")
@dataclass(frozen=True)
class CellInputs:
    """The data, weights and settings that all cells are trained with."""

    data: Annotated[
        tuple[str, ...],
        SeveralValues,
        Parameter(help="Clean data to train on: PATH or PATH:SPLIT."),
    ] = ()
    val: Annotated[tuple[str, ...], SeveralValues, Parameter(help="Clean data to score on.")] = ()
    weights: Annotated[
        Path | None, Parameter(help="Weights to start from, as in `boxmend train`.")
    ] = None
    set: Annotated[
        tuple[str, ...],
        Parameter(
            help="Setting for all cells: KEY=VALUE, like epochs=6; may be repeated.", negative=""
        ),
    ] = ()
    keep_weights: Annotated[
        bool, Parameter(help="Keep the weights of finished cells.", negative="")
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
            help="Run cells again whose results in --done have other settings or data.",
            negative="",
        ),
    ] = False

    def request_fields(self) -> dict[str, Any]:
        """Return these options as fields of a `GridRequest`."""
        changes = dict(_key_and_value(text) for text in self.set)
        is_file = self.weights is not None and str(self.weights) not in WEIGHTS_WITHOUT_FILE
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
class ExecutionOptions:
    """The place and the way in which cells run."""

    jobs: Annotated[
        int | None,
        Parameter(
            help="Cells that run at the same time. By default one per GPU of --gpus, one per core "
            "with --scale smoke, otherwise one. With SLURM: cells of an array."
        ),
    ] = None
    gpus: Annotated[
        str, Parameter(help="GPUs to spread the cells over, separated by commas, like 0,1.")
    ] = ""
    executor: Annotated[
        Literal["local", "submitit", "submitit-local"],
        Parameter(
            help="Run cells as processes on this machine, as SLURM arrays or, for a trial, as "
            "local processes of submitit."
        ),
    ] = "local"
    slurm: Annotated[
        dict[str, str] | None,
        Parameter(
            help="Options of sbatch, like --slurm.partition gpu --slurm.gpus 1 "
            "--slurm.timeout-minutes 240 --slurm.cpus 8 --slurm.mem 32G."
        ),
    ] = None
    retry_failed: Annotated[bool, Parameter(help="Run failed cells again.", negative="")] = False
    stop_after: Annotated[
        float | None,
        Parameter(
            help="Seconds after which no more cells start. Running cells finish; the same command "
            "continues with the rest."
        ),
    ] = None

    def make_executor(self, plan: Plan, scale_name: str) -> Executor:
        """Return the executor of the cells; raise a UsageError for conflicting options."""
        if self.jobs is not None and self.jobs < 1:
            raise UsageError(f"--jobs is {self.jobs}; expected 1 or more")
        if self.stop_after is not None and not 0 < self.stop_after < math.inf:
            raise UsageError(f"--stop-after is {self.stop_after}; expected seconds, like 600")
        if self.executor != "local":
            if self.gpus:
                raise UsageError("--gpus is for this machine; with SLURM use --slurm.gpus 1")
            from boxmend.bench.grids.slurm import Submitit

            is_local = self.executor == "submitit-local"
            return Submitit(plan.root, self.jobs, self.slurm or {}, is_local=is_local)
        if self.slurm:
            raise UsageError("--slurm is for SLURM; add --executor submitit")
        gpus = split(self.gpus)
        for gpu in gpus:
            if not GPU.fullmatch(gpu):
                raise UsageError(f"--gpus {display_text(gpu)}: expected numbers of GPUs, like 0,1")
        cores = (os.cpu_count() or 1) if get_scale(scale_name).is_embedded else 1
        return Local(self.jobs or len(gpus) or cores, gpus)


@run_app.default
def run(
    *names: Names,
    scale: ScaleName,
    part: CellOptions | None = None,
    inputs: CellInputs | None = None,
    execution: ExecutionOptions | None = None,
    dry_run: Annotated[
        bool, Parameter(help="List the cells and their states; run nothing.", negative="")
    ] = False,
    json: Json = False,
) -> int:
    """Run the trainings of tables, cell by cell; continue where an earlier call stopped."""
    part, inputs = part or CellOptions(), inputs or CellInputs()
    execution = execution or ExecutionOptions()
    request = part.request(names, scale, **inputs.request_fields())
    whole = make_plan(request)
    if dry_run:
        return list_cells(whole, preview(whole, request), json=json)
    executor = execution.make_executor(whole, scale)
    plan = prepare(whole, request)
    if not json:
        _print_plan(plan)
    with progress_display(quiet=json) as show:
        outcome = run_grid(
            plan,
            executor,
            retry_failed=execution.retry_failed,
            stop_after=execution.stop_after,
            show=show,
        )
    if json:
        print_json({"out": str(plan.root), **_summary(plan, outcome)})
    else:
        _print_result(plan, outcome, request)
        if outcome.was_stopped and executor.outlives:
            say("the jobs stay in the SLURM queue; the same command waits for them")
    return ExitStatus.FINE if _is_fine(outcome) else ExitStatus.FAILURE


def _print_plan(plan: Plan) -> None:
    """Print which cells are done elsewhere, and how many are left to run."""
    for warning in plan.warnings:
        say(f"warning: {warning}")
    if not plan.previous and not plan.retrained:
        return
    files: dict[Path, int] = {}
    for line in plan.previous.values():
        files[line.path] = files.get(line.path, 0) + 1
    for path, number in files.items():
        say(
            f"{number:,} of the cells {'has a result' if number == 1 else 'have results'} in {path}"
        )
    for cell, dependent in plan.retrained.items():
        say(retraining_message(cell, dependent))
    left = sum(state_of(plan.folder(cell)) is not State.DONE for cell in plan.cells)
    say(f"{left:,} {'is' if left == 1 else 'are'} left to run under {plan.root}")


def _print_result(plan: Plan, outcome: GridOutcome, request: GridRequest) -> None:
    rows = [(state, number) for state, number in _counts(plan, outcome).items() if number]
    print_table(("cells", "number"), rows)
    for cell, error in outcome.failed.items():
        say(f"{cell} failed: {error}")
    for cell in outcome.stopped:
        say(f"{cell} was stopped; the same command continues it")
    if outcome.was_stopped:
        say("stopped before the end; the same command continues")
    elif outcome.left:
        say(f"not started: {', '.join(outcome.left)}; the same command continues")
    if outcome.failed:
        say(f"the logs are {plan.root / 'cells'}/CELL/log.txt; --retry-failed runs them again")
    files = (*request.done, plan.root / RESULTS_FILE)
    results = " ".join(f"--results {path}" for path in files if path.exists())
    for name in request.names if results else ():
        say(f"show the table: boxmend bench table {name} {results}")


def _summary(plan: Plan, outcome: GridOutcome) -> dict[str, Any]:
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


def _key_and_value(text: str) -> tuple[str, str]:
    """Split KEY=VALUE; raise a UsageError for a setting that --set cannot change."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {text}: expected KEY=VALUE, like epochs=6")
    if key in CELL_SETTINGS:
        raise UsageError(f"--set {key}: each cell of a table has its own; {CELL_SETTINGS[key]}")
    if key == "weights" and value not in WEIGHTS_WITHOUT_FILE:
        raise UsageError(f"--set weights={value}: use --weights {value}, which checks the file")
    return key, value
