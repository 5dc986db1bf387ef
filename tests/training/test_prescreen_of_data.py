"""The prescreen of a dataset, before training and as part of it."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import boxmend
from boxmend.data.dataset import Dataset
from boxmend.data.noise import NoiseSettings, disturb
from boxmend.data.synth import synthesize
from boxmend.errors import DataError
from boxmend.methods import mend
from boxmend.methods.noise_estimator import ESTIMATOR
from boxmend.methods.table import BoxFeatures
from boxmend.repair.mender import prescreen as mender_prescreen
from boxmend.runs.settings import MendSettings, resolve_settings
from boxmend.training.assembly import make_detector, make_loader
from boxmend.training.label_probabilities import prescreen
from boxmend.training.prescreen import describe_annotations
from boxmend.training.processes import Processes
from boxmend.training.train import Interrupted, train
from tests.training.small_runs import QUICK, Box, drawn, trained

pytestmark = pytest.mark.usefixtures("one_thread")

BOXES: list[tuple[int, Box]] = [
    *((row, (10.0, 20.0, 60.0 + row, 70.0)) for row in range(4)),
    (2, (0.0, 0.0, 30.0, 30.0)),
    (3, (40.0, 40.0, 90.0, 90.0)),
]


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return drawn(tmp_path / "data", BOXES)


@pytest.fixture
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the prescreen accept a handful of annotations."""
    monkeypatch.setattr(mend, "MEND", replace(mend.MEND, min_prescreen_annotations=5))


def looked_at(dataset: Dataset, seed: int = 0, messages: list[str] | None = None) -> BoxFeatures:
    settings = resolve_settings(replace(QUICK, seed=seed))
    loader = make_loader(settings, dataset, Processes(torch.device("cpu")), lambda text: None)
    detector = make_detector(replace(settings, seed=0), len(dataset.label_names))
    return describe_annotations(
        detector, loader, dataset, seed, (messages if messages is not None else []).append
    )


def test_all_annotations_to_learn_from_are_described(dataset: Dataset) -> None:
    dataset.is_difficult[4] = True
    features = looked_at(dataset)
    assert features.rows.tolist() == [0, 1, 2, 3, 5]
    assert features.labels.tolist() == dataset.labels[features.rows.numpy()].tolist()
    assert features.features.shape == (5, 96)
    assert features.features.dtype == torch.float16
    assert features.features.isfinite().all()


@pytest.mark.parametrize("is_training", [True, False])
def test_the_network_rests_and_is_left_in_the_mode_it_was_in(
    dataset: Dataset, is_training: bool
) -> None:
    settings = resolve_settings(QUICK)
    loader = make_loader(settings, dataset, Processes(torch.device("cpu")), lambda text: None)
    detector = make_detector(settings, len(dataset.label_names))
    detector.network.train(is_training)
    modes: list[bool] = []
    stem = detector.network.backbone.stem
    stem.register_forward_hook(lambda module, given, found: modes.append(module.training))
    describe_annotations(detector, loader, dataset, 0, pytest.fail)
    assert set(modes) == {False}
    assert detector.network.training == stem.training == is_training


def test_annotations_of_an_image_are_in_one_fold(dataset: Dataset) -> None:
    features = looked_at(dataset)
    assert features.folds[features.rows == 3] == features.folds[features.rows == 5]
    assert len(set(features.folds.tolist())) == 4  # as many as there are images


def test_a_single_image_is_not_split(tmp_path: Path) -> None:
    alone = drawn(tmp_path / "data", [(0, box) for _, box in BOXES], sizes=((96, 96),))
    assert looked_at(alone).folds.tolist() == [0] * len(BOXES)


def test_the_seed_deals_the_images(dataset: Dataset) -> None:
    first, again, other = (looked_at(dataset, seed) for seed in (0, 0, 3))
    assert torch.equal(first.folds, again.folds)
    assert torch.equal(first.features, again.features)
    assert torch.equal(first.features, other.features)
    assert not torch.equal(first.folds, other.folds)


def test_without_annotations_there_is_nothing_to_describe(tmp_path: Path) -> None:
    features = looked_at(drawn(tmp_path / "data", []))
    assert [len(column) for column in features] == [0] * 4


