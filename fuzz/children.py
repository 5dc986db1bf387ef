"""A command in a forked child of this process, which has everything imported already."""

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

SECONDS = 20.0  # after which a command counts as hung
PATIENCE = 5.0  # seconds between looks at a command that takes long
STILL = 0.03  # seconds of CPU; one that uses less between two looks stands still
MOST_BYTES = 2 << 30  # of memory that a command may use at its peak
MORE_ADDRESSES = 3 << 30  # bytes of addresses that a command may have more than this process
MOST_FILE_BYTES = 1 << 30  # of a file that a command writes
TRACEBACK, UNREADABLE, OUTSIDE = 70, 71, 72  # statuses with which a child tells of its own finds
LOG = "events"  # file beside the folder of a case that a child may write, too
M_ARENA_MAX = -8
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
PATHS_OF = {
    "os.mkdir": (0,),
    "os.rename": (0, 1),
    "os.symlink": (1,),
    "os.link": (1,),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.truncate": (0,),
}
"""Events of Python that change files: which of their arguments are the paths that change."""


@dataclass(frozen=True)
class Task:
    """A command to run in the folder of a case; picklable."""

    case: Path
    tokens: list[str]
    check: Callable[[list[str]], None] | None = None  # called in the child after a success
    begin: Callable[[], None] | None = None  # called in the child before the command
    seconds: float = SECONDS
    kill_after: float | None = None  # seconds after which the child is killed anyway


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    status: int | None  # None: killed by a signal, or after its time
    hung: bool
    signal: int
    peak_bytes: int
    seconds: float
    cpu_seconds: float
    stdout: str
    stderr: str


def prepare() -> None:
    """Set what all children share; call it once, before the first."""
    os.environ["BOXMEND_TRACEBACK"] = "1"  # unexpected exceptions are to be seen
    os.environ["COLUMNS"] = "100"
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
    os.environ["PYTHONPATH"] = str(Path(boxmend.__file__).parents[1])  # of processes they start
    warnings.filterwarnings("ignore", message=".*fork.*")
    with contextlib.suppress(OSError, AttributeError):  # each arena reserves many addresses
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 2)


def written_paths(event: str, arguments: tuple[Any, ...]) -> list[str]:
    """The paths that an audited event is about to change."""
    if event == "open":
        path, _, flags = arguments
        is_path = isinstance(path, str | bytes | os.PathLike)
        found = [path] if is_path and flags & WRITING else []
    elif event in PATHS_OF:
        if any(one != -1 for one in arguments[-1:] if isinstance(one, int)):
            return []  # relative to an open folder
        found = [arguments[k] for k in PATHS_OF[event]]
    else:
        return []
    named = [one for one in found if isinstance(one, str | bytes | os.PathLike)]
    return [os.path.abspath(os.fsdecode(one)) for one in named]


def run_in_child(task: Task) -> Ended:
    """Run a command in a child of this process, and wait for its end."""
    for name in ("stdout", "stderr"):  # of the child before: this one may be killed at once
        task.case.with_name(name).write_bytes(b"")
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_child(task)
    case = task.case
    hung = not _ends_in_time(child, task.seconds, task.kill_after)
    if hung:
        os.kill(child, signal.SIGKILL)
    _, ended, usage = os.wait4(child, 0)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # processes that it has started
    return Ended(
        status=os.waitstatus_to_exitcode(ended) if os.WIFEXITED(ended) else None,
        hung=hung,
        signal=os.WTERMSIG(ended) if os.WIFSIGNALED(ended) else 0,
        peak_bytes=usage.ru_maxrss * 1024,
        seconds=time.monotonic() - started,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        stdout=_text(case.with_name("stdout")),
        stderr=_text(case.with_name("stderr")),
    )


class Starter:
    """A process that runs tasks in children of its own, after it has imported what they need.

    A fork takes the longer the more memory a process has; so the process with torch is another
    one than that without.
    """

    def __init__(self, warm_up: Callable[[], None]) -> None:
        self._connection, other = Pipe()
        self._child = os.fork()
        if self._child == 0:
            self._connection.close()
            _serve(other, warm_up)
        other.close()
        self._connection.recv()  # it is ready

    def run(self, task: Task) -> Ended:
        """Run a task; an EOFError says that the process has ended."""
        self._connection.send(task)
        ended = self._connection.recv()
        if not isinstance(ended, Ended):
            raise TypeError(f"a starter answered {ended!r}")
        return ended

    def stop(self) -> None:
        """End the process."""
        self._connection.send(None)
        os.waitpid(self._child, 0)


def _serve(
    connection: "Connection[Ended | None, Task | None]", warm_up: Callable[[], None]
) -> NoReturn:
    status = 1
    try:
        warm_up()
        gc.collect()
        gc.freeze()  # children then copy fewer pages
        connection.send(None)
        while (task := connection.recv()) is not None:
            connection.send(run_in_child(task))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _ends_in_time(child: int, seconds: float, kill_after: float | None) -> bool:
    """Wait for a child; on a busy machine its time is that of the CPU, unless it stands still."""
    handle = os.pidfd_open(child)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    try:
        if poll.poll(max(1, 1000 * (seconds if kill_after is None else kill_after))):
            return True
        used = -1.0
        while kill_after is None and used + STILL < (now := _cpu_seconds(child)) < seconds:
            used = now
            if poll.poll(1000 * PATIENCE):
                return True
        return False
    finally:
        os.close(handle)


def _cpu_seconds(child: int) -> float:
    """What a process and those that it has waited for have used of the CPU."""
    with open(f"/proc/{child}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(1 << 22).decode("utf-8", "backslashreplace")


def _be_child(task: Task) -> NoReturn:
    """Run the command and leave this process."""
    status = TRACEBACK
    try:
        outside = _enter(task.case)
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


def _enter(case: Path) -> list[str]:
    """Confine the child; returns the list that paths outside of the case will be added to."""
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
    _limit(resource.RLIMIT_AS, addresses + MORE_ADDRESSES)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, MOST_FILE_BYTES)
    outside: list[str] = []
    allowed = {str(case), str(case.with_name(LOG)), os.devnull, "/dev/tty"}

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        for path in written_paths(event, arguments):
            if path not in allowed and not path.startswith((f"{case}{os.sep}", "/proc/self/")):
                outside.append(path)

    sys.addaudithook(watch)
    return outside


def _limit(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(what, (value, hard))
