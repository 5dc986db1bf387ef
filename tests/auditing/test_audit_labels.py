"""Opinions on labels: from evidence that is made up, so that the answers are known."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from boxmend.auditing.evidence import NONE, Evidence, Objects
from boxmend.auditing.labels import LabelOpinion, judge_labels

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def evidence_of(seen: Sequence[Mapping[int, float]], num_labels: int) -> Evidence:
    """Evidence for some labels of each annotation, and 0.01 for every other one."""
    pairs = [
        (row * num_labels + label, value)
        for row, one in enumerate(seen)
        for label, value in sorted(one.items())
    ]
    n = len(seen)
    return Evidence(
        num_labels=num_labels,
        keys=np.array([key for key, _ in pairs], np.int64),
        values=np.array([value for _, value in pairs]),
        rest=np.full(n, 0.01),
        support=np.ones(n),
        boxes=np.zeros((n, 4)),
        confidences=np.ones(n),
    )


def judge_labels_of(
    labels: NDArray[np.int64],
    seen: Sequence[Mapping[int, float]],
    num_labels: int,
    p_real: Floats | None = None,
) -> LabelOpinion:
    n = len(labels)
    objects = Objects(np.zeros(n, np.int64), labels, np.zeros((n, 4)), num_labels)
    weights = np.ones(n) if p_real is None else p_real
    random = np.random.default_rng(0)
    return judge_labels(objects, evidence_of(seen, num_labels), weights, 0.0, random)


def draw_opinion(is_pattern: bool, p_real: float = 1.0) -> tuple[LabelOpinion, Mask]:
    """1,800 annotations of six classes with 90 wrong labels; and which these are.

    As a pattern, all of them are of class 1 and say 0. Otherwise they are any.
    """
    random = np.random.default_rng(1)
    n, number = 1800, 90
    true = random.integers(6, size=n)
    labels = true.copy()
    wrong = np.flatnonzero(true == 1)[:number] if is_pattern else random.permutation(n)[:number]
    shifts = 5 if is_pattern else random.integers(1, 6, size=number)
    labels[wrong] = (true[wrong] + shifts) % 6
    own, other = random.uniform(0.5, 0.95, n), random.uniform(0, 0.3, n)
    others = (true + random.integers(1, 6, size=n)) % 6
    seen = [
        {int(a): float(x), int(b): float(z)}
        for a, b, x, z in zip(true, others, own, other, strict=True)
    ]
    is_wrong = np.zeros(n, np.bool_)
    is_wrong[wrong] = True
    return judge_labels_of(labels, seen, 6, np.where(is_wrong, p_real, 1.0)), is_wrong


def test_wrong_labels_of_all_kinds_are_separated_from_right_ones() -> None:
    result, is_wrong = draw_opinion(is_pattern=False)
    assert result.rate.value == pytest.approx(0.05, abs=0.002)
    assert result.p_wrong[is_wrong].mean() > 0.85
    assert result.p_wrong[~is_wrong].mean() < 0.001
    assert result.rate.low < result.p_wrong.mean() < result.rate.high


def test_a_fix_is_the_class_that_is_seen_and_less_probable_than_the_error() -> None:
    result, is_wrong = draw_opinion(is_pattern=False)
    assert (result.p_fix <= result.p_wrong).all()
    assert result.p_fix[is_wrong].sum() > 0.9 * result.p_wrong[is_wrong].sum()


def test_without_evidence_a_label_is_as_probably_wrong_as_others_and_has_no_fix() -> None:
    random = np.random.default_rng(0)
    true = random.integers(4, size=1000)
    labels = np.where(np.arange(1000) < 100, (true + 1) % 4, true)
    seen: list[dict[int, float]] = [{int(label): 0.9} for label in true]
    seen[500:600] = [{}] * 100
    actual = judge_labels_of(labels, seen, 4)
    assert actual.labels[500:600].tolist() == [NONE] * 100
    assert actual.p_fix[500:600].tolist() == [0.0] * 100
    assert 0 < actual.p_wrong[500:600].max() < 0.5 < actual.p_wrong[:100].min()


def test_wrong_labels_of_one_pair_are_evidence_for_that_pair() -> None:
    # Contradictions that are confident are annotators' errors, also where all are of one pair.
    result, is_wrong = draw_opinion(is_pattern=True)
    assert result.rate.low < 0.05 < result.rate.high
    assert result.p_wrong[is_wrong].mean() > 0.7
    assert result.p_wrong[~is_wrong].mean() < 0.005


def test_planted_labels_that_happen_to_be_right_do_not_count_as_errors() -> None:
    # Of two classes, the other label of a wrong annotation is the right one. 400 of 1000 are wrong:
    # without weights, as many planted labels would look right, and right annotations wrong.
    random = np.random.default_rng(0)
    true, values = random.integers(2, size=1000), random.uniform(0.7, 0.95, 1000)
    is_wrong = np.arange(1000) < 400
    seen = [{int(label): float(value)} for label, value in zip(true, values, strict=True)]
    actual = judge_labels_of(np.where(is_wrong, 1 - true, true), seen, 2)
    assert actual.p_wrong[is_wrong].mean() > 0.9
    assert actual.p_wrong[~is_wrong].mean() < 0.05


def test_annotations_of_nothing_say_nothing_about_labels() -> None:
    result, _ = draw_opinion(is_pattern=False, p_real=0.0)
    assert result.rate.value == pytest.approx(0.0, abs=0.001)
    assert result.p_wrong.max() < 0.01
