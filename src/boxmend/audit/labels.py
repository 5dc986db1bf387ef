"""How probable it is that a label is wrong, and which one is right.

Wrong labels are planted: annotations are called other names in memory, as annotators would err.
What the evidence then says of them is known to be said of wrong labels. See `calibration`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boxmend.audit.calibration import Share, error_curve, mean_curve, sample, share_of_errors
from boxmend.audit.evidence import NONE, Evidence, Objects, suspicion

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]

ROUNDS = 3  # of planting by what was found before; it settles within two
MOST_COPIES = 8
ENOUGH = 200_000  # planted labels; more add time, not precision
EVEN = 20.0  # wrong labels of a class imagined to be spread evenly before any is seen


@dataclass(frozen=True, eq=False)
class LabelOpinion:
    """What to think of labels, row by row; for annotations that are real."""

    p_wrong: Floats  # [n]
    labels: Rows  # [n] the best other one, or NONE
    p_fix: Floats  # [n] that it is right
    rate: Share  # of wrong labels


def judge_labels(
    objects: Objects, evidence: Evidence, p_real: Floats, random: np.random.Generator
) -> LabelOpinion:
    """Weigh labels; `p_real` [n] says how probable it is that there is an object at all."""
    n, num_labels = len(objects), objects.num_labels
    if num_labels < 2 or not n:
        return LabelOpinion(np.zeros(n), np.full(n, NONE), np.zeros(n), Share(0.0, 0.0, 0.0))
    rows = np.arange(n)
    seen, best = suspicion(evidence, rows, objects.labels)
    observed = sample(seen, p_real)
    copies = np.tile(rows, int(np.clip(ENOUGH // n, 1, MOST_COPIES)))
    draws = random.random(len(copies))
    confusion = _even(num_labels)
    p_wrong = np.zeros(n)
    for _ in range(ROUNDS):
        labels = _drawn(confusion, objects.labels[copies], draws)
        suspicions, fixes = suspicion(evidence, copies, labels)
        is_true = labels == best[copies]  # where the annotation was wrong, and this is right
        planted = sample(suspicions, (p_real[copies] * (1 - p_wrong[copies] * is_true)))
        rate = share_of_errors(observed, planted)
        p_wrong = error_curve(observed, planted, rate.value).at(seen)
        confusion = _confusion(best, objects.labels, p_wrong * p_real, num_labels)
    is_right = (fixes == objects.labels[copies]).astype(np.float64)
    known = sample(suspicions, (p_real * (1 - p_wrong))[copies])  # by their label
    p_right = mean_curve(known, is_right).at(seen)
    p_fix = np.where(best == NONE, 0.0, p_wrong * p_right)
    return LabelOpinion(p_wrong, best, p_fix, rate)


def _even(num_labels: int) -> Floats:
    """Every class taken for every other one alike; [C, C], true by annotated."""
    matrix = np.full((num_labels, num_labels), 1 / (num_labels - 1))
    np.fill_diagonal(matrix, 0)
    return matrix


def _confusion(true: Rows, annotated: Rows, weights: Floats, num_labels: int) -> Floats:
    """As what the classes are annotated where they are annotated wrongly; rows add up to 1."""
    counts = EVEN * _even(num_labels)
    is_found = (true != NONE) & (weights >= 0.5)
    np.add.at(counts, (true[is_found], annotated[is_found]), weights[is_found])
    np.fill_diagonal(counts, 0)
    matrix: Floats = counts / counts.sum(axis=1, keepdims=True)
    return matrix


def _drawn(confusion: Floats, labels: Rows, draws: Floats) -> Rows:
    """Wrong labels for right ones, by draws from 0 to 1."""
    places = np.cumsum(confusion, axis=1) + np.arange(len(confusion))[:, None]
    places[:, -1] = np.arange(1, len(confusion) + 1)  # exactly, whatever the rounding
    found = np.searchsorted(places.ravel(), labels + draws, side="right") - labels * len(confusion)
    last = np.where(labels == len(confusion) - 1, len(confusion) - 2, len(confusion) - 1)
    wrong: Rows = np.minimum(found, last)
    return wrong
