"""What a backbone makes of boxes by themselves, cut out and enlarged, before training."""

from typing import Any

import torch
from torch import Tensor
from torchvision.ops import roi_align

from boxmend.detector.faster_rcnn import CANVAS_MULTIPLE, Detector, normalise
from boxmend.detector.tiny import TINY_STRIDE, TinyBackbone

CONTEXT = 1.15  # times the box is cut out, so that its edges are seen
CELLS = 5  # of the deepest map, along a side of what is cut out
SAMPLES = 2  # of the image for a pixel, along a side
AT_ONCE = 64  # cut-outs that go through the backbone together


@torch.no_grad()
def describe_boxes(
    detector: Detector, images: Tensor, sizes: Tensor, boxes: Tensor, owners: Tensor
) -> Tensor:
    """Describe boxes by the mean of the backbone's deepest map over what they hold.

    Takes images [B, 3, H, W], sizes [B, 2], boxes [n, 4] and owners [n], the image of each. A box
    is cut out with a little around it, but nothing beyond its image, and brought to one size
    whatever it was: small objects are seen as large as those that the backbone was trained on.
    Returns [n, D], float32.
    """
    backbone: Any = detector.network.backbone
    side, kind = CELLS * stride(backbone), next(backbone.parameters()).dtype
    whole = normalise(images, sizes)
    cuts = torch.cat([owners[:, None].to(boxes), _around(boxes, sizes[owners])], dim=1)
    found = []
    for some in torch.split(cuts, AT_ONCE):
        pixels = roi_align(whole, some, (side, side), sampling_ratio=SAMPLES, aligned=True)
        pixels = pixels.to(kind, memory_format=torch.channels_last)  # a quarter faster
        found.append(deepest_map(backbone, pixels).float().mean((2, 3)))
    return torch.cat(found)


def stride(backbone: Any) -> int:
    """Tell how many pixels of an image a cell of the deepest map stands for, along a side."""
    return TINY_STRIDE if isinstance(backbone, TinyBackbone) else CANVAS_MULTIPLE


def deepest_map(backbone: Any, images: Tensor) -> Tensor:
    """Compute the last map of images [n, 3, H, W] before any neck or pyramid."""
    is_tiny = isinstance(backbone, TinyBackbone)
    maps = backbone.stage_maps(images) if is_tiny else backbone.body(images)
    deepest: Tensor = list(maps.values())[-1]
    return deepest


def _around(boxes: Tensor, sizes: Tensor) -> Tensor:
    """Enlarge boxes [n, 4] about their centres, within images of sizes [n, 2]."""
    center, half = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]) / 2
    limits = sizes.flip(-1).to(boxes)
    low = (center - CONTEXT * half).clamp(min=0)
    return torch.cat([low, torch.minimum(center + CONTEXT * half, limits)], dim=1)
