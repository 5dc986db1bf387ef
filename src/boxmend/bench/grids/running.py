"""Run a grid: start cells as slots and their needs allow, watch them and report progress."""

import json
import math
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from boxmend.bench.grids.cell_process import CellStatus
from boxmend.bench.grids.cells import Cell
from boxmend.bench.grids.executors import Executor, Process
from boxmend.bench.grids.jobs import (
    LOG_FILE,
    RESULT_FILE,
    RUN_FOLDER,
    State,
    read_job,
    read_result,
    read_tries,
    state_of,
)
from boxmend.bench.grids.outcomes import failed_result, last_lines, record_result
from boxmend.bench.grids.planning import Plan
from boxmend.bench.grids.results import RESULTS_FILE, append_result
from boxmend.bench.grids.time_left import Pace, seconds_left
from boxmend.data.files.reading import open_file
from boxmend.training.stopping import stop_signals

POLL_SECONDS = 0.5
TAIL_BYTES = 4096  # of metrics.jsonl that are read
STOPPED_STATUSES = {CellStatus.STOPPED, -signal.SIGTERM, -signal.SIGINT}


@dataclass(frozen=True)
class RunningCell:
    """A running cell, as its metrics describe it."""

    name: str
    seconds: float
    epoch: int | None = None
    epochs: int | None = None
    images_per_second: float | None = None
    epochs_done: int = 0


@dataclass(frozen=True)
class GridProgress:
    """The numbers of cells by state."""

    total: int
    done: int
    failed: int
    stopped: int
    running: list[RunningCell]
    elsewhere: list[str]
    """Cells that another process runs."""
    left: int
    """Neither over nor running."""
    seconds_left: float | None
    """None while no speed is known."""
    is_stopping: bool = False
    """Whether the cells were asked to save and exit."""
    is_closing: bool = False
    """Whether the time in which cells start is over."""


