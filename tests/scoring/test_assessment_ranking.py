"""Area under the ROC curve and average precision, by hand and against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.scoring.ranking import area_under_roc, average_precision, recall_at_precision, share

SCORES = st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0, 3.0])  # few, so that there are ties
RANKINGS = st.lists(st.tuples(SCORES, st.booleans()), min_size=1, max_size=30)


def columns(ranking: list[tuple[float, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([one for one, _ in ranking]), np.array([two for _, two in ranking], np.bool_)


def test_ties_count_half() -> None:
    # Sought 3, 1; others 2, 1, 0. 3 beats all three; 1 beats 0 and ties with 1: 4.5 of 6.
    scores, is_positive = columns([(3, True), (2, False), (1, True), (1, False), (0, False)])
    assert area_under_roc(scores, is_positive) == 4.5 / 6


def test_precision_is_averaged_over_positives_and_ties_count_together() -> None:
    # At 3: 1 of 1. At 1 both are taken: 2 of 4. (1 + 2 / 4) / 2.
    scores, is_positive = columns([(3, True), (2, False), (1, True), (1, False), (0, False)])
    assert average_precision(scores, is_positive) == (1 + 2 / 4) / 2


def test_positives_that_are_never_found_have_a_precision_of_zero() -> None:
    # 3 and 1 are found at precisions 1 and 2/3; two more have no row
    scores, is_positive = columns([(3, True), (2, False), (1, True)])
    assert average_precision(scores, is_positive, 4) == pytest.approx((1 + 2 / 3) / 4)


@pytest.mark.parametrize(
    ("precision", "recall"), [(1, 1 / 5), (0.75, 3 / 5), (0.6, 3 / 5), (0.5, 4 / 5), (0.4, 4 / 5)]
)
def test_recall_is_the_largest_at_a_precision(precision: float, recall: float) -> None:
    # Cuts: 1 of 1, 1 of 2, 3 of 4 (a tie of two), 4 of 8 (a tie of four); one has no row.
    rest = [(0, True), (0, False), (0, False), (0, False)]
    scores, is_positive = columns([(3, True), (2, False), (1, True), (1, True), *rest])
    assert recall_at_precision(scores, is_positive, precision, 5) == recall
    assert recall_at_precision(scores[1:2], is_positive[1:2], 0.5, 5) == 0
    assert recall_at_precision(scores[1:2], is_positive[1:2], 0.5) is None


def test_a_perfect_ranking_has_one_and_its_reverse_zero() -> None:
    scores, is_positive = np.array([4.0, 3, 2, 1]), np.array([True, True, False, False])
    assert area_under_roc(scores, is_positive) == 1
    assert average_precision(scores, is_positive) == 1
    assert area_under_roc(-scores, is_positive) == 0
    assert average_precision(-scores, is_positive) == (1 / 3 + 2 / 4) / 2


def test_infinite_scores_are_ranked() -> None:
    scores, is_positive = columns([(np.inf, True), (1, False), (-np.inf, False)])
    assert area_under_roc(scores, is_positive) == 1
    assert average_precision(scores, is_positive) == 1


@pytest.mark.parametrize("is_positive", [[], [True, True], [False, False]])
def test_without_positives_or_negatives_the_result_is_none(is_positive: list[bool]) -> None:
    scores, mask = np.arange(len(is_positive), dtype=np.float64), np.array(is_positive, np.bool_)
    assert area_under_roc(scores, mask) is None
    assert average_precision(scores, mask) == (1 if mask.any() else None)


@settings(deadline=None)
@given(RANKINGS)
def test_both_equal_those_of_scikit_learn(ranking: list[tuple[float, bool]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    scores, is_positive = columns(ranking)
    area, precision = area_under_roc(scores, is_positive), average_precision(scores, is_positive)
    if is_positive.any() and not is_positive.all():
        assert area == pytest.approx(metrics.roc_auc_score(is_positive, scores), abs=1e-12)
    if is_positive.any():
        expected = metrics.average_precision_score(is_positive, scores)
        assert precision == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(RANKINGS, st.randoms(use_true_random=False))
def test_order_and_scale_do_not_matter(ranking: list[tuple[float, bool]], random: object) -> None:
    scores, is_positive = columns(ranking)
    random.shuffle(ranking)  # type: ignore[attr-defined]
    others, marks = columns(ranking)
    for figure in (area_under_roc, average_precision):
        assert figure(scores, is_positive) == pytest.approx(figure(np.exp(others) * 7 - 2, marks))


def test_a_share_of_zero_is_none() -> None:
    assert share(1, 4) == 0.25
    assert share(0, 0) is None
