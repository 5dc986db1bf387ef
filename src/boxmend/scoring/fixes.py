"""Whether proposed fixes are right, and whether their probabilities are, where the truth is known.

- A wrong label's fix is right if the new label is the true one, and the old one was not.
- A bad box's fix is right if it raises the IoU with the true box and ends at 0.7 or more.
- A missing object is right if a truly missing one of that label has an IoU of 0.5 or more; each
  true object counts once.
- A spurious annotation is right if it is of nothing.
- A duplicate is right if the annotation that stays is of the same object, and does stay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from boxmend.auditing.fixes.table import GOOD_IOU, Fixes, Kind
from boxmend.data.boxes import compute_iou
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats, Mask
from boxmend.scoring.calibration import Calibration, calibration
from boxmend.scoring.missing import Proposed, are_found, are_on_ignored
from boxmend.scoring.ranking import share
from boxmend.scoring.truth import NONE, KnownTruth, TrueObjects

CALLED_WRONG = 0.5  # least probability at which an annotation is called wrong
IN_ALL = "in all"


@dataclass(frozen=True)
class FixCounts:
    """Fixes of one kind; None where there are none."""

    fixes: int
    right: int
    precision: float | None
    expected: float | None
    """The precision that the fixes claim: their mean `p_fix`."""
    calibration: Calibration
    """Of `p_fix`."""

    def to_json(self) -> dict[str, Any]:
        """Give plain data."""
        return {**vars(self), "calibration": self.calibration.to_json()}


@dataclass(frozen=True)
class FixScores:
    """A set of fixes held against the truth, by kind in words, and `in all`.

    Objects proposed on crowds and difficult ones are left out.
    """

    by_kind: dict[str, FixCounts]

    def to_json(self) -> dict[str, Any]:
        """Give plain data by kind."""
        return {kind: counts.to_json() for kind, counts in self.by_kind.items()}


def assess_fixes(dataset: Dataset, fixes: Fixes, truth: KnownTruth) -> FixScores:
    """Count the right ones of these fixes; take some of them to assess a choice.

    Kinds that the truth does not tell of, like missing objects where it knows only annotations,
    are left out.
    """
    objects = known_objects(truth)
    is_right = are_right(dataset, fixes, truth)
    is_counted = are_counted(dataset, fixes, truth, is_right)
    by_kind = {}
    for kind in Kind:
        if kind != Kind.MISSING or objects.are_all_known:
            members = is_counted & (fixes.kinds == kind)
            by_kind[kind.words] = _counts(fixes.p_fix[members], is_right[members])
    by_kind[IN_ALL] = _counts(fixes.p_fix[is_counted], is_right[is_counted])
    return FixScores(by_kind)


def are_counted(dataset: Dataset, fixes: Fixes, truth: KnownTruth, is_right: Mask) -> Mask:
    """[f] Mark the fixes that count as right or wrong.

    Wrong proposals on crowds and difficult objects do not count, and neither do fixes of neutral
    annotations, nor missing objects if the truth does not have all of them.
    """
    is_counted = is_right | ~_on_ignored(dataset, fixes, truth)
    if not known_objects(truth).are_all_known:
        is_counted &= fixes.kinds != Kind.MISSING
    is_of_annotation = fixes.rows != UNKNOWN
    is_counted[is_of_annotation] &= truth.is_counted[fixes.rows[is_of_annotation]]
    return is_counted


def are_right(dataset: Dataset, fixes: Fixes, truth: KnownTruth) -> Mask:
    """[f] Which fixes are right, taken together: see the top of this file."""
    is_right = np.zeros(len(fixes), np.bool_)
    objects = known_objects(truth)
    for kind in Kind:
        members = np.flatnonzero(fixes.kinds == kind)
        some = fixes.take(members)
        if kind == Kind.WRONG_LABEL:
            marks = (some.new_labels == truth.labels[some.rows]) & (some.new_labels != UNKNOWN)
            marks &= some.new_labels != dataset.labels[some.rows]
        elif kind == Kind.BAD_BOX:
            marks = _are_better(dataset, some, truth)
        elif kind == Kind.MISSING:
            marks = are_found(proposed_by(some), objects)
        elif kind == Kind.SPURIOUS:
            marks = truth.is_spurious[some.rows]
        else:
            marks = _are_repeated(some, objects)
        is_right[members] = marks
    return is_right


def known_objects(truth: KnownTruth) -> TrueObjects:
    """The true objects, which `known_truth` always tells."""
    assert truth.objects is not None, "a truth made up without its objects"
    return truth.objects


def proposed_by(fixes: Fixes) -> Proposed:
    """The objects that fixes of the kind missing would add, surest first by `p_fix`."""
    return Proposed(fixes.image_rows, fixes.new_labels, fixes.new_boxes, fixes.p_fix)


def are_errors(dataset: Dataset, truth: KnownTruth, kind: Kind, p_wrong: Floats) -> Mask:
    """[n] Which annotations are wrong in a way; an annotation of nothing is spurious only.

    Of several annotations of one object all but one are duplicates. Which one stays is a matter
    of taste: here the least suspected by `p_wrong`, which nothing else is decided by.
    """
    if kind == Kind.WRONG_LABEL:
        return truth.is_wrong(dataset.labels) & ~truth.is_spurious
    if kind == Kind.BAD_BOX:
        return (compute_iou(dataset.boxes, truth.boxes) < GOOD_IOU) & ~truth.is_spurious
    if kind == Kind.SPURIOUS:
        return truth.is_spurious
    assert kind == Kind.DUPLICATE, f"{kind.words} is no error of an annotation"
    object_rows = known_objects(truth).object_rows
    order = np.lexsort((np.nan_to_num(p_wrong, nan=-1.0), object_rows))
    is_again = np.zeros(len(order), np.bool_)
    is_again[1:] = object_rows[order][1:] == object_rows[order][:-1]
    is_error = np.zeros(len(order), np.bool_)
    is_error[order] = is_again
    is_error &= object_rows != NONE
    return is_error


def annotation_calibration(
    dataset: Dataset, truth: KnownTruth, p_wrong: Mapping[Kind, Floats]
) -> dict[str, Calibration]:
    """Hold the probabilities of all annotations against the truth, by kind; NaN are left out."""
    return {
        kind.words: calibration(
            np.where(truth.is_counted, told, np.nan), are_errors(dataset, truth, kind, told)
        )
        for kind, told in p_wrong.items()
    }


def called_wrong(p_wrong: Mapping[Kind, Floats]) -> dict[str, float | None]:
    """The share of annotations called wrong, by kind and by any: probability of 0.5 or more."""
    shares = {kind.words: _share_called([told]) for kind, told in p_wrong.items()}
    return {**shares, IN_ALL: _share_called(list(p_wrong.values()))}


def _share_called(columns: Sequence[Floats]) -> float | None:
    if not columns:
        return None
    table = np.stack(columns)
    is_told = ~np.isnan(table).all(axis=0)
    is_called = (np.nan_to_num(table, nan=0.0) >= CALLED_WRONG).any(axis=0)
    return share(is_called.sum(), is_told.sum())


def _counts(p_fix: Floats, is_right: Mask) -> FixCounts:
    told = calibration(p_fix, is_right)
    return FixCounts(
        fixes=len(p_fix),
        right=int(is_right.sum()),
        precision=share(is_right.sum(), len(p_fix)),
        expected=told.expected,
        calibration=told,
    )


def _on_ignored(dataset: Dataset, fixes: Fixes, truth: KnownTruth) -> Mask:
    members = np.flatnonzero(fixes.kinds == Kind.MISSING)
    marks = np.zeros(len(fixes), np.bool_)
    marks[members] = are_on_ignored(proposed_by(fixes.take(members)), dataset, truth)
    return marks


def _are_better(dataset: Dataset, fixes: Fixes, truth: KnownTruth) -> Mask:
    true_boxes = truth.boxes[fixes.rows]
    before = compute_iou(dataset.boxes[fixes.rows], true_boxes)
    after = compute_iou(fixes.new_boxes, true_boxes)
    is_better: Mask = (after > before) & (after >= GOOD_IOU)
    return is_better


def _are_repeated(fixes: Fixes, objects: TrueObjects) -> Mask:
    """Of several that would take all annotations of an object, the least probable is wrong."""
    is_same = objects.object_rows[fixes.rows] == objects.object_rows[fixes.kept_rows]
    is_same &= (objects.object_rows[fixes.rows] != NONE) & (fixes.kept_rows != UNKNOWN)
    is_right = np.zeros(len(fixes), np.bool_)
    gone: set[int] = set()
    for k in np.argsort(-fixes.p_fix, kind="stable").tolist():
        row, kept = int(fixes.rows[k]), int(fixes.kept_rows[k])
        if is_same[k] and row != kept and not {row, kept} & gone:
            is_right[k] = True
            gone.add(row)
    return is_right
