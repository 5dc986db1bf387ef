"""Score proposed fixes and their probabilities by a known truth.

- A wrong label's fix is right if the new label is the true one, and the old one was not.
- A bad box's fix is right if it raises the IoU with the true box and ends at 0.7 or more.
- A proposed missing object is right if it has an IoU of 0.5 or more with a truly missing object of
  its label; each true object counts once.
- The removal of a spurious annotation is right if the annotation shows no object.
- The removal of a duplicate is right if the annotation that is kept shows the same object, and no
  other fix removes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from boxmend.auditing.fixes.table import GOOD_IOU, Fixes, Kind
from boxmend.data.boxes import compute_iou
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats, Mask
from boxmend.scoring.calibration import Calibration, measure_calibration
from boxmend.scoring.missing import Proposed, mark_on_ignored, mark_right_proposals
from boxmend.scoring.ranking import share
from boxmend.scoring.truth import NONE, KnownTruth, TrueObjects

CALLED_WRONG = 0.5  # lowest probability of an annotation that is called wrong
IN_ALL = "in all"


@dataclass(frozen=True)
class FixCounts:
    """Counts of the fixes of one kind; a share is None without fixes."""

    fixes: int
    right: int
    precision: float | None
    expected: float | None
    """The precision that the probabilities predict: the mean `p_fix`."""
    calibration: Calibration
    """The calibration of `p_fix`."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data: numbers, None, lists and dictionaries."""
        return {**vars(self), "calibration": self.calibration.to_json()}


@dataclass(frozen=True)
class FixScores:
    """The scores of a set of fixes, by kind and `in all`.

    Objects proposed on crowds and on difficult objects do not count.
    """

    by_kind: dict[str, FixCounts]

    def to_json(self) -> dict[str, Any]:
        """Return plain data by kind."""
        return {kind: counts.to_json() for kind, counts in self.by_kind.items()}


def assess_fixes(dataset: Dataset, fixes: Fixes, truth: KnownTruth) -> FixScores:
    """Count fixes and right fixes, by kind; `fixes` may be a selection.

    Missing objects are left out if the truth does not have all of them.
    """
    objects = get_true_objects(truth)
    is_right = mark_right_fixes(dataset, fixes, truth)
    is_counted = mark_counted_fixes(dataset, fixes, truth, is_right)
    by_kind = {}
    for kind in Kind:
        if kind != Kind.MISSING or objects.are_all_known:
            members = is_counted & (fixes.kinds == kind)
            by_kind[kind.words] = _count_fixes(fixes.p_fix[members], is_right[members])
    by_kind[IN_ALL] = _count_fixes(fixes.p_fix[is_counted], is_right[is_counted])
    return FixScores(by_kind)


def mark_counted_fixes(dataset: Dataset, fixes: Fixes, truth: KnownTruth, is_right: Mask) -> Mask:
    """Return a mask [f] of the fixes that count as right or wrong.

    Three kinds of fixes do not count: wrong proposals on crowds and difficult objects, fixes of
    neutral annotations, and missing objects if the truth does not have all of them.
    """
    is_counted = is_right | ~_on_ignored(dataset, fixes, truth)
    if not get_true_objects(truth).are_all_known:
        is_counted &= fixes.kinds != Kind.MISSING
    is_of_annotation = fixes.rows != UNKNOWN
    is_counted[is_of_annotation] &= truth.is_counted[fixes.rows[is_of_annotation]]
    return is_counted


def mark_right_fixes(dataset: Dataset, fixes: Fixes, truth: KnownTruth) -> Mask:
    """Return a mask [f] of the right fixes by the rules in the docstring of the module."""
    is_right = np.zeros(len(fixes), np.bool_)
    objects = get_true_objects(truth)
    for kind in Kind:
        members = np.flatnonzero(fixes.kinds == kind)
        some = fixes.take(members)
        if kind == Kind.WRONG_LABEL:
            marks = (some.new_labels == truth.labels[some.rows]) & (some.new_labels != UNKNOWN)
            marks &= some.new_labels != dataset.labels[some.rows]
        elif kind == Kind.BAD_BOX:
            marks = _mark_better_boxes(dataset, some, truth)
        elif kind == Kind.MISSING:
            marks = mark_right_proposals(list_proposed_objects(some), objects)
        elif kind == Kind.SPURIOUS:
            marks = truth.is_spurious[some.rows]
        else:
            marks = _mark_right_duplicates(some, objects)
        is_right[members] = marks
    return is_right


def get_true_objects(truth: KnownTruth) -> TrueObjects:
    """Return the true objects of a truth, which `known_truth` always has."""
    assert truth.objects is not None, "a truth without its objects"
    return truth.objects


