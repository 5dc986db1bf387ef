"""The vote of regressed proposals against numbers worked out on paper."""

import math

import pytest
import torch
from torch import Tensor

from boxmend.detector.boxes import elementwise_iou
from boxmend.methods.equations import expected_scores, vote_weights, voted_boxes

NAN = math.nan
RAW = [0.0, 0, 10, 10]
VOTERS = [
    #                     IoU with RAW
    [0.0, 0, 10, 8],  #   80 / 100 = 0.8
    [0.0, 0, 10, 5],  #   50 / 100 = 0.5
    [0.0, 0, 10, 16],  #  100 / 160 = 0.625
    [0.0, 0, 10, 3],  #   30 / 100 = 0.3: not above 0.3
    [20.0, 0, 30, 10],  # 0
]
SCORES = [0.5, 0.4, 0.9, 1.0, 1.0]
WEIGHTS = [0.5 * math.sqrt(0.8), 0.4 * math.sqrt(0.5), 0.9 * math.sqrt(0.625), 0, 0]


def rows(*boxes: list[float]) -> Tensor:
    return torch.tensor([[list(boxes)]]).float()  # [1, 1, V, 4]


def vote(weights: list[float], keep: float = 0.4, is_voter: list[bool] | None = None) -> Tensor:
    count = len(weights)
    mask = torch.tensor([[is_voter or [True] * count]])
    voters = rows(*VOTERS[:count])
    return voted_boxes(torch.tensor([[RAW]]), voters, torch.tensor([[weights]]), mask, keep)


def test_regions_are_scored_by_all_classes_an_annotation_may_have() -> None:
    q = torch.tensor([[[0.75, 0.25], [0.0, 1.0]]])
    probabilities = torch.tensor([[[0.2, 0.6, 0.2], [0.9, 0.0, 0.1], [0.0, 0.4, 0.6]]])
    # 0.75 * 0.6 + 0.25 * 0.2 = 0.5;  0.25 * 0.1 = 0.025;  0.75 * 0.4 + 0.25 * 0.6 = 0.45
    expected = torch.tensor([[[0.5, 0.025, 0.45], [0.2, 0.1, 0.6]]])
    torch.testing.assert_close(expected_scores(q, probabilities), expected)


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ([0.0, 0, 10, 10], 1),
        ([5.0, 5, 15, 15], 25 / 175),
        ([10.0, 0, 20, 10], 0),  # touching
        ([2.0, 2, 2, 8], 0),  # no area
        ([9.0, 9, 1, 1], 0),  # inverted
    ],
)
def test_overlaps_equal_the_hand_computed_values(box: list[float], expected: float) -> None:
    assert elementwise_iou(torch.tensor(RAW), torch.tensor(box)).item() == pytest.approx(expected)


def test_two_boxes_without_area_do_not_overlap() -> None:
    point = torch.tensor([3.0, 3, 3, 3])
    assert elementwise_iou(point, point).item() == 0


def test_weights_multiply_score_and_closeness() -> None:
    weights = vote_weights(torch.tensor([[RAW]]), rows(*VOTERS), torch.tensor([[SCORES]]))
    torch.testing.assert_close(weights, torch.tensor([[WEIGHTS]]))


def test_the_cluster_of_the_best_is_averaged_and_the_raw_box_keeps_its_share() -> None:
    # The first leads (weight 3). IoU with it: the second 50/80 = 0.625, the third 80/160 = 0.5.
    # Mean of 8 (weight 3) and 5 (weight 1): 7.25; 0.4 * 10 + 0.6 * 7.25 = 8.35
    torch.testing.assert_close(vote([3.0, 1, 2]), torch.tensor([[[0, 0, 10, 8.35]]]))


def test_another_leader_has_another_cluster() -> None:
    # The third leads: IoU with the first 0.5, with the second 0.3125, so it stays alone.
    torch.testing.assert_close(vote([1.0, 1, 2]), torch.tensor([[[0, 0, 10, 0.4 * 10 + 0.6 * 16]]]))


