"""The changed method against numbers worked out by hand; C = 3, T has 0.7 and 0.15."""

import math
from typing import Any

import pytest
import torch
from method_batches import (
    LATER,
    NAN,
    NOTHING,
    WARM_UP,
    TableScorer,
    one_image,
    proposals_of,
    rois_of,
    table,
)
from torch import Tensor

from boxmend import refinement
from boxmend.errors import UsageError
from boxmend.ledger import Verdict
from boxmend.methods import Mend, MendSettings, Outcome, Rates
from boxmend.refinement import forward_corrected_loss, soft_cross_entropy

BOX = [10.0, 10, 30, 30]
OTHER = [50.0, 50, 80, 80]
LABELS_ONLY = Rates(box=0.0)
# background, then the classes      over the foreground p
FIRST = [0.5, 0.3, 0.1, 0.1]  #     .6 .2 .2
SECOND = [0.2, 0.64, 0.08, 0.08]  # .8 .1 .1
TORN = [0.0, 0.45, 0.1, 0.45]  #    .45 .1 .45
LATER_ON = [0.0, 0.2, 0.6, 0.2]  #  .2 .6 .2


def made(rates: Rates = LABELS_ONLY, **settings: Any) -> Mend:
    return Mend(4, 3, MendSettings(**settings), rates)


def test_verdicts_and_soft_targets_follow_from_the_posterior() -> None:
    # y = 0: .6 * .7 = .42,  .2 * .15 = .03,  .2 * .15 = .03   -> .875  .0625  .0625   kept
    # y = 1: .8 * .15 = .12, .1 * .7 = .07,   .1 * .15 = .015  -> over .205: class 0   relabelled
    # y = 1: .45 * .15 = .0675, .07, .0675                     -> over .205            unsure
    given = one_image([BOX, OTHER, BOX], [0, 1, 1])
    outcome = made().refine(given, NOTHING, TableScorer(table([FIRST, SECOND, TORN])), LATER)
    expected = torch.tensor(
        [
            [0, 0.875, 0.0625, 0.0625],
            [0, 0.12 / 0.205, 0.07 / 0.205, 0.015 / 0.205],
            [0, 0.0675 / 0.205, 0.07 / 0.205, 0.0675 / 0.205],
        ]
    )
    assert outcome.roi.soft is not None
    torch.testing.assert_close(outcome.roi.soft, expected[None])
    assert outcome.verdict.tolist() == [[Verdict.KEPT, Verdict.RELABELLED, Verdict.DISCARDED]]
    assert outcome.labels.tolist() == [[0, 0, 1]]
    torch.testing.assert_close(outcome.confidence, expected[None].amax(-1))
    assert outcome.is_kept.all()
    assert outcome.roi.is_real.all()
    assert outcome.rpn.is_real.all()
    assert outcome.rpn.soft is None
    shares = {name: round(float(value), 4) for name, value in outcome.metrics.items()}
    assert shares == {"relabelled": 0.3333, "unsure": 0.3333, "matched": 0.0}


def test_memory_averages_the_visits_and_the_loss_is_that_of_the_memory() -> None:
    # second visit: p = (.8 + .2) / 2, (.1 + .6) / 2, (.1 + .2) / 2 = .5 .35 .15
    # y = 1: .5 * .15 = .075, .35 * .7 = .245, .15 * .15 = .0225, together .3425
    # q(1) = .5 where p(1) * .7 = .075 + .0225
    method, given = made(), one_image([OTHER], [1], rows=[2])
    scorer = TableScorer(table([SECOND]), table([LATER_ON]))
    method.refine(given, NOTHING, scorer, LATER)
    outcome = method.refine(given, NOTHING, scorer, LATER)
    q = torch.tensor([[[0, 0.075, 0.245, 0.0225]]]) / 0.3425
    torch.testing.assert_close(outcome.roi.soft, q)
    assert outcome.verdict.tolist() == [[Verdict.KEPT]]
    torch.testing.assert_close(outcome.loss, torch.tensor([[-math.log(0.35)]]))
    torch.testing.assert_close(outcome.threshold, torch.tensor([[-math.log(0.0975 / 0.7)]]))
    state = method.state_dict()
    torch.testing.assert_close(state["memory"][2], torch.tensor([0.5, 0.35, 0.15]))
    assert state["visits"].tolist() == [0, 0, 2, 0, 0]
    assert state["labels"].tolist() == [0, 0, 1, 0, 0]


