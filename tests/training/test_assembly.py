"""What the settings make of detector, method and loader."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from boxmend.errors import UsageError
from boxmend.methods.table import Mend, MendSettings, PaperMethod, PublishedSettings, Rates
from boxmend.runs.settings import TrainSettings, resolve_settings
from boxmend.training.assembly import fill_detector_numbers, make_detector, make_training
from boxmend.training.loop import Training, TrainingOutput
from boxmend.training.processes import Processes
from boxmend.training.train import train
from tests.training.small_runs import QUICK, drawn

ALONE = Processes(torch.device("cpu"))
BOXES = [(row, (10.0 + row, 20.0, 60.0, 70.0)) for row in (0, 1, 2, 3)]


def make_training_of(settings: TrainSettings, tmp_path: Path) -> Training:
    settings = resolve_settings(settings)
    data = drawn(tmp_path / "data", BOXES)
    (tmp_path / "run").mkdir()
    detector = make_detector(settings, 3)
    training, state = make_training(
        settings, data, detector, ALONE, TrainingOutput(tmp_path / "run")
    )
    assert state is None
    return training


def test_the_paper_s_numbers_reach_the_detector() -> None:
    settings = resolve_settings(TrainSettings(method="br", detector="resnet18", weights="none"))
    numbers = make_detector(settings, 2).numbers
    assert (numbers.pre_nms_training, numbers.post_nms_training) == (2000, 1000)
    assert (numbers.roi_samples, numbers.box_loss, numbers.rpn_low_quality) == (512, "l1", 0.3)


def test_without_a_preset_the_detector_has_its_own_numbers_and_the_settings_tell_them() -> None:
    settings = resolve_settings(TrainSettings(detector="resnet18", weights="none", rois=64))
    numbers = make_detector(settings, 2).numbers
    assert (numbers.pre_nms_training, numbers.post_nms_training) == (2000, 2000)
    assert (numbers.roi_samples, numbers.box_loss, numbers.rpn_low_quality) == (64, "smooth_l1", 0)
    filled = fill_detector_numbers(settings, numbers)
    assert (filled.pre_nms, filled.proposals, filled.rois) == (2000, 2000, 64)
    assert make_detector(filled, 2).numbers == numbers


def test_settings_and_rates_reach_mend(tmp_path: Path) -> None:
    settings = replace(QUICK, mend=MendSettings(vote_min_iou=0.2), label_noise=0.1, box_noise=0.0)
    method = make_training_of(settings, tmp_path).method
    assert isinstance(method, Mend)
    assert method.settings == MendSettings(vote_min_iou=0.2)
    assert method.rates == Rates(label=0.1, box=0.0)


@pytest.mark.parametrize("name", ["mend", "mend-paper", "lr"])
def test_settings_and_rates_reach_the_published_method(tmp_path: Path, name: str) -> None:
    published = PublishedSettings(queue_length=32)
    settings = replace(QUICK, method=name, preset="paper", published=published, label_noise=0.2)
    method = make_training_of(settings, tmp_path).method
    assert isinstance(method, PaperMethod)
    assert method.queue.shape == (32,)
    assert method.constants.acceptance == pytest.approx(0.8)


def test_an_average_is_kept_only_where_it_is_wanted(tmp_path: Path) -> None:
    mend = make_training_of(QUICK, tmp_path / "a")
    assert mend.teacher is not mend.detector
    baseline = make_training_of(replace(QUICK, method="baseline"), tmp_path / "b")
    assert baseline.teacher is baseline.detector


def test_the_steps_of_warm_up_are_counted_down(tmp_path: Path) -> None:
    training = make_training_of(replace(QUICK, warm_up=0.3), tmp_path)  # of 4 steps: 1.2, so two
    seen = []
    for step in range(4):
        training.step = step
        moment = training.progress()
        seen.append((moment.epoch, moment.warm_up_steps_left, moment.is_warm_up))
    assert seen == [(0, 2, True), (0, 1, True), (1, 0, False), (1, 0, False)]


def test_a_run_saves_what_was_filled_in(tmp_path: Path) -> None:
    data = drawn(tmp_path / "data", BOXES)
    run = train(data, tmp_path / "run", replace(QUICK, method="mend", preset="paper", epochs=1))
    settings = run.settings()
    assert (settings["method"], settings["preset"]) == ("mend-paper", "paper")
    assert (settings["proposals"], settings["pre_nms"], settings["rois"]) == (150, 300, 40)
    assert (settings["difficult"], settings["box_loss"]) == ("background", "l1")
    assert (settings["optimisation"]["average_decay"], settings["optimisation"]["lr"]) == (
        0.0,
        1e-3,
    )
    assert settings["published"]["queue_length"] == 128


def test_unknown_names_list_what_there_is() -> None:
    with pytest.raises(UsageError, match="unknown method 'magic'; known: baseline, br"):
        make_detector(TrainSettings(method="magic"), 1)
    with pytest.raises(UsageError, match="unknown detector 'huge'; known: mobilenet_v2"):
        make_detector(TrainSettings(detector="huge"), 1)
