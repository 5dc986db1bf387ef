"""Detectors of several heads, classifiers or networks."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from boxmend.detector import DETECTORS, Detector, build, describe, read_metadata, save
from boxmend.detector.heads import SeveralClassifiers, average_outputs, dampen
from boxmend.detector.weights import read_file, tensors_without_twin
from boxmend.errors import DataError

BOXES = torch.tensor([[[4.0, 4, 40, 40], [10, 20, 60, 50], [0, 0, 0, 0]]])
IMAGE = torch.linspace(0, 1, 3 * 64 * 96).view(1, 3, 64, 96)
SIZES = torch.tensor([[60.0, 90.0]])


def make_test_detector(**asked: Any) -> Detector:
    torch.manual_seed(0)
    return build("tiny", 2, numbers=replace(DETECTORS["tiny"].numbers, **asked))


class Predictor(torch.nn.Module):
    """Two logits of slope 1 and one delta of slope 5."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = torch.nn.Linear(2, 2)
        torch.nn.init.constant_(self.scores.weight, 1.0)

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.scores(features), 5 * features.sum(-1, keepdim=True)


def test_the_mean_of_two_heads_by_hand() -> None:
    # Softmax of (0, ln 3) is (1/4, 3/4), of (0, 0) it is (1/2, 1/2): the mean is (3/8, 5/8).
    one = (torch.tensor([[0.0, math.log(3)]]), torch.tensor([[1.0, 2.0]]))
    other = (torch.zeros(1, 2), torch.tensor([[3.0, -2.0]]))
    logits, deltas = average_outputs([one, other])
    torch.testing.assert_close(logits.exp(), torch.tensor([[0.375, 0.625]]))
    torch.testing.assert_close(deltas, torch.tensor([[2.0, 0.0]]))


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_dampened_tensor_has_the_same_value_and_a_share_of_the_gradient(
    kind: torch.dtype,
) -> None:
    tensor = torch.tensor([0.1, -7.3, 0.0, 1e-20, 3e4], dtype=kind, requires_grad=True)
    result = dampen(tensor, 0.25)
    assert torch.equal(result, tensor)
    total = (result * torch.tensor([4.0, 2, 8, 1, 0], dtype=kind)).sum()
    assert torch.autograd.grad(total, tensor)[0].tolist() == [1.0, 0.5, 2.0, 0.25, 0.0]


def test_shares_of_the_classifiers_gradients_by_hand() -> None:
    predictor = Predictor()
    made = SeveralClassifiers(predictor, 2, 2, 3)
    weights = [predictor.scores.weight]
    for one, slope in zip(made.more, (10.0, 100.0), strict=True):
        assert isinstance(one, torch.nn.Linear)
        weights.append(torch.nn.init.constant_(one.weight, slope))
    features = torch.tensor([[1.0, 2.0]], requires_grad=True)
    whole, damped = made.each(features), made.each(features, (0.5, 1.0, 0.0))
    for (logits, deltas), (same, too) in zip(whole, damped, strict=True):
        assert torch.equal(logits, same)
        assert torch.equal(deltas, too)
    # Each of the two logits has the slope 1, 10 or 100 to a feature, the one delta 5.
    for outputs, slope in ((whole, 2 * (1 + 10 + 100) + 5), (damped, 2 * (0.5 + 10) + 5)):
        total = torch.cat([logits for logits, _ in outputs]).sum() + outputs[0][1].sum()
        (gradients,) = torch.autograd.grad(total, features, retain_graph=True)
        assert gradients.tolist() == [[slope, slope]]
    total = torch.cat([logits for logits, _ in damped]).sum()
    for gradients in torch.autograd.grad(total, weights):  # the classifiers' own are whole
        assert gradients.tolist() == [[1.0, 2.0], [1.0, 2.0]]


@pytest.mark.parametrize("asked", [{"box_heads": 2}, {"classifiers": 3}])
def test_a_detector_of_several_heads_predicts_their_mean(asked: dict[str, int]) -> None:
    detector = make_test_detector(**asked)
    features = detector.features(IMAGE, SIZES)
    every = detector.head_outputs(features, BOXES)
    together = detector.roi_outputs(features, BOXES)
    assert len(every) == next(iter(asked.values()))
    mean = torch.stack([one.logits.softmax(-1) for one in every]).mean(0)
    torch.testing.assert_close(together.logits.softmax(-1), mean)
    torch.testing.assert_close(together.deltas, torch.stack([one.deltas for one in every]).mean(0))
    assert not torch.allclose(every[0].logits, every[1].logits)  # of other random weights


