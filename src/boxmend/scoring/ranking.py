"""Measure rankings by scores of any scale: area under ROC, average precision, recall."""

import numpy as np

from boxmend.data.types import Floats, Mask, Rows


def area_under_roc(scores: Floats, is_positive: Mask) -> float | None:
    """Return the probability that a positive scores higher than a negative; ties count half.

    Let R be the sum of the ranks of the p positives among p + n rows, with rank 1 for the lowest
    score and the mean rank for equal scores. Then AUC = (R - p (p + 1) / 2) / (p n). The result is
    None if p or n is 0. Scores may be infinite but not NaN.
    """
    num_positives = int(is_positive.sum())
    num_negatives = len(is_positive) - num_positives
    if num_positives == 0 or num_negatives == 0:
        return None
    _, group, counts = np.unique(scores, return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2  # from 1
    total = float(mean_ranks[group][is_positive].sum())
    return (total - num_positives * (num_positives + 1) / 2) / (num_positives * num_negatives)


def average_precision(
    scores: Floats, is_positive: Mask, num_positives: int | None = None
) -> float | None:
    """Return the mean over all positives of the precision among rows that score at least as high.

    Equal scores count together, so the order of the rows does not matter. `num_positives` also
    counts positives without a row, which are never found: their precision is 0. The result is None
    without positives. Scores may be infinite but not NaN.
    """
    num_positives = int(is_positive.sum()) if num_positives is None else num_positives
    if num_positives == 0:
        return None
    hits, counts = _count_by_level(scores, is_positive)
    precisions = np.cumsum(hits) / np.cumsum(counts)
    return float((precisions * hits).sum() / num_positives)


def recall_at_precision(
    scores: Floats, is_positive: Mask, precision: float, num_positives: int | None = None
) -> float | None:
    """Return the largest share of positives that a cut of the ranking finds at a precision.

    A cut takes all rows with a score of some level or more, and counts if at least this share of
    them is positive. `num_positives` is as for `average_precision`. The result is None without
    positives, and 0 if no cut is that precise.
    """
    num_positives = int(is_positive.sum()) if num_positives is None else num_positives
    if num_positives == 0:
        return None
    hits, counts = (np.cumsum(each) for each in _count_by_level(scores, is_positive))
    is_precise = hits >= precision * counts
    return float(hits[is_precise].max(initial=0)) / num_positives


def _count_by_level(scores: Floats, is_positive: Mask) -> tuple[Rows, Rows]:
    """Return the numbers of positives and of rows with each score, highest first."""
    levels, group = np.unique(-scores, return_inverse=True)
    hits = np.bincount(group[is_positive], minlength=len(levels))
    return hits, np.bincount(group, minlength=len(levels))


def share(count: float, total: float) -> float | None:
    """Return the fraction count / total, or None if the total is 0."""
    return float(count) / float(total) if total else None
