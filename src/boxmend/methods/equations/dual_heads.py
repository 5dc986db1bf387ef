"""What two heads say of a box: where to move it, and a soft label (Li et al. 2020).

p_1 and p_2 are the heads' distributions over background and C classes, background first.
"""

import torch
from torch import Tensor

from boxmend.detector.boxes import sides_of_edges


def region_loss(first: Tensor, second: Tensor, objectness: float) -> Tensor:
    """Compute L = |p_1 - p_2|^2 + lambda (p_1(background) + p_2(background)).

    Low where the heads agree and see an object. Takes probabilities [..., 1 + C]; `objectness` is
    lambda. Returns [...].
    """
    discrepancy = (first - second).square().sum(-1)
    background = first[..., 0] + second[..., 0]
    return discrepancy + objectness * background


def slopes_in_sides(boxes: Tensor, gradient: Tensor) -> Tensor:
    """Turn dL/db into dL/du, where u are coordinates in sides of the box: times width or height.

    Takes boxes and their gradient [..., 4]. Returns [..., 4]; what is not finite is 0.
    """
    return (gradient * sides_of_edges(boxes)).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def move_sides(boxes: Tensor, shifts: Tensor, most: float) -> Tensor:
    """Move every side by a share of the box's width or height, at most by `most`.

    Takes boxes [..., 4] and shifts [..., 4] in shares. Returns [..., 4].
    """
    return boxes + shifts.clamp(-most, most) * sides_of_edges(boxes)


def sharpened_labels(labels: Tensor, first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Average label and predictions and sharpen: y*(c) ~ ((y(c) + p_1(c) + p_2(c)) / 3)^(1/T).

    Takes labels [...] within 0 .. C - 1 and probabilities [..., 1 + C]. Returns [..., 1 + C].
    """
    columns = torch.arange(first.shape[-1], device=labels.device)
    given = labels[..., None] + 1 == columns  # y, [..., 1 + C]
    mean = (given + first + second) / 3
    # By logarithms: with a small T the powers of small shares would all be zero.
    return (mean.clamp(min=torch.finfo(mean.dtype).tiny).log() / temperature).softmax(-1)


def soft_regression_loss(each: Tensor, soft: Tensor) -> Tensor:
    """Weigh the regression losses [..., 1 + C] of all classes by a soft label [..., 1 + C].

    Background has no regression and drops out. Returns [...].
    """
    return (each[..., 1:] * soft[..., 1:]).sum(-1)
