"""Errors that a training planted: no command writes them, or what the run made of them."""

from pathlib import Path

import numpy as np
import pytest

import boxmend
from boxmend import cli
from boxmend.repair.trained_runs import open_run
from tests.cli.cli_answers import answer
from tests.fabricated_runs import DISCARDED, RELABELLED, Visit, bytes_of, drawn, probed_run

SEEN_BOX = (50.0, 50.0, 70.0, 70.0)
VISITS = [
    Visit(0, 0, RELABELLED, label=1, confidence=0.9),
    Visit(0, 1, RELABELLED, label=1, confidence=0.9),  # as annotated, but not as seen
    Visit(0, 2, DISCARDED, confidence=0.9),
    Visit(0, 3, RELABELLED, label=2, confidence=0.9, box=(50, 50, 88, 70)),
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that saw annotation 1 and 2 with other labels, and 3 with another box."""
    address = drawn(tmp_path, "coco")
    return probed_run(tmp_path / "run", address, VISITS, labels={1: 2, 2: 0}, boxes={3: SEEN_BOX})


def test_planted_errors_are_never_written(run: Path, tmp_path: Path) -> None:
    applied = boxmend.apply(run, tmp_path / "out", boxmend.ApplySettings(discarded="drop"))
    assert applied.changes.rows.tolist() == [0]
    mended, data = boxmend.load(tmp_path / "out"), boxmend.load(tmp_path / "data")
    assert mended.labels.tolist() == [1, 1, 2, 0]
    assert np.array_equal(mended.boxes, data.boxes)
    assert applied.to_json()["planted"] == 3


def test_where_nothing_else_changes_the_bytes_are_the_users(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    labels = {1: 2, 2: 0}
    run = probed_run(tmp_path / "run", address, VISITS[1:], labels=labels, boxes={3: SEEN_BOX})
    boxmend.load(address).save(tmp_path / "plain")
    boxmend.apply(run, tmp_path / "out")
    for name in ("changes.csv", "patch.json"):
        (tmp_path / "out" / name).unlink()
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "plain")


def test_the_changes_of_a_run_in_python_leave_them_out(run: Path) -> None:
    assert open_run(run).changes["annotation_id"].tolist() == [10]


def test_apply_says_how_many_annotations_stay(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["apply", str(run), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert ["planted", "3"] in [line.split() for line in said.out.splitlines()]
    assert "3 annotations stay as they are" in said.err


@pytest.mark.parametrize("options", [[], ["--most", "4"]])
def test_suspects_of_a_run_do_not_contain_them(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    command = ["export", run, "--to", "label-studio", "--out", tmp_path / "tasks", *options]
    status, facts = answer(capsys, *command)
    assert (status, facts["suspects"]) == (0, 1)
