"""Keeping the best pass: which one it is, and that a kill does not lose it."""

import math
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import boxmend.training.train
from boxmend.data.dataset import Dataset
from boxmend.detector import Detector, save
from boxmend.errors import DataError, UsageError
from boxmend.training.train import Interrupted, train
from tests.training.small_runs import QUICK, drawn

pytestmark = pytest.mark.usefixtures("one_thread")

BOXES = [(row, (10.0 + row, 20.0, 60.0, 70.0)) for row in (0, 1, 1, 2, 3, 3)]
THREE = replace(  # passes of two steps each, with an average of the weights
    QUICK,
    method="lr",
    epochs=3,
    keep_best=True,
    optimisation=replace(QUICK.optimisation, average_decay=0.9),
)


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return drawn(tmp_path / "data", BOXES)


def scores_of(*areas: float) -> Callable[..., dict[str, float]]:
    """A stand-in for the scoring of a pass; it gives these scores one after another."""
    left: Iterator[float] = iter(areas)

    def evaluate(validation: Any, detector: Any, check: Any) -> dict[str, float]:
        check()
        return {"voc_ap50_11point": 0.5, "voc_ap50_area": next(left)}

    return evaluate


def weights_after(data: Dataset, out: Path, step: int) -> dict[str, torch.Tensor]:
    """The weights that predict after a step, from a run that saved them there."""
    seen: list[dict[str, torch.Tensor]] = []

    def look(line: dict[str, Any]) -> None:
        if line.get("step") == step and "val_voc_ap50_area" in line and not seen:
            seen.append(load_file(out / f"best-{step}.safetensors"))

    train(data, out, THREE, val=data, log=look)
    return seen[0]


@pytest.mark.parametrize(
    ("areas", "best_step"),
    [
        ((0.1, 0.3, 0.2), 4),
        ((0.3, 0.2, 0.1), 2),
        ((0.1, 0.2, 0.2), 6),  # of equal ones, the one that trained longer
        ((math.nan, math.nan, math.nan), 6),
        ((0.0, math.nan, math.nan), 2),
        ((math.nan, 0.0, math.nan), 4),
    ],
)
def test_the_best_epoch_is_kept(
    data: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    areas: tuple[float, ...],
    best_step: int,
) -> None:
    monkeypatch.setattr(boxmend.training.train, "evaluate", scores_of(*areas))
    run = train(data, tmp_path / "run", THREE, val=data)
    assert run.summary()["best_step"] == best_step
    lines = [line for line in run.read_metrics() if "val_voc_ap50_area" in line]
    told = [math.nan if area is None else area for area in (x["val_voc_ap50_area"] for x in lines)]
    assert told == pytest.approx(list(areas), nan_ok=True)
    assert [line["step"] for line in lines] == [2, 4, 6]
    assert not list(run.path.glob("best-*"))


def test_the_weights_are_those_of_the_best_epoch(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boxmend.training.train, "evaluate", scores_of(0.1, 0.3, 0.2, 0.1, 0.3, 0.2))
    expected = weights_after(data, tmp_path / "a", 4)
    kept = load_file(tmp_path / "a" / "model.safetensors")
    assert all(torch.equal(kept[key], value) for key, value in expected.items())
    last = train(data, tmp_path / "b", replace(THREE, keep_best=False))
    final = load_file(last.path / "model.safetensors")
    assert not all(torch.equal(final[key], value) for key, value in expected.items())


def test_scoring_changes_nothing_about_the_training(data: Dataset, tmp_path: Path) -> None:
    plain = train(data, tmp_path / "a", replace(THREE, keep_best=False))
    scored = train(data, tmp_path / "b", THREE, val=data)
    losses = [[x["loss"] for x in run.read_metrics() if "loss" in x] for run in (plain, scored)]
    assert losses[0] == losses[1]
    assert 0 <= scored.summary()["val"]["voc_ap50_area"] <= 1


class Killed(Exception):
    """A kill, as near as a test in the same process can come to one."""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_while_the_best_epoch_is_saved_loses_nothing(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    whole, out = tmp_path / "whole", tmp_path / "killed"
    monkeypatch.setattr(boxmend.training.train, "evaluate", scores_of(0.1, 0.3, 0.2))
    train(data, whole, THREE, val=data)

    def kill(detector: Detector, path: Path, more: Mapping[str, str] | None) -> None:
        if moment == "after":
            save(detector, path, more)
        if path.name == "best-4.safetensors":
            raise Killed
        if moment == "before":
            save(detector, path, more)

    monkeypatch.setattr("boxmend.training.best.save", kill)
    monkeypatch.setattr(boxmend.training.train, "evaluate", scores_of(0.1, 0.3))
    with pytest.raises(Killed):
        train(data, out, THREE, val=data)
    assert (out / "best-2.safetensors").exists()
    monkeypatch.setattr("boxmend.training.best.save", save)
    monkeypatch.setattr(
        boxmend.training.train, "evaluate", scores_of(0.3, 0.2)
    )  # the first is known
    run = train(data, out, THREE, val=data, resume=True)
    assert run.summary() == {**run.summary(), "best_step": 4}
    one, other = (load_file(path / "model.safetensors") for path in (whole, out))
    assert all(torch.equal(one[key], other[key]) for key in one)
    steps = [line["step"] for line in run.read_metrics() if "val_voc_ap50_area" in line]
    assert steps == [2, 4, 6]


def test_a_request_to_stop_breaks_the_scoring_off(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluate(validation: Any, detector: Any, check: Callable[[], None]) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        check()
        raise AssertionError("it should have been left")

    monkeypatch.setattr(boxmend.training.train, "evaluate", evaluate)
    with pytest.raises(Interrupted, match="step 2"):
        train(data, tmp_path / "run", THREE, val=data)
    monkeypatch.setattr(boxmend.training.train, "evaluate", scores_of(0.1, 0.3, 0.2))
    heard: list[dict[str, Any]] = []
    run = train(data, tmp_path / "run", THREE, val=data, resume=True, log=heard.append)
    assert heard[0] == {"plan": {"first_step": 2, "steps": 6}}  # no step is made twice
    assert run.summary()["best_step"] == 4


def test_a_best_epoch_before_a_stop_is_remembered(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(line: dict[str, Any]) -> None:
        if line.get("step") == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(boxmend.training.train, "evaluate", scores_of(0.3))
    with pytest.raises(Interrupted, match="step 3"):
        train(data, tmp_path / "run", THREE, val=data, log=stop)
    expected = load_file(tmp_path / "run" / "best-2.safetensors")
    monkeypatch.setattr(boxmend.training.train, "evaluate", scores_of(0.2, 0.1))
    run = train(data, tmp_path / "run", THREE, val=data, resume=True)
    assert run.summary()["best_step"] == 2
    assert run.summary()["val"]["voc_ap50_area"] == 0.3
    kept = load_file(run.path / "model.safetensors")
    assert all(torch.equal(kept[key], value) for key, value in expected.items())


def test_there_must_be_something_to_score_on(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--val"):
        train(data, tmp_path / "run", THREE)
    assert not (tmp_path / "run").exists()


def test_other_data_to_score_on_are_refused_on_resume(data: Dataset, tmp_path: Path) -> None:
    def stop(line: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        train(data, tmp_path / "run", THREE, val=data, log=stop)
    other = drawn(tmp_path / "other", BOXES[:-1])
    with pytest.raises(DataError, match="data differ"):
        train(data, tmp_path / "run", THREE, val=other, resume=True)
