"""The weights that judge annotations, and the data of --val."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from boxmend.detector import Features
from boxmend.errors import DataError
from boxmend.runs.settings import resolve_settings
from boxmend.training.assembly import make_detector, make_training
from boxmend.training.loop import Training, TrainingOutput
from boxmend.training.processes import Processes
from boxmend.training.train import train
from tests.training.small_runs import QUICK, drawn, trained

ALONE = Processes(torch.device("cpu"))
BOXES = [(0, (10.0, 10, 50, 50)), (1, (20.0, 20, 60, 60))]


def make_small_training(folder: Path, which: str) -> Training:
    """A training whose averaged weights are zero, so that they differ from the others."""
    settings = resolve_settings(replace(QUICK, judging_weights=which))  # type: ignore[arg-type]  # one of three
    data = drawn(folder / "data", BOXES)
    detector = make_detector(settings, 3)
    training, _ = make_training(settings, data, detector, ALONE, TrainingOutput(folder / "run"))
    for parameter in training.teacher.network.roi_heads.parameters():
        parameter.zero_()
    for parameter in training.teacher.network.backbone.parameters():
        parameter.fill_(1.0)
    return training


@pytest.mark.parametrize(
    ("which", "flat", "looks_again"),
    [("network", False, False), ("heads", True, False), ("average", True, True)],
)
def test_the_scorer_is_the_one_that_was_asked_for(
    which: str, flat: bool, looks_again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = make_small_training(tmp_path, which)
    looked: list[Tensor] = []
    features = training.teacher.features

    def look(images: Tensor, sizes: Tensor) -> Features:
        looked.append(images)
        return features(images, sizes)

    monkeypatch.setattr(training.teacher, "features", look)
    batch = next(iter(training.loader.epoch(0, 0)))
    seen = training.detector.features(batch.images, batch.sizes)
    probabilities = training._scorer(batch, seen)(batch.boxes).probabilities
    is_flat = torch.allclose(probabilities, torch.full_like(probabilities, 0.25))
    assert is_flat == flat  # heads of zeros find all classes alike
    assert bool(looked) == looks_again


def test_data_to_score_on_that_could_never_be_scored_are_refused_at_once(tmp_path: Path) -> None:
    data = drawn(tmp_path / "data", BOXES)
    others = drawn(tmp_path / "others", BOXES, labels=("cat", "dog"))
    with pytest.raises(DataError, match="share no class with the training data: cat, dog against"):
        train(data, tmp_path / "run", QUICK, val=others)
    none = drawn(tmp_path / "none", [], sizes=())
    with pytest.raises(DataError, match="have no images"):
        train(data, tmp_path / "run", QUICK, val=none)
    assert not (tmp_path / "run").exists()


def test_images_without_annotations_are_scored_all_the_same(tmp_path: Path) -> None:
    data, empty = drawn(tmp_path / "data", BOXES), drawn(tmp_path / "empty", [])
    run = train(data, tmp_path / "run", replace(QUICK, epochs=1), val=empty)
    assert set(run.summary()["val"]) == {"voc_ap50_11point", "voc_ap50_area"}
    assert trained(data, tmp_path / "other", epochs=1)[0].summary().get("val") is None


def test_a_summary_has_the_ap_of_every_label_beside_its_mean(tmp_path: Path) -> None:
    data = drawn(tmp_path / "data", BOXES)
    summary = train(data, tmp_path / "run", replace(QUICK, epochs=1), val=data).summary()
    known = [value for value in summary["val_by_label"].values() if value is not None]
    assert set(summary["val_by_label"]) == set(data.label_names)
    assert sum(known) / len(known) == pytest.approx(summary["val"]["voc_ap50_area"])
