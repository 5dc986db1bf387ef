"""Anchors by hand and against torchvision's generator."""

import pytest
import torch
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.image_list import ImageList

from boxmend.detector.anchors import anchors, cell_anchors

CPU = torch.device("cpu")


def test_a_cell_holds_one_anchor_for_each_ratio_and_size() -> None:
    # size 32, ratio 1: half extents 16. Ratio 4: w = 32/2, h = 32*2, halves 8 and 32.
    # size 10, ratio 1: halves 5. Ratio 4: w = 5, h = 20, halves 2.5 -> 2 (to even) and 10.
    expected = [[-16, -16, 16, 16], [-5, -5, 5, 5], [-8, -32, 8, 32], [-2, -10, 2, 10]]
    assert cell_anchors((32, 10), (1.0, 4.0)).tolist() == expected


def test_cells_are_a_stride_apart_row_by_row_and_levels_follow_each_other() -> None:
    made = anchors((32, 64), [(2, 2), (1, 1)], [(8,), (16,)], (1.0,), CPU)
    expected = [
        [-4, -4, 4, 4],  # row 0, column 0
        [28, -4, 36, 4],  # columns are 64 / 2 = 32 apart
        [-4, 12, 4, 20],  # rows are 32 / 2 = 16 apart
        [28, 12, 36, 20],
        [-8, -8, 8, 8],  # the next level
    ]
    assert made.tolist() == expected


@pytest.mark.parametrize("canvas", [(96, 128), (32, 32), (320, 224)])
def test_anchors_equal_torchvisions(canvas: tuple[int, int]) -> None:
    shapes = [(-(-canvas[0] // s), -(-canvas[1] // s)) for s in (4, 8, 16, 32, 64)]
    sizes, ratios = ((32,), (64,), (128,), (256,), (512,)), (0.5, 1.0, 2.0)
    batch = torch.zeros(1, 3, *canvas)
    maps = [torch.zeros(1, 1, *shape) for shape in shapes]
    theirs = AnchorGenerator(sizes, (ratios,) * 5)(ImageList(batch, [canvas]), maps)[0]
    assert torch.equal(anchors(canvas, shapes, sizes, ratios, CPU), theirs)


def test_anchors_are_computed_once_and_serve_training_after_inference() -> None:
    with torch.inference_mode():
        first = anchors((64, 96), [(7, 7)], [(9,)], (1.0,), CPU)
    assert anchors((64, 96), [(7, 7)], [(9,)], (1.0,), CPU) is first
    assert not first.is_inference()
