"""How probable it is that a label is wrong, and which one is right.

Wrong labels are planted: annotations are called any other name in memory. What the evidence then
says of them is known to be said of wrong labels. See `calibration`.
"""

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.calibration import (
    NOT_MEASURED,
    Share,
    WeightedSample,
    error_curve,
    mean_curve,
    sample,
    share_of_errors,
)
from boxmend.auditing.evidence import NONE, Evidence, Objects, suspicion
from boxmend.data.types import Floats, Rows


@dataclass(frozen=True)
class LabelConstants:
    """How labels are judged by planted wrong ones."""

    num_rounds: int = 3  # each by the result of the one before; it settles within two
    max_copies: int = 8  # of every annotation
    max_planted: int = 200_000  # labels; more add time, not precision
    prior_confusions: float = 5.0  # imagined cases of two classes mistaken for each other


LABELS = LabelConstants()


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
    copies = np.tile(rows, int(np.clip(LABELS.max_planted // n, 1, LABELS.max_copies)))
    shifts = random.integers(1, num_labels, size=len(copies))
    labels = (objects.labels[copies] + shifts) % num_labels  # wrong, if the annotation was right
    suspicions, fixes = suspicion(evidence, copies, labels)
    is_true = labels == best[copies]  # where the annotation was wrong, and this is right
    observed, p_wrong, rate = sample(seen, p_real), np.zeros(n), NOT_MEASURED
    for number in range(LABELS.num_rounds):
        planted = sample(suspicions, p_real[copies] * (1 - p_wrong[copies] * is_true))
        if number == 0:
            rate = share_of_errors(observed, planted)
        else:
            named = (objects.labels, best, observed), (labels, fixes, planted)
            excess = _excess(*named, rate.value, num_labels)
            observed = sample(seen - excess[objects.labels, best], p_real)
            planted = sample(suspicions - excess[labels, fixes], planted.weights)
        p_wrong = error_curve(observed, planted, rate.cautious).at(observed.suspicions)
    is_right = (fixes == objects.labels[copies]).astype(np.float64)
    known = sample(planted.suspicions, (p_real * (1 - p_wrong))[copies])  # by their label
    p_right = mean_curve(known, is_right).at(observed.suspicions)
    p_fix = np.where(best == NONE, 0.0, p_wrong * p_right)
    return LabelOpinion(p_wrong, best, p_fix, rate)


Named = tuple[Rows, Rows, WeightedSample]
"""Labels, the best other ones, and how suspicious that is."""


def _excess(observed: Named, planted: Named, share: float, num_labels: int) -> Floats:
    """How much oftener a class is seen in the place of a label than wrong labels explain.

    In logarithms, [C, C + 1] by label and by class seen, the last one for NONE. Two classes that
    are often taken for each other may be so by the detector as well as by annotators: each single
    case is worth less then, and as a pattern it is for people to confirm.
    """
    matrices = []
    for labels, others, suspicions in (observed, planted):
        is_strong = (suspicions.suspicions > 0) & (others != NONE)
        place = labels[is_strong] * num_labels + others[is_strong]
        sums = np.bincount(place, suspicions.weights[is_strong], num_labels**2)
        matrices.append(sums.reshape(num_labels, num_labels) / max(suspicions.total, 1e-9))
    total = observed[2].total
    seen, expected = matrices[0] * total, matrices[1] * total * share
    prior = LABELS.prior_confusions
    excess = np.maximum(np.log((seen + prior) / (expected + prior)), 0.0)
    return np.pad(excess, ((0, 0), (0, 1)))
