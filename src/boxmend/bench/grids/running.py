"""Running a grid: cells are started as room and their needs allow, watched, and told of."""

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from boxmend.bench.grids.outcomes import failed_result, last_lines, record
from boxmend.bench.grids.planning import Plan
from boxmend.bench.grids.results import RESULTS_FILE, append
from boxmend.bench.grids.time_left import Pace, seconds_left
from boxmend.data.files.reading import open_file

PAUSE = 0.5  # seconds between looks
TAIL = 4096  # bytes of metrics.jsonl that are looked at
STOPPING = {CellStatus.STOPPED, -signal.SIGTERM, -signal.SIGINT}


@dataclass(frozen=True)
class RunningCell:
    """A cell in progress, as far as it told."""

    name: str
    seconds: float
    epoch: int | None = None
    epochs: int | None = None
    images_per_second: float | None = None
    passes: int = 0
    """That are done."""


@dataclass(frozen=True)
class Glance:
    """How far the grid is."""

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
    """By cells that are done and passes of those that run; None while nothing tells."""
    is_stopping: bool = False
    """Whether cells were asked to save and leave."""
    is_closing: bool = False
    """Whether the time to start cells is over."""


@dataclass(frozen=True)
class Ended:
    """What became of the cells."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """With their errors; also those that need one that failed, or was killed."""
    stopped: list[str] = field(default_factory=list)
    was_stopped: bool = False
    """Whether the grid was told to stop before its end."""
    left: list[str] = field(default_factory=list)
    """Not begun, or begun elsewhere, when the grid was told to stop or its time was over."""


def run_grid(
    plan: Plan,
    executor: Executor,
    *,
    retry_failed: bool = False,
    stop_after: float | None = None,
    show: Callable[[Glance], None] = lambda glance: None,
) -> Ended:
    """Run all cells that are not done; returns when each is over, or when told to stop.

    SIGTERM and Ctrl-C are passed on, and cells save before they leave; a second one kills them.
    Cells that others run are waited for, and taken up if those leave them. When `stop_after`
    seconds are over no further cell is started, those that run come to their end, and the rest is
    left.
    """
    until = math.inf if stop_after is None else time.monotonic() + stop_after
    with _stop_requests() as requests:
        grid = _Grid(plan, executor, retry_failed)
        while not grid.is_over and not requests:
            grid.is_closing = time.monotonic() >= until
            grid.step()
            show(grid.glance())
            if not grid.is_over:
                time.sleep(PAUSE)
        if requests and not executor.outlives:
            _wind_down(grid, requests, show)
        return grid.ended(was_stopped=bool(requests))


def _wind_down(grid: "_Grid", requests: list[int], show: Callable[[Glance], None]) -> None:
    """Ask all cells to leave and wait for it; kill them when asked again."""
    for process in grid.running.values():
        process.stop()
    while grid.running:
        if len(requests) > 1:
            for process in grid.running.values():
                process.kill()
        grid.gather(is_stopping=True)
        show(grid.glance(is_stopping=True))
        time.sleep(PAUSE / 5)


class _Grid:
    """The cells by what became of them."""

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
        self._since: dict[Cell, float] = {}
        self._before: dict[Cell, float] = {}  # seconds of earlier tries
        self._marks: dict[Cell, tuple[int, float]] = {}  # passes done, and seconds by then
        self._epochs = {cell: _epochs(plan.folder(cell)) for cell in plan.cells}
        self._took: dict[Cell, float] = {}  # seconds of a pass

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to wait for."""
        return not self.running and (not self.waiting or self.is_closing)

    def step(self) -> None:
        """See what ended, and start what can be."""
        self.gather()
        ready, self._elsewhere = list[Cell](), list[Cell]()
        room = 0 if self.is_closing else max(self.executor.capacity - len(self.running), 0)
        for cell in list(self.waiting):
            if len(ready) < room or self._is_old(cell):
                self._sort(cell, ready)
        ready = ready[:room]
        folders = [self.plan.folder(cell) for cell in ready]
        self._before |= {cell: read_tries(self.plan.folder(cell)).seconds for cell in ready}
        for cell, process in zip(ready, self.executor.start(folders) if ready else (), strict=True):
            self.waiting.remove(cell)
            self.running[cell] = process
            self._since[cell] = time.monotonic()

    def gather(self, *, is_stopping: bool = False) -> None:
        """Take in the cells that ended."""
        for cell, process in list(self.running.items()):
            status = process.poll()
            if status is not None:
                del self.running[cell]
                self._take_in(cell, status, is_stopping=is_stopping)

    def glance(self, *, is_stopping: bool = False) -> Glance:
        """How far all is."""
        running = [_progress(self.plan.folder(cell), self._since[cell]) for cell in self.running]
        return Glance(
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

    def ended(self, *, was_stopped: bool) -> Ended:
        """What became of all cells."""
        return Ended(
            [cell.name for cell in self.done],
            {cell.name: error for cell, error in self.failed.items()},
            [cell.name for cell in self.stopped],
            was_stopped,
            [cell.name for cell in self.waiting],
        )

    def _is_old(self, cell: Cell) -> bool:
        """Whether a cell that waits is over already, by a look at one file."""
        return (self.plan.folder(cell) / RESULT_FILE).exists()

    def _sort(self, cell: Cell, ready: list[Cell]) -> None:
        """Put a waiting cell where it belongs by now."""
        state = state_of(self.plan.folder(cell))
        if state is State.RUNNING:
            self._elsewhere.append(cell)
        elif state is State.DONE:
            self._end(cell, self.done)
        elif state is State.FAILED and not self._retry_failed:
            self.waiting.remove(cell)
            self.failed[cell] = _error_of(self.plan.folder(cell))
        elif cell.needs is None or cell.needs in self.done:
            ready.append(cell)
        elif cell.needs in self.failed or cell.needs in self.stopped:
            self.waiting.remove(cell)
            self.failed[cell] = f"needs {cell.needs.name}, which did not come to its end"

    def _end(self, cell: Cell, where: list[Cell]) -> None:
        self.waiting.remove(cell)
        where.append(cell)

    def _take_in(self, cell: Cell, status: int, *, is_stopping: bool) -> None:
        """See what a cell whose process ended left behind."""
        folder = self.plan.folder(cell)
        result = read_result(folder)
        if result is not None:
            if result.error is None:
                self.done.append(cell)
            else:
                self.failed[cell] = result.error
        elif status == CellStatus.HELD:  # another process was quicker
            self.waiting.append(cell)
        elif status in STOPPING or is_stopping:
            self.stopped.append(cell)
        else:
            self.failed[cell] = _record_death(folder, status)

    def _seconds_left(self, running: Sequence[RunningCell]) -> float | None:
        for cell in self.done:
            if cell not in self._took:
                result = read_result(self.plan.folder(cell))
                self._took[cell] = (result.seconds if result else 0.0) / self._epochs[cell]
        paces = [self._pace(*both) for both in zip(self.running, running, strict=True)]
        waiting = [] if self.is_closing else [self._epochs[cell] for cell in self.waiting]
        slots = max(min(self.executor.capacity, len(running) + len(waiting)), 1)
        return seconds_left(list(self._took.values()), paces, waiting, slots)

    def _pace(self, cell: Cell, now: RunningCell) -> Pace:
        """How fast a cell is; remembers when a pass is first seen to be done."""
        seconds = self._before[cell] + now.seconds
        if now.passes > self._marks.get(cell, (0, 0.0))[0]:
            self._marks[cell] = now.passes, seconds
        return Pace(self._epochs[cell], seconds, *self._marks.get(cell, (0, 0.0)))


def _record_death(folder: Path, status: int) -> str:
    """Record a cell that died without a word; what a signal killed can be taken up again."""
    said = last_lines(folder / LOG_FILE)
    if status < 0:
        name = signal.Signals(-status).name
        error = f"killed by {name}; the same command takes it up again"
        error += "; if memory ran out, fewer --jobs leave more to each"
    else:
        error = f"ended with status {status}"
    error += f". Its last words:\n{said}" if said else ""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    result = failed_result(folder, read_job(folder), read_tries(folder), started, error)
    if status < 0:
        append(folder.parent.parent / RESULTS_FILE, result)
    else:
        record(folder, result)
    return error


def _error_of(folder: Path) -> str:
    result = read_result(folder)
    return (result.error if result is not None else None) or "failed"


def _progress(folder: Path, since: float) -> RunningCell:
    """How far a cell is by the end of its metrics."""
    line = _last_line(folder / RUN_FOLDER / "metrics.jsonl")
    epoch, over, speed = (line.get(name) for name in ("epoch", "epoch_ends", "images_per_second"))
    return RunningCell(
        folder.name,
        time.monotonic() - since,
        epoch + 1 if isinstance(epoch, int) else None,
        _epochs(folder),
        speed if isinstance(speed, int | float) else None,
        max(epoch if isinstance(epoch, int) else 0, over + 1 if isinstance(over, int) else 0),
    )


def _epochs(folder: Path) -> int:
    """Passes of a cell."""
    epochs = read_job(folder).settings.get("epochs")
    return epochs if isinstance(epochs, int) and epochs > 0 else 1


def _last_line(path: Path) -> dict[str, Any]:
    """The last whole line that tells a speed, or the last one at all; {} where there is none."""
    try:
        with open_file(path) as file:
            file.seek(0, 2)
            file.seek(max(file.tell() - TAIL, 0))
            lines = file.read().split(b"\n")[:-1]  # the last one may be half written
    except OSError:
        return {}
    found: dict[str, Any] = {}
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:  # the first one may be cut
            continue
        if isinstance(record, dict):
            found |= record
    return found


@contextmanager
def _stop_requests() -> Iterator[list[int]]:
    """A list that SIGTERM and Ctrl-C add to."""
    requests: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield requests
        return
    previous = {
        number: signal.signal(number, lambda got, frame: requests.append(got))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield requests
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
