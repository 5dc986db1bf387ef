"""Detectors that detect nothing although their losses are finite: a note reports them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from boxmend.detector import PaddedDetections
from boxmend.runs.settings import resolve_settings
from boxmend.training.assembly import make_detector, make_training
from boxmend.training.loop import Training, TrainingOutput
from boxmend.training.processes import Processes
from boxmend.training.train import train
from boxmend.training.validation import detects_nothing
from tests.training.small_runs import QUICK, drawn

pytestmark = pytest.mark.usefixtures("one_thread")

BOXES = [(row, (10.0, 10.0, 60.0, 60.0)) for row in range(4)]


def make_small_training(folder: Path, boxes: list[Any] = BOXES) -> Training:
    settings = resolve_settings(replace(QUICK, method="baseline", batch_size=4))
    detector = make_detector(settings, 3)
    data, alone = drawn(folder / "data", boxes), Processes(torch.device("cpu"))
    return make_training(settings, data, detector, alone, TrainingOutput(folder / "run"))[0]


def make_blind(training: Training) -> None:
    """Make the second stage predict only background, with dead features."""
    predictor = training.detector.network.roi_heads.box_predictor
    with torch.no_grad():
        predictor.cls_score.weight.zero_()
        predictor.cls_score.bias.copy_(torch.tensor([6.0, 0, 0, 0]))


def test_a_network_that_predicts_only_background_detects_nothing(tmp_path: Path) -> None:
    training = make_small_training(tmp_path)
    (batch,) = training.loader.in_order(4)
    network = training.detector.network.train()
    assert not detects_nothing(training.detector, batch, torch.float32)
    make_blind(training)
    assert detects_nothing(training.detector, batch, torch.float32)
    assert detects_nothing(training.detector, batch, torch.bfloat16)
    assert network.training  # as it was


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_single_detection_is_enough_to_see(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = make_small_training(tmp_path)
    (batch,) = training.loader.in_order(4)
    nothing = torch.zeros(4, 3)
    is_detection = nothing.bool()
    is_detection[2, :number] = True
    settled = torch.zeros(4, dtype=torch.bool)
    boxes = torch.zeros(4, 3, 4)
    detections = PaddedDetections(boxes, nothing, nothing.long(), is_detection, settled)
    monkeypatch.setattr(training.detector, "detect", lambda *_: detections)
    assert detects_nothing(training.detector, batch, torch.float32) == (number == 0)


def test_images_without_objects_give_no_warning(tmp_path: Path) -> None:
    training = make_small_training(tmp_path, [])
    (batch,) = training.loader.in_order(4)
    make_blind(training)
    assert not detects_nothing(training.detector, batch, torch.float32)


def notes(tmp_path: Path, epochs: int) -> list[str]:
    lines: list[dict[str, Any]] = []
    settings = replace(QUICK, method="baseline", epochs=epochs)
    train(drawn(tmp_path / "data", BOXES), tmp_path / "run", settings, log=lines.append)
    return [line["note"] for line in lines if "detects nothing" in line.get("note", "")]


@pytest.mark.parametrize(("steps", "first"), [(0, 2), (11, 6)])
def test_a_detector_that_detects_nothing_is_reported_from_a_quarter_of_the_epochs_on(
    steps: int, first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxmend.training.loop.detects_nothing", lambda *given: True)
    monkeypatch.setattr("boxmend.training.loop.BLINDNESS_CHECK_STEPS", steps)
    result = notes(tmp_path, 8)
    assert [note.split(" the ")[0] for note in result] == [
        f"after epoch {number}" for number in range(first, 9)
    ]
    assert "a lower --optimisation.lr than 0.001" in result[0]


@pytest.mark.parametrize("is_short", [True, False])
def test_short_trainings_and_working_detectors_give_no_note(
    is_short: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxmend.training.loop.detects_nothing", lambda *given: is_short)
    if not is_short:
        monkeypatch.setattr("boxmend.training.loop.BLINDNESS_CHECK_STEPS", 0)
    assert notes(tmp_path, 2) == []