def test_a_new_visit_may_outweigh_the_memory() -> None:
    method, given = made(least_new=1.0), one_image([BOX], [1])
    scorer = TableScorer(table([SECOND]), table([LATER_ON]))
    method.refine(given, NOTHING, scorer, LATER)
    outcome = method.refine(given, NOTHING, scorer, LATER)
    torch.testing.assert_close(outcome.loss, torch.tensor([[-math.log(0.6)]]))


def test_the_threshold_is_where_the_posterior_is_even() -> None:
    # tau = 2, y = 1: q(1) = .5 where p(1)^2 * .7 = (.8^2 + .1^2) * .15 = .0975
    method = made()
    method.load_state_dict({**method.state_dict(), "tau": torch.tensor(2.0)})
    outcome = method.refine(one_image([BOX], [1]), NOTHING, TableScorer(table([SECOND])), LATER)
    torch.testing.assert_close(outcome.loss, torch.tensor([[-math.log(0.1)]]))
    even = torch.tensor([[-math.log(math.sqrt(0.0975 / 0.7))]])
    torch.testing.assert_close(outcome.threshold, even)


def test_labels_of_a_lost_class_are_believed_as_often_as_labels_are_right() -> None:
    # y = 1 would be relabelled (q = .34); lost, it has 1 - .3 = .7, and class 0 .3 * .12 / .135
    method = made()
    lost = torch.tensor([False, True, False])
    method.load_state_dict({**method.state_dict(), "lost": lost})
    outcome = method.refine(one_image([BOX], [1]), NOTHING, TableScorer(table([SECOND])), LATER)
    expected = torch.tensor([[[0, 0.3 * 0.12 / 0.135, 0.7, 0.3 * 0.015 / 0.135]]])
    torch.testing.assert_close(outcome.roi.soft, expected)
    assert outcome.verdict.tolist() == [[Verdict.KEPT]]


def test_a_loss_above_the_threshold_means_a_label_not_kept() -> None:
    generator = torch.Generator().manual_seed(0)
    chances = torch.rand(64, 4, generator=generator) ** 3
    chances = chances / chances.sum(-1, keepdim=True)
    given = one_image([BOX] * 64, torch.randint(3, (64,), generator=generator).tolist())
    method = Mend(64, 3, rates=LABELS_ONLY)
    state = method.state_dict()
    method.load_state_dict({**state, "tau": torch.tensor(0.7)})
    outcome = method.refine(given, NOTHING, TableScorer(table(chances.tolist())), LATER)
    is_flagged = outcome.verdict != int(Verdict.KEPT)
    assert is_flagged.any()
    assert not is_flagged.all()
    assert torch.equal(outcome.loss > outcome.threshold, is_flagged)


def test_without_soft_labels_the_unsure_are_ignored_by_the_heads() -> None:
    method = made(soft_labels=False)
    given = one_image([BOX, OTHER, BOX], [0, 1, 1])
    outcome = method.refine(given, NOTHING, TableScorer(table([FIRST, SECOND, TORN])), LATER)
    assert outcome.roi.soft is None
    assert outcome.roi.is_real.tolist() == [[True, True, False]]
    assert outcome.roi.is_ignored.tolist() == [[False, False, True]]
    assert outcome.rpn.is_real.tolist() == [[True, True, True]]
    assert outcome.is_kept.tolist() == [[True, True, False]]


