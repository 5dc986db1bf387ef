"""The drivers of `fuzz/` find nothing: a fixed number of cases, the same in every run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import boxmend
from tests import ROOT

FUZZ = ROOT / "fuzz"
SOURCE = Path(boxmend.__file__).parents[1]
SECONDS = 1200

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs forks and /proc"),
]


def told_by(folder: Path, *command: str) -> str:
    pytest.importorskip("torch")
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "TMPDIR": str(folder)}
    ended = subprocess.run(
        [sys.executable, *command],
        cwd=FUZZ.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-3000:]
    return ended.stdout


def test_mutated_inputs_are_read_or_refused(tmp_path: Path) -> None:
    told = told_by(tmp_path, "fuzz/mutate_inputs.py", "--seed", "29", "--cases", "900")
    assert "cases in" in told


def test_killed_commands_leave_all_or_nothing(tmp_path: Path) -> None:
    told = told_by(tmp_path, "fuzz/kill_commands.py", "--seed", "29", "--kills", "100")
    assert "100 cases in" in told
