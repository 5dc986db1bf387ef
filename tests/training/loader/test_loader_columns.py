"""The role of each annotation: trained on, ignored, background, or left out."""

import math
from pathlib import Path

import pytest
import torch

from boxmend.data.dataset import UNKNOWN
from boxmend.training.loader import ImageSize, LoaderOptions
from boxmend.training.loader.columns import Difficult
from tests.training.loader.loader_data import Box, dataset_with, loader, only

# Images of 64 x 64 become 32 x 32: 2 pixels of the image are the least that a box may have.
NAN, INF = math.nan, math.inf
ODD_BOXES: list[tuple[str, Box, list[float], bool]] = [
    ("just large enough", (4, 4, 6, 6), [2, 2, 3, 3], True),
    ("too narrow", (4, 4, 5.9, 60), [2, 2, 2.95, 30], False),
    ("too low", (4, 4, 60, 5.9), [2, 2, 30, 2.95], False),
    ("over the edge", (-8, 32, 40, 90), [0, 16, 20, 32], True),
    ("narrow once clipped", (-8, 0, 1, 64), [0, 0, 0.5, 32], False),
    ("outside", (70, 70, 90, 90), [32, 32, 32, 32], False),
    ("flipped", (40, 4, 20, 30), [20, 2, 20, 15], False),
    ("not a number", (NAN, 0, 20, 20), [0, 0, 0, 0], False),
    ("without end", (0, 0, INF, 20), [0, 0, 0, 0], False),
]


@pytest.mark.parametrize(
    ("box", "expected", "is_box"), [odd[1:] for odd in ODD_BOXES], ids=[odd[0] for odd in ODD_BOXES]
)
def test_degenerate_boxes_are_ignored_finite_and_inside(
    box: Box, expected: list[float], is_box: bool, tmp_path: Path
) -> None:
    dataset = dataset_with(tmp_path, [(64, 64)], [(0, box)])
    batch = only(loader(dataset, image_size=ImageSize(32)).in_order(1))
    torch.testing.assert_close(batch.boxes[0, 0], torch.tensor(expected, dtype=torch.float32))
    assert batch.is_box.tolist() == [[is_box]]
    assert batch.is_ignored.tolist() == [[not is_box]]
    assert batch.rows.tolist() == [[0]]


@pytest.mark.parametrize(
    ("difficult", "ignored"),
    [("ignore", [False, True, True, True, True]), ("background", [False, True, False, True, True])],
)
def test_crowd_and_difficult_are_not_learnt_from(
    difficult: Difficult, ignored: list[bool], tmp_path: Path
) -> None:
    # plain, crowd, difficult, both, of a label that is not declared
    dataset = dataset_with(tmp_path, [(64, 64)], [(0, (4, 4, 20, 20))] * 5)
    dataset.is_crowd[[1, 3]] = True
    dataset.is_difficult[[2, 3]] = True
    dataset.labels[:] = [2, 1, 1, 1, UNKNOWN]
    batch = only(loader(dataset, options=LoaderOptions(difficult=difficult)).in_order(1))
    assert batch.is_box.tolist() == [[True, False, False, False, False]]
    assert batch.is_ignored.tolist() == [ignored]
    assert batch.rows.tolist() == [[0, 1, 2, 3, 4]]
    assert batch.labels.tolist() == [[2, 1, 1, 1, 0]]


def test_annotations_of_no_image_are_left_out(tmp_path: Path) -> None:
    boxes: list[tuple[int, Box]] = [(UNKNOWN, (0, 0, 9, 9)), (1, (4, 4, 20, 20))]
    batch = only(loader(dataset_with(tmp_path, [(64, 64)] * 2, boxes)).in_order(2))
    assert batch.rows.tolist() == [[-1], [1]]