def test_a_queue_of_losses_may_judge_in_place_of_the_posterior() -> None:
    # p(y) over the foreground: .6, .1 and .1; r = .7 of a queue of 10 is its 7th loss, -log .5
    method = made(judgment="queue", queue_length=10)
    queue = -torch.tensor([0.5] * 7 + [0.01] * 3).log()
    method.load_state_dict({**method.state_dict(), "queue": queue})
    given = one_image([BOX, OTHER, BOX], [0, 1, 1])
    outcome = method.refine(given, NOTHING, TableScorer(table([FIRST, SECOND, TORN])), LATER)
    assert outcome.verdict.tolist() == [[Verdict.KEPT, Verdict.RELABELLED, Verdict.DISCARDED]]
    assert outcome.labels.tolist() == [[0, 0, 1]]  # .8 is above a half, .45 is not
    torch.testing.assert_close(outcome.loss, -torch.tensor([[0.6, 0.1, 0.1]]).log())
    torch.testing.assert_close(outcome.threshold, torch.full((1, 3), math.log(2)))
    assert outcome.roi.soft is None
    assert outcome.roi.is_ignored.tolist() == [[False, False, True]]
    pushed = torch.cat([queue[3:], -torch.tensor([0.6, 0.1, 0.1]).log()])
    torch.testing.assert_close(method.state_dict()["queue"], pushed)


def test_background_may_stay_in_the_evidence() -> None:
    method = made(foreground=False)
    outcome = method.refine(one_image([BOX], [0]), NOTHING, TableScorer(table([FIRST])), LATER)
    torch.testing.assert_close(outcome.loss, torch.tensor([[-math.log(0.3)]]))


def test_a_temperature_that_is_set_is_not_fitted() -> None:
    method = made(temperature=2.0)
    method.refine(one_image([BOX], [0]), NOTHING, TableScorer(table([FIRST])), LATER)
    assert method.end_epoch(0)["tau"] == 2


def test_warm_up_trains_on_the_annotations_as_given_and_gathers_evidence() -> None:
    method = made(Rates(box=0.2))
    given = one_image([BOX, OTHER], [0, 1])
    scorer = TableScorer(table([FIRST, SECOND] + [FIRST] * 100))
    outcome = method.refine(given, proposals_of([[12.0, 10, 32, 30]], [0.9]), scorer, WARM_UP)
    assert torch.equal(scorer.asked[0][:, :2], given.boxes)
    for boxes in (outcome.boxes, outcome.matched, outcome.rpn.boxes, outcome.roi.boxes):
        assert torch.equal(boxes, given.boxes)
    for labels in (outcome.labels, outcome.rpn.labels, outcome.roi.labels):
        assert torch.equal(labels, given.labels)
    assert outcome.roi.soft is None
    assert outcome.verdict.tolist() == [[Verdict.UNJUDGED] * 2]
    assert outcome.num_candidates.tolist() == [[1, 0]]
    torch.testing.assert_close(outcome.loss, -torch.tensor([[0.6, 0.1]]).log())
    assert outcome.is_kept.all()
    memory = torch.tensor([[0.6, 0.2, 0.2], [0.8, 0.1, 0.1]])
    torch.testing.assert_close(method.state_dict()["memory"][:2], memory)


def test_targets_of_warm_up_are_the_posterior_of_the_current_prediction() -> None:
    method = made()
    method.refine(one_image([BOX], [0]), NOTHING, TableScorer(table([FIRST])), WARM_UP)
    # y = 1, s = .2 .64 .08 .08: s T = .096 .056 .012, together .164; no object: background
    logits = torch.tensor([[SECOND, SECOND, [NAN] * 4]]).log()
    rois = rois_of([1, 0, 0], [True, False, False])
    targets = method.class_targets(logits, rois, roi=None)  # type: ignore[arg-type]  # not read
    expected = torch.tensor(
        [[[0, 0.096 / 0.164, 0.056 / 0.164, 0.012 / 0.164], [1, 0, 0, 0], [1, 0, 0, 0]]]
    )
    torch.testing.assert_close(targets, expected)


