"""The command line as a script sees it: text, JSON, exit status, and what is left on disk."""

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import boxmend
from boxmend.cli import COMMANDS, run
from tests.cli.cli_answers import answer, in_a_process


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    printed = capsys.readouterr().out
    assert f"boxmend {command}" in printed


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"boxmend {boxmend.__version__}\n"


@pytest.mark.parametrize(
    "tokens",
    [
        ["mend"],
        ["check"],
        ["check", "/nowhere"],
        ["check", "TOYS:nosuchsplit"],
        ["convert", "TOYS", "--to", "csv", "--out", "OUT"],
        ["convert", "TOYS", "--to", "voc"],
        ["noise", "TOYS", "--labels", "symmetric:1.4", "--out", "OUT"],
        ["noise", "TOYS", "--labels", "sometimes:0.4", "--out", "OUT"],
        ["noise", "TOYS", "--missing", "2", "--out", "OUT"],
        ["synth", "--images", "0", "--out", "OUT"],
        ["check", "TOYS", "--fix"],
        ["check", "TOYS", "--out", "OUT"],
        ["diff", "TOYS"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_two_and_a_message(
    tokens: list[str], toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    filled = [token.replace("TOYS", str(toys)).replace("OUT", str(out)) for token in tokens]
    assert run(filled) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err) > 10
    assert not out.exists()


def test_info_tells_versions_devices_and_formats(capsys: pytest.CaptureFixture[str]) -> None:
    status, facts = answer(capsys, "info")
    assert status == 0
    assert facts["boxmend"] == boxmend.__version__
    assert set(facts["formats"]) == {"coco", "voc", "yolo"}
    assert facts["packages"]["numpy"] == np.__version__
    assert facts["devices"][0].startswith("cpu")
    assert run(["info"]) == 0
    assert "numpy" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["convert", "noise", "synth"])
def test_an_output_folder_in_use_is_refused(command: str, toys: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    tokens = {
        "convert": ["convert", str(toys), "--to", "voc"],
        "noise": ["noise", str(toys)],
        "synth": ["synth"],
    }[command]
    assert run([*tokens, "--out", str(tmp_path)]) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", b'{"images": [{"id": 1, "file_na'),
        ("a.json", b"[" * 100_000),
        ("a.json", b'{"images": [], "annotations": ' + b'[{"a":' * 50_000),
        ("a.json", b"\xff\xfe\x00"),
        ("a.json", b""),
        ("data.yaml", b"names: [a\ntrain: ]["),
        ("data.yaml", b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nnames: *c"),
    ],
)
def test_broken_files_end_with_a_message_that_names_them(
    name: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    out = tmp_path / "out"
    for tokens in (["check"], ["noise", "--out", str(out)]):
        assert run([tokens[0], str(tmp_path / name), *tokens[1:]]) in (1, 3)
        printed = capsys.readouterr()
        assert name in printed.err + printed.out
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


def test_a_folder_without_a_dataset_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", str(tmp_path)]) == 3
    assert "no dataset found" in capsys.readouterr().err


def test_a_full_disk_leaves_nothing(toys: Path, tmp_path: Path) -> None:
    def limit() -> None:  # files may not grow beyond 4 KiB: writing fails as on a full disk
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    tokens = ["noise", str(toys), "--labels", "symmetric:0.4", "--out", str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = in_a_process(tokens, preexec_fn=limit, env=environment)
    assert done.returncode == 3, done.stderr
    assert "could not be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_that_closes_early_is_no_failure(toys: Path) -> None:
    asked = [sys.executable, "-m", "boxmend", "diff", f"{toys}:train", f"{toys}:val"]
    command = f"{shlex.join(asked)} --all --json | head -c 10"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert len(done.stdout) == 10


def test_results_go_to_stdout_and_talk_to_stderr(toys: Path, tmp_path: Path) -> None:
    done = in_a_process(["noise", str(toys), "--out", str(tmp_path / "out")])
    assert done.returncode == 0
    assert "wrote" in done.stderr
    assert "wrote" not in done.stdout
    assert "\x1b" not in done.stdout + done.stderr  # plain text when piped
    done = in_a_process(["check", str(toys), "--json"])
    assert json.loads(done.stdout)["errors"] == 0
    assert done.stderr == ""
