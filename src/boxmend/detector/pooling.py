"""RoIAlign over all feature levels in one call, with the levels packed into one atlas image.

The first level is at the origin, the others are in a column to its right. The last column and row
of each level are repeated to its right and below it, because RoIAlign reads up to one cell beyond
the end of a map as if the map continued.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.ops import roi_align

from boxmend.detector.boxes import clamp_to_canvas
from boxmend.detector.gpu import kernels_for

CANONICAL_SIDE_PIXELS = 224.0  # a square box of this side uses the level of stride 2^4 = 16
CANONICAL_LEVEL = 4
LEVEL_EPS = 1e-6
BORDER_CELLS = 2  # repeated, because a box thinner than a cell reads up to 28/29 beyond the end


class Atlas(NamedTuple):
    """Feature levels in one map, and their positions."""

    image: Tensor  # [B, channels, rows, columns]
    shapes: tuple[tuple[int, int], ...]  # rows and columns of each level
    corners: tuple[tuple[int, int], ...]  # row and column at which each level begins


def pool(
    levels: Sequence[Tensor],
    boxes: Tensor,
    canvas: tuple[int, int],
    *,
    size: int = 7,
    samples: int = 2,
) -> Tensor:
    """Pool each box from the level that fits its size: [B * K, channels, size, size].

    Takes feature levels [B, channels, rows, columns], finest first, whose strides on the canvas
    (height, width) are powers of two, and boxes [B, K, 4]. A box uses level
    k = floor(4 + log2(sqrt(w h) / 224) + 1e-6), limited to the existing levels. Each of the
    size x size bins averages samples x samples points, without half-pixel shift. Boxes are clamped
    to the canvas first, so padding may hold anything.
    """
    safe = clamp_to_canvas(boxes.float(), canvas).flatten(0, 1)  # [B * K, 4]
    images = torch.arange(boxes.shape[0], device=boxes.device)
    rows = images[:, None].expand(boxes.shape[:2]).reshape(-1)  # [B * K] the image a box is of
    strides = [stride_of(level, canvas) for level in levels]
    if len(levels) == 1:
        rois = torch.cat([rows[:, None], safe / strides[0]], dim=1)
        return _align(levels[0], rois, size, samples)
    index = level_of(safe, strides)  # [B * K]
    scale = pick([1 / stride for stride in strides], index)[:, None]
    local = safe * scale  # in cells of the box's own level
    channels = levels[0].shape[1]
    kernels = kernels_for(boxes)
    if kernels is not None and channels & (channels - 1) == 0:  # vectors of a power of two
        cells = torch.cat([level.permute(0, 2, 3, 1).flatten(0, 2) for level in levels])
        places = _places(levels, rows, index)
        pooled: Tensor = kernels.pool(cells, local, places, size, samples)
        return pooled
    atlas = pack(levels)
    left = pick([corner[1] for corner in atlas.corners], index)
    top = pick([corner[0] for corner in atlas.corners], index)
    rois = torch.cat([rows[:, None], local + torch.stack([left, top, left, top], 1)], dim=1)
    aligned = _align(atlas.image, rois, size, samples)
    columns = pick([shape[1] for shape in atlas.shapes], index)
    lines = pick([shape[0] for shape in atlas.shapes], index)
    inside_x = _share_inside(local[:, 0], local[:, 2], columns, size, samples)  # [B * K, size]
    inside_y = _share_inside(local[:, 1], local[:, 3], lines, size, samples)
    return aligned * (inside_y[:, None, :, None] * inside_x[:, None, None, :]).to(aligned.dtype)


def _places(levels: Sequence[Tensor], images: Tensor, index: Tensor) -> Tensor:
    """Return for each box the first cell of its map, and the map's rows and columns: [n, 3].

    Takes the image [n] and the index of the level [n] of each box.
    """
    shapes = [(level.shape[-2], level.shape[-1]) for level in levels]
    sizes = [level.shape[0] * level.shape[-2] * level.shape[-1] for level in levels]
    start, rows, columns = (torch.zeros_like(index) for _ in range(3))
    for at, shape in enumerate(shapes):
        is_here = index == at
        start = torch.where(is_here, sum(sizes[:at]), start)
        rows = torch.where(is_here, shape[0], rows)
        columns = torch.where(is_here, shape[1], columns)
    return torch.stack([start + images * rows * columns, rows, columns], dim=1).int()


def level_of(boxes: Tensor, strides: Sequence[int]) -> Tensor:
    """Return the level index of boxes [n, 4], given ascending strides (powers of two): [n]."""
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    level = torch.floor(
        CANONICAL_LEVEL + torch.log2(area.sqrt() / CANONICAL_SIDE_PIXELS) + LEVEL_EPS
    )
    lowest, highest = math.log2(strides[0]), math.log2(strides[-1])
    return (level.nan_to_num(nan=lowest).clamp(lowest, highest) - lowest).long()


def pack(levels: Sequence[Tensor]) -> Atlas:
    """Arrange levels [B, channels, rows, columns] in one map, with repeated borders."""
    shapes = tuple((level.shape[-2], level.shape[-1]) for level in levels)
    (first_rows, first_columns), others = shapes[0], shapes[1:]
    tops = [sum(rows + BORDER_CELLS for rows, _ in others[:at]) for at in range(len(others))]
    corners = ((0, 0), *((top, first_columns + BORDER_CELLS) for top in tops))
    column_width = max(columns + BORDER_CELLS for _, columns in others)
    column_height = sum(rows + BORDER_CELLS for rows, _ in others)
    height = max(first_rows + BORDER_CELLS, column_height)
    first = _add_border(levels[0], height, first_columns + BORDER_CELLS)
    column = torch.cat(
        [
            _add_border(level, level.shape[-2] + BORDER_CELLS, column_width).to(first.dtype)
            for level in levels[1:]
        ],
        dim=-2,
    )
    column = F.pad(column, (0, 0, 0, height - column_height))
    return Atlas(torch.cat([first, column], dim=-1), shapes, corners)


def _add_border(level: Tensor, rows: int, columns: int) -> Tensor:
    """Repeat the last column and row, then fill with zeros up to rows x columns."""
    # Concatenation instead of replication padding, whose gradient is not deterministic.
    right = level[..., -1:].expand(*level.shape[:-1], BORDER_CELLS)
    wide = torch.cat([level, right], dim=-1)
    below = wide[..., -1:, :].expand(*wide.shape[:-2], BORDER_CELLS, wide.shape[-1])
    whole = torch.cat([wide, below], dim=-2)
    return F.pad(whole, (0, columns - whole.shape[-1], 0, rows - whole.shape[-2]))


def _share_inside(start: Tensor, end: Tensor, length: Tensor, size: int, samples: int) -> Tensor:
    """Return the share of each bin's sample points that are not beyond `length`, [n, size].

    A box thinner than one cell counts as one cell wide, which may reach beyond the map, where
    RoIAlign reads zero. Near its end the map is constant, so the share is an exact factor.
    """
    bins = torch.arange(size, device=start.device)
    points = torch.arange(samples, device=start.device) + 0.5
    width = (end - start).clamp(min=1)[:, None, None] / size  # of a bin
    at = start[:, None, None] + bins[:, None] * width + points * width / samples
    return (at <= length[:, None, None]).float().mean(-1)


def _align(image: Tensor, rois: Tensor, size: int, samples: int) -> Tensor:
    pooled: Tensor = roi_align(
        image, rois, output_size=(size, size), spatial_scale=1.0, sampling_ratio=samples
    )
    return pooled


def pick(values: Sequence[float], index: Tensor) -> Tensor:
    """Look up values[index] without a copy to the device, for few values; [n] float."""
    total = torch.zeros(index.shape, device=index.device)
    for position, value in enumerate(values):
        total = torch.where(index == position, float(value), total)
    return total


def stride_of(level: Tensor, canvas: tuple[int, int]) -> int:
    """Return the stride of a level in pixels of the canvas, a power of two."""
    return int(2 ** round(math.log2(canvas[0] / level.shape[-2])))
