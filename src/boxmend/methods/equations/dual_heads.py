"""Box steps and soft labels from two heads, as in CA-BBC (Li et al. 2020).

p_1 and p_2 are the heads' distributions over background and C classes, background first.
"""

import torch
from torch import Tensor

from boxmend.detector.boxes import sides_of_edges


def region_loss(first: Tensor, second: Tensor, objectness: float) -> Tensor:
    """Compute L = |p_1 - p_2|^2 + lambda (p_1(background) + p_2(background)).

    L is low where the heads agree on an object. Takes probabilities [..., 1 + C]; `objectness` is
    lambda. Returns [...].
    """
    discrepancy = (first - second).square().sum(-1)
    background = first[..., 0] + second[..., 0]
    return discrepancy + objectness * background


def slopes_in_sides(boxes: Tensor, gradient: Tensor) -> Tensor:
    """Convert dL/db to dL/du, where u are coordinates in sides of the box.

    Takes boxes and their gradient [..., 4]. Returns [..., 4], with 0 for what is not finite.
    """
    return (gradient * sides_of_edges(boxes)).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def move_sides(boxes: Tensor, shifts: Tensor, max_shift: float) -> Tensor:
    """Move every side by a share of the box's width or height, limited to `max_shift`.

    Takes boxes [..., 4] and shifts [..., 4] in shares. Returns [..., 4].
    """
    return boxes + shifts.clamp(-max_shift, max_shift) * sides_of_edges(boxes)


def sharpened_labels(labels: Tensor, first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Average label and predictions and sharpen: y*(c) ~ ((y(c) + p_1(c) + p_2(c)) / 3)^(1/T).

    Takes labels [...] within 0 .. C - 1 and probabilities [..., 1 + C]. Returns [..., 1 + C].
    """
    columns = torch.arange(first.shape[-1], device=labels.device)
    one_hot = labels[..., None] + 1 == columns  # y, [..., 1 + C]
    mean = (one_hot + first + second) / 3
    # With logarithms, because a small T would underflow the powers of small shares to zero.
    return (mean.clamp(min=torch.finfo(mean.dtype).tiny).log() / temperature).softmax(-1)


def soft_regression_loss(losses: Tensor, soft: Tensor) -> Tensor:
    """Weight the regression losses [..., 1 + C] of all classes by a soft label [..., 1 + C].

    Background has no regression and does not count. Returns [...].
    """
    return (losses[..., 1:] * soft[..., 1:]).sum(-1)
