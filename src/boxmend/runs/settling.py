"""Settling: the visits of an annotation become one opinion on its label and one on its box.

Both go by the last visits after warm-up, as many as a third of the run's epochs. The label is what
most of them say, and of equally many what was said last. Whether the box moves is what the last of
them says; where to is the mean of those that moved it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from boxmend.data.boxes import clip_boxes, overlaps
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats, Mask, Rows
from boxmend.runs.history import History
from boxmend.runs.judgement import Judgement

EPOCHS_PER_VISIT = 3  # an annotation is settled by its last epochs / EPOCHS_PER_VISIT visits
SAME_BOX = 0.999  # a box that overlaps the old one by more has not moved but been rounded
SAME_SIDE = 0.01  # pixels; likewise for one side of a box that has moved
DECIMALS = 2  # of a side that has moved


@dataclass(frozen=True, eq=False)
class Settlement:
    """What a run makes of every annotation of a dataset, row by row, and on what evidence.

    Labels and boxes are the annotated ones where nothing speaks against them. A confidence is NaN
    where there is none. What `apply` does not need is a property, computed when it is first used.
    """

    dataset: Dataset
    history: History
    labels: Rows  # [n]
    is_unsure: Mask  # [n] discarded: the label is doubted, and no other was found
    label_confidences: Floats  # [n] mean over the visits that agree
    num_agreeing: Rows  # [n] of those below
    num_judged: Rows  # [n] visits that settled the label; 0 where none did
    boxes: Floats  # [n, 4]
    box_confidences: Floats  # [n] mean over the visits below
    num_moved: Rows  # [n] visits whose mean the box is; 0 where it has not moved

    def votes(self, row: int) -> str:
        """Say how many of the visits that settled a label agree, in words."""
        return f"in {self.num_agreeing[row]} of {self.num_judged[row]} visits"

    @cached_property
    def is_visited(self) -> Mask:
        """[n] Not so for crowds, difficult objects, annotations of unreadable images and such."""
        return self.history.last(np.ones(len(self.history), np.bool_), len(self.dataset)) >= 0

    @cached_property
    def verdicts(self) -> NDArray[np.int8]:
        """[n] The settled judgements; UNJUDGED where no visit judged the label."""
        verdicts = np.full(len(self.dataset), Judgement.KEPT, np.int8)
        verdicts[self.labels != self.dataset.labels] = Judgement.RELABELLED
        verdicts[self.is_unsure] = Judgement.DISCARDED
        verdicts[self.num_judged == 0] = Judgement.UNJUDGED
        return verdicts

    @cached_property
    def losses(self) -> Floats:
        """[n] Mean loss of the annotated label at the visits that settled it; NaN without any."""
        history = self.history
        settling = last_visits(history.rows, history.is_judged, history.num_epochs)
        losses = history.losses[settling].astype(np.float64)
        losses[~np.isfinite(losses)] = np.nan
        return means_of(losses, history.rows[settling], len(self.dataset))

    @cached_property
    def doubts(self) -> Floats:
        """[n] How much speaks against the label, in 0..1: 1 - exp(-loss); NaN if not judged."""
        doubts: Floats = -np.expm1(-self.losses)
        return doubts

    @cached_property
    def thresholds(self) -> Floats:
        """[n] Threshold at the last visit that judged; may be infinite, NaN where none did."""
        last_judged = self.history.last(self.history.is_judged, len(self.dataset))
        return _values_at(self.history.thresholds, last_judged, np.nan)

    @cached_property
    def confidences(self) -> Floats:
        """[n] Confidence in the settled label; NaN where there is none."""
        return np.where(self.num_judged > 0, self.label_confidences, self.box_confidences)

    @cached_property
    def num_candidates(self) -> Rows:
        """[n] Number of candidates at the last visit after warm-up; 0 where there is none."""
        return _values_at(self.history.num_candidates, self._last_visits, 0).astype(np.int64)

    @cached_property
    def matched_boxes(self) -> Floats:
        """[n, 4] The matched box at the last visit after warm-up, or the annotated one."""
        boxes, last = self.dataset.boxes.copy(), self._last_visits
        boxes[last >= 0] = self.history.matched_boxes[last[last >= 0]]
        return boxes

    @cached_property
    def iou(self) -> Floats:
        """[n] IoU of the annotated box with the settled one."""
        return overlaps(self.dataset.boxes, self.boxes)

    @cached_property
    def is_moved(self) -> Mask:
        """[n] Boxes that end elsewhere than annotated."""
        is_moved: Mask = self.num_moved > 0
        return is_moved

    @cached_property
    def is_changed(self) -> Mask:
        """[n] Annotations that are relabelled, moved, or discarded as unsure."""
        is_unlike = (self.verdicts == Judgement.RELABELLED) | (self.verdicts == Judgement.DISCARDED)
        is_changed: Mask = is_unlike | self.is_moved
        return is_changed

    @cached_property
    def _last_visits(self) -> Rows:
        """[n] The last visit after warm-up; -1 where there is none."""
        return self.history.last(~self.history.is_warm_up, len(self.dataset))


def settle(dataset: Dataset, history: History) -> Settlement:
    """Settle all visits.

    Visits without a judgement do not count for labels; those of warm-up do not count at all.
    """
    labels, is_unsure, label_confidences, num_agreeing, num_judged = _labels(dataset, history)
    boxes, box_confidences, num_moved = _boxes(dataset, history)
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


def num_visits(num_epochs: int) -> int:
    """How many visits settle an annotation: a third of the epochs, rounded up."""
    return -(-num_epochs // EPOCHS_PER_VISIT)


def _labels(dataset: Dataset, history: History) -> tuple[Rows, Mask, Floats, Rows, Rows]:
    """The outcome that has most votes: label, whether unsure, confidence, votes and voters."""
    n = len(dataset)
    chosen = last_visits(history.rows, history.is_judged, history.num_epochs)
    rows, verdicts = history.rows[chosen], history.verdicts[chosen]
    said = np.where(verdicts == Judgement.KEPT, dataset.labels[rows], history.labels[chosen])
    said[verdicts == Judgement.DISCARDED] = UNKNOWN
    # One number for an annotation and an outcome: [a] different ones, UNKNOWN being outcome 0.
    outcomes = len(dataset.label_names) + 1
    keys, of_visit, votes = np.unique(
        rows * outcomes + said + 1, return_inverse=True, return_counts=True
    )
    latest = np.zeros(len(keys), np.int64)
    np.maximum.at(latest, of_visit, chosen)
    means = means_of(history.confidences[chosen].astype(np.float64), of_visit, len(keys))
    winners = np.lexsort((latest, votes, keys // outcomes))  # the last of each annotation wins
    of_row = (keys // outcomes)[winners]
    winners = winners[np.append(of_row[1:] != of_row[:-1], True)[: len(of_row)]]
    of_row = keys[winners] // outcomes

    outcome = keys[winners] % outcomes - 1
    labels, is_unsure = dataset.labels.copy(), np.zeros(n, np.bool_)
    labels[of_row] = np.where(outcome == UNKNOWN, labels[of_row], outcome)
    is_unsure[of_row] = outcome == UNKNOWN
    confidences, num_agreeing = np.full(n, np.nan), np.zeros(n, np.int64)
    confidences[of_row] = means[winners]
    num_agreeing[of_row] = votes[winners]
    return labels, is_unsure, confidences, num_agreeing, np.bincount(rows, minlength=n)


def _boxes(dataset: Dataset, history: History) -> tuple[Floats, Floats, Rows]:
    """The mean of the boxes that moved, where the last visit moved it: box, confidence, visits."""
    n = len(dataset)
    is_eligible = history.is_kept & ~history.is_warm_up
    chosen = last_visits(history.rows, is_eligible, history.num_epochs)
    rows, trained = history.rows[chosen], history.final_boxes[chosen].astype(np.float64)
    is_moved = _is_moved(dataset.boxes[rows], trained)
    is_moved_at_last = np.zeros(n, np.bool_)
    is_moved_at_last[rows] = is_moved  # of several visits the last stays
    counted = is_moved & is_moved_at_last[rows]
    rows, trained = rows[counted], trained[counted]
    mean = np.stack([means_of(trained[:, side], rows, n) for side in range(4)], axis=1)
    confidences = history.confidences[chosen[counted]].astype(np.float64)
    boxes = _tidied(dataset, mean)
    num_moved = np.bincount(rows, minlength=n)
    num_moved[(boxes == dataset.boxes).all(axis=1)] = 0
    return boxes, means_of(confidences, rows, n), num_moved


def last_visits(rows: Rows, is_eligible: Mask, num_epochs: int) -> Rows:
    """The eligible visits that settle each annotation, its last ones, in the order of the ledger.

    Takes the annotation [v] of every visit.
    """
    eligible = np.flatnonzero(is_eligible)
    rows = rows[eligible]
    order = np.argsort(rows, kind="stable")
    ends = np.searchsorted(rows[order], rows[order], side="right")
    is_last = ends - np.arange(len(order)) <= num_visits(num_epochs)
    last: Rows = np.sort(eligible[order[is_last]])
    return last


def means_of(values: Floats, groups: Rows, num_groups: int) -> Floats:
    """The mean of each group's values, NaN left out; NaN where nothing is left."""
    known = ~np.isnan(values)
    counts = np.bincount(groups[known], minlength=num_groups)
    sums = np.bincount(groups[known], values[known], minlength=num_groups)
    means = np.full(num_groups, np.nan)
    np.divide(sums, counts, out=means, where=counts > 0)
    return means


def _is_moved(old: Floats, new: Floats) -> Mask:
    is_box = np.isfinite(new).all(axis=1) & (new[:, 2:] > new[:, :2]).all(axis=1)
    is_moved: Mask = is_box & (overlaps(old, new) < SAME_BOX)
    return is_moved


def _tidied(dataset: Dataset, mean: Floats) -> Floats:
    """Boxes inside of their images, with short numbers; as annotated where they have not moved."""
    old = dataset.boxes
    sizes = np.append(dataset.images.sizes, [[0.0, 0.0]], axis=0)  # UNKNOWN picks the last
    inside = clip_boxes(mean, sizes[dataset.image_rows])
    new = np.where(np.abs(inside - old) < SAME_SIDE, old, inside.round(DECIMALS))
    return np.where(_is_moved(old, new)[:, None], new, old)


def _values_at(values: NDArray[np.generic], visits: Rows, missing: float) -> Floats:
    """[n] The value of each annotation's visit, or `missing` where it has none."""
    found = np.full(len(visits), missing, np.float64)
    found[visits >= 0] = values[visits[visits >= 0]]
    return found
