"""RoIAlign with a gradient to the boxes, over all feature levels in one call.

torchvision's RoIAlign has a gradient to the feature map, but none to the box. Here the sample
points are affine functions of the four sides, and `grid_sample` reads the map at them; the values
equal those of `pool`. The result is smooth in the sides while sample points stay within a cell, and
its slope jumps where they pass to the next cell, as in any bilinear interpolation.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from boxmend.detector.boxes import clamp_to_canvas
from boxmend.detector.pooling import Atlas, level_of, pack, pick, stride_of


def pool_with_slopes(
    levels: Sequence[Tensor],
    boxes: Tensor,
    canvas: tuple[int, int],
    *,
    size: int = 7,
    samples: int = 2,
) -> Tensor:
    """Pool each box as `pool` does, [B * K, channels, size, size], with a gradient to the boxes.

    Takes levels [B, channels, rows, columns] and boxes [B, K, 4] as `pool` does. The choice of the
    level has no gradient. The gradient is zero for a side beyond the canvas, and for the width or
    height of a box thinner than one cell, which counts as one cell. The computation uses the wider
    type of maps and boxes.
    """
    kind = torch.promote_types(levels[0].dtype, boxes.dtype)
    images, number = boxes.shape[:2]
    safe = clamp_to_canvas(boxes.to(kind), canvas)  # [B, K, 4]
    strides = [stride_of(level, canvas) for level in levels]
    index = level_of(safe.flatten(0, 1), strides).view(images, number)
    local = safe * _pick([1 / stride for stride in strides], index, safe)[..., None]
    shapes = [(level.shape[-2], level.shape[-1]) for level in levels]
    alone = Atlas(levels[0], tuple(shapes), ((0, 0),))
    image, _, corners = alone if len(levels) == 1 else pack(levels)
    places, is_inside = [], []
    for axis in (1, 0):  # columns by x, then rows by y
        side = local[..., 1 - axis :: 2]  # [B, K, 2]
        length = _pick([shape[axis] for shape in shapes], index, safe)
        begins = _pick([corner[axis] for corner in corners], index, safe)
        at = _points(side, size * samples)  # [B, K, size * samples] in cells of the level
        is_inside.append(at <= length[..., None])
        places.append(at + begins[..., None])
    read = _read(image.to(kind), places[0], places[1])  # [B, channels, K, points, points]
    inside = is_inside[1][..., :, None] & is_inside[0][..., None, :]  # [B, K, points, points]
    read = torch.where(inside[:, None], read, 0)
    bins = read.view(*read.shape[:3], size, samples, size, samples).mean(dim=(4, 6))
    return bins.transpose(1, 2).flatten(0, 1)


def _points(side: Tensor, number: int) -> Tensor:
    """Return points at the middles of equal parts between start and end [..., 2].

    An extent below one cell counts as one cell. Returns [..., number].
    """
    extent = (side[..., 1] - side[..., 0]).clamp(min=1)
    shares = (torch.arange(number, device=side.device, dtype=side.dtype) + 0.5) / number
    return side[..., :1] + extent[..., None] * shares


def _read(image: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Read maps [B, channels, rows, columns] at the crossings of x and y [B, K, points], in cells.

    Beyond the centre of its last cell a map is constant, as in an atlas. Returns
    [B, channels, K, points, points], rows before columns.
    """
    images, number, points = x.shape
    rows, columns = image.shape[-2:]
    # align_corners: -1 and 1 are the centres of the first and the last cell.
    grid_x = (2 * x / max(columns - 1, 1) - 1)[:, :, None, :].expand(-1, -1, points, -1)
    grid_y = (2 * y / max(rows - 1, 1) - 1)[:, :, :, None].expand(-1, -1, -1, points)
    grid = torch.stack([grid_x, grid_y], dim=-1).flatten(1, 2)  # [B, K * points, points, 2]
    read = F.grid_sample(image, grid, mode="bilinear", padding_mode="border", align_corners=True)
    return read.view(images, image.shape[1], number, points, points)


def _pick(values: Sequence[float], index: Tensor, like: Tensor) -> Tensor:
    """Look up values[index] [B, K] in the type of `like`; exact for these small numbers."""
    return pick(values, index).to(like.dtype)
