"""The weights that `tiny` starts from, and detectors with them."""

from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torchvision.ops import FrozenBatchNorm2d

from boxmend.data.synth import draw_scene
from boxmend.detector import Detector, Proposals, build
from boxmend.detector.backbones import SHIPPED_TINY
from boxmend.detector.weights import read_file

pytestmark = pytest.mark.usefixtures("one_thread")


def toys(count: int) -> Tensor:
    """Images of the embedded dataset, [count, 3, 96, 96]."""
    pixels = [torch.from_numpy(draw_scene(3, index).pixels) for index in range(count)]
    return torch.stack(pixels).permute(0, 3, 1, 2)


def test_the_file_is_small_and_holds_backbone_and_neck_in_half_precision() -> None:
    tensors, metadata = read_file(SHIPPED_TINY)
    assert SHIPPED_TINY.stat().st_size < 1_000_000
    assert metadata["detector"] == "tiny"
    assert {value.dtype for value in tensors.values()} == {torch.float16}
    assert tensors.keys() == build("tiny", 3).network.backbone.state_dict().keys()


def test_the_default_weights_are_the_files_in_single_precision() -> None:
    made = build("tiny", 6, "default").network.backbone.state_dict()
    for key, value in load_file(SHIPPED_TINY).items():
        assert made[key].dtype == torch.float32
        assert torch.equal(made[key], value.float()), key
        assert made[key].isfinite().all()


def test_only_the_stem_is_frozen_by_default() -> None:
    made = build("tiny", 6, "default").network
    frozen = {key for key, value in made.named_parameters() if not value.requires_grad}
    assert frozen == {"backbone.stem.0.weight"}


def test_the_heads_start_afresh_with_any_number_of_classes() -> None:
    torch.manual_seed(0)
    first = build("tiny", 2, "default").network.state_dict()
    second = build("tiny", 2, "default").network.state_dict()
    key = "roi_heads.box_head.fc6.weight"
    assert not torch.equal(first[key], second[key])
    many = build("tiny", 9, "default").network.roi_heads.box_predictor
    assert many.cls_score.weight.shape == (10, 128)


def test_the_stored_statistics_fit_images_of_the_embedded_dataset() -> None:
    made = build("tiny", 6, "default")
    spreads: list[float] = []

    def measure(norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(norm, FrozenBatchNorm2d)
        shifted = inputs[0] - norm.running_mean[:, None, None]
        powers = shifted.square().mean((0, 2, 3)) / (norm.running_var + norm.eps)
        spreads.append(float(powers.mean().sqrt()))

    for module in made.network.backbone.modules():
        if isinstance(module, FrozenBatchNorm2d):
            module.register_forward_pre_hook(measure)
    with torch.no_grad():
        made.features(toys(16), torch.full((16, 2), 96))
    assert len(spreads) == 10  # the stem's, and three of each stage
    assert all(0.7 < spread < 1.4 for spread in spreads), spreads


def test_incomplete_suppression_of_proposals_flags_the_detections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, propose = build("tiny", 2), Detector.proposals
    made.network.eval()
    is_unsettled = torch.tensor([False, True, False])

    def proposals(self: Detector, *given: Any, **more: Any) -> Proposals:
        return propose(self, *given, **more)._replace(is_inexact=is_unsettled)

    monkeypatch.setattr(Detector, "proposals", proposals)
    detections = made.detect(toys(3), torch.full((3, 2), 96))
    assert torch.equal(detections.is_inexact, is_unsettled)
