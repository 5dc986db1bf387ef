"""Pooling from the atlas against torchvision's pooling level by level."""

import pytest
import torch
from torch import Tensor
from torchvision.ops import MultiScaleRoIAlign

from boxmend.detector.pooling import level_of, pack, pool
from tests.detector.detector_scenes import random_boxes

STRIDES = (4, 8, 16, 32)


def pyramid(canvas: tuple[int, int], images: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [
        torch.randn(
            images, 3, canvas[0] // stride, canvas[1] // stride, generator=generator
        ).requires_grad_()
        for stride in STRIDES
    ]


def theirs(levels: list[Tensor], boxes: Tensor, canvas: tuple[int, int]) -> Tensor:
    pooler = MultiScaleRoIAlign(["0", "1", "2", "3"][: len(levels)], 7, 2)
    maps = {str(name): level for name, level in enumerate(levels)}
    pooled: Tensor = pooler(maps, list(boxes), [canvas] * len(boxes))
    return pooled


def boxes_of_all_sizes(canvas: tuple[int, int]) -> Tensor:
    height, width = canvas
    edges = torch.tensor(
        [
            [0.0, 0, width, height],  # everything
            [width - 3, 0, width, height],  # thinner than a cell, at the right border
            [0, height - 1.5, width, height],  # the same at the bottom
            [width - 0.5, height - 0.5, width, height],  # in the last corner
            [0, 0, 0.002, 0.002],
            [width, height, width, height],  # no extent at all
            [width / 2, 0, width, height / 2],
        ]
    )
    sets = [torch.cat([random_boxes(60, canvas, seed, smallest=1), edges]) for seed in range(2)]
    return torch.stack(sets)


@pytest.mark.parametrize(
    ("side", "level"),
    [(10, 0), (111.99, 0), (112, 1), (223.9, 1), (224, 2), (448, 3), (2000, 3), (0, 0)],
)
def test_a_box_twice_as_large_is_pooled_one_level_higher(side: float, level: int) -> None:
    # floor(4 + log2(side / 224)): 112 -> 3, stride 8; 224 -> 4, stride 16; 448 -> 5, stride 32
    box = torch.tensor([[3.0, 4, 3 + side, 4 + side]])
    assert level_of(box, STRIDES).item() == level


def test_the_atlas_holds_every_level_with_its_last_row_and_column_repeated() -> None:
    levels = [torch.tensor([[[[1.0, 2], [3, 4], [5, 6]]]]), torch.tensor([[[[7.0]]]])]
    atlas = pack(levels)
    assert atlas.corners == ((0, 0), (0, 4))
    assert atlas.image[0, 0].tolist() == [
        [1, 2, 2, 2, 7, 7, 7],
        [3, 4, 4, 4, 7, 7, 7],
        [5, 6, 6, 6, 7, 7, 7],
        [5, 6, 6, 6, 0, 0, 0],
        [5, 6, 6, 6, 0, 0, 0],
    ]


@pytest.mark.parametrize("canvas", [(96, 128), (512, 640), (64, 32)])
def test_pooling_equals_torchvisions_for_all_boxes_in_the_image(canvas: tuple[int, int]) -> None:
    levels, boxes = pyramid(canvas), boxes_of_all_sizes(canvas)
    ours = pool(levels, boxes, canvas)
    tolerance = 1e-5 if max(canvas) < 200 else 1e-4  # float32 cells grow with the coordinates
    torch.testing.assert_close(ours, theirs(levels, boxes, canvas), atol=tolerance, rtol=1e-5)


def test_boxes_of_every_level_were_among_those_compared() -> None:
    boxes = boxes_of_all_sizes((512, 640)).flatten(0, 1)
    assert set(level_of(boxes, STRIDES).tolist()) == {0, 1, 2, 3}


def test_gradients_equal_torchvisions() -> None:
    canvas = (288, 320)
    levels, boxes = pyramid(canvas), boxes_of_all_sizes(canvas)
    weights = torch.randn(2 * boxes.shape[1], 3, 7, 7)
    ours = torch.autograd.grad((pool(levels, boxes, canvas) * weights).sum(), levels)
    expected = torch.autograd.grad((theirs(levels, boxes, canvas) * weights).sum(), levels)
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_a_single_level_is_pooled_as_it_is() -> None:
    canvas = (96, 128)
    levels, boxes = pyramid(canvas)[:1], boxes_of_all_sizes(canvas)
    torch.testing.assert_close(pool(levels, boxes, canvas), theirs(levels, boxes, canvas))


@pytest.mark.parametrize("number_of_levels", [1, 4])
def test_invalid_padding_rows_give_finite_values(number_of_levels: int) -> None:
    canvas = (96, 128)
    levels = pyramid(canvas)[:number_of_levels]
    infinite, nan = float("inf"), float("nan")
    rubbish = torch.tensor([[nan] * 4, [-infinite, 0, infinite, nan], [1e9, -1e9, -5, 3]])
    boxes = torch.cat([random_boxes(4, canvas, 0), rubbish]).expand(2, 7, 4)
    pooled = pool(levels, boxes, canvas)
    assert pooled.isfinite().all()
    torch.testing.assert_close(
        pooled.view(2, 7, 3, 7, 7)[:, :4].flatten(0, 1), pool(levels, boxes[:, :4], canvas)
    )
