"""Boxes of the changed method against numbers worked out by hand; C = 3."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from boxmend.methods import equations
from boxmend.methods.table import Mend, MendSettings, Outcome, Rates
from boxmend.runs.ledger import Judgement
from tests.methods.method_batches import (
    LATER,
    NOTHING,
    WARM_UP,
    TableScorer,
    one_image,
    proposals_of,
    table,
)

BOX = [10.0, 10, 30, 30]
OTHER = [50.0, 50, 80, 80]
# background, then the classes      over the foreground p
FIRST = [0.5, 0.3, 0.1, 0.1]  #     0.6 0.2 0.2
SECOND = [0.2, 0.64, 0.08, 0.08]  # 0.8 0.1 0.1


def make_mend(rates: Rates, **settings: Any) -> Mend:
    return Mend(4, 3, MendSettings(**settings), rates)


def test_the_vote_of_regressions_is_blended_with_the_raw_box() -> None:
    # b* = 0.2 * p* + 0.8 * b; the proposal lies 2 px to the right: D = 2 / 40, fit 0.95.
    # voter               IoU with b     score   weight
    # (14, 10, 34, 30)    16 / 24        0.8      0.8 * sqrt(2 / 3)
    # (12, 10, 32, 30)    18 / 22        0.4      0.4 * sqrt(9 / 11)   b*'s own; IoU of both 18 / 22
    own, far = [0.5, 0.1, 0.4, 0.0], [0.1, 0.0, 0.8, 0.1]
    scorer = TableScorer(
        table([own, far, far], [[12.0, 10, 32, 30], [14.0, 10, 34, 30], [0.0, 0, 1, 1]])
    )
    method = make_mend(Rates(label=0.0, box=0.2), num_proposals=2, boxes="vote")
    annotations = one_image([BOX], [1])
    outcome = method.refine(annotations, proposals_of([[12.0, 10, 32, 30]], [0.9]), scorer, LATER)
    torch.testing.assert_close(outcome.matched, torch.tensor([[[10.4, 10, 30.4, 30]]]))
    first, second = 0.8 * math.sqrt(2 / 3), 0.4 * math.sqrt(9 / 11)
    mean = (14 * first + 12 * second) / (first + second)
    x = 0.5 * 10 + 0.5 * mean  # keep is 0.5 at a box noise of 0.2
    expected = torch.tensor([[[x, 10, x + 20, 30]]])
    torch.testing.assert_close(outcome.boxes, expected)
    assert torch.equal(outcome.roi.boxes, outcome.boxes)
    assert torch.equal(outcome.rpn.boxes, outcome.boxes)
    asked = torch.tensor([[[10.4, 10, 30.4, 30], [12, 10, 32, 30], [0, 0, 1, 1]]])
    torch.testing.assert_close(scorer.asked[0], asked)
    assert outcome.roi.soft is None  # labels are left alone
    assert outcome.labels.tolist() == [[1]]
    assert outcome.verdict.tolist() == [[Judgement.UNJUDGED]]


def test_the_regressions_are_those_of_the_class_of_highest_posterior() -> None:
    # relabelled from 1 to 0; only class 0 regresses, to (14, ..), and so half of b moves by 4
    scores = table([SECOND, SECOND], [BOX] * 2)
    regressed = scores.boxes.clone()
    regressed[:, :, 0] = torch.tensor([14.0, 10, 34, 30])
    method = make_mend(Rates(box=0.2), num_proposals=1, boxes="vote")
    scorer = TableScorer(scores._replace(boxes=regressed))
    annotations, proposals = one_image([BOX], [1]), proposals_of([BOX], [0.9])
    outcome = method.refine(annotations, proposals, scorer, LATER)
    assert outcome.verdict.tolist() == [[Judgement.RELABELLED]]
    torch.testing.assert_close(outcome.boxes, torch.tensor([[[12.0, 10, 32, 30]]]))


@pytest.mark.parametrize("box_noise", [0.2, 0.4])
def test_edges_lie_at_their_expected_positions_given_box_and_vote(box_noise: float) -> None:
    vote = torch.tensor([14.0, 10, 34, 30])  # all agree on it
    scores = table([FIRST, FIRST], [vote.tolist()] * 2)
    scorer = TableScorer(scores, scores)
    annotations, proposals = one_image([BOX], [1]), proposals_of([BOX], [0.9])
    outcome = make_mend(Rates(box=box_noise), num_proposals=1).refine(
        annotations, proposals, scorer, LATER
    )
    expected = equations.expected_boxes(
        torch.tensor(BOX), vote, box_noise, equations.box_noise.BOX_NOISE.typical_error_sides
    )
    torch.testing.assert_close(outcome.boxes, expected[None, None])
    assert 10 < float(outcome.boxes[0, 0, 0]) < 14
    shares = make_mend(
        Rates(box=box_noise), num_proposals=1, raw_box_share=0.25
    )  # a share from the settings has priority
    blended = shares.refine(annotations, proposals, scorer, LATER)
    torch.testing.assert_close(blended.boxes, torch.tensor([[[13.0, 10, 33, 30]]]))


def test_expected_edges_follow_the_shape_of_the_noise() -> None:
    vote = torch.tensor([14.0, 10, 34, 30])  # all agree on it
    scorer = TableScorer(*[table([FIRST, FIRST], [vote.tolist()] * 2)] * 4)
    annotations, proposals = one_image([BOX], [1]), proposals_of([BOX], [0.9])
    error = equations.box_noise.BOX_NOISE.typical_error_sides

    def repair(method: Mend) -> Tensor:
        return method.refine(annotations, proposals, scorer, LATER).boxes[0, 0]

    def expect(is_gaussian: bool) -> Tensor:
        return equations.expected_boxes(torch.tensor(BOX), vote, 0.4, error, is_gaussian)

    gaussian = make_mend(Rates(box=0.4), num_proposals=1, box_noise_shape="gaussian")
    torch.testing.assert_close(repair(gaussian), expect(is_gaussian=True))
    auto = make_mend(Rates(box=0.4), num_proposals=1, box_noise_shape="auto")
    torch.testing.assert_close(repair(auto), expect(is_gaussian=False))
    assert not torch.allclose(expect(is_gaussian=True), expect(is_gaussian=False))
    auto.load_state_dict(gaussian.state_dict())  # the shape that a run found is part of its state
    torch.testing.assert_close(repair(auto), expect(is_gaussian=True))
    older = {name: value for name, value in gaussian.state_dict().items() if name != "is_gaussian"}
    auto.load_state_dict(older)
    torch.testing.assert_close(repair(auto), expect(is_gaussian=False))


def test_the_shape_is_chosen_once_an_epoch_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    def fit(counts: Tensor, pull: Tensor, shape: str) -> equations.BoxNoise:
        asked.append(shape)
        return equations.BoxNoise(0.3, 0.1, 0.2, 0.4, is_gaussian=True, gaussian_log_odds=8.0)

    monkeypatch.setattr("boxmend.methods.equations.fit_box_noise", fit)
    figures = make_mend(Rates(label=0.0), box_noise_shape="auto").end_epoch(0, is_warm_up=False)
    assert figures["gaussian_box_noise"] == 1.0
    assert figures["gaussian_log_odds"] == 8.0
    assert "gaussian_log_odds" not in make_mend(Rates(label=0.0)).end_epoch(0, is_warm_up=False)
    assert asked == ["auto", "uniform"]


def test_edges_annotated_at_the_border_move_half_as_far_if_there_are_many() -> None:
    # the same box in the middle of the image and at its left border; the vote is 4 px inside
    def movement(method: Mend, left: float) -> Tensor:
        box, vote = [left, 10, left + 20, 30], [left + 4, 10, left + 20, 30]
        scorer = TableScorer(table([FIRST, FIRST], [vote] * 2))
        proposals = proposals_of([box], [0.9])
        outcome = method.refine(one_image([box], [1]), proposals, scorer, LATER)
        return outcome.boxes - torch.tensor(box)

    method, other = (
        make_mend(Rates(box=0.4), num_proposals=1),
        make_mend(Rates(box=0.4), num_proposals=1),
    )
    free = movement(method, 20.0)
    assert float(free[0, 0, 0]) > 2
    torch.testing.assert_close(movement(method, 0.0), free)  # nothing is known yet
    assert (
        method.end_epoch(0, is_warm_up=False)["held_at_border"] == 0.5
    )  # one edge at the border, none near it
    torch.testing.assert_close(movement(method, 20.0), free)
    torch.testing.assert_close(movement(method, 0.0), free / 2)
    other.load_state_dict(method.state_dict())
    torch.testing.assert_close(movement(other, 0.0), free / 2)
    for _ in range(9):
        movement(other, 5.0)  # 0.25 of the side away from it
    assert other.end_epoch(1, is_warm_up=False)["held_at_border"] == 0.0
    torch.testing.assert_close(movement(other, 0.0), free)
    without_noise = make_mend(Rates(), num_proposals=1)
    movement(without_noise, 0.0)
    assert (
        without_noise.end_epoch(0, is_warm_up=False)["held_at_border"] == 0.0
    )  # where no box is mended, none is held


def test_the_published_average_may_replace_the_vote() -> None:
    # b* = (10.4, ..), the one candidate regressed to (14, ..): their mean
    method = make_mend(Rates(label=0.0, box=0.2), num_proposals=2, boxes="average")
    chances = [0.5, 0.1, 0.4, 0.0]
    regressed = [[12.0, 10, 32, 30], [14.0, 10, 34, 30], [0.0, 0, 1, 1]]
    outcome = method.refine(
        one_image([BOX], [1]),
        proposals_of([[12.0, 10, 32, 30]], [0.9]),
        TableScorer(table([chances] * 3, regressed)),
        LATER,
    )
    torch.testing.assert_close(outcome.boxes, torch.tensor([[[12.2, 10, 32.2, 30]]]))


def test_boxes_are_unchanged_until_their_noise_is_estimated() -> None:
    method = make_mend(Rates(), num_proposals=1)
    annotations = one_image([[10.0, 10, 130, 30.5]], [1])  # not even clipped to the image
    scorer = TableScorer(table([FIRST, FIRST], [[12.0, 10, 122, 30]] * 2))
    outcome = method.refine(annotations, proposals_of([[12.0, 10, 132, 30]], [0.9]), scorer, LATER)
    assert torch.equal(outcome.boxes, annotations.boxes)
    assert torch.equal(outcome.matched, annotations.boxes)


def noisy_boxes(is_warm_up: bool, **settings: Any) -> Outcome:
    """A box on the left border without voters; keep is 0.5 at a noise of 0.2."""
    method = make_mend(Rates(label=0.0, box=0.2), num_proposals=1, **settings)
    scorer = TableScorer(table([FIRST] * 2, [[60.0, 60, 70, 70]] * 2))
    annotations = one_image([[0.0, 10, 40, 30]], [1])
    return method.refine(annotations, NOTHING, scorer, WARM_UP if is_warm_up else LATER)


@pytest.mark.parametrize(("is_warm_up", "outside"), [(True, 4.0), (False, 2.0)])
def test_regression_targets_extend_past_a_border_that_clipped_an_edge(
    is_warm_up: bool, outside: float
) -> None:
    # half the noise of 0.2 on a side of 40: 4 px, of which the raw box's share
    outcome = noisy_boxes(is_warm_up)
    expected = torch.tensor([[[-outside, 10, 40, 30]]])
    torch.testing.assert_close(outcome.roi.regression_targets, expected)
    assert torch.equal(outcome.roi.boxes, outcome.boxes)
    assert outcome.rpn.box_targets is None
    assert noisy_boxes(is_warm_up, extend_past_border=False).roi.box_targets is None


def test_the_box_loss_is_quadratic_for_longer_if_boxes_are_repaired() -> None:
    assert noisy_boxes(is_warm_up=False).roi.beta == 2.0
    assert noisy_boxes(is_warm_up=True, box_beta=0.5).roi.beta == 0.5
    assert noisy_boxes(is_warm_up=False).rpn.beta is None
    unknown = make_mend(Rates(), num_proposals=1)
    scorer = TableScorer(table([FIRST] * 2, [OTHER] * 2))
    assert unknown.refine(one_image([BOX], [1]), NOTHING, scorer, LATER).roi.beta is None


def test_the_box_loss_of_a_resumed_run_is_that_of_the_run() -> None:
    old = make_mend(Rates(label=0.0, box=0.2))
    new = make_mend(Rates(label=0.0), num_proposals=1)
    new.load_state_dict(old.state_dict())
    scorer = TableScorer(table([FIRST] * 2, [OTHER] * 2))
    assert new.refine(one_image([BOX], [1]), NOTHING, scorer, LATER).roi.beta == 2.0
