"""Pooling with a gradient to the boxes: values against RoIAlign, slopes by hand and by differences.

With size 1 and 2 samples, points lie at a quarter and three quarters of each side, so that a map
that rises evenly is pooled to its value at the middle of the box.
"""

import pytest
import torch
from torch import Tensor
from torchvision.ops import roi_align

from boxmend.detector.differentiable_pooling import pool_with_slopes
from boxmend.detector.pooling import level_of, pool
from tests.detector.detector_scenes import random_boxes

STRIDES = (4, 8, 16, 32)
NAN, INFINITE = float("nan"), float("inf")


def pyramid(canvas: tuple[int, int], kind: torch.dtype = torch.float32) -> list[Tensor]:
    """Random maps of two images, three channels, at all strides."""
    generator = torch.Generator().manual_seed(5)
    shapes = [(2, 3, canvas[0] // stride, canvas[1] // stride) for stride in STRIDES]
    return [torch.randn(shape, generator=generator, dtype=kind) for shape in shapes]


def ramp(rows: int, columns: int, kind: torch.dtype = torch.float32) -> Tensor:
    """A map [1, 1, rows, columns] with the value 3 x + 10 y at column x and row y."""
    x, y = torch.arange(columns, dtype=kind), torch.arange(rows, dtype=kind)
    return (3 * x + 10 * y[:, None])[None, None]


def boxes_of_all_sizes(canvas: tuple[int, int]) -> Tensor:
    height, width = canvas
    edges = [
        [0.0, 0, width, height],  # everything
        [width - 3, 0, width, height],  # thinner than a cell, at the right border
        [0, height - 1.5, width, height],  # the same at the bottom
        [width - 0.5, height - 0.5, width, height],  # in the last corner
        [0, 0, 0.002, 0.002],
        [width, height, width, height],  # no extent at all
    ]
    sets = [
        torch.cat([random_boxes(60, canvas, seed, smallest=1), torch.tensor(edges)])
        for seed in range(2)
    ]
    return torch.stack(sets)


def slopes_of(levels: list[Tensor], boxes: Tensor, canvas: tuple[int, int]) -> Tensor:
    """The gradient of the sum of all that is pooled, size 1, [B, K, 4]."""
    leaf = boxes.clone().requires_grad_()
    pool_with_slopes(levels, leaf, canvas, size=1).sum().backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    return leaf.grad


def test_a_ramp_is_pooled_to_the_middle_of_the_box_and_its_slopes_are_known() -> None:
    # stride 4: the box (8, 4, 24, 16) is (2, 1, 6, 4) in cells, its middle (4, 2.5)
    # value 3 * 4 + 10 * 2.5 = 37; a side moved by a pixel moves the middle by 1/8 of a cell,
    # so the slopes are 3 / 8 for x1 and x2, 10 / 8 for y1 and y2
    levels, box = [ramp(8, 10)], torch.tensor([[[8.0, 4, 24, 16]]])
    pooled = pool_with_slopes(levels, box, (32, 40), size=1)
    assert pooled.shape == (1, 1, 1, 1)
    assert pooled.item() == pytest.approx(37)
    slopes = slopes_of(levels, box, (32, 40))
    torch.testing.assert_close(slopes, torch.tensor([[[0.375, 1.25, 0.375, 1.25]]]))


def test_every_bin_of_a_ramp_has_its_own_slopes() -> None:
    # The same box in 2 x 2 bins. Bin (row, column) lies around the shares 0.25 and 0.75 of a side:
    # columns 2 + 4 * (0.25, 0.75) = 3, 5; rows 1 + 3 * (0.25, 0.75) = 1.75, 3.25
    # values 3 * 3 + 10 * 1.75 = 26.5, 32.5; 41.5, 47.5
    # bin (0, 1) moves with x1 by (1 - 0.75) / 4 cells a pixel, with x2 by 0.75 / 4
    leaf = torch.tensor([[[8.0, 4, 24, 16]]], requires_grad=True)
    pooled = pool_with_slopes([ramp(8, 10)], leaf, (32, 40), size=2)
    torch.testing.assert_close(pooled[0, 0], torch.tensor([[26.5, 32.5], [41.5, 47.5]]))
    (slopes,) = torch.autograd.grad(pooled[0, 0, 0, 1], leaf)
    expected = [3 * 0.25 / 4, 10 * 0.75 / 4, 3 * 0.75 / 4, 10 * 0.25 / 4]
    torch.testing.assert_close(slopes, torch.tensor([[expected]]))


def test_slopes_equal_finite_differences_on_a_ramp() -> None:
    levels, canvas = [ramp(24, 32, torch.float64)], (96, 128)
    box = torch.tensor([[[20.0, 13, 71, 50]]], dtype=torch.float64)
    slopes = slopes_of(levels, box, canvas)[0, 0]
    for side in range(4):
        ends = []
        for moved in (0.5, -0.5):
            other = box.clone()
            other[0, 0, side] += moved
            ends.append(pool_with_slopes(levels, other, canvas, size=1).item())
        assert slopes[side].item() == pytest.approx(ends[0] - ends[1], rel=1e-9)


def test_a_box_of_every_level_has_the_slopes_of_its_own_level() -> None:
    # sides 100, 200, 300 and 500 go to strides 4, 8, 16 and 32; a ramp in cells is flatter in
    # pixels there: half of 3 / stride and of 10 / stride for every side
    canvas = (640, 704)
    levels = [ramp(640 // stride, 704 // stride) for stride in STRIDES]
    boxes = torch.tensor([[[32.0, 64, 32 + side, 64 + side] for side in (100, 200, 300, 500)]])
    assert level_of(boxes[0], STRIDES).tolist() == [0, 1, 2, 3]
    expected = [[1.5 / s, 5 / s, 1.5 / s, 5 / s] for s in STRIDES]
    gradients = slopes_of(levels, boxes, canvas)
    torch.testing.assert_close(gradients, torch.tensor([expected]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("canvas", [(96, 128), (512, 640), (64, 32)])
@pytest.mark.parametrize("number_of_levels", [1, 2, 4])
def test_values_equal_those_of_roi_align(canvas: tuple[int, int], number_of_levels: int) -> None:
    levels, boxes = pyramid(canvas)[:number_of_levels], boxes_of_all_sizes(canvas)
    tolerance = 2e-5 if max(canvas) < 200 else 2e-4  # float32 places grow with the coordinates
    torch.testing.assert_close(
        pool_with_slopes(levels, boxes, canvas), pool(levels, boxes, canvas), atol=tolerance, rtol=0
    )


@pytest.mark.parametrize("stride", STRIDES)
def test_values_of_one_level_equal_torchvisions(stride: int) -> None:
    canvas = (192, 256)
    level = pyramid(canvas, torch.float64)[STRIDES.index(stride)]
    boxes = boxes_of_all_sizes(canvas).double()
    theirs = roi_align(level, list(boxes), 5, 1 / stride, sampling_ratio=3)
    ours = pool_with_slopes([level], boxes, canvas, size=5, samples=3)
    torch.testing.assert_close(ours, theirs)


def test_boxes_of_every_level_were_among_those_compared() -> None:
    boxes = boxes_of_all_sizes((512, 640)).flatten(0, 1)
    assert set(level_of(boxes, STRIDES).tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("number_of_levels", [1, 4])
def test_slopes_are_those_of_a_smooth_map(number_of_levels: int) -> None:
    """Sides are chosen so that no sample point lies on the border of two cells."""
    canvas = (640, 704)
    levels = pyramid(canvas, torch.float64)[:number_of_levels]
    boxes = torch.tensor(
        [[[33.1, 41.3, 98.7, 130.9]], [[57.3, 9.1, 330.7, 402.3]]], dtype=torch.float64
    ).requires_grad_()

    def pool_sides(sides: Tensor) -> Tensor:
        return pool_with_slopes([level[:, :1] for level in levels], sides, canvas, size=2)

    assert torch.autograd.gradcheck(pool_sides, boxes, eps=1e-5, atol=1e-6)


def test_gradients_of_maps_equal_those_of_roi_align() -> None:
    canvas = (96, 128)
    boxes, weights = boxes_of_all_sizes(canvas).double(), torch.rand(132, 3, 7, 7).double()
    collected = []
    for how in (pool_with_slopes, lambda levels, sides, canvas: _in_double(levels, sides)):
        levels = [level.requires_grad_() for level in pyramid(canvas, torch.float64)[:1]]
        total = (how(levels, boxes, canvas) * weights).sum()
        collected.append(torch.autograd.grad(total, levels)[0])
    torch.testing.assert_close(collected[0], collected[1])


def _in_double(levels: list[Tensor], boxes: Tensor) -> Tensor:
    pooled: Tensor = roi_align(levels[0], list(boxes), 7, 1 / STRIDES[0], sampling_ratio=2)
    return pooled


def test_the_size_of_a_box_within_one_cell_has_no_slope() -> None:
    # read as one cell from its corner on: (10, 12) is cell (2.5, 3), the middle (3, 3.5)
    levels, box = [ramp(24, 32)], torch.tensor([[[10.0, 12, 11, 14]]])
    pooled = pool_with_slopes(levels, box, (96, 128), size=1)
    assert pooled.item() == pytest.approx(3 * 3 + 10 * 3.5)
    slopes = slopes_of(levels, box, (96, 128))
    torch.testing.assert_close(slopes, torch.tensor([[[0.75, 2.5, 0, 0]]]))


def test_a_side_beyond_the_canvas_has_no_slope() -> None:
    slopes = slopes_of([ramp(24, 32)], torch.tensor([[[-5.0, 8, 64, 200]]]), (96, 128))
    assert (slopes[0, 0] == 0).tolist() == [True, False, False, True]


@pytest.mark.parametrize("number_of_levels", [1, 4])
def test_invalid_padding_rows_give_finite_values_and_slopes(number_of_levels: int) -> None:
    canvas = (96, 128)
    levels = pyramid(canvas)[:number_of_levels]
    rubbish = torch.tensor([[NAN] * 4, [-INFINITE, 0, INFINITE, NAN], [1e9, -1e9, -5, 3]])
    boxes = torch.cat([random_boxes(4, canvas, 0), rubbish]).expand(2, 7, 4)
    assert pool_with_slopes(levels, boxes, canvas).isfinite().all()
    slopes = slopes_of(levels, boxes, canvas)
    assert slopes.isfinite().all()
    torch.testing.assert_close(slopes[:, :4], slopes_of(levels, boxes[:, :4], canvas))


def test_half_precision_maps_are_read_at_exact_places() -> None:
    # Places in bfloat16 would be off by whole cells here; only the map is rounded.
    canvas = (96, 1024)
    level, boxes = pyramid(canvas)[0].bfloat16(), random_boxes(20, canvas, 3).expand(2, 20, 4)
    pooled = pool_with_slopes([level], boxes, canvas)
    assert pooled.dtype == torch.float32
    torch.testing.assert_close(pooled, pool([level.float()], boxes, canvas), atol=2e-4, rtol=0)


def test_no_boxes_give_an_empty_result() -> None:
    levels = pyramid((96, 128))
    assert pool_with_slopes(levels, torch.zeros(2, 0, 4), (96, 128)).shape == (0, 3, 7, 7)
