"""Anchors: the fixed boxes that the region proposal network refines, for all feature levels."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

Shape = tuple[int, int]
Numbers = tuple[float, ...]


def anchors(
    canvas: Shape,
    shapes: Sequence[Shape],
    sizes: Sequence[Numbers],
    ratios: Numbers,
    device: torch.device,
) -> Tensor:
    """Return the anchors of all levels, level after level, [N, 4] xyxy float32.

    Level l has a grid of `shapes[l]` (rows, columns) cells with stride canvas // shape. Each cell
    has one anchor per ratio (height / width) and size, centred at the cell's top left corner, with
    w = size / sqrt(ratio) and h = size * sqrt(ratio), rounded to whole half extents. The order is
    rows, columns, ratios, sizes. The result is cached and shared; do not change it.
    """
    levels = tuple((int(rows), int(columns)) for rows, columns in shapes)
    return _cached_anchors(canvas, levels, tuple(sizes), ratios, device)


@lru_cache(maxsize=64)
def _cached_anchors(
    canvas: Shape,
    shapes: tuple[Shape, ...],
    sizes: tuple[Numbers, ...],
    ratios: Numbers,
    device: torch.device,
) -> Tensor:
    # Not an inference tensor, even if inference calls first, because training uses it too.
    with torch.inference_mode(False), torch.no_grad():
        levels = [
            _level_anchors(canvas, shape, cell_anchors(sizes_here, ratios))
            for shape, sizes_here in zip(shapes, sizes, strict=True)
        ]
        return torch.cat(levels).to(device)


def cell_anchors(sizes: Numbers, ratios: Numbers) -> Tensor:
    """Return the anchors around the origin, [len(ratios) * len(sizes), 4], ratios outermost."""
    scale = torch.tensor(sizes)
    tall = torch.tensor(ratios).sqrt()
    wide: Tensor = 1 / tall
    width = (wide[:, None] * scale).flatten()
    height = (tall[:, None] * scale).flatten()
    return (torch.stack([-width, -height, width, height], dim=1) / 2).round()


def _level_anchors(canvas: Shape, shape: Shape, cell: Tensor) -> Tensor:
    rows = torch.arange(shape[0]) * (canvas[0] // shape[0])
    columns = torch.arange(shape[1]) * (canvas[1] // shape[1])
    y, x = torch.meshgrid(rows, columns, indexing="ij")
    shifts = torch.stack([x, y, x, y], dim=-1).reshape(-1, 1, 4)
    return (shifts + cell).reshape(-1, 4)
