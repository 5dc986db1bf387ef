"""Where cells run: here, in a process each, beside one another and spread over GPUs."""

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
    """A cell in progress."""

    def poll(self) -> int | None:
        """Give None while it runs, then its status; the number of a signal, negative, if killed."""

    def stop(self) -> None:
        """Ask it to save its state and leave."""

    def kill(self) -> None:
        """End it at once; it goes on from its last checkpoint when it is started again."""


class Executor(Protocol):
    """Starts cells."""

    @property
    def capacity(self) -> int:
        """How many cells may be started before one ends."""

    @property
    def outlives(self) -> bool:
        """Whether cells go on when the grid is told to stop."""

    def start(self, folders: Sequence[Path]) -> list[Process]:
        """Start the cells in these folders, in the order given."""


class LocalProcess:
    """A cell in a process and a session of its own on this machine."""

    def __init__(self, folder: Path, environment: dict[str, str]):
        command = [sys.executable, "-m", "boxmend.bench.grids.cell_process", "--follow-stdin"]
        with (folder / LOG_FILE).open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(folder)],
                stdin=subprocess.PIPE,  # its end tells the cell that nobody waits for it
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
                start_new_session=True,  # Ctrl-C is for the grid, which passes it on
            )

    def poll(self) -> int | None:
        """Give None while it runs, then its status."""
        status = self._process.poll()
        if status is not None and self._process.stdin is not None:
            self._process.stdin.close()
        return status

    def stop(self) -> None:
        """Send SIGTERM, after which a training saves and leaves."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill the process and all that it started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError, AttributeError):
            self._process.kill()


class Local:
    """Slots on this machine; each has a GPU where some are named, else a share of the cores."""

    outlives = False

    def __init__(self, jobs: int, gpus: Sequence[str] = (), cores: int | None = None):
        self._taken: dict[int, LocalProcess] = {}
        self._jobs, self._gpus = jobs, tuple(gpus)
        self._threads = max((cores or os.cpu_count() or 1) // jobs, 1)

    @property
    def capacity(self) -> int:
        """The number of slots."""
        return self._jobs

    def start(self, folders: Sequence[Path]) -> list[Process]:
        """Start cells in free slots."""
        self._taken = {slot: one for slot, one in self._taken.items() if one.poll() is None}
        free = [slot for slot in range(self._jobs) if slot not in self._taken]
        started: list[Process] = []
        for slot, folder in zip(free, folders, strict=False):
            self._taken[slot] = LocalProcess(folder, self.environment(slot))
            started.append(self._taken[slot])
        return started

    def environment(self, slot: int) -> dict[str, str]:
        """What a slot adds to the environment: its GPU, and threads that do not get in the way."""
        said = {name: str(self._threads) for name in THREADS if name not in os.environ}
        if self._gpus:
            said["CUDA_VISIBLE_DEVICES"] = self._gpus[slot % len(self._gpus)]
        return said