def test_targets_of_warm_up_have_the_gradient_of_the_forward_corrected_loss() -> None:
    method = made()
    method.refine(one_image([BOX], [0]), NOTHING, TableScorer(table([FIRST])), WARM_UP)
    logits = torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(1), requires_grad=True)
    rois = rois_of([0, 1, 2, 2, 0, 0], [True] * 4 + [False] * 2)
    targets = method.class_targets(logits.detach(), rois, roi=None)  # type: ignore[arg-type]
    assert targets is not None
    soft_cross_entropy(logits[0], targets[0]).sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    found = logits.grad.clone()
    logits.grad = None
    columns = torch.where(rois.is_positive, rois.labels + 1, 0)[0]
    forward = forward_corrected_loss(logits[0], columns, method.state_dict()["transition"])
    forward.sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(found, logits.grad)


@pytest.mark.parametrize(
    ("method", "is_warm_up"),
    [
        (made(), False),
        (made(forward_warm_up=False), True),
        (made(Rates(label=0.0)), True),
    ],
)
def test_other_moments_have_no_targets_of_their_own(method: Mend, is_warm_up: bool) -> None:
    scorer = TableScorer(table([FIRST] * 101))
    method.refine(one_image([BOX], [0]), NOTHING, scorer, WARM_UP if is_warm_up else LATER)
    logits, rois = torch.zeros(1, 1, 4), rois_of([0], [True])
    assert method.class_targets(logits, rois, roi=None) is None  # type: ignore[arg-type]


def test_the_vote_of_regressions_is_blended_with_the_raw_box() -> None:
    # b* = .2 * p* + .8 * b; the proposal lies 2 px to the right: D = 2 / 40, fit .95.
    # voter               IoU with b     score   weight
    # (14, 10, 34, 30)    16 / 24        .8      .8 * sqrt(2 / 3)
    # (12, 10, 32, 30)    18 / 22        .4      .4 * sqrt(9 / 11)   b*'s own; IoU of both 18 / 22
    own, far = [0.5, 0.1, 0.4, 0.0], [0.1, 0.0, 0.8, 0.1]
    scorer = TableScorer(
        table([own, far, far], [[12.0, 10, 32, 30], [14.0, 10, 34, 30], [0.0, 0, 1, 1]])
    )
    method = made(Rates(label=0.0, box=0.2), num_proposals=2, boxes="vote")
    given = one_image([BOX], [1])
    outcome = method.refine(given, proposals_of([[12.0, 10, 32, 30]], [0.9]), scorer, LATER)
    torch.testing.assert_close(outcome.matched, torch.tensor([[[10.4, 10, 30.4, 30]]]))
    first, second = 0.8 * math.sqrt(2 / 3), 0.4 * math.sqrt(9 / 11)
    mean = (14 * first + 12 * second) / (first + second)
    x = 0.5 * 10 + 0.5 * mean  # keep is .5 at a box noise of .2
    expected = torch.tensor([[[x, 10, x + 20, 30]]])
    torch.testing.assert_close(outcome.boxes, expected)
    assert torch.equal(outcome.roi.boxes, outcome.boxes)
    assert torch.equal(outcome.rpn.boxes, outcome.boxes)
    asked = torch.tensor([[[10.4, 10, 30.4, 30], [12, 10, 32, 30], [0, 0, 1, 1]]])
    torch.testing.assert_close(scorer.asked[0], asked)
    assert outcome.roi.soft is None  # labels are left alone
    assert outcome.labels.tolist() == [[1]]
    assert outcome.verdict.tolist() == [[Verdict.UNJUDGED]]


def test_the_regressions_are_those_of_the_class_of_highest_posterior() -> None:
    # relabelled from 1 to 0; only class 0 regresses, to (14, ..), and so half of b moves by 4
    scores = table([SECOND, SECOND], [BOX] * 2)
    regressed = scores.boxes.clone()
    regressed[:, :, 0] = torch.tensor([14.0, 10, 34, 30])
    method = made(Rates(box=0.2), num_proposals=1, boxes="vote")
    scorer = TableScorer(scores._replace(boxes=regressed))
    given, proposals = one_image([BOX], [1]), proposals_of([BOX], [0.9])
    outcome = method.refine(given, proposals, scorer, LATER)
    assert outcome.verdict.tolist() == [[Verdict.RELABELLED]]
    torch.testing.assert_close(outcome.boxes, torch.tensor([[[12.0, 10, 32, 30]]]))


