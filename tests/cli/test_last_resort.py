"""Unexpected exceptions: status 3, a short message, and the traceback in a file."""

import os
import re
import stat
import tempfile
from pathlib import Path

import pytest

import boxmend
from boxmend import cli
from boxmend.cli import run


@pytest.fixture(autouse=True)
def _broken_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("no such\nkey")

    monkeypatch.setattr(cli, "command_line", lambda chosen: broken)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("BOXMEND_TRACEBACK", raising=False)


def test_the_traceback_goes_into_a_file_of_the_user_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", "my data"]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 2
    assert "unexpected error" in printed.err
    assert "KeyError" in printed.err
    assert "send it to the maintainers" in printed.err
    assert "Traceback" not in printed.err
    (path,) = tmp_path.iterdir()
    assert str(path) in printed.err
    assert re.fullmatch(r"boxmend-error-\w{8}\.txt", path.name)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    assert text.startswith(f"boxmend {boxmend.__version__}, Python 3.")
    assert "command: boxmend check 'my data'\n" in text
    assert 'raise KeyError("no such\\nkey")' in text


def test_a_variable_puts_the_traceback_on_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BOXMEND_TRACEBACK", "1")
    assert run(["check"]) == 3
    assert "Traceback (most recent call last)" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_a_temporary_folder_the_traceback_goes_to_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert run(["check", os.fsdecode(b"\xff")]) == 3  # a path need not be text
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_an_invalid_limit_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BOXMEND_MAX_IMAGE_PIXELS", "lots")
    assert run(["check"]) == 2
    assert "BOXMEND_MAX_IMAGE_PIXELS is 'lots'" in capsys.readouterr().err
