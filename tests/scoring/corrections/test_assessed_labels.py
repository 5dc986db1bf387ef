"""Judgments of labels, against counts worked out on paper."""

import math

import numpy as np
import pytest

from boxmend.data.dataset import UNKNOWN
from boxmend.data.types import Box
from boxmend.scoring.corrections import assess
from boxmend.scoring.corrections.labels import LabelScores
from tests.fabricated_runs import DISCARDED, KEPT, RELABELLED, UNJUDGED, Visit
from tests.scoring.assessed import BUS, TRUCK, VAN, annotated, opened, seen, truth_of

BOX: Box = (10, 10, 30, 30)


def score_visits(true: list[int], visits: list[Visit], *, warm_up_epochs: int = 0) -> LabelScores:
    """Annotations that all say van, and what they truly are."""
    dataset = annotated([BOX] * len(true), [VAN] * len(true))
    truth = truth_of(dataset, true, [BOX] * len(true))
    return assess(opened(dataset, visits, warm_up_epochs=warm_up_epochs), truth).labels


EIGHT = [
    # wrong: these are buses
    seen(0, RELABELLED, BUS, loss=3),  # TP, right now
    seen(1, RELABELLED, TRUCK, loss=2),  # TP, wrong still
    seen(2, DISCARDED, loss=1, is_kept=False),  # TP
    seen(3, KEPT, loss=0.5),  # FN
    # right
    seen(4, KEPT, loss=0.1),  # TN
    seen(5, RELABELLED, BUS, loss=1),  # FP, wrong now
    seen(6, DISCARDED, loss=0.25, is_kept=True),  # FP: trained on softly, and discarded still
    seen(7, KEPT, loss=0.3),  # TN
]
TRULY = [BUS] * 4 + [VAN] * 4


def test_judgments_are_shares_of_their_true_group() -> None:
    judgment = score_visits(TRULY, EIGHT).judgment
    assert (judgment.num_tp, judgment.num_fn, judgment.num_tn, judgment.num_fp) == (3, 1, 2, 2)
    assert (judgment.tp, judgment.fn) == (3 / 4, 1 / 4)
    assert (judgment.tn, judgment.fp) == (2 / 4, 2 / 4)
    assert judgment.judged == 8


def test_label_noise_after_leaves_out_discarded_labels() -> None:
    scores = score_visits(TRULY, EIGHT)
    assert scores.noise_before == 4 / 8
    assert scores.noise_after == 3 / 6  # rows 1, 3 and 5 of the six that are left
    assert scores.discarded == 2 / 8
    assert scores.replaced == 3
    assert scores.pseudo_label_precision == 1 / 3  # row 0 of rows 0, 1 and 5


def test_the_loss_finds_wrong_labels() -> None:
    # Wrong 3, 2, 1, 0.5 against right 0.1, 1, 0.25, 0.3: 4 + 4 + (3 + a tie) + 3 of 16 pairs.
    scores = score_visits(TRULY, EIGHT)
    assert scores.loss_auroc == 14.5 / 16
    assert scores.settled_loss_auroc == 14.5 / 16  # one epoch: the same losses


def test_the_settled_loss_is_the_mean_of_the_visits_that_settle() -> None:
    # Four epochs: two visits settle. Means: wrong (1 + 5) / 2 = 3, right (3 + 1) / 2 = 2.
    losses = {0: [0.0, 0.0, 5.0, 1.0], 1: [9.0, 9.0, 1.0, 3.0]}
    visits = [
        seen(row, loss=losses[row][epoch], epoch=epoch) for epoch in range(4) for row in (0, 1)
    ]
    scores = score_visits([BUS, VAN], visits)
    assert scores.loss_auroc == 0  # 1 against 3 in the last epoch
    assert scores.settled_loss_auroc == 1


def test_labels_that_were_not_judged_count_as_kept_but_not_as_judged() -> None:
    visits = [seen(0, UNJUDGED, loss=math.nan), seen(1, RELABELLED, BUS, loss=1), seen(2, loss=2)]
    scores = score_visits([BUS, BUS, VAN], visits)
    assert scores.judgment.judged == 2
    assert (scores.judgment.num_tp, scores.judgment.num_tn) == (1, 1)
    assert scores.noise_before == 2 / 3
    assert scores.noise_after == 1 / 3
    assert scores.loss_auroc == 0  # 1 against 2; NaN is left out


def test_a_run_that_judges_nothing_has_no_judgment() -> None:
    scores = score_visits(
        [BUS, VAN], [seen(0, UNJUDGED, loss=math.nan), seen(1, UNJUDGED, loss=math.nan)]
    )
    judgment = scores.judgment
    assert judgment.judged == 0
    assert judgment.tp is judgment.fn is judgment.tn is judgment.fp is None
    assert scores.noise_before == scores.noise_after == 1 / 2
    assert scores.discarded == 0
    assert scores.pseudo_label_precision is None
    assert scores.loss_auroc is scores.settled_loss_auroc is None


def test_only_the_last_epoch_counts() -> None:
    visits = [
        seen(0, RELABELLED, BUS, epoch=0),
        seen(1, RELABELLED, BUS, epoch=0),
        seen(1, DISCARDED, epoch=1),
        seen(1, KEPT, epoch=1),
    ]
    scores = score_visits([BUS, BUS], visits)
    assert scores.annotations == 1
    assert (scores.judgment.num_tp, scores.judgment.num_fn) == (0, 1)
    assert scores.noise_after == 1


def test_where_all_are_discarded_no_noise_is_left_to_measure() -> None:
    scores = score_visits([BUS], [seen(0, DISCARDED)])
    assert scores.noise_after is None
    assert scores.discarded == 1


def test_spurious_annotations_are_left_out() -> None:
    dataset = annotated([BOX] * 3, [VAN] * 3)
    truth = truth_of(dataset, [BUS, UNKNOWN, VAN], [BOX, (np.nan,) * 4, BOX])
    visits = [seen(0, KEPT, loss=3), seen(1, DISCARDED, loss=0), seen(2, KEPT, loss=1)]
    scores = assess(opened(dataset, visits), truth).labels
    assert scores.annotations == 2
    assert scores.discarded == 0
    assert scores.loss_auroc == scores.settled_loss_auroc == 1  # 3 against 1; 0 is spurious


@pytest.mark.parametrize("infinite", [math.inf, 100.0])
def test_an_infinite_loss_is_the_highest(infinite: float) -> None:
    visits = [seen(0, RELABELLED, BUS, loss=infinite), seen(1, loss=2), seen(2, loss=1)]
    assert score_visits([BUS, VAN, VAN], visits).loss_auroc == 1
