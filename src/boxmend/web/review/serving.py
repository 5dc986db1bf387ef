"""The server: on this machine alone, until it is interrupted."""

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from shlex import quote

import uvicorn

from boxmend.auditing.fixes.table import FIXES_FILE, read_fixes
from boxmend.data.dataset import Dataset
from boxmend.data.fingerprint import fingerprint
from boxmend.errors import UsageError
from boxmend.runs.opening import open_finished_run, read_dataset
from boxmend.web.review.guarding import HOST, guarded, new_token
from boxmend.web.review.pages import make_app
from boxmend.web.review.session import ReviewSession

PATIENCE = 1  # seconds for answers that are under way when the server is told to end
BACKLOG = 128


def open_session(
    run: str | Path, data: Dataset | str | list[str] | None = None, who: str | None = None
) -> ReviewSession:
    """The fixes of a run with its dataset; a UsageError where nothing was audited yet."""
    opened = open_finished_run(run)
    if not (opened.path / FIXES_FILE).exists():
        raise UsageError(
            f"{opened.path}: has no fixes to review; `boxmend audit {quote(str(opened.path))}` "
            "finds some in a training run, `boxmend audit DATA --predictions FILE --out RUN` from "
            "predictions"
        )
    dataset = read_dataset(opened, data)
    fixes = read_fixes(opened.path / FIXES_FILE, dataset, fingerprint(dataset))
    return ReviewSession(opened.path, dataset, fixes, who)


def listening(port: int) -> socket.socket:
    """A socket that listens on this machine alone; port 0 is any that is free.

    A UsageError tells of a port that cannot be had.
    """
    if not 0 <= port <= 65535:
        raise UsageError(f"--port is {port}; expected a number from 0 (any that is free) to 65535")
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((HOST, port))
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        is_used = error.errno == errno.EADDRINUSE
        why = "is in use" if is_used else f"cannot be used ({error.strerror or error})"
        raise UsageError(
            f"port {port} {why}; name another by --port, or none: then a free one is taken"
        ) from error
    return opened


class Server:
    """A server of one session; `run` answers until `stop`, or an interrupt."""

    def __init__(self, session: ReviewSession, port: int = 0) -> None:
        self._socket = listening(port)
        self.port = int(self._socket.getsockname()[1])
        token = new_token()
        self.address = f"http://{HOST}:{self.port}/{token}/"
        self._server = uvicorn.Server(
            uvicorn.Config(
                guarded(make_app(session), token, self.port),
                lifespan="off",
                ws="none",
                http="h11",
                loop="asyncio",
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=PATIENCE,
            )
        )

    def run(self, ready: Callable[[str], None] | None = None) -> None:
        """Answer until told to stop; `ready` is told the address, which is open by then."""
        try:
            if ready is not None:
                ready(self.address)
            self._server.run(sockets=[self._socket])
        except KeyboardInterrupt:
            pass  # how people end it
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Have `run` come to its end; from any thread."""
        self._server.should_exit = True
