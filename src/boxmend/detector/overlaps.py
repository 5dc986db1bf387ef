"""Overlaps of all pairs of boxes, for the whole batch at once."""

import torch
from torch import Tensor


def pairwise_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Compute IoU = |a and b| / |a or b| of boxes [..., n, 4] and others [..., m, 4].

    Leading axes broadcast. Returns [..., n, m]. Two boxes without area give NaN, as do boxes
    that hold NaN: mask padding with `torch.where`, never by multiplication.
    """
    a, b = boxes[..., :, None, :], others[..., None, :, :]
    width = torch.minimum(a[..., 2], b[..., 2]) - torch.maximum(a[..., 0], b[..., 0])
    height = torch.minimum(a[..., 3], b[..., 3]) - torch.maximum(a[..., 1], b[..., 1])
    inter = width.clamp(min=0) * height.clamp(min=0)  # [..., n, m]
    return inter / (_area(a) + _area(b) - inter)


def _area(boxes: Tensor) -> Tensor:
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