@pytest.mark.parametrize("told", [0.2, 0.4])
def test_edges_lie_where_box_and_vote_let_them_be_expected(told: float) -> None:
    vote = torch.tensor([14.0, 10, 34, 30])  # all agree on it
    scores = table([FIRST, FIRST], [vote.tolist()] * 2)
    scorer = TableScorer(scores, scores)
    given, proposals = one_image([BOX], [1]), proposals_of([BOX], [0.9])
    outcome = made(Rates(box=told), num_proposals=1).refine(given, proposals, scorer, LATER)
    expected = refinement.expected_boxes(torch.tensor(BOX), vote, told, refinement.TYPICAL_ERROR)
    torch.testing.assert_close(outcome.boxes, expected[None, None])
    assert 10 < float(outcome.boxes[0, 0, 0]) < 14
    shares = made(Rates(box=told), num_proposals=1, keep=0.25)  # a share that is told goes before
    blended = shares.refine(given, proposals, scorer, LATER)
    torch.testing.assert_close(blended.boxes, torch.tensor([[[13.0, 10, 33, 30]]]))


def test_edges_annotated_at_the_border_move_half_as_far_once_many_are_seen_there() -> None:
    # the same box in the middle of the image and at its left border; the vote is 4 px inside
    def moved(method: Mend, left: float) -> Tensor:
        box, vote = [left, 10, left + 20, 30], [left + 4, 10, left + 20, 30]
        scorer = TableScorer(table([FIRST, FIRST], [vote] * 2))
        proposals = proposals_of([box], [0.9])
        outcome = method.refine(one_image([box], [1]), proposals, scorer, LATER)
        return outcome.boxes - torch.tensor(box)

    method, other = made(Rates(box=0.4), num_proposals=1), made(Rates(box=0.4), num_proposals=1)
    free = moved(method, 20.0)
    assert float(free[0, 0, 0]) > 2
    torch.testing.assert_close(moved(method, 0.0), free)  # nothing is known yet
    assert method.end_epoch(0)["held_at_border"] == 0.5  # one edge at the border, none near it
    torch.testing.assert_close(moved(method, 20.0), free)
    torch.testing.assert_close(moved(method, 0.0), free / 2)
    other.load_state_dict(method.state_dict())
    torch.testing.assert_close(moved(other, 0.0), free / 2)
    for _ in range(9):
        moved(other, 5.0)  # .25 of the side away from it
    assert other.end_epoch(1)["held_at_border"] == 0.0
    torch.testing.assert_close(moved(other, 0.0), free)
    untold = made(Rates(), num_proposals=1)
    moved(untold, 0.0)
    assert untold.end_epoch(0)["held_at_border"] == 0.0  # where no box is mended, none is held


def test_the_published_average_may_replace_the_vote() -> None:
    # b* = (10.4, ..), the one candidate regressed to (14, ..): their mean
    method = made(Rates(label=0.0, box=0.2), num_proposals=2, boxes="average")
    chances = [0.5, 0.1, 0.4, 0.0]
    regressed = [[12.0, 10, 32, 30], [14.0, 10, 34, 30], [0.0, 0, 1, 1]]
    outcome = method.refine(
        one_image([BOX], [1]),
        proposals_of([[12.0, 10, 32, 30]], [0.9]),
        TableScorer(table([chances] * 3, regressed)),
        LATER,
    )
    torch.testing.assert_close(outcome.boxes, torch.tensor([[[12.2, 10, 32.2, 30]]]))


def test_boxes_stay_as_given_until_their_noise_was_estimated() -> None:
    method = made(Rates(), num_proposals=1)
    given = one_image([[10.0, 10, 130, 30.5]], [1])  # not even clipped to the image
    scorer = TableScorer(table([FIRST, FIRST], [[12.0, 10, 122, 30]] * 2))
    outcome = method.refine(given, proposals_of([[12.0, 10, 132, 30]], [0.9]), scorer, LATER)
    assert torch.equal(outcome.boxes, given.boxes)
    assert torch.equal(outcome.matched, given.boxes)


