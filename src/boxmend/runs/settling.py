"""Settle the visits of each annotation: derive one label and one box from them.

Both depend on the last visits after warm-up, at most a third of the run's epochs. The label is the
one that most of these visits chose; with equal counts, the one that was chosen last. The box moves
if the last of these visits moved it; the new box is the mean of all that moved it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from boxmend.data.boxes import clip_boxes, compute_iou
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats, Mask, Rows
from boxmend.runs.history import History
from boxmend.runs.judgement import Judgement

EPOCHS_PER_VISIT = 3  # of the run, for each visit that settles an annotation
SAME_BOX_MIN_IOU = 0.999  # of boxes that only differ by rounding
SAME_SIDE_PIXELS = 0.01  # a smaller move of one side is rounding
SIDE_DECIMALS = 2  # of a side that moved


@dataclass(frozen=True, eq=False)
class Settlement:
    """The label and box of every annotation after settling, with the counts behind them.

    Unchanged annotations keep their label and box. A confidence is NaN if the method has none.
    Values that `apply` does not need are properties and are computed on first use.
    """

    dataset: Dataset
    history: History
    labels: Rows  # [n]
    is_unsure: Mask  # [n] discarded: the label is doubtful, and no other label is likely
    label_confidences: Floats  # [n] mean over the visits that chose the label
    num_agreeing: Rows  # [n] visits that chose the label
    num_judged: Rows  # [n] visits that settled the label; may be 0
    boxes: Floats  # [n, 4]
    box_confidences: Floats  # [n] mean over the visits that moved the box
    num_moved: Rows  # [n] visits that moved the box; 0 if it stays

    def votes(self, row: int) -> str:
        """Return the text "in A of B visits": of B visits that settled a label, A agree with it."""
        return f"in {self.num_agreeing[row]} of {self.num_judged[row]} visits"

    @cached_property
    def is_visited(self) -> Mask:
        """[n] Visited in training; crowds, difficult objects and unreadable images are not."""
        return self.history.last(np.ones(len(self.history), np.bool_), len(self.dataset)) >= 0

    @cached_property
    def verdicts(self) -> NDArray[np.int8]:
        """[n] The settled judgements; UNJUDGED if no visit judged the label."""
        verdicts = np.full(len(self.dataset), Judgement.KEPT, np.int8)
        verdicts[self.labels != self.dataset.labels] = Judgement.RELABELLED
        verdicts[self.is_unsure] = Judgement.DISCARDED
        verdicts[self.num_judged == 0] = Judgement.UNJUDGED
        return verdicts

    @cached_property
    def losses(self) -> Floats:
        """[n] Mean loss of the annotated label over the visits that settled it; NaN if none did."""
        history = self.history
        visits = settling_visits(history.rows, history.is_judged, history.num_epochs)
        losses = history.losses[visits].astype(np.float64)
        losses[~np.isfinite(losses)] = np.nan
        return group_means(losses, history.rows[visits], len(self.dataset))

    @cached_property
    def doubts(self) -> Floats:
        """[n] Doubt in the annotated label, 0 to 1: 1 - exp(-loss); NaN if not judged."""
        doubts: Floats = -np.expm1(-self.losses)
        return doubts

    @cached_property
    def thresholds(self) -> Floats:
        """[n] Threshold at the last judged visit; may be infinite, NaN without such a visit."""
        last_judged = self.history.last(self.history.is_judged, len(self.dataset))
        return _values_at(self.history.thresholds, last_judged, np.nan)

    @cached_property
    def confidences(self) -> Floats:
        """[n] Confidence in the settled label; NaN if there is none."""
        return np.where(self.num_judged > 0, self.label_confidences, self.box_confidences)

    @cached_property
    def num_candidates(self) -> Rows:
        """[n] Number of candidates at the last visit after warm-up; 0 without such a visit."""
        return _values_at(self.history.num_candidates, self._last_visits, 0).astype(np.int64)

    @cached_property
    def matched_boxes(self) -> Floats:
        """[n, 4] The matched box at the last visit after warm-up, else the annotated box."""
        boxes, last = self.dataset.boxes.copy(), self._last_visits
        boxes[last >= 0] = self.history.matched_boxes[last[last >= 0]]
        return boxes

    @cached_property
    def iou(self) -> Floats:
        """[n] IoU of the annotated box with the settled one."""
        return compute_iou(self.dataset.boxes, self.boxes)

    @cached_property
    def is_moved(self) -> Mask:
        """[n] Boxes that moved."""
        is_moved: Mask = self.num_moved > 0
        return is_moved

    @cached_property
    def is_changed(self) -> Mask:
        """[n] Annotations that are relabelled, moved, or discarded as unsure."""
        is_relabelled = self.verdicts == Judgement.RELABELLED
        is_changed: Mask = is_relabelled | (self.verdicts == Judgement.DISCARDED) | self.is_moved
        return is_changed

    @cached_property
    def _last_visits(self) -> Rows:
        """[n] The last visit after warm-up; -1 if there is none."""
        return self.history.last(~self.history.is_warm_up, len(self.dataset))


def settle(dataset: Dataset, history: History) -> Settlement:
    """Settle all visits.

    Visits without a judgement do not count for labels; those of warm-up do not count at all.
    """
    labels, is_unsure, label_confidences, num_agreeing, num_judged = _settle_labels(
        dataset, history
    )
    boxes, box_confidences, num_moved = _settle_boxes(dataset, history)
    return Settlement(
        dataset=dataset,
        history=history,
        labels=labels,
        is_unsure=is_unsure,
        label_confidences=label_confidences,
        num_agreeing=num_agreeing,
        num_judged=num_judged,
        boxes=boxes,
        box_confidences=box_confidences,
        num_moved=num_moved,
    )


def num_settling_visits(num_epochs: int) -> int:
    """Return how many visits settle an annotation: a third of the epochs, rounded up."""
    return -(-num_epochs // EPOCHS_PER_VISIT)


def _settle_labels(dataset: Dataset, history: History) -> tuple[Rows, Mask, Floats, Rows, Rows]:
    """Return labels, is_unsure, confidences, visits that agree, and visits that judged."""
    n = len(dataset)
    chosen = settling_visits(history.rows, history.is_judged, history.num_epochs)
    rows, verdicts = history.rows[chosen], history.verdicts[chosen]
    choices = np.where(verdicts == Judgement.KEPT, dataset.labels[rows], history.labels[chosen])
    choices[verdicts == Judgement.DISCARDED] = UNKNOWN
    # A key combines an annotation and a choice; choices are shifted by 1, so that UNKNOWN is 0.
    num_choices = len(dataset.label_names) + 1
    keys, key_of_visit, votes = np.unique(
        rows * num_choices + choices + 1, return_inverse=True, return_counts=True
    )
    latest = np.zeros(len(keys), np.int64)
    np.maximum.at(latest, key_of_visit, chosen)
    means = group_means(history.confidences[chosen].astype(np.float64), key_of_visit, len(keys))
    winners = np.lexsort((latest, votes, keys // num_choices))  # the last of each annotation wins
    settled = (keys // num_choices)[winners]  # rows of the dataset
    winners = winners[np.append(settled[1:] != settled[:-1], True)[: len(settled)]]
    settled = keys[winners] // num_choices

    choice = keys[winners] % num_choices - 1
    labels, is_unsure = dataset.labels.copy(), np.zeros(n, np.bool_)
    labels[settled] = np.where(choice == UNKNOWN, labels[settled], choice)
    is_unsure[settled] = choice == UNKNOWN
    confidences, num_agreeing = np.full(n, np.nan), np.zeros(n, np.int64)
    confidences[settled] = means[winners]
    num_agreeing[settled] = votes[winners]
    return labels, is_unsure, confidences, num_agreeing, np.bincount(rows, minlength=n)


def _settle_boxes(dataset: Dataset, history: History) -> tuple[Floats, Floats, Rows]:
    """Return boxes, confidences, and the numbers of visits that moved each box."""
    n = len(dataset)
    is_eligible = history.is_kept & ~history.is_warm_up
    chosen = settling_visits(history.rows, is_eligible, history.num_epochs)
    rows, trained = history.rows[chosen], history.final_boxes[chosen].astype(np.float64)
    is_moved = _is_moved(dataset.boxes[rows], trained)
    is_moved_at_last = np.zeros(n, np.bool_)
    is_moved_at_last[rows] = is_moved  # the last visit wins
    counted = is_moved & is_moved_at_last[rows]
    rows, trained = rows[counted], trained[counted]
    mean = np.stack([group_means(trained[:, side], rows, n) for side in range(4)], axis=1)
    confidences = history.confidences[chosen[counted]].astype(np.float64)
    boxes = _clip_and_round(dataset, mean)
    num_moved = np.bincount(rows, minlength=n)
    num_moved[(boxes == dataset.boxes).all(axis=1)] = 0
    return boxes, group_means(confidences, rows, n), num_moved


def settling_visits(rows: Rows, is_eligible: Mask, num_epochs: int) -> Rows:
    """Return the last eligible visits of each annotation, in the order of the ledger.

    `rows` [v] is the annotation of every visit.
    """
    eligible = np.flatnonzero(is_eligible)
    rows = rows[eligible]
    order = np.argsort(rows, kind="stable")
    ends = np.searchsorted(rows[order], rows[order], side="right")
    is_last = ends - np.arange(len(order)) <= num_settling_visits(num_epochs)
    last: Rows = np.sort(eligible[order[is_last]])
    return last


def group_means(values: Floats, groups: Rows, num_groups: int) -> Floats:
    """Return the mean of each group's values without NaN; NaN for a group without values."""
    known = ~np.isnan(values)
    counts = np.bincount(groups[known], minlength=num_groups)
    sums = np.bincount(groups[known], values[known], minlength=num_groups)
    means = np.full(num_groups, np.nan)
    np.divide(sums, counts, out=means, where=counts > 0)
    return means


def _is_moved(old: Floats, new: Floats) -> Mask:
    is_box = np.isfinite(new).all(axis=1) & (new[:, 2:] > new[:, :2]).all(axis=1)
    is_moved: Mask = is_box & (compute_iou(old, new) < SAME_BOX_MIN_IOU)
    return is_moved


def _clip_and_round(dataset: Dataset, mean: Floats) -> Floats:
    """Clip boxes to their images and round them; boxes that did not move stay as annotated."""
    old = dataset.boxes
    sizes = np.append(dataset.images.sizes, [[0.0, 0.0]], axis=0)  # UNKNOWN selects the last row
    inside = clip_boxes(mean, sizes[dataset.image_rows])
    new = np.where(np.abs(inside - old) < SAME_SIDE_PIXELS, old, inside.round(SIDE_DECIMALS))
    return np.where(_is_moved(old, new)[:, None], new, old)


def _values_at(values: NDArray[np.generic], visits: Rows, missing: float) -> Floats:
    """Return the value [n] at each annotation's visit, or `missing` if it has no visit (-1)."""
    result = np.full(len(visits), missing, np.float64)
    result[visits >= 0] = values[visits[visits >= 0]]
    return result
