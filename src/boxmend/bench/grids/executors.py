"""Executors of cells: processes on this machine, one per cell, side by side on its GPUs."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from boxmend.bench.grids.jobs import LOG_FILE

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


class Process(Protocol):
    """A running cell."""

    def poll(self) -> int | None:
        """Return None while the cell runs, then its exit status, or minus the signal of a kill."""

    def stop(self) -> None:
        """Ask the cell to save its state and exit."""

    def kill(self) -> None:
        """End the cell at once; a new start continues from the last checkpoint."""


class Executor(Protocol):
    """The way in which cells are started."""

    @property
    def capacity(self) -> int:
        """Return how many cells may run at the same time."""

    @property
    def outlives(self) -> bool:
        """Whether cells continue when the grid stops."""

    def start(self, folders: Sequence[Path]) -> list[Process]:
        """Start the cells in these folders, in their order."""


class LocalProcess:
    """A cell in its own process and session on this machine."""

    def __init__(self, folder: Path, environment: dict[str, str]):
        command = [sys.executable, "-m", "boxmend.bench.grids.cell_process", "--follow-stdin"]
        with (folder / LOG_FILE).open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(folder)],
                stdin=subprocess.PIPE,  # the cell stops when this pipe closes
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
                start_new_session=True,  # Ctrl-C reaches only the grid, which passes it on
            )

    def poll(self) -> int | None:
        """Return None while the cell runs, then its exit status."""
        status = self._process.poll()
        if status is not None and self._process.stdin is not None:
            self._process.stdin.close()
        return status

    def stop(self) -> None:
        """Send SIGTERM, after which a training saves and exits."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill the process and its children."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError, AttributeError):
            self._process.kill()


class Local:
    """Slots on this machine, each with one of the given GPUs, or with a share of the cores."""

    outlives = False

    def __init__(self, jobs: int, gpus: Sequence[str] = (), cores: int | None = None):
        self._running: dict[int, LocalProcess] = {}
        self._jobs, self._gpus = jobs, tuple(gpus)
        self._threads = max((cores or os.cpu_count() or 1) // jobs, 1)

    @property
    def capacity(self) -> int:
        """Return the number of slots."""
        return self._jobs

    def start(self, folders: Sequence[Path]) -> list[Process]:
        """Start cells in free slots."""
        self._running = {
            slot: process for slot, process in self._running.items() if process.poll() is None
        }
        free = [slot for slot in range(self._jobs) if slot not in self._running]
        started: list[Process] = []
        for slot, folder in zip(free, folders, strict=False):
            self._running[slot] = LocalProcess(folder, self.environment(slot))
            started.append(self._running[slot])
        return started

    def environment(self, slot: int) -> dict[str, str]:
        """Return the environment variables of a slot: its number of threads, and its GPU."""
        variables = {name: str(self._threads) for name in THREADS if name not in os.environ}
        if self._gpus:
            variables["CUDA_VISIBLE_DEVICES"] = self._gpus[slot % len(self._gpus)]
        return variables
