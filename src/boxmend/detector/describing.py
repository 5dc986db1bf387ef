"""Features of cropped and resized boxes, computed by the backbone before training."""

from typing import Any

import torch
from torch import Tensor
from torchvision.ops import roi_align

from boxmend.detector.faster_rcnn import CANVAS_MULTIPLE, Detector, normalise
from boxmend.detector.tiny import TINY_STRIDE, TinyBackbone

CROP_FACTOR = 1.15  # side of a crop over the side of its box, so that the box's edges are visible
CELLS_PER_SIDE = 5  # of the deepest feature map of a crop
SAMPLES_PER_PIXEL_SIDE = 2  # of the image, for a pixel of a crop
CROPS_PER_BATCH = 64  # through the backbone


@torch.no_grad()
def describe_boxes(
    detector: Detector, images: Tensor, sizes: Tensor, boxes: Tensor, owners: Tensor
) -> Tensor:
    """Compute the mean of the backbone's deepest feature map over a crop of each box.

    Takes images [B, 3, H, W], sizes [B, 2], boxes [n, 4] and owners [n], the image of each box. A
    crop is slightly larger than its box, ends at the border of the image, and is resized to a fixed
    size, so that small objects appear as large as those in the backbone's training data. Returns
    [n, D], float32.
    """
    backbone: Any = detector.network.backbone
    side, dtype = CELLS_PER_SIDE * stride(backbone), next(backbone.parameters()).dtype
    normalised = normalise(images, sizes)
    crops = torch.cat([owners[:, None].to(boxes), _enlarge(boxes, sizes[owners])], dim=1)
    features = []
    for batch in torch.split(crops, CROPS_PER_BATCH):
        pixels = roi_align(
            normalised, batch, (side, side), sampling_ratio=SAMPLES_PER_PIXEL_SIDE, aligned=True
        )
        pixels = pixels.to(dtype, memory_format=torch.channels_last)  # a quarter faster
        features.append(deepest_map(backbone, pixels).float().mean((2, 3)))
    return torch.cat(features)


def stride(backbone: Any) -> int:
    """Return the stride of the deepest feature map in pixels."""
    return TINY_STRIDE if isinstance(backbone, TinyBackbone) else CANVAS_MULTIPLE


def deepest_map(backbone: Any, images: Tensor) -> Tensor:
    """Compute the last feature map of images [n, 3, H, W], before any neck or pyramid."""
    is_tiny = isinstance(backbone, TinyBackbone)
    maps = backbone.stage_maps(images) if is_tiny else backbone.body(images)
    deepest: Tensor = list(maps.values())[-1]
    return deepest


def _enlarge(boxes: Tensor, sizes: Tensor) -> Tensor:
    """Enlarge boxes [n, 4] around their centres, within images of sizes [n, 2]."""
    center, half = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]) / 2
    limits = sizes.flip(-1).to(boxes)
    low = (center - CROP_FACTOR * half).clamp(min=0)
    return torch.cat([low, torch.minimum(center + CROP_FACTOR * half, limits)], dim=1)
