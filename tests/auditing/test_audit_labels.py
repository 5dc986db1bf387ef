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


def judged(
    labels: NDArray[np.int64],
    seen: Sequence[Mapping[int, float]],
    num_labels: int,
    p_real: Floats | None = None,
) -> LabelOpinion:
    n = len(labels)
    objects = Objects(np.zeros(n, np.int64), labels, np.zeros((n, 4)), num_labels)
    weights = np.ones(n) if p_real is None else p_real
    return judge_labels(objects, evidence_of(seen, num_labels), weights, np.random.default_rng(0))


def test_a_fix_is_as_probable_as_the_class_seen_is_right_of_planted_labels() -> None:
    # All annotations say 2. 900 are seen as that, 100 as 1 alone, 50 not at all. Where planted
    # labels are seen as 2, that is right; where half of the 900 look like 1, too, and 0 is planted,
    # they are seen as 1, which is wrong.
    plain: list[dict[int, float]] = [{2: 0.9}] * 900
    doubtful: list[dict[int, float]] = [{2: 0.9}] * 450 + [{1: 0.9, 2: 0.9}] * 450
    rest: list[dict[int, float]] = [{1: 0.9}] * 100 + [{}] * 50
    is_wrong, is_unseen = slice(900, 1000), slice(1000, 1050)
    shares = []
    for seen in (plain, doubtful):
        found = judged(np.full(1050, 2), seen + rest, 3)
        assert found.labels[is_wrong].tolist() == [1] * 100
        assert found.p_wrong[is_wrong].min() > 0.3
        shares.append(float((found.p_fix / found.p_wrong)[is_wrong].mean()))
        assert found.labels[is_unseen].tolist() == [NONE] * 50
        assert found.p_wrong[is_unseen].min() > 0
        assert found.p_fix[is_unseen].tolist() == [0.0] * 50
    assert shares[0] < 0.9
    assert shares[1] < shares[0] - 0.1


def drawn(is_pattern: bool, p_real: float = 1.0) -> tuple[LabelOpinion, Mask]:
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
    return judged(labels, seen, 6, np.where(is_wrong, p_real, 1.0)), is_wrong


def test_wrong_labels_of_all_kinds_are_told_from_right_ones() -> None:
    found, is_wrong = drawn(is_pattern=False)
    assert found.rate.value == pytest.approx(0.05, abs=0.002)
    assert found.p_wrong[is_wrong].mean() > 0.85
    assert found.p_wrong[~is_wrong].mean() < 0.001
    # the sum of all probabilities stays below what the rate says: by a quarter of the way to its
    # lower bound, and by doubt
    assert found.p_wrong.mean() < found.rate.cautious - 0.002


def test_a_pattern_is_for_people_to_confirm() -> None:
    # 90 cases of one pair, where about 3 would be expected: each counts for about a twelfth,
    # (90 + 5) / (3 + 5), and is probable no more.
    found, is_wrong = drawn(is_pattern=True)
    assert found.rate.value == pytest.approx(0.05, abs=0.002)
    assert found.p_wrong[is_wrong].mean() == pytest.approx(0.2, abs=0.05)
    assert found.p_wrong[~is_wrong].mean() < 0.002


def test_planted_labels_that_happen_to_be_right_do_not_count_as_errors() -> None:
    # Of two classes, the other label of a wrong annotation is the right one. 400 of 1000 are wrong:
    # without weights, as many planted labels would look right, and right annotations wrong.
    random = np.random.default_rng(0)
    true, values = random.integers(2, size=1000), random.uniform(0.7, 0.95, 1000)
    is_wrong = np.arange(1000) < 400
    seen = [{int(label): float(value)} for label, value in zip(true, values, strict=True)]
    found = judged(np.where(is_wrong, 1 - true, true), seen, 2)
    assert found.p_wrong[is_wrong].mean() > 0.9
    assert found.p_wrong[~is_wrong].mean() < 0.05


def test_annotations_of_nothing_say_nothing_about_labels() -> None:
    found, _ = drawn(is_pattern=False, p_real=0.0)
    assert found.rate.value == pytest.approx(0.0, abs=0.001)
    assert found.p_wrong.max() < 0.01