@dataclass(frozen=True)
class GridOutcome:
    """The names of the cells by how they ended."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """With their errors. Includes killed cells, and cells that need one that failed."""
    stopped: list[str] = field(default_factory=list)
    was_stopped: bool = False
    """Whether the grid was asked to stop before its end."""
    left: list[str] = field(default_factory=list)
    """Not started, or started elsewhere, when the grid was stopped or its time was over."""


def run_grid(
    plan: Plan,
    executor: Executor,
    *,
    retry_failed: bool = False,
    stop_after: float | None = None,
    show: Callable[[GridProgress], None] = lambda progress: None,
) -> GridOutcome:
    """Run all cells that are not done; return when all are over, or after a request to stop.

    SIGTERM and Ctrl-C are passed on, and cells save before they exit; a second request kills them.
    A cell that another process runs is waited for, and continued here if that process leaves it.
    After `stop_after` seconds no further cell starts, and running cells come to their end.
    """
    until = math.inf if stop_after is None else time.monotonic() + stop_after
    requests: list[int] = []
    with stop_signals(requests.append):
        grid = _Grid(plan, executor, retry_failed)
        while not grid.is_over and not requests:
            grid.is_closing = time.monotonic() >= until
            grid.step()
            show(grid.progress())
            if not grid.is_over:
                time.sleep(POLL_SECONDS)
        if requests and not executor.outlives:
            _stop_all(grid, requests, show)
        return grid.outcome(was_stopped=bool(requests))


def _stop_all(grid: "_Grid", requests: list[int], show: Callable[[GridProgress], None]) -> None:
    """Ask all cells to stop and wait for them; kill them after a second request."""
    for process in grid.running.values():
        process.stop()
    while grid.running:
        if len(requests) > 1:
            for process in grid.running.values():
                process.kill()
        grid.collect_ended(is_stopping=True)
        show(grid.progress(is_stopping=True))
        time.sleep(POLL_SECONDS / 5)


class _Grid:
    """The cells of a plan by state."""

    def __init__(self, plan: Plan, executor: Executor, retry_failed: bool):
        self.plan, self.executor = plan, executor
        self.waiting = list(plan.cells)
        self.running: dict[Cell, Process] = {}
        self.done: list[Cell] = []
        self.failed: dict[Cell, str] = {}
        self.stopped: list[Cell] = []
        self.is_closing = False
        self._elsewhere: list[Cell] = []
        self._retry_failed = retry_failed
        self._started: dict[Cell, float] = {}
        self._previous_seconds: dict[Cell, float] = {}  # of previous tries
        self._marks: dict[Cell, tuple[int, float]] = {}  # epochs done, and the seconds they took
        self._epochs = {cell: _epochs(plan.folder(cell)) for cell in plan.cells}
        self._epoch_seconds: dict[Cell, float] = {}  # of finished cells

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to wait for."""
        return not self.running and (not self.waiting or self.is_closing)

    def step(self) -> None:
        """Collect the cells that ended, and start as many as possible."""
        self.collect_ended()
        ready, self._elsewhere = list[Cell](), list[Cell]()
        room = 0 if self.is_closing else max(self.executor.capacity - len(self.running), 0)
        for cell in list(self.waiting):
            if len(ready) < room or self._has_result(cell):
                self._sort(cell, ready)
        ready = ready[:room]
        folders = [self.plan.folder(cell) for cell in ready]
        self._previous_seconds |= {
            cell: read_tries(self.plan.folder(cell)).seconds for cell in ready
        }
        for cell, process in zip(ready, self.executor.start(folders) if ready else (), strict=True):
            self.waiting.remove(cell)
            self.running[cell] = process
            self._started[cell] = time.monotonic()

    def collect_ended(self, *, is_stopping: bool = False) -> None:
        """Record the cells whose processes ended."""
        for cell, process in list(self.running.items()):
            status = process.poll()
            if status is not None:
                del self.running[cell]
                self._record_end(cell, status, is_stopping=is_stopping)

    def progress(self, *, is_stopping: bool = False) -> GridProgress:
        """Return how far the grid is."""
        running = [_progress(self.plan.folder(cell), self._started[cell]) for cell in self.running]
        return GridProgress(
            total=len(self.plan.cells),
            done=len(self.done),
            failed=len(self.failed),
            stopped=len(self.stopped),
            running=running,
            elsewhere=[cell.name for cell in self._elsewhere],
            left=len(self.waiting) - len(self._elsewhere),
            seconds_left=None if is_stopping else self._seconds_left(running),
            is_stopping=is_stopping,
            is_closing=self.is_closing,
        )

    def outcome(self, *, was_stopped: bool) -> GridOutcome:
        """Return how each cell ended."""
        return GridOutcome(
            [cell.name for cell in self.done],
            {cell.name: error for cell, error in self.failed.items()},
            [cell.name for cell in self.stopped],
            was_stopped,
            [cell.name for cell in self.waiting],
        )

    def _has_result(self, cell: Cell) -> bool:
        """Return whether a waiting cell is over already; looks at one file only."""
        return (self.plan.folder(cell) / RESULT_FILE).exists()

    def _sort(self, cell: Cell, ready: list[Cell]) -> None:
        """Move a waiting cell to the list of its current state."""
        state = state_of(self.plan.folder(cell))
        if state is State.RUNNING:
            self._elsewhere.append(cell)
        elif state is State.DONE:
            self.waiting.remove(cell)
            self.done.append(cell)
        elif state is State.FAILED and not self._retry_failed:
            self.waiting.remove(cell)
            self.failed[cell] = _read_error(self.plan.folder(cell))
        elif cell.needs is None or cell.needs in self.done:
            ready.append(cell)
        elif cell.needs in self.failed or cell.needs in self.stopped:
            self.waiting.remove(cell)
            self.failed[cell] = f"needs {cell.needs.name}, which did not finish"

    def _record_end(self, cell: Cell, status: int, *, is_stopping: bool) -> None:
        """Record a cell whose process ended, by its result or the status of the process."""
        folder = self.plan.folder(cell)
        result = read_result(folder)
        if result is not None:
            if result.error is None:
                self.done.append(cell)
            else:
                self.failed[cell] = result.error
        elif status == CellStatus.HELD:  # another process started it first
            self.waiting.append(cell)
        elif status in STOPPED_STATUSES or is_stopping:
            self.stopped.append(cell)
        else:
            self.failed[cell] = _record_without_result(folder, status)

    def _seconds_left(self, running: Sequence[RunningCell]) -> float | None:
        for cell in self.done:
            if cell not in self._epoch_seconds:
                result = read_result(self.plan.folder(cell))
                seconds = result.seconds if result else 0.0
                self._epoch_seconds[cell] = seconds / self._epochs[cell]
        paces = [self._pace(*pair) for pair in zip(self.running, running, strict=True)]
        waiting = [] if self.is_closing else [self._epochs[cell] for cell in self.waiting]
        slots = max(min(self.executor.capacity, len(running) + len(waiting)), 1)
        return seconds_left(list(self._epoch_seconds.values()), paces, waiting, slots)

    def _pace(self, cell: Cell, now: RunningCell) -> Pace:
        """Return how fast a cell is; notes when a finished epoch is first seen."""
        seconds = self._previous_seconds[cell] + now.seconds
        if now.epochs_done > self._marks.get(cell, (0, 0.0))[0]:
            self._marks[cell] = now.epochs_done, seconds
        return Pace(self._epochs[cell], seconds, *self._marks.get(cell, (0, 0.0)))


