"""Read the output of a command again; called in the child, raises if the output is not sound."""

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
    """Read a dataset; raise if it has errors other than missing images."""
    if "none" in tokens:
        return  # without images some sizes are not known
    if "--fix" in tokens and not os.path.exists("out"):
        return  # errors that cannot be repaired: nothing was written
    errors = [finding for finding in read("out").findings if finding.severity is Severity.ERROR]
    if any(error.kind != "missing-image" for error in errors):
        raise RuntimeError(f"the written dataset has errors: {errors[:3]}")


def reread_noisy(tokens: list[str]) -> None:
    """Read a noisy dataset and its truth."""
    known_truth("out", load("out"))


def reread_audit(tokens: list[str]) -> None:
    """Read the table of fixes."""
    dataset = load("in/noisy")
    read_fixes(Path("out/fixes.parquet"), dataset, fingerprint(dataset))
    if not Run(Path("out")).is_finished:
        raise RuntimeError("the audit is not finished")


def reread_repaired(tokens: list[str]) -> None:
    """Read a repaired dataset and revert it."""
    read("out")
    if boxmend.cli.run(["revert", "out"]) != 0:
        raise RuntimeError("the output of `apply` cannot be reverted")


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
    """Read the files of a training run."""
    run = Run(Path("out"))
    run.settings(), run.facts(), run.summary(), run.read_metrics()


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


READERS: dict[str, Callable[[list[str]], None]] = {
    "dataset": reread_dataset,
    "noisy": reread_noisy,
    "audit": reread_audit,
    "mended": reread_repaired,
    "json": reread_json,
    "json files": reread_files,
    "run": reread_run,
}


def visit_server() -> None:
    """Make `boxmend review` stop after one visitor, who requests pages and sends verdicts."""
    serve = Server.run

    def run(self: Server, ready: Callable[[str], None] | None = None) -> None:
        thread = threading.Thread(target=_visit, args=(self,), daemon=True)

        def begin(address: str) -> None:
            thread.start()
            if ready is not None:
                ready(address)

        serve(self, begin)
        thread.join()

    Server.run = run  # type: ignore[method-assign]  # only in this process


def _visit(server: Server) -> None:
    token = server.address.rstrip("/").rpartition("/")[2]
    try:
        fixes = json.loads(_request(server, f"/{token}/fixes")[1])
        number = len(fixes["kind"])
        seen = json.loads(_request(server, f"/{token}/news-0")[1])["seen"]
        for name in ("", "doubtful", "places-0-1", "cut-0-0-0-20-20-64.jpg"):
            _request(server, f"/{token}/{name}")
        answers = [{"row": k, "answer": "accept"} for k in range(min(number, 3))]
        body = json.dumps({"seen": 0, "verdicts": answers}).encode()
        status, _ = _request(server, f"/{token}/verdicts", body)
        if status == HTTPStatus.OK:
            os.write(1, f"{ACKNOWLEDGED}{seen + len(answers)}\n".encode())
            os.fsync(1)  # an event after the acknowledgement, so that a kill can follow it
    finally:
        server.stop()


def _request(server: Server, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        kind = {"Content-Type": "application/json"}
        connection.request("GET" if body is None else "POST", path, body, kind if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
