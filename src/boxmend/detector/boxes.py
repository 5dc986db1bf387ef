"""Geometry of boxes (x1, y1, x2, y2) in pixels for whole batches: sides, overlaps, clipping."""

import torch
from torch import Tensor


def side_lengths(boxes: Tensor) -> Tensor:
    """Return width and height [..., 2] of boxes [..., 4]."""
    return boxes[..., 2:] - boxes[..., :2]


def sides_of_edges(boxes: Tensor) -> Tensor:
    """Return the side of each coordinate of boxes [..., 4]: width, height, width, height."""
    return side_lengths(boxes).repeat(*[1] * (boxes.dim() - 1), 2)


def is_large(boxes: Tensor, smallest: float) -> Tensor:
    """Mark boxes [..., 4] whose width and height are at least `smallest`; false for NaN."""
    return (side_lengths(boxes) >= smallest).all(-1)


def inert_boxes(boxes: Tensor, is_box: Tensor) -> Tensor:
    """Replace padding by the box (0, 0, 1, 1), so that its values do not spread.

    Takes boxes [..., 4] and is_box [...]. Returns [..., 4].
    """
    unit = boxes.new_zeros(4)
    unit[2:] = 1  # in place, because the copy of a list would wait for the device
    return torch.where(is_box[..., None], boxes, unit)


def pairwise_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Compute the IoU of boxes [..., n, 4] and others [..., m, 4]. Returns [..., n, m].

    Leading axes broadcast. Two boxes without area give NaN, as do boxes with NaN; mask padding with
    `torch.where`, not by multiplication. Boxes with swapped corners have an area here, but none in
    `elementwise_iou`.
    """
    a, b = boxes[..., :, None, :], others[..., None, :, :]
    width = torch.minimum(a[..., 2], b[..., 2]) - torch.maximum(a[..., 0], b[..., 0])
    height = torch.minimum(a[..., 3], b[..., 3]) - torch.maximum(a[..., 1], b[..., 1])
    inter = width.clamp(min=0) * height.clamp(min=0)  # [..., n, m]
    return inter / (_area(a) + _area(b) - inter)


def elementwise_iou(first: Tensor, second: Tensor) -> Tensor:
    """Compute the IoU of boxes [..., 4] one to one; leading axes broadcast. Returns [...].

    It is 0 where a box has no area.
    """
    low = torch.maximum(first[..., :2], second[..., :2])
    high = torch.minimum(first[..., 2:], second[..., 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    union = _clamped_area(first) + _clamped_area(second) - shared
    return torch.where(union > 0, shared / union, 0)


def clip(boxes: Tensor, sizes: Tensor) -> Tensor:
    """Clip boxes [B, ..., 4] to their image: x to 0 .. width, y to 0 .. height.

    `sizes` [B, 2] holds (height, width) of each image.
    """
    limits = sizes.flip(-1).to(boxes).repeat(1, 2)  # [B, 4]: width, height, width, height
    limits = limits.reshape(-1, *[1] * (boxes.dim() - 2), 4)
    return torch.minimum(boxes.clamp(min=0), limits)


def clipped_boxes(boxes: Tensor, is_box: Tensor, image_sizes: Tensor) -> Tensor:
    """Clip boxes to their image, with sides of at least one pixel.

    Takes boxes [B, A, 4], is_box [B, A] and image_sizes [B, 2] as (height, width). Returns
    [B, A, 4], inert for padding. A side that is too short grows to the right or downwards, at the
    far border to the left or upwards.
    """
    limits = image_sizes.flip(-1)[:, None].to(boxes.dtype)  # (width, height), [B, 1, 2]
    low = boxes[..., :2].minimum(limits - 1).clamp(min=0)
    high = boxes[..., 2:].minimum(limits).maximum(low + 1)
    return inert_boxes(torch.cat([low, high], dim=-1), is_box)


def clamp_to_canvas(boxes: Tensor, canvas: tuple[int, int]) -> Tensor:
    """Clamp boxes to the canvas (height, width), so that padding may hold NaN or infinity.

    Boxes inside the canvas do not change.
    """
    finite = boxes.nan_to_num(nan=0.0)
    x, y = finite[..., 0::2].clamp(0, canvas[1]), finite[..., 1::2].clamp(0, canvas[0])
    return torch.stack([x, y], dim=-1).flatten(-2)


def _area(boxes: Tensor) -> Tensor:
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def _clamped_area(boxes: Tensor) -> Tensor:
    return side_lengths(boxes).clamp(min=0).prod(-1)
