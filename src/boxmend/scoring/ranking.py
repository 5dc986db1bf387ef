"""How well scores rank what is sought above all else, whatever their scale."""

import numpy as np

from boxmend.data.types import Floats, Mask


def area_under_roc(scores: Floats, is_sought: Mask) -> float | None:
    """The chance that something sought scores higher than something else; ties count half.

    By ranks: with R the sum of the ranks of p sought ones among p + n, lowest first and equal
    scores sharing their mean rank, AUC = (R - p (p + 1) / 2) / (p n). None where one of the two
    groups is empty. Scores may be infinite, not NaN.
    """
    num_sought = int(is_sought.sum())
    num_others = len(is_sought) - num_sought
    if num_sought == 0 or num_others == 0:
        return None
    _, group, counts = np.unique(scores, return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2  # from 1
    total = float(mean_ranks[group][is_sought].sum())
    return (total - num_sought * (num_sought + 1) / 2) / (num_sought * num_others)


def average_precision(
    scores: Floats, is_sought: Mask, num_sought: int | None = None
) -> float | None:
    """The mean, over all that is sought, of the precision among what scores at least as high.

    Equal scores are taken at once, so the order of the rows does not matter. `num_sought` counts
    also what has no row and is never found: its precision is 0. None where nothing is sought.
    Scores may be infinite, not NaN.
    """
    num_sought = int(is_sought.sum()) if num_sought is None else num_sought
    if num_sought == 0:
        return None
    levels, group = np.unique(-scores, return_inverse=True)
    found = np.bincount(group[is_sought], minlength=len(levels))  # at each level, highest first
    taken = np.bincount(group, minlength=len(levels))
    precisions = np.cumsum(found) / np.cumsum(taken)
    return float((precisions * found).sum() / num_sought)


def share(count: float, total: float) -> float | None:
    """A fraction; None of nothing."""
    return float(count) / float(total) if total else None
