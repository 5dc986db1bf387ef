"""A server in a thread of its own, and what it answers."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from boxmend.auditing.fixes.verdicts import VERDICTS_FILE
from boxmend.web.review.serving import Server, open_session


@dataclass
class Served:
    """A server that runs, and how to ask it."""

    server: Server
    run: Path

    @property
    def address(self) -> str:
        """Of the page."""
        return self.server.address

    @property
    def token(self) -> str:
        """Of the address."""
        return self.address.rstrip("/").rpartition("/")[2]

    def ask(
        self,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        method: str | None = None,
    ) -> tuple[int, bytes, dict[str, str]]:
        """Status, content and headers of an answer; the path is sent as it is."""
        connection = HTTPConnection("127.0.0.1", self.server.port, timeout=10)
        try:
            connection.putrequest(
                method or ("GET" if body is None else "POST"), path, skip_host=True
            )
            result = {"Host": f"127.0.0.1:{self.server.port}"} | (headers or {})
            if body is not None:
                result |= {"Content-Length": str(len(body))}
            for name, value in result.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
        finally:
            connection.close()

    def get(self, name: str) -> Any:
        """The JSON of something that the page may ask for."""
        status, content, _ = self.ask(f"/{self.token}/{name}")
        assert status == 200, content
        return json.loads(content)

    def post(self, verdicts: Any, seen: int = 0) -> tuple[int, Any]:
        """Give verdicts as the page does; the status, and the news or what is wrong."""
        body = json.dumps({"seen": seen, "verdicts": verdicts}).encode()
        kind = {"Content-Type": "application/json"}
        status, content, _ = self.ask(f"/{self.token}/verdicts", body, kind)
        return status, json.loads(content) if status == 200 else content.decode()

    def lines(self) -> list[dict[str, Any]]:
        """What is in the file of verdicts, without the digests."""
        path = self.run / VERDICTS_FILE
        lines = path.read_text().splitlines() if path.exists() else []
        document = [json.loads(line) for line in lines]
        return [{name: one[name] for name in one if name != "digest"} for one in document]


@contextmanager
def served(run: Path, who: str | None = None) -> Iterator[Served]:
    """Serve the review of a run while the block lasts."""
    server = Server(open_session(run, who=who))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield Served(server, run)
    finally:
        server.stop()
        thread.join(timeout=20)
        assert not thread.is_alive()
