"""Triton kernels: RoIAlign on channels-last maps, suppression of boxes, and biased ReLU.

They compute the results of `pooling`, `nms` and `folding` without the intermediate tensors of
PyTorch's operations. `gpu.kernels_for` returns this module where it can be used.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64  # boxes per side of the matrix that one program compares
WARPS = 2  # per program
ELEMENTS = 1024  # of a map, per program


@triton.jit
def _between(at, length):
    """Return the cells around a point, its position between them, and whether it counts."""
    counts = (at >= -1.0) & (at <= length)
    at = tl.maximum(at, 0.0)
    low = at.to(tl.int32)
    is_last = low >= length - 1
    low = tl.where(is_last, length - 1, low)
    high = tl.where(is_last, length - 1, low + 1)
    share = tl.where(is_last, 0.0, at - low)
    return low, high, share, counts


@triton.jit
def _pool_forward(
    cells,
    boxes,
    places,
    out,
    CHANNELS: tl.constexpr,
    SIZE: tl.constexpr,
    SAMPLES: tl.constexpr,
):
    box, bin = tl.program_id(0).to(tl.int64), tl.program_id(1)
    x1, y1 = tl.load(boxes + box * 4), tl.load(boxes + box * 4 + 1)
    x2, y2 = tl.load(boxes + box * 4 + 2), tl.load(boxes + box * 4 + 3)
    first = tl.load(places + box * 3).to(tl.int64)
    rows, columns = tl.load(places + box * 3 + 1), tl.load(places + box * 3 + 2)
    width, height = tl.maximum(x2 - x1, 1.0) / SIZE, tl.maximum(y2 - y1, 1.0) / SIZE
    channel = tl.arange(0, CHANNELS)
    total = tl.zeros([CHANNELS], tl.float32)
    for i in tl.static_range(SAMPLES):
        y = y1 + (bin // SIZE) * height + (i + 0.5) * height / SAMPLES
        top, bottom, down, counts_y = _between(y, rows)
        for j in tl.static_range(SAMPLES):
            x = x1 + (bin % SIZE) * width + (j + 0.5) * width / SAMPLES
            left, right, over, counts_x = _between(x, columns)
            weight = tl.where(counts_y & counts_x, 1.0, 0.0)
            above, below = first + top * columns, first + bottom * columns
            a = tl.load(cells + (above + left) * CHANNELS + channel).to(tl.float32)
            b = tl.load(cells + (above + right) * CHANNELS + channel).to(tl.float32)
            c = tl.load(cells + (below + left) * CHANNELS + channel).to(tl.float32)
            d = tl.load(cells + (below + right) * CHANNELS + channel).to(tl.float32)
            upper, lower = (1 - over) * a + over * b, (1 - over) * c + over * d
            total += weight * ((1 - down) * upper + down * lower)
    mean = total / (SAMPLES * SAMPLES)
    tl.store(out + (box * SIZE * SIZE + bin) * CHANNELS + channel, mean)


@triton.jit
def _pool_backward(
    gradient,
    boxes,
    places,
    cells,
    CHANNELS: tl.constexpr,
    SIZE: tl.constexpr,
    SAMPLES: tl.constexpr,
):
    box, bin = tl.program_id(0).to(tl.int64), tl.program_id(1)
    x1, y1 = tl.load(boxes + box * 4), tl.load(boxes + box * 4 + 1)
    x2, y2 = tl.load(boxes + box * 4 + 2), tl.load(boxes + box * 4 + 3)
    first = tl.load(places + box * 3).to(tl.int64)
    rows, columns = tl.load(places + box * 3 + 1), tl.load(places + box * 3 + 2)
    width, height = tl.maximum(x2 - x1, 1.0) / SIZE, tl.maximum(y2 - y1, 1.0) / SIZE
    channel = tl.arange(0, CHANNELS)
    slope = tl.load(gradient + (box * SIZE * SIZE + bin) * CHANNELS + channel).to(tl.float32)
    slope = slope / (SAMPLES * SAMPLES)
    for i in tl.static_range(SAMPLES):
        y = y1 + (bin // SIZE) * height + (i + 0.5) * height / SAMPLES
        top, bottom, down, counts_y = _between(y, rows)
        for j in tl.static_range(SAMPLES):
            x = x1 + (bin % SIZE) * width + (j + 0.5) * width / SAMPLES
            left, right, over, counts_x = _between(x, columns)
            part = slope * tl.where(counts_y & counts_x, 1.0, 0.0)
            above, below = first + top * columns, first + bottom * columns
            a, b = (1 - down) * (1 - over), (1 - down) * over
            c, d = down * (1 - over), down * over
            tl.atomic_add(cells + (above + left) * CHANNELS + channel, a * part, sem="relaxed")
            tl.atomic_add(cells + (above + right) * CHANNELS + channel, b * part, sem="relaxed")
            tl.atomic_add(cells + (below + left) * CHANNELS + channel, c * part, sem="relaxed")
            tl.atomic_add(cells + (below + right) * CHANNELS + channel, d * part, sem="relaxed")


@triton.jit
def _activate_forward(
    features,
    shift,
    residual,
    out,
    number,
    CHANNELS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_inside = at < number
    value = tl.load(features + at, is_inside, 0.0).to(tl.float32)
    value += tl.load(shift + at % CHANNELS)
    if HAS_RESIDUAL:
        value += tl.load(residual + at, is_inside, 0.0).to(tl.float32)
    tl.store(out + at, tl.maximum(value, 0.0), is_inside)


@triton.jit
def _activate_backward(gradient, out, result, number, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_inside = at < number
    is_on = tl.load(out + at, is_inside, 0.0).to(tl.float32) > 0
    slope = tl.load(gradient + at, is_inside, 0.0).to(tl.float32)
    tl.store(result + at, tl.where(is_on, slope, 0.0), is_inside)


@triton.jit
def _suppress(
    boxes,
    groups,
    out,
    number,
    overlap,
    GROUPED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    image = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    at_i, at_j = boxes + (image * number + i) * 4, boxes + (image * number + j) * 4
    is_row, is_column = i < number, j < number
    ax1, ay1 = tl.load(at_i, is_row, 0.0)[:, None], tl.load(at_i + 1, is_row, 0.0)[:, None]
    ax2, ay2 = tl.load(at_i + 2, is_row, 0.0)[:, None], tl.load(at_i + 3, is_row, 0.0)[:, None]
    bx1, by1 = tl.load(at_j, is_column, 0.0)[None, :], tl.load(at_j + 1, is_column, 0.0)[None, :]
    bx2, by2 = (
        tl.load(at_j + 2, is_column, 0.0)[None, :],
        tl.load(at_j + 3, is_column, 0.0)[None, :],
    )
    width = tl.maximum(tl.minimum(ax2, bx2) - tl.maximum(ax1, bx1), 0.0)
    height = tl.maximum(tl.minimum(ay2, by2) - tl.maximum(ay1, by1), 0.0)
    shared = width * height
    union = (ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - shared
    is_over = (shared / union > overlap) & (i[:, None] < j[None, :])
    if GROUPED:
        own = tl.load(groups + image * number + i, is_row, 0)[:, None]
        is_over = is_over & (own == tl.load(groups + image * number + j, is_column, 0)[None, :])
    place = out + (image * number + i)[:, None] * number + j[None, :]
    tl.store(place, is_over.to(tl.float32), is_row[:, None] & is_column[None, :])


def suppressors(boxes: Tensor, groups: Tensor | None, overlap: float, dtype: torch.dtype) -> Tensor:
    """Return 1 where box i precedes box j, is in its group and overlaps it, else 0: [B, n, n]."""
    images, number = boxes.shape[:2]
    out = torch.empty(images, number, number, device=boxes.device, dtype=dtype)
    blocks = triton.cdiv(number, BLOCK)
    contiguous = boxes.float().contiguous()
    contiguous_groups = contiguous if groups is None else groups.contiguous()
    if out.numel():
        _suppress[(images, blocks, blocks)](
            contiguous, contiguous_groups, out, number, overlap, groups is not None, BLOCK
        )
    return out


class _Activated(torch.autograd.Function):
    """The function relu(features + shift + residual) of channels-last maps, with its gradient."""

    @staticmethod
    def forward(context: Any, features: Tensor, shift: Tensor, residual: Tensor | None) -> Tensor:
        out, number = torch.empty_like(features), features.numel()
        _activate_forward[(triton.cdiv(number, ELEMENTS),)](
            features,
            shift,
            features if residual is None else residual,
            out,
            number,
            features.shape[1],
            residual is not None,
            ELEMENTS,
        )
        context.save_for_backward(out)
        context.has_residual = residual is not None
        return out

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (out,) = context.saved_tensors
        slopes = gradient.contiguous(memory_format=torch.channels_last)
        result, number = torch.empty_like(out), out.numel()
        _activate_backward[(triton.cdiv(number, ELEMENTS),)](slopes, out, result, number, ELEMENTS)
        return result, None, result if context.has_residual else None


def activate(features: Tensor, shift: Tensor, residual: Tensor | None = None) -> Tensor:
    """Compute relu(features + shift + residual) for maps [B, C, rows, columns] and shift [C].

    The shift has no gradient. Features and residual are converted to the channels-last layout.
    """
    layout = torch.channels_last
    contiguous_residual = None if residual is None else residual.contiguous(memory_format=layout)
    out: Tensor = _Activated.apply(
        features.contiguous(memory_format=layout), shift, contiguous_residual
    )
    return out


class _Pooled(torch.autograd.Function):
    """The RoIAlign of boxes, each on its own map, with its gradient."""

    @staticmethod
    def forward(
        context: Any, cells: Tensor, boxes: Tensor, places: Tensor, size: int, samples: int
    ) -> Tensor:
        number, channels = len(boxes), cells.shape[1]
        out = torch.empty(
            number, size, size, channels, device=cells.device, dtype=cells.dtype
        ).permute(0, 3, 1, 2)
        if number:
            _pool_forward[(number, size * size)](
                cells, boxes, places, out, channels, size, samples, num_warps=WARPS
            )
        context.save_for_backward(boxes, places)
        context.numbers = (cells.shape, cells.dtype, size, samples)
        return out

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        boxes, places = context.saved_tensors
        shape, dtype, size, samples = context.numbers
        cells = torch.zeros(shape, device=gradient.device)  # summed up in float32
        slopes = gradient.contiguous(memory_format=torch.channels_last)
        if len(boxes):
            _pool_backward[(len(boxes), size * size)](
                slopes, boxes, places, cells, shape[1], size, samples, num_warps=WARPS
            )
        return cells.to(dtype), None, None, None, None


def pool(cells: Tensor, boxes: Tensor, places: Tensor, size: int, samples: int) -> Tensor:
    """Pool boxes [n, 4] into [n, channels, size, size], with a gradient to the cells.

    Takes cells [m, channels] of all maps, row by row; boxes in cells of their map; and places
    [n, 3] int32, for each box the first cell of its map and the map's rows and columns.
    """
    out: Tensor = _Pooled.apply(cells, boxes.contiguous(), places.contiguous(), size, samples)
    return out
