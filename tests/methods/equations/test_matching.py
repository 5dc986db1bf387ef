"""Center matching against numbers worked out on paper; xyxy boxes, extent is W + H."""

import math

import pytest
import torch
from torch import Tensor

from boxmend.detector.boxes import inert_boxes
from boxmend.methods.equations import (
    alpha_from_rate,
    candidate_boxes,
    candidate_mask,
    center_distance,
    center_fitness,
    extent_mismatch,
    matched_boxes,
    top_candidates,
    top_proposals,
)

ANNOTATION = [10.0, 10, 30, 30]  # center (20, 20), extent 40
PROPOSALS = [
    #                       center    extent   D      C                 fit
    [10.0, 10, 30, 30],  # (20, 20)   40       0      0                 1
    [3.0, 4, 43, 44],  #   (23, 24)   80       5/80   |40/80 - 1|       0.8875
    [0.0, 0, 40, 40],  #   (20, 20)   80       0      |40/80 - 1|       0.95
    [15.0, 15, 25, 25],  # (20, 20)   20       0      |40/20 - 1|       0.9
    [14.0, 2, 34, 46],  #  (24, 24)   64       √32/64 |40/64 - 1|       0.874112
]
DISTANCES = [0, 0.0625, 0, 0, 0.0883883]
MISMATCHES = [0, 0.5, 0.5, 1, 0.375]
FITNESS = [1, 0.8875, 0.95, 0.9, 0.8741117]


def one_image(*rows: list[float]) -> Tensor:
    return torch.tensor([list(rows)])


def test_distance_mismatch_and_fitness_equal_the_hand_computed_values() -> None:
    boxes, proposals = one_image(ANNOTATION), one_image(*PROPOSALS)
    expected = [torch.tensor([[row]]).float() for row in (DISTANCES, MISMATCHES, FITNESS)]
    torch.testing.assert_close(center_distance(boxes, proposals), expected[0])
    torch.testing.assert_close(extent_mismatch(boxes, proposals), expected[1])
    torch.testing.assert_close(center_fitness(boxes, proposals), expected[2])


def test_gamma_weighs_the_mismatch_alone() -> None:
    fitness = center_fitness(one_image(ANNOTATION), one_image(PROPOSALS[1]), gamma=0.4)
    assert fitness.item() == pytest.approx(1 - 5 / 80 - 0.4 * 0.5)


def test_the_proposal_and_not_the_box_sets_the_scale() -> None:
    wide, small = [0.0, 0, 60, 20], [33.0, 6, 43, 16]  # extents 80 and 20, centers 8 and 1 apart
    distance = math.sqrt(8**2 + 1**2)
    assert center_distance(one_image(wide), one_image(small)).item() == pytest.approx(distance / 20)
    assert center_distance(one_image(small), one_image(wide)).item() == pytest.approx(distance / 80)
    assert extent_mismatch(one_image(wide), one_image(small)).item() == pytest.approx(3)
    assert extent_mismatch(one_image(small), one_image(wide)).item() == pytest.approx(0.75)


def test_candidates_lie_strictly_above_the_threshold() -> None:
    fitness = torch.tensor([[[1.0, 0.8875, 0.95, 0.5]]])
    is_box, is_proposal = torch.ones(1, 1).bool(), torch.ones(1, 4).bool()
    mask = candidate_mask(fitness, is_box, is_proposal, threshold=0.95)
    assert mask.tolist() == [[[True, False, False, False]]]
    mask = candidate_mask(fitness, is_box, is_proposal, threshold=0.9)
    assert mask.tolist() == [[[True, False, True, False]]]


def test_padding_never_matches_even_when_it_holds_a_perfect_box() -> None:
    boxes = one_image(ANNOTATION, ANNOTATION, [math.nan] * 4)
    proposals = one_image(*PROPOSALS, ANNOTATION, [math.inf] * 4)
    is_box = torch.tensor([[True, False, False]])
    is_proposal = torch.tensor([[True] * 5 + [False] * 2])
    mask = candidate_mask(center_fitness(boxes, proposals), is_box, is_proposal, threshold=0.89)
    expected = [True, False, True, True, False, False, False]
    assert mask.tolist() == [[expected, [False] * 7, [False] * 7]]


