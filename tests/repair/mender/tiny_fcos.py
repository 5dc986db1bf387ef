"""A detector that is small enough to train in a test: torchvision's FCOS on the tiny backbone."""

from typing import Any

import torch
from safetensors.torch import load_file
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.fcos import FCOS
from torchvision.ops.misc import FrozenBatchNorm2d

from boxmend.detector.backbones import SHIPPED_TINY
from boxmend.detector.tiny import TinyBackbone


def make_tiny_fcos(num_classes: int, size: int, **settings: Any) -> FCOS:
    """An FCOS with two levels and the shipped weights of the backbone, for square images."""
    torch.manual_seed(0)
    backbone = TinyBackbone(FrozenBatchNorm2d)
    backbone.load_state_dict(load_file(SHIPPED_TINY))
    return FCOS(
        backbone,
        num_classes,
        min_size=size,
        max_size=size,
        anchor_generator=AnchorGenerator(((8,), (16,)), ((1.0,),) * 2),
        detections_per_img=50,
        **settings,
    )
