"""Count the errors that an audit finds and repairs, if the truth is known.

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
    wrong: int
    """Those that are wrong. A right one may improve an annotation that counts as no error."""

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
    are_all_known = get_true_objects(truth).are_all_known
    counts = {
        kind.words: _count_kind(dataset, fixes, is_applied, truth, kind)
        for kind in Kind
        if kind != Kind.MISSING or are_all_known
    }
    columns = zip(*(asdict(of_kind).values() for of_kind in counts.values()), strict=True)
    return {**counts, IN_ALL: RepairCounts(*map(sum, columns))}


def _count_kind(
    dataset: Dataset, fixes: Fixes, is_applied: Mask, truth: KnownTruth, kind: Kind
) -> RepairCounts:
    is_kind = fixes.kinds == kind
    own, called = fixes.take(is_kind), fixes.take(is_kind & (fixes.p_wrong >= CALLED_WRONG))
    applied = fixes.take(is_kind & is_applied)
    is_right = mark_right_fixes(dataset, applied, truth)
    is_counted = mark_counted_fixes(dataset, applied, truth, is_right)
    if kind == Kind.MISSING:
        errors = int(get_true_objects(truth).is_missing.sum())
        found = int(mark_right_fixes(dataset, called, truth).sum())
        repaired = int(is_right.sum())
    else:
        is_error = _mark_errors(dataset, own, truth, kind)
        errors, found = int(is_error.sum()), int(is_error[called.rows].sum())
        repaired = int((is_right & is_error[applied.rows]).sum())
    return RepairCounts(
        errors=errors,
        found=found,
        repaired=repaired,
        applied=int(is_counted.sum()),
        wrong=int((is_counted & ~is_right).sum()),
    )


def _mark_errors(dataset: Dataset, own: Fixes, truth: KnownTruth, kind: Kind) -> Mask:
    """Return a mask [n] of the annotations with an error; `own` are the fixes of this kind.

    Of the annotations of one object, all but the one that looks least like a duplicate are errors.
    """
    p_wrong = np.full(len(dataset), np.nan)
    p_wrong[own.rows] = own.p_wrong
    return mark_erroneous(dataset, truth, kind, p_wrong) & truth.is_counted
