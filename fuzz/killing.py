"""How a child kills itself at a chosen moment, and what it notes about its files until then.

The functions are called in the child before the command runs.
"""

import functools
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from children import LOG, written_paths
from rereading import visit_server

ALL = "all"  # in place of the number of a file: the whole file system is synced


def watch_files(case: Path, kill_at: int | None, visit: bool) -> None:
    """Note every change of a file below the case, and be killed just before a chosen one.

    Changes are numbered from 0. Syncs count as changes. `visit` has a server serve a visitor.
    """
    if visit:
        visit_server()
    log = os.open(case.with_name(LOG), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    inside = f"{case}{os.sep}"
    number = 0

    def note(*words: str) -> None:
        nonlocal number
        if number == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        number += 1
        os.write(log, "\t".join(words).encode("utf-8", "surrogateescape") + b"\n")

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        paths = written_paths(event, arguments)
        if event == "ctypes.dlsym" and arguments[1] == "syncfs":
            note("sync", ALL)
        if any(path.startswith(inside) for path in paths):
            note(event, *paths)

    sys.addaudithook(watch)
    for name in ("fsync", "fdatasync"):
        setattr(os, name, _noted(getattr(os, name), note))


def _noted(sync: Callable[[Any], None], note: Callable[..., None]) -> Callable[[Any], None]:
    @functools.wraps(sync)
    def synced(file: Any) -> None:
        number = file if isinstance(file, int) else file.fileno()
        note("sync", str(os.fstat(number).st_ino))
        sync(file)

    return synced


def limit_files(num_bytes: int, visit: bool) -> None:
    """Be killed by the system when a file would become larger than this, in the midst of it."""
    if visit:
        visit_server()
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))


def noted(case: Path) -> list[list[str]]:
    """What the last child noted, in order."""
    lines = case.with_name(LOG).read_bytes().decode("utf-8", "surrogateescape").split("\n")
    return [line.split("\t") for line in lines if line]
