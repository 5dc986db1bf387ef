"""A detector that is small enough to train in a test: torchvision's FCOS on a few layers."""

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.fcos import FCOS
from torchvision.ops import FeaturePyramidNetwork

CHANNELS = (32, 64, 96, 128)
STRIDES = (4, 8, 16)


class _Backbone(nn.Module):
    out_channels = 64

    def __init__(self) -> None:
        super().__init__()
        pairs = zip((3, *CHANNELS), CHANNELS, strict=False)
        self.stages = nn.ModuleList([_make_stage(*pair) for pair in pairs])
        self.pyramid = FeaturePyramidNetwork(list(CHANNELS[1:]), self.out_channels)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        maps: dict[str, Tensor] = OrderedDict()
        for number, stage in enumerate(self.stages):
            images = stage(images)
            maps[str(number)] = images
        del maps["0"]
        return dict(self.pyramid(maps))


def _make_stage(channels: int, out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, out, 3, 2, 1),
        nn.GroupNorm(8, out),
        nn.ReLU(),
        nn.Conv2d(out, out, 3, 1, 1),
        nn.GroupNorm(8, out),
        nn.ReLU(),
    )


def make_tiny_fcos(num_classes: int, size: int, **settings: Any) -> FCOS:
    """An FCOS with three levels, for square images of this size."""
    torch.manual_seed(0)
    anchors = AnchorGenerator(tuple((2 * stride,) for stride in STRIDES), ((1.0,),) * 3)
    return FCOS(
        _Backbone(),
        num_classes,
        min_size=size,
        max_size=size,
        image_mean=[0.5] * 3,
        image_std=[0.25] * 3,
        anchor_generator=anchors,
        detections_per_img=50,
        **settings,
    )
