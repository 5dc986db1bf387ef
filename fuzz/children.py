"""Run commands in forked children of this process, which has imported everything they need."""

import contextlib
import ctypes
import gc
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from io import TextIOWrapper
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import boxmend.cli

MAX_SECONDS = 20.0  # of CPU time, after which a command counts as hung
POLL_SECONDS = 5.0  # between two checks of a slow command
MIN_CPU_SECONDS = 0.03  # a command that uses less CPU time between two checks is hung
MAX_MEMORY_BYTES = 2 << 30  # peak memory of a command
MAX_EXTRA_ADDRESS_BYTES = 3 << 30  # address space beyond that of this process
MAX_FILE_BYTES = 1 << 30  # size of a file that a command writes
TRACEBACK, UNREADABLE, OUTSIDE = 70, 71, 72  # exit statuses for problems that the child detects
EVENT_LOG = "events"  # file beside the case folder; a child may write it too
M_ARENA_MAX = -8
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
PATH_ARGUMENTS = {
    "os.mkdir": (0,),
    "os.rename": (0, 1),
    "os.symlink": (1,),
    "os.link": (1,),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.truncate": (0,),
}
"""Audit events that change files, with the positions of the changed paths among their arguments."""


@dataclass(frozen=True)
class Task:
    """A command to run in the folder of a case; picklable."""

    case: Path
    tokens: list[str]
    check: Callable[[list[str]], None] | None = None  # called in the child after a success
    begin: Callable[[], None] | None = None  # called in the child before the command
    seconds: float = MAX_SECONDS
    kill_after: float | None = None  # seconds after which the child is killed anyway


@dataclass(frozen=True)
class ChildResult:
    """How a child ended, its use of resources, and its output."""

    status: int | None  # None: killed by a signal, or after its time
    hung: bool
    signal: int
    peak_bytes: int
    seconds: float
    cpu_seconds: float
    stdout: str
    stderr: str


def prepare() -> None:
    """Set up the environment that all children share; call this once, before the first child."""
    os.environ["BOXMEND_TRACEBACK"] = "1"  # show unexpected exceptions
    os.environ["COLUMNS"] = "100"
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
    os.environ["PYTHONPATH"] = str(Path(boxmend.__file__).parents[1])  # of processes they start
    warnings.filterwarnings("ignore", message=".*fork.*")
    with contextlib.suppress(OSError, AttributeError):  # each arena reserves many addresses
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 2)


def written_paths(event: str, arguments: tuple[Any, ...]) -> list[str]:
    """Return the paths that an audit event is about to change."""
    if event == "open":
        path, _, flags = arguments
        is_path = isinstance(path, str | bytes | os.PathLike)
        paths = [path] if is_path and flags & WRITE_FLAGS else []
    elif event in PATH_ARGUMENTS:
        if any(handle != -1 for handle in arguments[-1:] if isinstance(handle, int)):
            return []  # relative to an open folder
        paths = [arguments[k] for k in PATH_ARGUMENTS[event]]
    else:
        return []
    named = [path for path in paths if isinstance(path, str | bytes | os.PathLike)]
    return [os.path.abspath(os.fsdecode(path)) for path in named]


def run_in_child(task: Task) -> ChildResult:
    """Run a command in a child of this process and wait until it ends."""
    for name in ("stdout", "stderr"):  # empty them here, because the child may be killed at once
        task.case.with_name(name).write_bytes(b"")
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _run_child(task)
    case = task.case
    hung = not _wait_for_end(child, task.seconds, task.kill_after)
    if hung:
        os.kill(child, signal.SIGKILL)
    _, wait_status, usage = os.wait4(child, 0)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # processes that the child started
    return ChildResult(
        status=os.waitstatus_to_exitcode(wait_status) if os.WIFEXITED(wait_status) else None,
        hung=hung,
        signal=os.WTERMSIG(wait_status) if os.WIFSIGNALED(wait_status) else 0,
        peak_bytes=usage.ru_maxrss * 1024,
        seconds=time.monotonic() - started,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        stdout=_read_text(case.with_name("stdout")),
        stderr=_read_text(case.with_name("stderr")),
    )