def noisy_boxes(is_warm_up: bool, **settings: Any) -> Outcome:
    """A box on the left border, of which nobody says anything; keep is .5 at a noise of .2."""
    method = made(Rates(label=0.0, box=0.2), num_proposals=1, **settings)
    scorer = TableScorer(table([FIRST] * 2, [[60.0, 60, 70, 70]] * 2))
    given = one_image([[0.0, 10, 40, 30]], [1])
    return method.refine(given, NOTHING, scorer, WARM_UP if is_warm_up else LATER)


@pytest.mark.parametrize(("is_warm_up", "outside"), [(True, 4.0), (False, 2.0)])
def test_regression_ends_outside_where_the_border_cut_an_edge(
    is_warm_up: bool, outside: float
) -> None:
    # half the noise of .2 on a side of 40: 4 px, of which the raw box's share
    outcome = noisy_boxes(is_warm_up)
    expected = torch.tensor([[[-outside, 10, 40, 30]]])
    torch.testing.assert_close(outcome.roi.ends, expected)
    assert torch.equal(outcome.roi.boxes, outcome.boxes)
    assert outcome.rpn.aims is None
    assert noisy_boxes(is_warm_up, uncut=False).roi.aims is None


def test_where_boxes_are_mended_the_box_loss_is_quadratic_for_longer() -> None:
    assert noisy_boxes(is_warm_up=False).roi.beta == 2.0
    assert noisy_boxes(is_warm_up=True, box_beta=0.5).roi.beta == 0.5
    assert noisy_boxes(is_warm_up=False).rpn.beta is None
    unknown = made(Rates(), num_proposals=1)
    scorer = TableScorer(table([FIRST] * 2, [OTHER] * 2))
    assert unknown.refine(one_image([BOX], [1]), NOTHING, scorer, LATER).roi.beta is None


def test_the_box_loss_of_a_resumed_run_is_that_of_the_run() -> None:
    old = made(Rates(label=0.0, box=0.2))
    new = made(Rates(label=0.0), num_proposals=1)
    new.load_state_dict(old.state_dict())
    scorer = TableScorer(table([FIRST] * 2, [OTHER] * 2))
    assert new.refine(one_image([BOX], [1]), NOTHING, scorer, LATER).roi.beta == 2.0


def test_known_rates_of_zero_leave_everything_alone_and_ask_nothing() -> None:
    method = made(Rates(label=0.0, box=0.0))
    given = one_image([BOX], [2])
    outcome = method.refine(given, NOTHING, TableScorer(), LATER)
    assert torch.equal(outcome.boxes, given.boxes)
    assert outcome.labels.tolist() == [[2]]
    assert outcome.roi.soft is None
    assert outcome.verdict.tolist() == [[Verdict.UNJUDGED]]


def test_the_end_of_a_pass_without_any_visit_keeps_the_first_beliefs() -> None:
    figures = made(Rates()).end_epoch(0)
    beliefs = {"label_noise": 0.3, "tau": 1.0, "box_noise": 0.0, "keep": 1.0, "lost_classes": 0}
    nothing = {"box_noise_low": 0.0, "box_noise_high": pytest.approx(0.75)}  # known of boxes
    nothing |= {"held_at_border": 0.0}
    assert figures == beliefs | nothing


def test_a_state_of_another_dataset_is_refused() -> None:
    with pytest.raises(UsageError, match=r"memory of the state has shape \[5, 3\].*\[9, 3\]"):
        Mend(8, 3).load_state_dict(made().state_dict())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep": 1.5}, "keep is 1.5; expected a share from 0 to 1"),
        ({"temperature": 0.0}, "temperature is 0.0; expected a number above 0"),
        ({"judgment": "mine"}, "judgment is 'mine'"),
        ({"boxes": "median"}, "boxes is 'median'; expected 'edges' or 'vote' or 'average'"),
        ({"discarded": "lost"}, "discarded is 'lost'"),
        ({"gamma": -1.0}, "gamma is -1.0"),
        ({"num_proposals": 0}, "num_proposals is 0; expected 1 or more"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MendSettings(**settings)  # type: ignore[arg-type]  # that is the test