def test_the_candidates_of_highest_objectness_are_kept_best_first() -> None:
    is_candidate = torch.tensor([[[True, True, False, True], [False, False, True, False]]])
    objectness = torch.tensor([[0.3, 0.8, 0.9, 0.5]])
    places, is_kept = top_candidates(is_candidate, objectness, count=2)
    assert places.tolist() == [[[1, 3], [2, 0]]]
    assert is_kept.tolist() == [[[True, True], [True, False]]]


def test_top_proposals_are_sorted_and_filled_up_with_inert_padding() -> None:
    proposals = one_image([1.0, 1, 2, 2], [2.0, 2, 3, 3], [math.nan] * 4)
    objectness = torch.tensor([[0.1, 0.4, math.nan]])
    is_proposal = torch.tensor([[True, True, False]])
    top, scores, is_top = top_proposals(proposals, objectness, is_proposal, count=4)
    assert top.tolist() == [[[2, 2, 3, 3], [1, 1, 2, 2], [0, 0, 1, 1], [0, 0, 1, 1]]]
    assert scores.tolist() == [[pytest.approx(0.4), pytest.approx(0.1), 0, 0]]
    assert is_top.tolist() == [[True, True, False, False]]


def test_only_the_top_proposals_are_considered() -> None:
    proposals = one_image(*PROPOSALS[:3])
    objectness, is_proposal = torch.tensor([[0.1, 0.9, 0.5]]), torch.ones(1, 3).bool()
    top, _, is_top = top_proposals(proposals, objectness, is_proposal, count=2)
    assert top.tolist() == [[PROPOSALS[1], PROPOSALS[2]]]
    assert is_top.all()


def test_candidate_boxes_are_looked_up_in_their_own_image() -> None:
    proposals = torch.arange(16.0).reshape(2, 2, 4)
    places = torch.tensor([[[1, 0]], [[0, 0]]])
    is_candidate = torch.tensor([[[True, True]], [[True, False]]])
    boxes = candidate_boxes(proposals, places, is_candidate)
    assert boxes.tolist() == [
        [[[4, 5, 6, 7], [0, 1, 2, 3]]],
        [[[8, 9, 10, 11], [0, 0, 1, 1]]],
    ]


def test_a_box_is_pulled_towards_the_first_candidate() -> None:
    boxes = one_image([10.0, 20, 30, 40])
    candidates = torch.tensor([[[[20.0, 20, 50, 80], [0.0, 0, 9, 9]]]])
    matched = matched_boxes(boxes, candidates, torch.tensor([[[True, True]]]), alpha=0.4)
    # 0.4 * (20, 20, 50, 80) + 0.6 * (10, 20, 30, 40)
    torch.testing.assert_close(matched, one_image([14.0, 20, 38, 56]))


def test_a_box_without_candidates_is_unchanged_beside_invalid_padding() -> None:
    boxes = one_image([10.0, 20, 30, 40])
    candidates = torch.full((1, 1, 2, 4), math.nan)
    matched = matched_boxes(boxes, candidates, torch.zeros(1, 1, 2).bool(), alpha=0.4)
    assert matched.tolist() == boxes.tolist()


def test_padding_becomes_the_unit_box() -> None:
    boxes = one_image([1.0, 2, 3, 4], [math.nan, math.inf, 0, 0])
    inert = inert_boxes(boxes, torch.tensor([[True, False]]))
    assert inert.tolist() == [[[1, 2, 3, 4], [0, 0, 1, 1]]]


@pytest.mark.parametrize(
    ("rate", "alpha"), [(0, 0.2), (0.2, 0.2), (0.3, 0.3), (0.4, 0.4), (0.6, 0.4)]
)
def test_alpha_follows_the_rate_within_the_published_range(rate: float, alpha: float) -> None:
    assert alpha_from_rate(rate) == alpha