def list_proposed_objects(fixes: Fixes) -> Proposed:
    """Return the objects that fixes of missing annotations would add, scored by `p_fix`."""
    return Proposed(fixes.image_rows, fixes.new_labels, fixes.new_boxes, fixes.p_fix)


def mark_erroneous(dataset: Dataset, truth: KnownTruth, kind: Kind, p_wrong: Floats) -> Mask:
    """Return a mask [n] of annotations with one kind of error; a spurious one has no other error.

    Of several annotations of one object, all but one are duplicates: all but the one with the
    lowest `p_wrong`, which is used for nothing else.
    """
    if kind == Kind.WRONG_LABEL:
        return truth.is_wrong(dataset.labels) & ~truth.is_spurious
    if kind == Kind.BAD_BOX:
        return (compute_iou(dataset.boxes, truth.boxes) < GOOD_IOU) & ~truth.is_spurious
    if kind == Kind.SPURIOUS:
        return truth.is_spurious
    assert kind == Kind.DUPLICATE, f"{kind.words} is not an error of an annotation"
    object_rows = get_true_objects(truth).object_rows
    order = np.lexsort((np.nan_to_num(p_wrong, nan=-1.0), object_rows))
    is_repeated = np.zeros(len(order), np.bool_)
    is_repeated[1:] = object_rows[order][1:] == object_rows[order][:-1]
    is_error = np.zeros(len(order), np.bool_)
    is_error[order] = is_repeated
    is_error &= object_rows != NONE
    return is_error


def measure_annotation_calibration(
    dataset: Dataset, truth: KnownTruth, p_wrong: Mapping[Kind, Floats]
) -> dict[str, Calibration]:
    """Return by kind the calibration of the probabilities of all judged annotations."""
    return {
        kind.words: measure_calibration(
            np.where(truth.is_counted, column, np.nan), mark_erroneous(dataset, truth, kind, column)
        )
        for kind, column in p_wrong.items()
    }


def called_wrong(p_wrong: Mapping[Kind, Floats]) -> dict[str, float | None]:
    """Return the share of annotations with a probability of at least 0.5, by kind and for any."""
    shares = {kind.words: _share_called_wrong([column]) for kind, column in p_wrong.items()}
    return {**shares, IN_ALL: _share_called_wrong(list(p_wrong.values()))}


def _share_called_wrong(columns: Sequence[Floats]) -> float | None:
    if not columns:
        return None
    table = np.stack(columns)
    is_judged = ~np.isnan(table).all(axis=0)
    is_called = (np.nan_to_num(table, nan=0.0) >= CALLED_WRONG).any(axis=0)
    return share(is_called.sum(), is_judged.sum())


def _count_fixes(p_fix: Floats, is_right: Mask) -> FixCounts:
    reliability = measure_calibration(p_fix, is_right)
    return FixCounts(
        fixes=len(p_fix),
        right=int(is_right.sum()),
        precision=share(is_right.sum(), len(p_fix)),
        expected=reliability.expected,
        calibration=reliability,
    )


def _on_ignored(dataset: Dataset, fixes: Fixes, truth: KnownTruth) -> Mask:
    """Return a mask [f] of missing objects that are proposed on a crowd or difficult object."""
    members = np.flatnonzero(fixes.kinds == Kind.MISSING)
    marks = np.zeros(len(fixes), np.bool_)
    marks[members] = mark_on_ignored(list_proposed_objects(fixes.take(members)), dataset, truth)
    return marks


def _mark_better_boxes(dataset: Dataset, fixes: Fixes, truth: KnownTruth) -> Mask:
    """Return a mask [f] of box fixes that raise the IoU with the true box to 0.7 or more."""
    true_boxes = truth.boxes[fixes.rows]
    before = compute_iou(dataset.boxes[fixes.rows], true_boxes)
    after = compute_iou(fixes.new_boxes, true_boxes)
    is_better: Mask = (after > before) & (after >= GOOD_IOU)
    return is_better


def _mark_right_duplicates(fixes: Fixes, objects: TrueObjects) -> Mask:
    """Return a mask [f] of right duplicates; one annotation of each object has to stay."""
    is_same = objects.object_rows[fixes.rows] == objects.object_rows[fixes.kept_rows]
    is_same &= (objects.object_rows[fixes.rows] != NONE) & (fixes.kept_rows != UNKNOWN)
    is_right = np.zeros(len(fixes), np.bool_)
    removed: set[int] = set()
    for k in np.argsort(-fixes.p_fix, kind="stable").tolist():
        row, kept = int(fixes.rows[k]), int(fixes.kept_rows[k])
        if is_same[k] and row != kept and not {row, kept} & removed:
            is_right[k] = True
            removed.add(row)
    return is_right
