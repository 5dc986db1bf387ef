"""What a command wrote, read again by boxmend: called in the child, raises where it is unsound."""

import json
import os
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path

import boxmend.cli
from boxmend.auditing.fixes.table import read_fixes
from boxmend.data.findings import Severity
from boxmend.data.fingerprint import fingerprint
from boxmend.data.formats import load, read
from boxmend.runs.folder import Run
from boxmend.scoring.corrections import known_truth
from boxmend.web.review.serving import Server

ACKNOWLEDGED = "acknowledged: "  # on stdout, with the number of verdicts in all


def reread_dataset(tokens: list[str]) -> None:
    """Read a dataset, which has no errors but missing images, unless it is a repaired one."""
    if "none" in tokens:
        return  # without images some sizes are not known
    errors = [one for one in read("out").findings if one.severity is Severity.ERROR]
    if "--fix" not in tokens and any(one.kind != "missing-image" for one in errors):
        raise RuntimeError(f"what was written has errors: {errors[:3]}")


def reread_noisy(tokens: list[str]) -> None:
    """Read a noisy dataset and the truth beside it."""
    known_truth("out", load("out"))


def reread_audit(tokens: list[str]) -> None:
    """Read the table of fixes."""
    dataset = load("in/noisy")
    read_fixes(Path("out/fixes.parquet"), dataset, fingerprint(dataset))
    if not Run(Path("out")).is_finished:
        raise RuntimeError("the audit is not finished")


def reread_mended(tokens: list[str]) -> None:
    """Take back what was mended."""
    read("out")
    if boxmend.cli.run(["revert", "out"]) != 0:
        raise RuntimeError("what `apply` wrote cannot be reverted")


def reread_json(tokens: list[str]) -> None:
    """Parse a file of JSON."""
    json.loads(Path("out.json").read_bytes(), parse_constant=_refuse)


def reread_files(tokens: list[str]) -> None:
    """Parse all JSON and XML in a folder."""
    for path in Path("out").rglob("*"):
        if path.suffix == ".json":
            json.loads(path.read_bytes(), parse_constant=_refuse)
        elif path.suffix == ".xml":
            ElementTree.parse(path)


def reread_run(tokens: list[str]) -> None:
    """Read what a training left."""
    run = Run(Path("out"))
    run.settings(), run.facts(), run.summary(), run.metrics()


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


READERS: dict[str, Callable[[list[str]], None]] = {
    "dataset": reread_dataset,
    "noisy": reread_noisy,
    "audit": reread_audit,
    "mended": reread_mended,
    "json": reread_json,
    "json files": reread_files,
    "run": reread_run,
}


def visit_server() -> None:
    """Have `boxmend review` serve one visitor, who looks at all and gives verdicts, and end."""
    serve = Server.run

    def run(self: Server, ready: Callable[[str], None] | None = None) -> None:
        thread = threading.Thread(target=_visit, args=(self,), daemon=True)

        def begin(address: str) -> None:
            thread.start()
            if ready is not None:
                ready(address)

        serve(self, begin)
        thread.join()

    Server.run = run  # type: ignore[method-assign]  # in this process alone


def _visit(server: Server) -> None:
    token = server.address.rstrip("/").rpartition("/")[2]
    try:
        fixes = json.loads(_ask(server, f"/{token}/fixes")[1])
        number = len(fixes["kind"])
        seen = json.loads(_ask(server, f"/{token}/news-0")[1])["seen"]
        for name in ("", "doubtful", "places-0-1", "cut-0-0-0-20-20-64.jpg"):
            _ask(server, f"/{token}/{name}")
        answers = [{"row": k, "answer": "accept"} for k in range(min(number, 3))]
        body = json.dumps({"seen": 0, "verdicts": answers}).encode()
        status, _ = _ask(server, f"/{token}/verdicts", body)
        if status == HTTPStatus.OK:
            os.write(1, f"{ACKNOWLEDGED}{seen + len(answers)}\n".encode())
            os.fsync(1)  # an event at which a kill finds the verdicts acknowledged
    finally:
        server.stop()


def _ask(server: Server, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        kind = {"Content-Type": "application/json"}
        connection.request("GET" if body is None else "POST", path, body, kind if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
