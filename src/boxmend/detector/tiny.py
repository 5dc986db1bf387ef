"""The parts of the tiny detector, for small images on a CPU.

It has a stem of stride 2, three stages of strides 4, 8 and 16, and a top-down neck of 1x1
convolutions. The region proposal network uses stride 8, the second stage uses stride 4.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.rpn import RPNHead

Norm = Callable[[int], nn.Module]

STEM_CHANNELS = 24
STAGE_CHANNELS = (40, 64, 96)
NECK_CHANNELS = 64
TINY_STRIDE = 16  # of the last stage


class TinyBackbone(nn.Module):
    """A backbone with the maps "0" (stride 4) and "1" (stride 8) of 64 channels."""

    out_channels = NECK_CHANNELS

    def __init__(self, norm: Norm):
        super().__init__()
        self.stem = _convolution(3, STEM_CHANNELS, 2, norm)
        inputs = (STEM_CHANNELS, *STAGE_CHANNELS)
        self.stages = nn.ModuleList(
            nn.Sequential(
                _convolution(inputs_of_stage, channels, 2, norm), ResidualBlock(channels, norm)
            )
            for inputs_of_stage, channels in zip(inputs, STAGE_CHANNELS, strict=False)
        )
        self.neck = nn.ModuleList(
            nn.Conv2d(channels, NECK_CHANNELS, 1) for channels in STAGE_CHANNELS
        )

    def stage_maps(self, images: Tensor) -> dict[str, Tensor]:
        """Compute the maps of the stages, without the neck: strides 4, 8 and 16."""
        maps, features = {}, self.stem(images)
        for number, stage in enumerate(self.stages):
            features = stage(features)
            maps[str(number)] = features
        return maps

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Compute the two maps, each the sum of its own stage and all coarser ones."""
        maps = self.stage_maps(images).values()
        fine, middle, coarse = (
            convolution(stage_map) for convolution, stage_map in zip(self.neck, maps, strict=True)
        )
        middle = middle + F.interpolate(coarse, size=middle.shape[-2:], mode="nearest")
        fine = fine + F.interpolate(middle, size=fine.shape[-2:], mode="nearest")
        return {"0": fine, "1": middle}


class ResidualBlock(nn.Module):
    """A residual block of two 3x3 convolutions."""

    def __init__(self, channels: int, norm: Norm):
        super().__init__()
        self.first = _convolution(channels, channels, 1, norm)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = norm(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Compute relu(x + norm(second(first(x))))."""
        return F.relu(x + self.norm(self.second(self.first(x))))


class CoarsestHead(RPNHead):  # type: ignore[misc]  # torchvision has no types
    """torchvision's RPN head on the last `num_levels` feature maps."""

    def __init__(self, in_channels: int, num_anchors: int, num_levels: int):
        super().__init__(in_channels, num_anchors)
        self.num_levels = num_levels

    def forward(self, x: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Compute objectness and deltas of each of these levels."""
        outputs: tuple[list[Tensor], list[Tensor]] = super().forward(x[-self.num_levels :])
        return outputs


class CoarsestAnchors(AnchorGenerator):  # type: ignore[misc]  # torchvision has no types
    """torchvision's anchors on the last feature maps, as many as there are anchor sizes."""

    def forward(self, image_list: ImageList, feature_maps: list[Tensor]) -> list[Tensor]:
        """Return the anchors, one tensor per image."""
        anchors: list[Tensor] = super().forward(image_list, feature_maps[-len(self.sizes) :])
        return anchors


class AgnosticPredictor(nn.Module):
    """A predictor of class scores and of one regression for all classes."""

    def __init__(self, in_channels: int, num_columns: int):
        super().__init__()
        self.cls_score = nn.Linear(in_channels, num_columns)
        self.bbox_pred = nn.Linear(in_channels, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [n, 1 + C] and deltas [n, (1 + C) * 4], equal for all classes."""
        logits: Tensor = self.cls_score(x)
        deltas: Tensor = self.bbox_pred(x)
        return logits, deltas.repeat(1, logits.shape[1])


def _convolution(inputs: int, outputs: int, stride: int, norm: Norm) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    torch.nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(convolution, norm(outputs), nn.ReLU())
