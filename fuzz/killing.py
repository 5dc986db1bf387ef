"""A child kills itself at a chosen moment and logs its changes of files until then.

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

from children import EVENT_LOG, written_paths
from rereading import visit_server

ALL_FILES = "all"  # instead of an inode: the whole file system is synced


def log_changes(case: Path, kill_at: int | None, visit: bool) -> None:
    """Log every change of a file below the case; kill this process just before change `kill_at`.

    Changes are numbered from 0. Syncs count as changes. With `visit`, a review server gets a
    visitor.
    """
    if visit:
        visit_server()
    log = os.open(case.with_name(EVENT_LOG), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
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
            note("sync", ALL_FILES)
        if any(path.startswith(inside) for path in paths):
            note(event, *paths)

    sys.addaudithook(watch)
    for name in ("fsync", "fdatasync"):
        setattr(os, name, _log_syncs(getattr(os, name), note))


def _log_syncs(sync: Callable[[Any], None], note: Callable[..., None]) -> Callable[[Any], None]:
    @functools.wraps(sync)
    def sync_and_note(file: Any) -> None:
        number = file if isinstance(file, int) else file.fileno()
        note("sync", str(os.fstat(number).st_ino))
        sync(file)

    return sync_and_note


def limit_file_size(num_bytes: int, visit: bool) -> None:
    """Let the system kill this process while it writes a file beyond `num_bytes`."""
    if visit:
        visit_server()
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))


def read_events(case: Path) -> list[list[str]]:
    """Return the events that the last child logged, in order."""
    lines = case.with_name(EVENT_LOG).read_bytes().decode("utf-8", "surrogateescape").split("\n")
    return [line.split("\t") for line in lines if line]
