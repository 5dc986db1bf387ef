"""Training runs in Python: their ledger, metrics, rates and changes as tables."""

from pathlib import Path
from typing import Any

import pytest

import boxmend
from boxmend import ApplySettings, BoxmendError, TrainedRun
from boxmend.auditing.fixes.table import Kind
from boxmend.runs import folder as runs
from tests.fabricated_runs import (
    DISCARDED,
    KEPT,
    RELABELLED,
    Fix,
    Visit,
    audit_run,
    bytes_of,
    drawn,
    run_on,
)

VISITS = [
    Visit(0, 0, RELABELLED, 1, 0.75, (12, 10, 30, 50)),
    Visit(0, 1, KEPT, None, 0.5),
    Visit(0, 2, DISCARDED, 0, 0.25),
]
NOISE = {"label_noise": 0.3, "label_noise_low": 0.25, "label_noise_high": 0.375, "box_noise": 0.1}


def trained(tmp_path: Path, summary: dict[str, Any] | None = None) -> tuple[str, TrainedRun]:
    address = drawn(tmp_path, "coco")
    dataset = boxmend.load(address)
    path = run_on(dataset, tmp_path / "run", [address], VISITS, summary=summary)
    return address, boxmend.open_run(path)


def test_the_ledger_has_every_visit(tmp_path: Path) -> None:
    _, run = trained(tmp_path)
    assert len(run.ledger) == 3
    assert run.ledger.filter(verdict="relabelled")["annotation_id"].tolist() == [10]
    assert run.ledger[2]["verdict"] == "discarded"


def test_metrics_have_nulls_where_a_line_lacks_a_figure(tmp_path: Path) -> None:
    run = runs.create(tmp_path / "run", {}, {})
    run.append_metrics({"step": 1, "loss": 2.5, "odd": 1})
    run.append_metrics({"step": 2, "ap": 0.5, "odd": "text"})
    run.finish()
    metrics = boxmend.open_run(tmp_path / "run").metrics
    assert list(metrics) == [
        {"step": 1, "loss": 2.5, "odd": "1", "ap": None},
        {"step": 2, "loss": None, "odd": '"text"', "ap": 0.5},
    ]


def test_rates_have_their_intervals(tmp_path: Path) -> None:
    _, run = trained(tmp_path, {"noise": NOISE})
    assert list(run.rates) == [
        {"kind": "wrong label", "rate": 0.3, "low": 0.25, "high": 0.375},
        {"kind": "box noise", "rate": 0.1, "low": None, "high": None},
    ]


def test_a_run_without_estimates_has_no_rates(tmp_path: Path) -> None:
    _, run = trained(tmp_path)
    assert len(run.rates) == 0
    assert run.rates.columns == ("kind", "rate", "low", "high")


def test_changes_are_those_of_apply(tmp_path: Path) -> None:
    _, run = trained(tmp_path)
    (change,) = run.changes
    assert (change["annotation_id"], change["file_name"]) == (10, "a.png")
    assert (change["old_label"], change["new_label"]) == ("van", "truck")
    assert (change["old_x1"], change["new_x1"], change["confidence"]) == (10, 12, 0.75)
    run.mended().save(tmp_path / "mended")
    boxmend.apply(run.path, tmp_path / "applied")
    assert bytes_of(tmp_path / "mended") == bytes_of(tmp_path / "applied")


def test_dropped_annotations_have_no_new_values(tmp_path: Path) -> None:
    _, run = trained(tmp_path)
    mended = run.mended(ApplySettings(discarded="drop", only="labels"))
    dropped = mended.changes.filter(is_discarded=True)
    assert dropped["annotation_id"].tolist() == [12]
    assert (dropped[0]["new_label"], dropped[0]["new_x1"], dropped[0]["iou"]) == (None, None, None)
    assert len(mended) == 3


def test_a_run_whose_data_moved_is_opened_with_their_address(tmp_path: Path) -> None:
    _, run = trained(tmp_path)
    (tmp_path / "data").rename(tmp_path / "moved")
    with pytest.raises(BoxmendError, match="the data of the run are gone"):
        run.changes  # noqa: B018  # reading the data is the test
    moved = boxmend.open_run(run.path, str(tmp_path / "moved"))
    assert len(moved.changes) == 1
    in_memory = boxmend.open_run(run.path, boxmend.load(tmp_path / "moved"))
    assert len(in_memory.changes) == 1


def test_what_is_no_training_run_is_refused(tmp_path: Path) -> None:
    address, run = trained(tmp_path)
    fix = Fix("l", Kind.WRONG_LABEL, 0, label="truck")
    with pytest.raises(BoxmendError, match="is an audit, not a training run"):
        boxmend.open_run(audit_run(tmp_path / "audit", address, [fix]))
    with pytest.raises(BoxmendError, match="no such folder"):
        boxmend.open_run(tmp_path / "nowhere")
    with pytest.raises(BoxmendError, match="a precision is for fixes"):
        run.mended(ApplySettings(precision=0.9))
    with pytest.raises(BoxmendError, match="only is 'missing', which the ledger"):
        run.mended(ApplySettings(only="missing"))


def test_a_run_is_described_in_a_line(tmp_path: Path) -> None:
    _, run = trained(tmp_path)
    assert repr(run) == f"TrainedRun({str(tmp_path / 'run')!r}, finished)"