def test_the_exact_minimum_overlap_is_not_above_it() -> None:
    voters = rows([0.0, 0, 10, 10], [0.0, 0, 10, 6])  # IoU 0.6
    is_voter = torch.ones(1, 1, 2).bool()
    boxes, weights = torch.tensor([[RAW]]), torch.tensor([[[2.0, 1]]])
    inside = voted_boxes(boxes, voters, weights, is_voter, 0, cluster_min_iou=0.59)
    torch.testing.assert_close(inside, torch.tensor([[[0, 0, 10, 26 / 3]]]))
    outside = voted_boxes(boxes, voters, weights, is_voter, 0, cluster_min_iou=0.61)
    assert outside.tolist() == [[RAW]]


@pytest.mark.parametrize("keep", [0, 0.4, 1])
def test_without_voters_the_raw_box_stays(keep: float) -> None:
    assert vote([0.0, 0, 0], keep).tolist() == [[RAW]]
    assert vote([3.0, 1, 2], keep, is_voter=[False] * 3).tolist() == [[RAW]]


def test_a_share_of_one_gives_the_raw_box_and_a_share_of_zero_the_vote() -> None:
    assert vote([3.0, 1, 2], keep=1).tolist() == [[RAW]]
    torch.testing.assert_close(vote([3.0, 1, 2], keep=0), torch.tensor([[[0, 0, 10, 7.25]]]))


def test_the_share_may_differ_by_annotation() -> None:
    boxes, voters = torch.tensor([[RAW, RAW]]), rows(VOTERS[0]).expand(1, 2, 1, 4)
    keep = torch.tensor([[1.0, 0.5]])
    blend = voted_boxes(boxes, voters, torch.ones(1, 2, 1), torch.ones(1, 2, 1).bool(), keep)
    assert blend.tolist() == [[[0, 0, 10, 10], [0, 0, 10, 9]]]


def test_invalid_padding_has_no_vote() -> None:
    voters = rows(*VOTERS[:3], [NAN] * 4, RAW)
    weights = torch.tensor([[[3.0, 1, 2, NAN, 99]]])
    is_voter = torch.tensor([[[True, True, True, False, False]]])
    blend = voted_boxes(torch.tensor([[RAW]]), voters, weights, is_voter, 0.4)
    torch.testing.assert_close(blend, torch.tensor([[[0, 0, 10, 8.35]]]))


def test_the_order_of_voters_and_the_batch_do_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    corners = 20 * torch.rand(2, 3, 9, 2, generator=generator)
    voters = torch.cat(
        [corners, corners + 15 + 10 * torch.rand(2, 3, 9, 2, generator=generator)], -1
    )
    boxes = torch.tensor([5.0, 5, 30, 30]).expand(2, 3, 4)
    scores, is_voter = torch.rand(2, 3, 9, generator=generator), torch.ones(2, 3, 9).bool()
    weights = vote_weights(boxes, voters, scores)
    together = voted_boxes(boxes, voters, weights, is_voter, 0.4)
    turned = voted_boxes(boxes, voters.flip(2), weights.flip(2), is_voter, 0.4)
    torch.testing.assert_close(together, turned)
    for image in range(2):
        part = slice(image, image + 1)
        alone = voted_boxes(boxes[part], voters[part], weights[part], is_voter[part], 0.4)
        torch.testing.assert_close(alone, together[part])


def test_no_shape_of_the_vote_depends_on_the_values() -> None:
    boxes, voters = torch.empty(2, 3, 4, device="meta"), torch.empty(2, 3, 9, 4, device="meta")
    scores, is_voter = (
        torch.empty(2, 3, 9, device="meta"),
        torch.empty(2, 3, 9, device="meta").bool(),
    )
    weights = vote_weights(boxes, voters, scores)
    assert voted_boxes(boxes, voters, weights, is_voter, 0.4).shape == (2, 3, 4)


def test_a_voter_with_exactly_the_minimum_overlap_is_not_in_the_cluster() -> None:
    # of 2 x 1 and 1 x 1 the IoU is exactly a half
    raw = torch.tensor([[[0.0, 0, 4, 4]]])
    voters = torch.tensor([[[[0.0, 0, 2, 1], [0, 0, 1, 1]]]])
    weights, is_voter = torch.tensor([[[0.75, 0.25]]]), torch.ones(1, 1, 2).bool()
    alone = voted_boxes(raw, voters, weights, is_voter, 0.0, cluster_min_iou=0.5)
    assert alone.tolist() == [[[0, 0, 2, 1]]]
    both = voted_boxes(raw, voters, weights, is_voter, 0.0, cluster_min_iou=0.49)
    assert both.tolist() == [[[0, 0, 1.75, 1]]]