def test_classifiers_share_one_regression() -> None:
    detector = make_test_detector(classifiers=3)
    every = detector.head_outputs(detector.features(IMAGE, SIZES), BOXES)
    assert torch.equal(every[0].deltas, every[1].deltas)
    assert torch.equal(every[0].deltas, every[2].deltas)


@pytest.mark.parametrize("asked", [{"box_heads": 2}, {"classifiers": 3}, {"has_spread": True}])
def test_torchvisions_own_forward_detects_the_same(asked: dict[str, Any]) -> None:
    detector = make_test_detector(**asked)
    detector.network.eval()
    detector.network.transform.min_size, detector.network.transform.max_size = (64,), 96
    detections = detector.detect(IMAGE, torch.tensor([[64.0, 96.0]]), score_threshold=0.0)
    expected = detector.network([IMAGE[0]])[0]
    number = int(detections.is_detection.sum())
    assert number > 10
    kept = min(number, len(expected["scores"]))
    torch.testing.assert_close(
        detections.scores[0][detections.is_detection[0]][:kept], expected["scores"][:kept]
    )


@pytest.mark.parametrize(
    "asked", [{"box_heads": 2}, {"classifiers": 3}, {"has_spread": True}, {"networks": 2}]
)
def test_a_saved_detector_comes_back_with_its_heads(tmp_path: Path, asked: dict[str, Any]) -> None:
    detector = make_test_detector(**asked)
    save(detector, tmp_path / "model.safetensors")
    again = build("tiny", 2, tmp_path / "model.safetensors")
    for name in ("box_heads", "classifiers", "has_spread"):
        assert getattr(again.numbers, name) == getattr(detector.numbers, name)
    before, after = tensors_without_twin(detector), again.network.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[key]) for key, value in before.items())


def test_a_twin_has_the_same_backbone_and_other_heads(tmp_path: Path) -> None:
    file = tmp_path / "whole.safetensors"
    backbone = {k: v.clone() for k, v in make_test_detector().network.backbone.state_dict().items()}
    save_file(backbone, file)
    numbers = replace(DETECTORS["tiny"].numbers, networks=2)
    detector = build("tiny", 2, file, numbers=numbers)
    twin = detector.twin.network
    for key, value in detector.network.backbone.state_dict().items():
        assert torch.equal(value, twin.backbone.state_dict()[key])
    ours, its = detector.network.roi_heads.state_dict(), twin.roi_heads.state_dict()
    assert any(not torch.equal(value, its[key]) for key, value in ours.items())
    frozen = [not parameter.requires_grad for parameter in detector.network.backbone.parameters()]
    assert frozen == [not parameter.requires_grad for parameter in twin.backbone.parameters()]
    assert any(frozen)


def test_a_twin_is_trained_with_its_detector_but_not_saved(tmp_path: Path) -> None:
    detector = make_test_detector(networks=2)
    trained = {id(parameter) for parameter in detector.network.parameters()}
    assert all(id(parameter) in trained for parameter in detector.twin.network.parameters())
    save(detector, tmp_path / "model.safetensors")
    tensors, _ = read_file(tmp_path / "model.safetensors")
    assert not any(key.startswith("twin.") for key in tensors)
    assert describe(detector) == describe(make_test_detector())


def test_heads_are_recorded_only_if_they_are_unusual(tmp_path: Path) -> None:
    save(make_test_detector(box_heads=2), tmp_path / "two.safetensors")
    assert read_metadata(tmp_path / "two.safetensors")["box_heads"] == "2"
    assert not {"box_heads", "classifiers", "has_spread"} & describe(make_test_detector()).keys()


@pytest.mark.parametrize("number", ["0", "99999999", "two", "", "-1"])
def test_damaged_metadata_about_heads_is_refused(tmp_path: Path, number: str) -> None:
    save(make_test_detector(), tmp_path / "odd.safetensors", {"box_heads": number})
    with pytest.raises(DataError, match=r"odd\.safetensors: .* in its metadata is"):
        build("tiny", 2, tmp_path / "odd.safetensors")
