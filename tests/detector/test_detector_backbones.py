"""Every detector by name: shapes, what is frozen, and where its parameters fit."""

import pytest
import torch
from torchvision.models.detection import fasterrcnn_resnet50_fpn
from torchvision.ops import FrozenBatchNorm2d

from boxmend.detector import DETECTORS, build, freeze
from boxmend.errors import UsageError

SIZES = torch.tensor([[64, 96], [50, 60]])


def batch() -> torch.Tensor:
    coarse = torch.rand(2, 3, 8, 12, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.interpolate(coarse, size=(64, 96), mode="bilinear")


@pytest.mark.parametrize("name", sorted(DETECTORS))
def test_a_detector_gives_its_levels_at_their_strides_and_detects(name: str) -> None:
    torch.manual_seed(0)
    made = build(name, 3)
    made.network.eval()
    with torch.no_grad():
        features = made.features(batch(), SIZES)
        raw = made.rpn(features)
    strides = {"0": 4, "1": 8, "2": 16, "3": 32}
    for level in made.numbers.roi_levels:
        stride = strides[level]
        assert features.maps[level].shape[-2:] == (64 // stride, 96 // stride)
        assert 0.01 < features.maps[level].std() < 100  # random, but neither silent nor huge
    assert len(raw.anchors) == raw.objectness.shape[1] == sum(raw.level_sizes)
    detections = made.detect(batch(), SIZES, score_threshold=0.0, max_detections=7)
    assert detections.boxes.shape == (2, 7, 4)
    assert detections.is_detection.all()


def test_a_resnet50_is_torchvisions_own_parameter_by_parameter() -> None:
    made = build("resnet50", 3).network
    stock = fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=4)
    ours = made.state_dict()
    counters = {key for key in stock.state_dict() if key.endswith("num_batches_tracked")}
    assert ours.keys() == stock.state_dict().keys() - counters
    stock.load_state_dict(ours, strict=False)
    back = stock.state_dict()
    made.load_state_dict(back)  # counters are known to frozen normalisations, and dropped
    assert all(torch.equal(back[key], made.state_dict()[key]) for key in ours)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "mobilenet_v3"])
def test_freezing_two_stages_trains_all_layers_above_stride_4(name: str) -> None:
    made = build(name, 3, frozen_stages=2)
    body = dict(made.network.backbone.body.named_parameters())
    frozen = {key.split(".")[0] for key, value in body.items() if not value.requires_grad}
    learning = {key.split(".")[0] for key, value in body.items() if value.requires_grad}
    assert frozen == ({"conv1", "layer1"} if name == "resnet18" else {"0", "1", "2", "3"})
    assert frozen.isdisjoint(learning)
    others = [p for key, p in made.network.named_parameters() if "backbone.body" not in key]
    assert all(parameter.requires_grad for parameter in others)


def test_random_weights_train_everything_by_default() -> None:
    made = build("tiny", 3)
    assert all(parameter.requires_grad for parameter in made.network.parameters())
    freeze(made, 1)
    frozen = {k for k, v in made.network.named_parameters() if not v.requires_grad}
    assert frozen == {"backbone.stem.0.weight"}
    freeze(made, 0)
    assert all(parameter.requires_grad for parameter in made.network.parameters())


def test_normalisations_are_frozen_unless_a_backbone_starts_from_random_weights() -> None:
    kinds = {type(m) for m in build("tiny", 3).network.modules()}
    assert FrozenBatchNorm2d in kinds
    assert torch.nn.BatchNorm2d not in kinds
    kinds = {type(m) for m in build("tiny", 3, frozen_norm=False).network.modules()}
    assert torch.nn.BatchNorm2d in kinds
    assert FrozenBatchNorm2d not in kinds


def test_building_leaves_the_random_state_to_the_caller() -> None:
    torch.manual_seed(5)
    first = build("tiny", 3).network.state_dict()
    torch.manual_seed(5)
    second = build("tiny", 3).network.state_dict()
    third = build("tiny", 3).network.state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not torch.equal(first["backbone.stem.0.weight"], third["backbone.stem.0.weight"])


@pytest.mark.parametrize(
    ("name", "num_labels", "stages", "message"),
    [
        ("vgg", 3, None, "unknown detector 'vgg'; known: mobilenet_v2, mobilenet_v3, resnet18"),
        ("tiny", 0, None, "num_labels is 0; a detector needs at least one class"),
        ("tiny", 3, 5, "tiny has 4 stages to freeze, not 5"),
        ("tiny", 3, -1, "tiny has 4 stages to freeze, not -1"),
    ],
)
def test_a_wrong_call_is_refused(
    name: str, num_labels: int, stages: int | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        build(name, num_labels, frozen_stages=stages)
