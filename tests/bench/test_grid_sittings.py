"""Grids in several sittings, on the command line: lines from elsewhere, and little time."""

import json
from pathlib import Path
from typing import Any

import pytest

from boxmend.bench.grids import running
from boxmend.bench.grids.results import append_result
from boxmend.cli import bench_run, run
from tests.bench.grid_worlds import QUICK, Pretending, pretended, ready

TWO = ("label40-box40-mend-0", "label40-box40-br-0")


def list_cells(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert run(["bench", *arguments, "--json"]) == 0
    answer: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return answer


@pytest.fixture
def brought(toys: Path, tmp_path: Path) -> tuple[list[str], Path]:
    """The arguments for a grid of two cells, and a file with a line of one of them."""
    plan = ready(toys, tmp_path / "there", only=TWO)
    line = pretended(plan.folder(plan.cells[0]))
    append_result(tmp_path / "brought.jsonl", line)
    arguments = ["table1", "--scale", "voc320", "--data", f"{toys}:train", "--val", f"{toys}:val"]
    arguments += ["--only", ",".join(TWO), "--out", str(tmp_path / "here")]
    for key, value in QUICK.items():
        arguments += ["--weights", "none"] if key == "weights" else ["--set", f"{key}={value}"]
    return arguments, tmp_path / "brought.jsonl"


def test_cells_that_have_a_line_elsewhere_are_listed_with_it(
    brought: tuple[list[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, path = brought
    rows = list_cells(capsys, "run", *arguments, "--done", str(path), "--dry-run")
    assert {row["cell"]: (row["state"], row["from"]) for row in rows} == {
        TWO[0]: ("done", f"{path}:1"),
        TWO[1]: ("open", None),
    }
    assert not (tmp_path / "here").exists()
    names = ["table1", "--scale", "voc320", "--only", ",".join(TWO), "--out", str(tmp_path)]
    again = list_cells(capsys, "cells", *names, "--done", str(path))
    assert again == rows
    assert (
        run(["bench", "run", *arguments, "--set", "epochs=3", "--done", str(path), "--dry-run"])
        == 2
    )
    assert "settings.epochs: 1, now 3" in capsys.readouterr().err


def test_a_run_takes_lines_from_elsewhere_and_leaves_what_it_has_no_time_for(
    brought: tuple[list[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments, path = brought
    executor = Pretending(1)
    monkeypatch.setattr(bench_run, "Local", lambda jobs, gpus: executor)
    monkeypatch.setattr(running, "POLL_SECONDS", 0.01)
    late = ["--stop-after", "1e-9"]
    assert run(["bench", "run", *arguments, "--done", str(path), *late]) == 0
    said = capsys.readouterr()
    assert executor.started == []
    assert f"1 of the cells has a result in {path}" in said.err
    assert f"not started: {TWO[1]}; the same command continues" in said.err
    assert said.out.split() == ["cells", "number", "done", "elsewhere", "1", "left", "1"]

    assert run(["bench", "run", *arguments, "--done", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert executor.started == [TWO[1]]
    assert answer["done"] == [TWO[1]]
    assert answer["earlier"] == {TWO[0]: f"{path}:1"}
    assert (answer["left"], answer["again"]) == ([], {})
    assert run(["bench", "run", *arguments, "--done", str(path)]) == 0
    results = tmp_path / "here" / "voc320" / "results.jsonl"
    assert f"table1 --results {path} --results {results}" in capsys.readouterr().err
    both = ["--results", str(path), "--results", str(results)]
    assert run(["bench", "table", "table1", *both, "--json"]) == 0
    table = {row["name"]: row["entries"] for row in json.loads(capsys.readouterr().out)["rows"]}
    for method in ("mend", "br"):
        cells = table[method]["label40-box40"]["cells"]
        assert cells == [f"label40-box40-{method}-0"]


def test_the_plan_lists_a_first_stage_that_is_trained_again(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = ready(toys, tmp_path / "there", "two-stage", only=TWO[:1])
    append_result(tmp_path / "brought.jsonl", pretended(plan.folder(plan.cells[0])))
    arguments = ["bench", "run", "two-stage", "--scale", "voc320", "--only", "*-two-stage-0"]
    for key, value in QUICK.items():
        arguments += ["--weights", "none"] if key == "weights" else ["--set", f"{key}={value}"]
    assert run([*arguments, "--done", str(tmp_path / "brought.jsonl"), "--dry-run"]) == 0
    said = capsys.readouterr()
    again = "label40-box40-mend-0 is trained again: label40-box40-two-stage-0 needs its run"
    assert again in said.err
    assert [line.split()[2] for line in said.out.splitlines()[1:]] == ["open", "open"]
