"""Box deltas: the encoding of a box relative to a reference box.

With (cx, cy, w, h) of the reference box and weights (wx, wy, ww, wh), the deltas of a box are

    dx = wx (cx' - cx) / w    dy = wy (cy' - cy) / h    dw = ww log(w' / w)    dh = wh log(h' / h)
"""

import math

import torch
from torch import Tensor

Weights = tuple[float, float, float, float]

UNIT_WEIGHTS: Weights = (1.0, 1.0, 1.0, 1.0)
LARGEST_LOG_SCALE = math.log(1000 / 16)  # a delta may enlarge a box 62.5 times, no more


def encode(boxes: Tensor, references: Tensor, weights: Weights = UNIT_WEIGHTS) -> Tensor:
    """Encode boxes [..., 4] as deltas [..., 4] relative to references [..., 4] (broadcast).

    Boxes or references without area give infinite or NaN deltas, which must be masked.
    """
    x, y, width, height = _centre_form(references)
    box_x, box_y, box_width, box_height = _centre_form(boxes)
    dx = weights[0] * (box_x - x) / width
    dy = weights[1] * (box_y - y) / height
    dw = weights[2] * torch.log(box_width / width)
    dh = weights[3] * torch.log(box_height / height)
    return torch.stack([dx, dy, dw, dh], dim=-1)


def decode(deltas: Tensor, references: Tensor, weights: Weights = UNIT_WEIGHTS) -> Tensor:
    """Apply deltas [..., 4] to references [..., 4] (broadcast): the inverse of `encode`.

    dw / ww and dh / wh are limited to log(1000 / 16) before the exponential.
    """
    x, y, width, height = _centre_form(references)
    dx, dy, dw, dh = (
        delta / weight for delta, weight in zip(deltas.unbind(-1), weights, strict=True)
    )
    centre_x, centre_y = dx * width + x, dy * height + y
    half_width = 0.5 * (torch.exp(dw.clamp(max=LARGEST_LOG_SCALE)) * width)
    half_height = 0.5 * (torch.exp(dh.clamp(max=LARGEST_LOG_SCALE)) * height)
    corners = [
        centre_x - half_width,
        centre_y - half_height,
        centre_x + half_width,
        centre_y + half_height,
    ]
    return torch.stack(corners, dim=-1)


def _centre_form(boxes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    left, top, right, bottom = boxes.unbind(-1)
    width, height = right - left, bottom - top
    return left + 0.5 * width, top + 0.5 * height, width, height
