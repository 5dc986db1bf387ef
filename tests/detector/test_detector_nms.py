"""Overlaps and suppression: chains by hand, then torchvision's greedy loop as the oracle."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchvision.ops import batched_nms, box_iou

import boxmend.detector.nms as nms
from boxmend.detector.boxes import pairwise_iou
from boxmend.detector.nms import suppress
from tests.detector.detector_scenes import random_boxes


def chain(length: int) -> Tensor:
    """Boxes of which each overlaps its neighbours alone: 10 wide, 4 apart, IoU 6/14; next 2/18."""
    left = torch.arange(length) * 4.0
    zero = torch.zeros(length)
    return torch.stack([left, zero, left + 10, zero + 5], dim=1)[None]


def all_valid(boxes: Tensor) -> Tensor:
    return torch.ones(boxes.shape[:2], dtype=torch.bool)


def test_overlap_equals_the_hand_computed_values() -> None:
    a = torch.tensor([[[0.0, 0, 4, 4], [0, 0, 2, 2]]])
    b = torch.tensor([[[2.0, 1, 6, 4], [8, 8, 9, 9], [0, 0, 4, 4]]])
    # 4x4 and 4x3 share 2x3 = 6: 6 / (16 + 12 - 6). 2x2 in 4x4: 4 / 16.
    expected = [[[6 / 22, 0, 1], [0, 0, 0.25]]]
    torch.testing.assert_close(pairwise_iou(a, b), torch.tensor(expected))


def test_overlaps_equal_torchvisions() -> None:
    a, b = random_boxes(40, (90, 120), 0), random_boxes(30, (90, 120), 1)
    assert torch.equal(pairwise_iou(a[None], b[None])[0], box_iou(a, b))


def test_every_second_box_of_a_chain_survives() -> None:
    keep, is_inexact = suppress(chain(6), all_valid(chain(6)), overlap=0.4)
    assert keep.tolist() == [[True, False, True, False, True, False]]
    assert is_inexact.tolist() == [False]


def test_the_overlap_itself_does_not_suppress() -> None:
    boxes = torch.tensor([[[0.0, 0, 4, 2], [0, 0, 4, 4], [0, 0, 4, 2.5]]])  # IoU 1/2 and 4/5
    keep, _ = suppress(boxes, all_valid(boxes), overlap=0.5)
    assert keep.tolist() == [[True, True, False]]


def test_an_invalid_box_is_not_kept_and_suppresses_nothing() -> None:
    boxes = chain(3)
    boxes = torch.cat([boxes, torch.full((1, 2, 4), float("nan"))], dim=1)
    is_valid = torch.tensor([[False, True, True, False, False]])
    keep, is_inexact = suppress(boxes, is_valid, overlap=0.4)
    assert keep.tolist() == [[False, True, False, False, False]]
    assert not is_inexact.any()


def test_boxes_of_different_groups_do_not_suppress_each_other() -> None:
    boxes = chain(1).expand(1, 4, 4)
    groups = torch.tensor([[0, 1, 0, 2]])
    keep, _ = suppress(boxes, all_valid(boxes), overlap=0.4, groups=groups)
    assert keep.tolist() == [[True, True, False, True]]


@pytest.mark.parametrize(("length", "enough"), [(20, True), (21, True), (22, False), (60, False)])
def test_a_chain_longer_than_the_rounds_raises_the_flag(length: int, enough: bool) -> None:
    # The first round settles two boxes, every further round one more: 20 rounds settle 21.
    boxes = torch.cat([chain(length), torch.zeros(1, length, 4)])
    is_valid = torch.stack([torch.ones(length), torch.zeros(length)]).bool()
    keep, is_inexact = suppress(boxes, is_valid, overlap=0.4, rounds=20)
    assert is_inexact.tolist() == [not enough, False]
    alternating = (torch.arange(length) % 2 == 0).tolist()
    assert (keep[0].tolist() == alternating) is enough


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    number=st.integers(1, 80),
    overlap=st.sampled_from([0.25, 0.5, 0.7]),
    groups=st.integers(1, 4),
)
def test_suppression_equals_torchvisions(
    seed: int, number: int, overlap: float, groups: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    boxes = torch.stack([random_boxes(number, (60, 60), seed + i) for i in range(2)])
    scores = torch.linspace(1, 0.1, number)
    group = torch.randint(groups, (2, number), generator=generator)
    is_valid = torch.rand(2, number, generator=generator) < 0.9
    keep, is_inexact = suppress(boxes, is_valid, overlap=overlap, groups=group, rounds=number)
    assert not is_inexact.any()
    for image in range(2):
        rows = is_valid[image].nonzero()[:, 0]
        theirs = batched_nms(boxes[image, rows], scores[rows], group[image, rows], overlap)
        assert keep[image].nonzero()[:, 0].tolist() == rows[theirs].tolist()


def test_a_batch_larger_than_one_slice_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = torch.stack([random_boxes(30, (60, 60), seed) for seed in range(5)])
    whole, _ = suppress(boxes, all_valid(boxes), overlap=0.5)
    monkeypatch.setattr(nms, "PAIRS_PER_CHUNK", 2000)  # two images of 900 pairs at once
    sliced, _ = suppress(boxes, all_valid(boxes), overlap=0.5)
    assert torch.equal(whole, sliced)
    assert 0 < whole.sum() < whole.numel()
