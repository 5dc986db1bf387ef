"""The server: it listens on this machine only, until it is interrupted."""

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
from boxmend.web.review.guarding import HOST, guard, new_token
from boxmend.web.review.pages import make_app
from boxmend.web.review.session import ReviewSession

SHUTDOWN_SECONDS = 1  # for requests that are running when the server stops
BACKLOG = 128


def open_session(
    run: str | Path, data: Dataset | str | list[str] | None = None, who: str | None = None
) -> ReviewSession:
    """Open the fixes of a run and its dataset; raise a UsageError if the run was not audited."""
    opened = open_finished_run(run)
    if not (opened.path / FIXES_FILE).exists():
        raise UsageError(
            f"{opened.path}: there are no fixes to review; first audit the training run (`boxmend "
            f"audit {quote(str(opened.path))}`) or a dataset (`boxmend audit DATA --predictions "
            "FILE --out RUN`)"
        )
    dataset = read_dataset(opened, data)
    fixes = read_fixes(opened.path / FIXES_FILE, dataset, fingerprint(dataset))
    return ReviewSession(opened.path, dataset, fixes, who)


def open_socket(port: int) -> socket.socket:
    """Open a socket that listens on this machine only; port 0 chooses a free port.

    Raise a UsageError for a port that is not available.
    """
    if not 0 <= port <= 65535:
        raise UsageError(f"--port is {port}; expected a number from 0 (a free port) to 65535")
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        is_used = error.errno == errno.EADDRINUSE
        why = "is in use" if is_used else f"cannot be used ({error.strerror or error})"
        raise UsageError(
            f"port {port} {why}; choose another with --port, or leave out --port to use a free one"
        ) from error
    return listener


class Server:
    """A server of one session; `run` answers requests until `stop` or an interrupt."""

    def __init__(self, session: ReviewSession, port: int = 0) -> None:
        self._socket = open_socket(port)
        self.port = int(self._socket.getsockname()[1])
        token = new_token()
        self.address = f"http://{HOST}:{self.port}/{token}/"
        self._server = uvicorn.Server(
            uvicorn.Config(
                guard(make_app(session), token, self.port),
                lifespan="off",
                ws="none",
                http="h11",
                loop="asyncio",
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            )
        )

    def run(self, ready: Callable[[str], None] | None = None) -> None:
        """Answer requests until stopped; call `ready` with the address as soon as it is open."""
        try:
            if ready is not None:
                ready(self.address)
            self._server.run(sockets=[self._socket])
        except KeyboardInterrupt:
            pass  # Ctrl-C stops the server
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Make `run` return; may be called from any thread."""
        self._server.should_exit = True
