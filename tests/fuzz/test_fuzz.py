"""The drivers of `fuzz/` find no failure in a fixed number of cases with a fixed seed."""

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


def output_of(folder: Path, *command: str) -> str:
    pytest.importorskip("torch")
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "TMPDIR": str(folder)}
    result = subprocess.run(
        [sys.executable, *command],
        cwd=FUZZ.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-3000:]
    return result.stdout


def test_mutated_inputs_are_read_or_refused(tmp_path: Path) -> None:
    output = output_of(tmp_path, "fuzz/mutate_inputs.py", "--seed", "29", "--cases", "900")
    assert "cases in" in output


def test_killed_commands_leave_all_or_nothing(tmp_path: Path) -> None:
    output = output_of(tmp_path, "fuzz/kill_commands.py", "--seed", "29", "--kills", "100")
    assert "100 cases in" in output
