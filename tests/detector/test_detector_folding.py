"""Folded normalisations: the same maps and gradients as torchvision's backbone."""

import pytest
import torch
from torch import Tensor, nn
from torchvision.ops import FrozenBatchNorm2d

from boxmend.detector import Detector, build
from boxmend.detector.folding import folded_maps, is_foldable


def make_test_detector(name: str) -> Detector:
    torch.manual_seed(3)
    detector = build(name, 3, None)
    for norm in detector.network.backbone.modules():
        if isinstance(norm, FrozenBatchNorm2d):  # asymmetric, so that no part can be left out
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.uniform_(-0.2, 0.2)
    return detector


def gradients(network: nn.Module, maps: dict[str, Tensor]) -> list[Tensor]:
    network.zero_grad()
    sum(
        (value * torch.arange(1, 1 + value.shape[1])[:, None, None]).mean()
        for value in maps.values()
    ).backward()  # type: ignore[union-attr]
    return [
        parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None
    ]


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_folded_maps_and_their_gradients_are_those_of_torchvision(name: str) -> None:
    backbone = make_test_detector(name).network.backbone.double()
    images = torch.randn(2, 3, 64, 96, dtype=torch.float64)
    wanted = backbone(images)
    expected = gradients(backbone, wanted)
    maps = folded_maps(backbone, images, torch.float64)
    assert list(maps) == list(wanted)
    for level, value in maps.items():
        torch.testing.assert_close(value, wanted[level], rtol=1e-9, atol=1e-9)
    for result, one in zip(gradients(backbone, maps), expected, strict=True):
        torch.testing.assert_close(result, one, rtol=1e-8, atol=1e-10)


def test_only_resnets_with_frozen_normalisations_are_folded() -> None:
    assert is_foldable(make_test_detector("resnet18").network.backbone)
    assert not is_foldable(build("resnet18", 3, None, frozen_norm=False).network.backbone)
    assert not is_foldable(build("mobilenet_v2", 3, None).network.backbone)
    assert not is_foldable(build("tiny", 3, None).network.backbone)


def test_in_bfloat16_maps_stay_near_those_of_float32_and_in_bfloat16() -> None:
    detector = make_test_detector("resnet18")
    images, sizes = torch.rand(1, 3, 64, 64), torch.tensor([[64, 60]])
    with torch.no_grad():
        plain = detector.features(images, sizes).maps
        with torch.autocast("cpu", torch.bfloat16):
            folded = detector.features(images, sizes).maps
    for level, value in folded.items():
        assert value.dtype == torch.bfloat16
        scale = plain[level].abs().mean()
        assert (value.float() - plain[level]).abs().mean() < 0.03 * scale
