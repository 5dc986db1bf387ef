"""Pseudo-labels, box averaging, clipping, and what discarded annotations still train."""

import math

import pytest
import torch
from torch import Tensor

from boxmend.detector.boxes import clipped_boxes
from boxmend.methods.equations import (
    Judgement,
    averaged_boxes,
    boxes_of_class,
    is_confident,
    pseudo_labels,
    training_roles,
)
from boxmend.methods.equations.correction import Discarded

NAN = math.nan
MATCHED = torch.tensor([[[0.0, 0, 30, 60]]])
REGRESSED = torch.tensor([[[[3.0, 0, 33, 60], [6.0, 3, 30, 66], [90.0, 90, 99, 99]]]])
SCORES = torch.tensor([[[0.2, 0.7, 0.1]]])
OWN = torch.tensor([[[2.0, 4, 40, 80]]])


def test_the_pseudo_label_is_the_best_foreground_class() -> None:
    probabilities = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]])  # background first
    labels, confidence = pseudo_labels(probabilities)
    assert labels.tolist() == [0, 1]
    assert confidence.tolist() == pytest.approx([0.3, 0.6])


def test_confident_is_strictly_above_the_threshold() -> None:
    confidence = torch.tensor([0.49, 0.5, 0.51])
    assert is_confident(confidence).tolist() == [False, False, True]
    assert is_confident(confidence, threshold=0.4).tolist() == [True, True, True]


def test_the_regression_of_the_label_is_picked() -> None:
    regressed = torch.arange(16.0).reshape(1, 2, 2, 4)  # one image, two boxes, two classes
    picked = boxes_of_class(regressed, torch.tensor([[1, 0]]))
    assert picked.tolist() == [[[4, 5, 6, 7], [8, 9, 10, 11]]]


def test_regressions_are_picked_for_every_pair_of_annotation_and_proposal() -> None:
    regressed = torch.arange(16.0).reshape(1, 2, 2, 4)
    labels = torch.tensor([[1, 0, 1]])
    pairs = boxes_of_class(regressed[:, None], labels[:, :, None])  # [1, 3, 2, 4]
    first, second = [[4.0, 5, 6, 7], [12.0, 13, 14, 15]], [[0.0, 1, 2, 3], [8.0, 9, 10, 11]]
    assert pairs.tolist() == [[first, second, first]]


@pytest.mark.parametrize(
    ("is_candidate", "expected"),
    [
        (
            [True, True, True],
            [3, 1, 31, 62],
        ),  # with the first two, the best
        ([True, False, True], [31, 30, 54, 73]),  # with the first and the third
        ([False, True, False], [3, 1.5, 30, 63]),  # one candidate: the mean of two
        ([False, False, False], [0, 0, 30, 60]),  # none: b* alone
    ],
)
def test_the_box_is_averaged_with_the_two_best_candidates(
    is_candidate: list[bool], expected: list[float]
) -> None:
    mean = averaged_boxes(MATCHED, REGRESSED, SCORES, torch.tensor([[is_candidate]]))
    torch.testing.assert_close(mean, torch.tensor([[expected]]).float())


def test_its_own_regression_steps_in_only_where_no_candidate_is() -> None:
    nothing, one = torch.tensor([[[False] * 3]]), torch.tensor([[[False, True, False]]])
    alone = averaged_boxes(MATCHED, REGRESSED, SCORES, nothing, own=OWN)
    assert alone.tolist() == [[[1, 2, 35, 70]]]
    beside = averaged_boxes(MATCHED, REGRESSED, SCORES, one, own=OWN)
    assert beside.tolist() == [[[3, 1.5, 30, 63]]]


def test_invalid_padding_does_not_change_the_average() -> None:
    regressed = torch.cat([REGRESSED[:, :, :2], torch.full((1, 1, 1, 4), NAN)], dim=2)
    scores = torch.tensor([[[0.2, 0.7, NAN]]])
    mean = averaged_boxes(MATCHED, regressed, scores, torch.tensor([[[True, True, False]]]))
    torch.testing.assert_close(mean, torch.tensor([[[3.0, 1, 31, 62]]]))


def test_a_single_place_for_candidates_is_enough() -> None:
    one = averaged_boxes(MATCHED, REGRESSED[:, :, :1], SCORES[:, :, :1], torch.ones(1, 1, 1).bool())
    assert one.tolist() == [[[1.5, 0, 31.5, 60]]]


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ([-5, 10, 200, 300], [0, 10, 160, 120]),  # to the image of 160 x 120
        ([20, 30, 20.5, 30.25], [20, 30, 21, 31]),  # too small: grown to one pixel
        ([20, 30, 10, 40], [20, 30, 21, 40]),  # inverted
        ([170, 30, 190, 40], [159, 30, 160, 40]),  # beyond the right border
        ([10, -30, 20, -20], [10, 0, 20, 1]),  # beyond the upper border
        ([20, 30, 21, 31], [20, 30, 21, 31]),  # exactly one pixel
    ],
)
def test_boxes_are_clipped_and_keep_a_pixel(box: list[float], expected: list[float]) -> None:
    clipped = clipped_boxes(
        torch.tensor([[box]]).float(), torch.ones(1, 1).bool(), torch.tensor([[120, 160]])
    )
    assert clipped.tolist() == [[expected]]


def test_clipped_padding_is_inert() -> None:
    boxes = torch.full((1, 1, 4), NAN)
    clipped = clipped_boxes(boxes, torch.zeros(1, 1).bool(), torch.tensor([[120, 160]]))
    assert clipped.tolist() == [[[0, 0, 1, 1]]]


def masks(*rows: str) -> list[list[list[bool]]]:
    return [[[letter == "x" for letter in row]] for row in rows]


@pytest.mark.parametrize(
    ("discarded", "expected"),
    # kept, relabelled, discarded, padding: trains the RPN, the heads, is ignored
    [
        ("background", masks("xx..", "xx..", "....")),
        ("ignore", masks("xxx.", "xx..", "..x.")),
        ("rpn_only", masks("xxx.", "xx..", "....")),
    ],
)
def test_discarded_annotations_have_the_role_of_the_setting(
    discarded: Discarded, expected: list[list[list[bool]]]
) -> None:
    verdicts = torch.tensor(
        [[Judgement.KEPT, Judgement.RELABELLED, Judgement.DISCARDED, Judgement.KEPT]]
    )
    is_box = torch.tensor([[True, True, True, False]])
    roles: tuple[Tensor, ...] = training_roles(verdicts, is_box, discarded)
    assert [role.tolist() for role in roles] == expected
