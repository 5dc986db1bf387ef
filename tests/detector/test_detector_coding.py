"""Deltas by hand, and boxes kept inside their images."""

import math

import pytest
import torch
from torchvision.models.detection._utils import BoxCoder
from torchvision.ops import clip_boxes_to_image

from boxmend.detector.boxes import clamp_to_canvas, clip, is_large
from boxmend.detector.coding import decode, encode

REFERENCE = torch.tensor([10.0, 20, 30, 60])  # centre (20, 40), 20 x 40
BOX = torch.tensor([15.0, 20, 55, 40])  # centre (35, 30), 40 x 20
# dx = (35 - 20) / 20, dy = (30 - 40) / 40, dw = log(40 / 20), dh = log(20 / 40)
DELTAS = torch.tensor([0.75, -0.25, math.log(2), -math.log(2)])
WEIGHTS = (10.0, 8.0, 5.0, 3.0)


def test_deltas_equal_the_hand_computed_values() -> None:
    torch.testing.assert_close(encode(BOX, REFERENCE), DELTAS)
    weighted = DELTAS * torch.tensor(WEIGHTS)
    torch.testing.assert_close(encode(BOX, REFERENCE, WEIGHTS), weighted)
    torch.testing.assert_close(decode(DELTAS, REFERENCE), BOX)
    torch.testing.assert_close(decode(weighted, REFERENCE, WEIGHTS), BOX)


def test_a_delta_enlarges_a_box_at_most_62_and_a_half_times() -> None:
    grown = decode(torch.tensor([0.0, 0, 50, 100]), torch.tensor([0.0, 0, 2, 4]))
    # 62.5 * 2 = 125 wide around x = 1, 62.5 * 4 = 250 high around y = 2
    torch.testing.assert_close(grown, torch.tensor([-61.5, -123, 63.5, 127]))
    whole = decode(torch.tensor([0.0, 0, 250, 0]), torch.tensor([0.0, 0, 2, 4]), WEIGHTS)
    torch.testing.assert_close(whole[2] - whole[0], torch.tensor(125.0))  # after the weight


def test_decoding_equals_torchvisions_and_broadcasts_over_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    boxes = torch.rand(2, 5, 4, generator=generator) * 50
    boxes[..., 2:] += boxes[..., :2] + 1
    deltas = torch.randn(2, 5, 3, 4, generator=generator) * 4
    theirs = BoxCoder(WEIGHTS).decode(deltas.view(10, 12), [boxes.view(10, 4)]).view(2, 5, 3, 4)
    torch.testing.assert_close(decode(deltas, boxes[:, :, None], WEIGHTS), theirs)


def test_boxes_are_cut_off_at_their_own_images_height_and_width() -> None:
    boxes = torch.tensor([[-5.0, -6, 200, 300]]).expand(2, 3, 4)
    clipped = clip(boxes, torch.tensor([[40, 70], [80, 30]]))
    assert clipped[0].tolist() == [[0, 0, 70, 40]] * 3
    assert clipped[1].tolist() == [[0, 0, 30, 80]] * 3
    theirs = clip_boxes_to_image(boxes[0], (40, 70))
    assert torch.equal(clipped[0], theirs)
    by_class = clip(boxes[:, :, None].expand(2, 3, 5, 4), torch.tensor([[40, 70], [80, 30]]))
    assert torch.equal(by_class[:, :, 4], clipped)


def test_invalid_boxes_move_onto_the_canvas_and_valid_boxes_stay() -> None:
    infinite, nan = float("inf"), float("nan")
    boxes = torch.tensor([[1.5, 2, 60, 40], [nan, -infinite, infinite, nan], [-9, 5, 99, 99]])
    tamed = clamp_to_canvas(boxes[None], (40, 60))[0]
    assert tamed.tolist() == [[1.5, 2, 60, 40], [0, 0, 60, 0], [0, 5, 60, 40]]


@pytest.mark.parametrize(
    ("box", "large"),
    [
        ([0.0, 0, 1, 1], True),  # the bound itself is large enough
        ([0.0, 0, 0.99, 5], False),
        ([0.0, 0, 5, 0.99], False),
        ([5.0, 5, 1, 1], False),  # inverted
        ([float("nan"), 0, 5, 5], False),
    ],
)
def test_a_large_box_reaches_the_bound_in_both_directions(box: list[float], large: bool) -> None:
    assert is_large(torch.tensor(box), 1.0).item() is large
