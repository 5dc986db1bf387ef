"""Comparing two snapshots of behaviour: equal ones, differing values, missing keys."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "snapshot.py"
VALUES = {"training": {"mend": {"loss": 0.5, "files": ["a", "b"], "log": "one\ntwo\nthree"}}}


def compare_snapshots(folder: Path, a: dict[str, Any], b: dict[str, Any]) -> tuple[int, list[str]]:
    for name, document in (("a", a), ("b", b)):
        (folder / f"{name}.json").write_text(json.dumps(document))
    command = [sys.executable, str(TOOL), "compare", "a.json", "b.json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def change_values(**values: Any) -> dict[str, Any]:
    return {"training": {"mend": {**VALUES["training"]["mend"], **values}}}


def test_equal_snapshots_have_no_differences_wherever_they_come_from(tmp_path: Path) -> None:
    status, lines = compare_snapshots(tmp_path, {"about": {"commit": "1"}, **VALUES}, VALUES)
    assert status == 0
    assert lines == ["0 differences, 4 values in a.json and 4 in b.json"]


def test_parts_that_were_not_asked_for_are_not_compared(tmp_path: Path) -> None:
    about = {"about": {"parts": ["files"]}}
    status, lines = compare_snapshots(
        tmp_path, {**VALUES, "files": {"a": 1}}, {**about, "files": {"a": 1}}
    )
    assert status == 0
    assert lines[0] == "not compared, as not asked for in both: audit, bench, interface, training"
    status, lines = compare_snapshots(tmp_path, VALUES, {"about": {"parts": ["training"]}})
    assert status == 1  # asked for, and not there
    assert lines[0] == "training"


@pytest.mark.parametrize(
    ("other", "shown"),
    [
        (change_values(loss=0.25), ["training / mend / loss", "  A: 0.5", "  B: 0.25"]),
        (change_values(loss="0.5"), ["training / mend / loss", "  A: 0.5", '  B: "0.5"']),
        (change_values(files=["a", "c"]), ["training / mend / files / 1", '  A: "b"', '  B: "c"']),
        (change_values(files=["a"]), ["training / mend / files", '  A: ["a", "b"]', '  B: ["a"]']),
        (change_values(loss=None), ["training / mend / loss", "  A: 0.5", "  B: null"]),
    ],
)
def test_a_differing_value_is_shown_with_its_key(
    tmp_path: Path, other: dict[str, Any], shown: list[str]
) -> None:
    status, lines = compare_snapshots(tmp_path, VALUES, other)
    assert status == 1
    assert lines[:-1] == shown
    assert lines[-1].startswith("1 differences, ")


def test_nan_equals_nan(tmp_path: Path) -> None:
    nan = float("nan")
    assert compare_snapshots(tmp_path, change_values(loss=nan), change_values(loss=nan))[0] == 0
    assert compare_snapshots(tmp_path, change_values(loss=nan), VALUES)[0] == 1


def test_of_a_text_only_the_differing_lines_are_shown(tmp_path: Path) -> None:
    status, lines = compare_snapshots(tmp_path, VALUES, change_values(log="one\n2\nthree"))
    assert status == 1
    assert lines[0] == "training / mend / log"
    assert lines[-3:-1] == ["  -two", "  +2"]


def test_a_missing_key_is_one_difference_on_either_side(tmp_path: Path) -> None:
    fewer = {"training": {"mend": {"files": ["a", "b"], "log": "one\ntwo\nthree"}}}
    status, lines = compare_snapshots(tmp_path, VALUES, fewer)
    assert status == 1
    assert lines[:-1] == ["training / mend / loss", "  A: 0.5", "  B: (missing)"]
    assert compare_snapshots(tmp_path, fewer, VALUES)[1][1:3] == ["  A: (missing)", "  B: 0.5"]
    status, lines = compare_snapshots(tmp_path, VALUES, {})
    assert status == 1
    assert lines[0] == "training"
    assert lines[2] == "  B: (missing)"