def _record_without_result(folder: Path, status: int) -> str:
    """Record a cell whose process exited without a result; return the error.

    A cell that a signal killed gets no result file, so it can continue.
    """
    output = last_lines(folder / LOG_FILE)
    if status < 0:
        name = signal.Signals(-status).name
        error = f"killed by {name}; run the same command to continue"
        error += "; if memory ran out, use fewer --jobs"
    else:
        error = f"exited with status {status}"
    error += f". Its last lines of output:\n{output}" if output else ""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    result = failed_result(folder, read_job(folder), read_tries(folder), started, error)
    if status < 0:
        append_result(folder.parent.parent / RESULTS_FILE, result)
    else:
        record_result(folder, result)
    return error


def _read_error(folder: Path) -> str:
    result = read_result(folder)
    return (result.error if result is not None else None) or "failed"


def _progress(folder: Path, started: float) -> RunningCell:
    """Return how far a cell is, from the last lines of its metrics."""
    last = _last_metrics(folder / RUN_FOLDER / "metrics.jsonl")
    epoch, ended, speed = (last.get(name) for name in ("epoch", "epoch_ends", "images_per_second"))
    return RunningCell(
        folder.name,
        time.monotonic() - started,
        epoch + 1 if isinstance(epoch, int) else None,
        _epochs(folder),
        speed if isinstance(speed, int | float) else None,
        max(epoch if isinstance(epoch, int) else 0, ended + 1 if isinstance(ended, int) else 0),
    )


def _epochs(folder: Path) -> int:
    """Return the number of epochs of a cell."""
    epochs = read_job(folder).settings.get("epochs")
    return epochs if isinstance(epochs, int) and epochs > 0 else 1


def _last_metrics(path: Path) -> dict[str, Any]:
    """Return the last value of each key in the last whole lines; {} without a file."""
    try:
        with open_file(path) as file:
            file.seek(0, 2)
            file.seek(max(file.tell() - TAIL_BYTES, 0))
            lines = file.read().split(b"\n")[:-1]  # the last one may be half written
    except OSError:
        return {}
    metrics: dict[str, Any] = {}
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:  # the first one may be cut off
            continue
        if isinstance(record, dict):
            metrics |= record
    return metrics
