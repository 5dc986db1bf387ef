"""Count the errors of a dataset with a known truth, and how many of them an audit finds and repairs.

The rules of `scoring.fixes` say which annotations are wrong and which fixes are right.
"""

from dataclasses import asdict, dataclass

import numpy as np

from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.data.dataset import Dataset
from boxmend.data.types import Mask
from boxmend.scoring.fixes import (
    CALLED_WRONG,
    IN_ALL,
    get_true_objects,
    mark_counted_fixes,
    mark_erroneous,
    mark_right_fixes,
)
from boxmend.scoring.truth import KnownTruth


@dataclass(frozen=True)
class RepairCounts:
    """Counts of the errors of one kind, and of the fixes of this kind that are applied."""

    errors: int
    found: int
    """Errors with a fix whose annotation is more likely wrong than not."""
    repaired: int
    """Errors with an applied fix that is right."""
    applied: int
    """Applied fixes that count as right or wrong."""

    @property
    def harmful(self) -> int:
        """The applied fixes that are not right."""
        return self.applied - self.repaired

    def to_json(self) -> dict[str, int]:
        """Return plain data."""
        return asdict(self)


def count_repairs(
    dataset: Dataset, fixes: Fixes, is_applied: Mask, truth: KnownTruth
) -> dict[str, RepairCounts]:
    """Return by kind, and `in all`, how many errors the fixes find, and the applied ones repair.

    `is_applied` marks the fixes [f] to apply. Missing objects are left out if the truth does not
    have all of them.
    """
    is_right = mark_right_fixes(dataset, fixes, truth)
    is_counted = mark_counted_fixes(dataset, fixes, truth, is_right)
    is_called = fixes.p_wrong >= CALLED_WRONG
    counts = {}
    for kind in Kind:
        is_kind = fixes.kinds == kind
        if kind == Kind.MISSING and not get_true_objects(truth).are_all_known:
            continue
        applied = fixes.take(is_kind & is_applied)
        called = fixes.take(is_kind & is_called)
        counts[kind.words] = RepairCounts(
            errors=_count_errors(dataset, fixes, truth, kind),
            found=_count_found(dataset, called, truth, kind),
            repaired=int(mark_right_fixes(dataset, applied, truth).sum()),
            applied=int((is_kind & is_applied & is_counted).sum()),
        )
    total = np.array([list(asdict(count).values()) for count in counts.values()]).sum(axis=0)
    return {**counts, IN_ALL: RepairCounts(*total.tolist())}


def _count_errors(dataset: Dataset, fixes: Fixes, truth: KnownTruth, kind: Kind) -> int:
    if kind == Kind.MISSING:
        return int(get_true_objects(truth).is_missing.sum())
    p_wrong = np.full(len(dataset), np.nan)
    own = fixes.take(fixes.kinds == kind)
    p_wrong[own.rows] = own.p_wrong
    return int((mark_erroneous(dataset, truth, kind, p_wrong) & truth.is_counted).sum())


def _count_found(dataset: Dataset, called: Fixes, truth: KnownTruth, kind: Kind) -> int:
    """Return how many errors these fixes of one kind point to, whatever they propose.

    The fix of a missing object or a duplicate points to an error if it is right.
    """
    if kind in (Kind.MISSING, Kind.DUPLICATE):
        return int(mark_right_fixes(dataset, called, truth).sum())
    is_error = mark_erroneous(dataset, truth, kind, np.full(len(dataset), np.nan))
    return int((is_error & truth.is_counted)[called.rows].sum())
