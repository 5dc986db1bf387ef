"""boxmend review: the address, the end by an interrupt or a kill, and what it refuses."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
import webbrowser
from pathlib import Path

import pytest

from boxmend.auditing.fixes.table import FIXES_FILE
from boxmend.auditing.fixes.verdicts import VERDICTS_FILE, read_verdicts
from boxmend.cli import run as command
from boxmend.web.review import serving
from tests.web.review.reviewed_runs import plain_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return plain_run(tmp_path)


def start_review(run: Path, *options: str) -> tuple["subprocess.Popen[str]", str]:
    """A separate process, and the address that it printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "boxmend", "review", str(run), "--no-open", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def give(address: str, *verdicts: dict[str, object]) -> None:
    body = json.dumps({"seen": 0, "verdicts": verdicts}).encode()
    request = urllib.request.Request(
        f"{address}verdicts", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.status == 200


@pytest.mark.skipif(os.name != "posix", reason="interrupts are sent otherwise elsewhere")
def test_the_address_is_the_result_and_an_interrupt_sums_up(run: Path) -> None:
    process, address = start_review(run, "--who", "Ada")
    assert address.startswith("http://127.0.0.1:")
    give(address, {"row": 0, "answer": "accept"}, {"row": 1, "answer": "reject"})
    give(address, {"row": 2, "answer": "accept", "label": 0})
    process.send_signal(signal.SIGINT)
    out, talk = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out == ""
    assert talk.splitlines() == [
        f"{run}: 8 fixes, 0 decided; Ctrl-C stops",
        "3 of 8 fixes are decided: 1 accepted, 1 accepted with another class or box, 1 rejected",
        f"the verdicts are in {run / VERDICTS_FILE}; `boxmend apply {run} --out DIR` uses them",
    ]
    assert [verdict.who for verdict in read_verdicts(run)] == ["Ada"] * 3
    assert not (run / ".lock").exists()


@pytest.mark.skipif(os.name != "posix", reason="kills are sent otherwise elsewhere")
def test_a_kill_loses_nothing_and_the_next_review_continues(run: Path) -> None:
    process, address = start_review(run)
    give(address, {"row": 0, "answer": "accept"}, {"row": 1, "answer": "reject"})
    process.kill()
    process.communicate(timeout=30)
    assert [verdict.answer for verdict in read_verdicts(run)] == ["accept", "reject"]
    session = serving.open_session(run)
    assert session.figures()["decided"] == 2
    with (run / VERDICTS_FILE).open("ab") as file:
        file.write(b'{"fix": "f3", "verd')  # as a power cut may leave it
    assert serving.open_session(run).figures()["decided"] == 2


@pytest.mark.skipif(os.name != "posix", reason="there are no such locks elsewhere")
def test_a_second_server_of_the_same_run_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process, _ = start_review(run)
    try:
        assert command(["review", str(run), "--no-open"]) == 3
        assert "another process is writing into this run" in capsys.readouterr().err
    finally:
        process.kill()
        process.communicate(timeout=30)


def test_a_port_in_use_is_a_clear_message(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert command(["review", str(run), "--no-open", "--port", str(port)]) == 2
    said = capsys.readouterr()
    assert f"port {port} is in use; choose another with --port" in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--port", "70000"], "from 0 (a free port) to 65535"),
        (["--port", "-1"], "from 0 (a free port) to 65535"),
        (["--port", "x"], "port"),
        (["--who", ""], "--who"),
        (["--who", "x" * 201], "--who"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    run: Path, capsys: pytest.CaptureFixture[str], options: list[str], why: str
) -> None:
    assert command(["review", str(run), "--no-open", *options]) == 2
    said = capsys.readouterr()
    assert why in said.err + said.out


def test_a_run_that_was_not_audited_says_how_to(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / FIXES_FILE).unlink()
    assert command(["review", str(run), "--no-open"]) == 2
    assert f"`boxmend audit {run}`" in capsys.readouterr().err
    assert command(["review", str(run / "nowhere"), "--no-open"]) == 2
    assert command(["review", str(run.parent / "data"), "--no-open"]) == 3


def test_a_damaged_table_and_damaged_verdicts_are_reported(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / VERDICTS_FILE).write_bytes(b"\xff\xfe\n{}\n")
    assert command(["review", str(run), "--no-open"]) == 3
    assert "line 1 is not a verdict" in capsys.readouterr().err
    (run / FIXES_FILE).write_bytes(b"PAR1")
    assert command(["review", str(run), "--no-open"]) == 3
    assert "audit again" in capsys.readouterr().err


def test_without_the_extra_it_says_what_to_install(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("serving", "pages"):
        monkeypatch.delitem(sys.modules, f"boxmend.web.review.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)  # importing it fails
    assert command(["review", str(run), "--no-open"]) == 2
    assert "needs uvicorn" in (said := capsys.readouterr().err)
    assert "pip install 'boxmend[review]'" in said


def test_the_page_is_opened_unless_no_open_is_given(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def open_and_interrupt(address: str) -> bool:
        seen.append(address)
        raise KeyboardInterrupt

    monkeypatch.setattr(webbrowser, "open", open_and_interrupt)
    assert command(["review", str(run)]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == seen
    assert "0 of 8 fixes are decided" in said.err
    assert VERDICTS_FILE not in said.err  # there is no verdict that `apply` would use


def test_json_has_the_address_first_and_what_is_decided_last(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(address: str) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(webbrowser, "open", interrupt)
    assert command(["review", str(run), "--json"]) == 0
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["address"].startswith("http://127.0.0.1:")
    assert (last["number"], last["decided"], last["taken"]) == (8, 0, 3)


def test_help_names_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["review", "--help"]) == 0
    result = capsys.readouterr().out
    for option in ("--port", "--no-open", "--who", "--data", "--json"):
        assert option in result