class ForkServer:
    """A process that imports what tasks need and runs each task in a forked child.

    A fork takes longer the more memory the process has. Therefore the process with torch is
    separate from the one without.
    """

    def __init__(self, warm_up: Callable[[], None]) -> None:
        self._connection, other = Pipe()
        self._child = os.fork()
        if self._child == 0:
            self._connection.close()
            _serve(other, warm_up)
        other.close()
        self._connection.recv()  # the process is ready

    def run(self, task: Task) -> ChildResult:
        """Run a task; raise an EOFError if the process has ended."""
        self._connection.send(task)
        result = self._connection.recv()
        if not isinstance(result, ChildResult):
            raise TypeError(f"a fork server answered {result!r}")
        return result

    def stop(self) -> None:
        """End the process."""
        self._connection.send(None)
        os.waitpid(self._child, 0)


def _serve(
    connection: "Connection[ChildResult | None, Task | None]", warm_up: Callable[[], None]
) -> NoReturn:
    status = 1
    try:
        warm_up()
        gc.collect()
        gc.freeze()  # so that children copy fewer pages
        connection.send(None)
        while (task := connection.recv()) is not None:
            connection.send(run_in_child(task))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _wait_for_end(child: int, seconds: float, kill_after: float | None) -> bool:
    """Return whether a child ends within its time.

    After `seconds`, a child that still computes may go on until it has used that much CPU time,
    because the machine may be busy.
    """
    handle = os.pidfd_open(child)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    try:
        if poll.poll(max(1, 1000 * (seconds if kill_after is None else kill_after))):
            return True
        used = -1.0
        while (
            kill_after is None and used + MIN_CPU_SECONDS < (now := _cpu_seconds(child)) < seconds
        ):
            used = now
            if poll.poll(1000 * POLL_SECONDS):
                return True
        return False
    finally:
        os.close(handle)


def _cpu_seconds(child: int) -> float:
    """Return the CPU time of a process and of the children that it has waited for."""
    with open(f"/proc/{child}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _read_text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(1 << 22).decode("utf-8", "backslashreplace")


def _run_child(task: Task) -> NoReturn:
    """Run the command in this child and exit."""
    status = TRACEBACK
    try:
        outside = _confine(task.case)
        if task.begin is not None:
            task.begin()
        status = boxmend.cli.run(task.tokens)
        if outside:
            print("written outside of the case:", *outside[:5], file=sys.stderr)
            status = OUTSIDE
        elif status in (0, 1) and task.check is not None:
            try:
                task.check(task.tokens)
            except Exception:
                traceback.print_exc()
                status = UNREADABLE
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _confine(case: Path) -> list[str]:
    """Confine the child to its case; return the list that collects paths written outside of it."""
    os.setsid()
    os.chdir(case)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(case.with_name(name), flags), number)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    tempfile.tempdir = str(case / "tmp")
    os.environ["TMPDIR"] = tempfile.tempdir
    with open("/proc/self/statm") as file:
        addresses = int(file.read().split()[0]) * resource.getpagesize()
    _lower_limit(resource.RLIMIT_AS, addresses + MAX_EXTRA_ADDRESS_BYTES)
    _lower_limit(resource.RLIMIT_CORE, 0)
    _lower_limit(resource.RLIMIT_FSIZE, MAX_FILE_BYTES)
    outside: list[str] = []
    allowed = {str(case), str(case.with_name(EVENT_LOG)), os.devnull, "/dev/tty"}

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        for path in written_paths(event, arguments):
            if path not in allowed and not path.startswith((f"{case}{os.sep}", "/proc/self/")):
                outside.append(path)

    sys.addaudithook(watch)
    return outside


def _lower_limit(resource_id: int, value: int) -> None:
    _, hard = resource.getrlimit(resource_id)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(resource_id, (value, hard))