def test_any_output_of_a_network_is_stored_as_numbers(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strange(detector: Any, images: Any, sizes: Any, boxes: Any, owners: Any) -> torch.Tensor:
        return torch.tensor([[float("nan"), float("inf"), -1e30, 2.5]]).repeat(len(boxes), 1)

    monkeypatch.setattr("boxmend.training.prescreen.describe_boxes", strange)
    assert looked_at(dataset).features[0].tolist() == [0, 65504, -65504, 2.5]


def test_it_tells_how_far_it_is(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxmend.training.prescreen.NOTE_INTERVAL_SECONDS", -1.0)
    messages: list[str] = []
    looked_at(dataset, messages=messages)
    assert messages == ["prescreen: 4 of 4 images"]


def notes(log: list[dict[str, Any]]) -> list[str]:
    return [line["note"] for line in log if "note" in line]


@pytest.mark.usefixtures("few_are_enough")
def test_an_uninformative_prescreen_is_reported_and_training_continues(
    dataset: Dataset, tmp_path: Path
) -> None:
    run, log = trained(dataset, tmp_path / "run", method="mend")
    assert run.is_finished
    assert any("judged during training only" in text for text in notes(log))


@pytest.mark.usefixtures("few_are_enough")
@pytest.mark.parametrize(
    "changes", [{"method": "baseline"}, {"mend": MendSettings(prescreen_weight=0)}]
)
def test_without_a_prescreen_no_features_are_computed(
    changes: dict[str, Any], dataset: Dataset, tmp_path: Path
) -> None:
    _, log = trained(dataset, tmp_path / "run", **({"method": "mend"} | changes))
    assert not any("prescreen" in text for text in notes(log))


def informative(tmp_path: Path) -> Dataset:
    """Red, green and blue boxes on 60 images; one label in five is wrong."""
    from PIL import Image

    boxes: list[tuple[int, Box]] = [
        (row, (4.0 + 46 * place, 30.0, 42.0 + 46 * place, 70.0))
        for row in range(60)
        for place in (0, 1)
    ]
    dataset = drawn(tmp_path / "data", boxes, sizes=((96, 96),) * 60)
    rng = np.random.default_rng(0)
    for row, path in enumerate(dataset.images.paths):
        pixels = rng.integers(0, 60, (96, 96, 3), np.uint8)
        for place in (0, 1):
            true = dataset.labels[2 * row + place]
            pixels[30:70, 4 + 46 * place : 42 + 46 * place, true] += 180
        Image.fromarray(pixels).save(path)
    is_wrong = rng.permutation(len(dataset.labels)) < len(dataset.labels) // 5
    shifts = rng.integers(1, 3, is_wrong.sum())
    dataset.labels[is_wrong] = (dataset.labels[is_wrong] + shifts) % 3
    return dataset


@pytest.mark.usefixtures("few_are_enough")
def test_the_prescreen_is_reported_trained_on_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after a step and resumed, a run has the look that it took before, and takes none."""
    monkeypatch.setattr(
        "boxmend.methods.noise_estimator.ESTIMATOR", replace(ESTIMATOR, prescreen_max_interval=0.5)
    )  # of so few they are wide
    dataset = informative(tmp_path)
    changes: dict[str, Any] = {
        "method": "mend",
        "weights": "default",
        "epochs": 1,
        "batch_size": 20,
    }
    whole, log = trained(dataset, tmp_path / "whole", **changes)
    said = [text for text in notes(log) if "of the labels seem wrong" in text]
    assert len(said) == 1
    estimate = float(said[0].split(" ")[1].rstrip("%"))
    assert 12 < estimate < 28

    _, log = trained(dataset, tmp_path / "known", label_noise=0.2, **changes)
    assert notes(log) == ["prescreening the annotations before training"]

    def stop(line: dict[str, Any]) -> None:
        if line.get("step") == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        train(dataset, tmp_path / "run", replace(QUICK, **changes), log=stop)
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=False)
    prior = state["method"]["prior"]
    assert prior.shape == (len(dataset.labels) + 1, 3)
    again, log = trained(dataset, tmp_path / "run", resume=True, **changes)
    assert not any("prescreen" in text for text in notes(log))
    lines = [
        [line for line in one.read_metrics() if "label_noise" in line][-1] for one in (whole, again)
    ]
    assert lines[0]["label_noise"] == lines[1]["label_noise"]


@pytest.mark.usefixtures("few_are_enough")
def test_a_request_to_stop_interrupts_the_prescreen(dataset: Dataset, tmp_path: Path) -> None:
    def stop(line: dict[str, Any]) -> None:
        if "prescreen" in line.get("note", ""):
            os.kill(os.getpid(), signal.SIGTERM)

    settings = replace(QUICK, method="mend")
    with pytest.raises(Interrupted, match="step 0"):
        train(dataset, tmp_path / "run", settings, log=stop)
    run, _ = trained(dataset, tmp_path / "run", resume=True, method="mend")
    assert run.is_finished


def test_probabilities_for_other_trainings_fit_their_annotations(dataset: Dataset) -> None:
    dataset.is_difficult[4] = True
    found = prescreen(dataset, detector="tiny", weights=None, image_size="96")
    assert found.shape == (len(dataset), len(dataset.label_names))
    assert found.dtype == np.float32
    assert np.isnan(found).any(axis=1).tolist() == [False, False, False, False, True, False]
    assert found[[0, 1, 2, 3, 5]].sum(axis=1) == pytest.approx(1)
    again = prescreen(dataset, detector="tiny", weights=None, image_size="96")
    assert np.array_equal(found, again, equal_nan=True)


def test_a_prescreen_finds_wrong_labels_and_serves_a_mender(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lenient = replace(mender_prescreen.LIMITS, max_interval=0.5)  # for few annotations
    monkeypatch.setattr(mender_prescreen, "LIMITS", lenient)
    clean = boxmend.load(f"{synthesize(tmp_path / 'toys', images=120).out}:train")
    noisy = disturb(clean, NoiseSettings(labels="symmetric:0.3")).dataset
    found = prescreen(noisy, detector="tiny", image_size="96")
    is_wrong = noisy.labels != clean.labels
    doubt = 1 - found[np.arange(len(noisy)), noisy.labels]
    assert doubt[is_wrong].mean() > doubt[~is_wrong].mean() + 0.2
    mender = boxmend.Mender(noisy, out=tmp_path / "run", prescreen=found)
    soft = mender.annotations().soft_labels
    assert (soft.argmax(axis=1) == clean.labels).mean() > (~is_wrong).mean() + 0.05


def test_a_single_label_cannot_be_prescreened(dataset: Dataset) -> None:
    one = replace(dataset, label_names=("only",), labels=dataset.labels * 0)
    with pytest.raises(DataError, match="at least two"):
        prescreen(one, detector="tiny", weights=None)
