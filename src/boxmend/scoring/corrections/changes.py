"""Score the changes that `apply` writes: the number of right ones, and of remaining errors.

Crowds and difficult objects never change and are left out. Spurious annotations have no true label
or box and are counted separately.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from boxmend.auditing.fixes.table import GOOD_IOU
from boxmend.data.boxes import compute_iou
from boxmend.data.types import Mask
from boxmend.repair.changes import Changes
from boxmend.runs.opening import OpenRun
from boxmend.scoring.ranking import share
from boxmend.scoring.truth import KnownTruth

SAME_IOU = 0.01  # largest change of the IoU for a box to count as good as before


@dataclass(frozen=True)
class LabelChanges:
    """Counts of labels before and after; relabelled = right + wrong_to_wrong + harm."""

    relabelled: int
    right: int
    """Labels that were wrong and are right now."""
    wrong_to_wrong: int
    harm: int
    """Labels that were right and are wrong now."""
    wrong_before: int
    wrong_after: int
    noise_before: float | None
    noise_after: float | None
    missed: int
    """Wrong labels that were not changed."""
    missed_but_unsure: int
    """Wrong labels that were not changed but are listed as unsure."""


@dataclass(frozen=True)
class BoxMoves:
    """Counts of boxes before and after; moved = better + alike + worse."""

    moved: int
    better: int
    """Boxes whose IoU with the true box rose by more than 0.01."""
    alike: int
    worse: int
    """Boxes whose IoU with the true box fell by more than 0.01."""
    bad_before: int
    """Boxes with an IoU below 0.7 with the true box."""
    bad_after: int
    mended: int
    """Boxes that were bad and are not now."""
    spoiled: int
    """Boxes that are bad now and were not."""
    missed: int
    """Bad boxes that were not moved."""
    mean_iou_before: float | None
    mean_iou_after: float | None


@dataclass(frozen=True)
class SpuriousAnnotations:
    """Counts of spurious annotations and their changes; one may count as moved and relabelled."""

    annotations: int
    unsure: int
    relabelled: int
    moved: int


@dataclass(frozen=True)
class ChangeScores:
    """All changes together; an annotation that is relabelled and moved counts twice."""

    annotations: int
    wrong_before: int
    """Annotations with a wrong label or a bad box."""
    wrong_after: int
    changes: int
    right: int
    """Right labels and better boxes."""
    harm: int
    """Labels that were right before, and boxes that were better before."""
    missed: int
    """Annotations with a wrong label that was not changed, or a bad box that was not moved."""
    labels: LabelChanges
    boxes: BoxMoves
    spurious: SpuriousAnnotations


def score_changes(opened: OpenRun, changes: Changes, truth: KnownTruth) -> ChangeScores:
    """Compare the changes of a run with the truth."""
    is_object = ~truth.is_spurious & ~opened.dataset.is_ignored
    is_relabelled, is_moved = _mark_changed(changes, len(opened.dataset))
    labels, wrong = _label_changes(opened, truth, is_object, is_relabelled)
    boxes, bad = _box_moves(opened, truth, is_object, is_moved)
    spurious = truth.is_spurious
    return ChangeScores(
        annotations=int(is_object.sum()),
        wrong_before=int((wrong.before | bad.before).sum()),
        wrong_after=int((wrong.after | bad.after).sum()),
        changes=labels.relabelled + boxes.moved,
        right=labels.right + boxes.better,
        harm=labels.harm + boxes.worse,
        missed=int((wrong.missed | bad.missed).sum()),
        labels=labels,
        boxes=boxes,
        spurious=SpuriousAnnotations(
            annotations=int(spurious.sum()),
            unsure=int((spurious & opened.settlement.is_unsure).sum()),
            relabelled=int((spurious & is_relabelled).sum()),
            moved=int((spurious & is_moved).sum()),
        ),
    )


class _Errors(NamedTuple):
    """Masks [n] of annotations with one kind of error, and of those that did not change."""

    before: Mask
    after: Mask
    missed: Mask


def _mark_changed(changes: Changes, num: int) -> tuple[Mask, Mask]:
    """Return masks [num] of relabelled annotations and of moved ones."""
    is_relabelled, is_moved = np.zeros(num, np.bool_), np.zeros(num, np.bool_)
    is_relabelled[changes.rows] = changes.is_relabelled
    is_moved[changes.rows] = changes.is_moved
    return is_relabelled, is_moved


def _label_changes(
    opened: OpenRun, truth: KnownTruth, is_object: Mask, is_relabelled: Mask
) -> tuple[LabelChanges, _Errors]:
    """Return the counts of label changes, and masks of wrong labels."""
    after = np.where(is_relabelled, opened.settlement.labels, opened.dataset.labels)
    was_wrong = truth.is_wrong(opened.dataset.labels) & is_object
    is_wrong = truth.is_wrong(after) & is_object
    is_changed, is_missed = is_relabelled & is_object, was_wrong & ~is_relabelled
    num = int(is_object.sum())
    changes = LabelChanges(
        relabelled=int(is_changed.sum()),
        right=int((is_changed & ~is_wrong).sum()),
        wrong_to_wrong=int((is_changed & was_wrong & is_wrong).sum()),
        harm=int((is_changed & ~was_wrong).sum()),
        wrong_before=int(was_wrong.sum()),
        wrong_after=int(is_wrong.sum()),
        noise_before=share(was_wrong.sum(), num),
        noise_after=share(is_wrong.sum(), num),
        missed=int(is_missed.sum()),
        missed_but_unsure=int((is_missed & opened.settlement.is_unsure).sum()),
    )
    return changes, _Errors(was_wrong, is_wrong, is_missed)


def _box_moves(
    opened: OpenRun, truth: KnownTruth, is_object: Mask, is_moved: Mask
) -> tuple[BoxMoves, _Errors]:
    """Return the counts of box changes, and masks of bad boxes."""
    after = np.where(is_moved[:, None], opened.settlement.boxes, opened.dataset.boxes)
    iou_before = compute_iou(opened.dataset.boxes, truth.boxes)
    iou_after = compute_iou(after, truth.boxes)
    was_bad = (iou_before < GOOD_IOU) & is_object
    is_bad = (iou_after < GOOD_IOU) & is_object
    is_changed, is_missed = is_moved & is_object, was_bad & ~is_moved
    gain = iou_after[is_changed] - iou_before[is_changed]
    num = int(is_object.sum())
    moves = BoxMoves(
        moved=int(is_changed.sum()),
        better=int((gain > SAME_IOU).sum()),
        alike=int((np.abs(gain) <= SAME_IOU).sum()),
        worse=int((gain < -SAME_IOU).sum()),
        bad_before=int(was_bad.sum()),
        bad_after=int(is_bad.sum()),
        mended=int((was_bad & ~is_bad).sum()),
        spoiled=int((is_bad & ~was_bad).sum()),
        missed=int(is_missed.sum()),
        mean_iou_before=share(iou_before[is_object].sum(), num),
        mean_iou_after=share(iou_after[is_object].sum(), num),
    )
    return moves, _Errors(was_bad, is_bad, is_missed)
