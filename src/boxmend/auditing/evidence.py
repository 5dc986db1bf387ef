"""The evidence of a detector for each annotation: its class, its presence and its place.

`Evidence` comes either from the detections of any detector (`gather_evidence`) or from the ledger
of a training run (`boxmend.auditing.run_evidence`). All later steps are the same for both.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boxmend.auditing.pairs import Pairs, compute_fitness, find_largest, find_overlaps
from boxmend.data.boxes import compute_iou
from boxmend.data.dataset import Dataset
from boxmend.data.types import Floats, Rows

NONE = -1


@dataclass(frozen=True)
class EvidenceConstants:
    """Constants of how detections count as evidence."""

    min_class_evidence: float = 0.01  # for a class without a detection
    sharing_power: int = 3  # of the share of a detection that fits another annotation better
    place_min_iou: float = 0.3  # of a detection that counts for the place of an object
    average_min_iou: float = 0.6  # with the leading detection, of boxes that are averaged


EVIDENCE = EvidenceConstants()


@dataclass(frozen=True, eq=False)
class Objects:
    """Images, labels and boxes of annotations, or of planted errors."""

    image_rows: Rows  # [n]
    labels: Rows  # [n] from 0 to num_labels - 1
    boxes: Floats  # [n, 4]
    num_labels: int

    def __len__(self) -> int:
        return len(self.labels)


def select_objects(dataset: Dataset, rows: Rows) -> Objects:
    """Return the annotations at these rows of a dataset."""
    columns = dataset.image_rows[rows], dataset.labels[rows], dataset.boxes[rows]
    return Objects(*columns, num_labels=len(dataset.label_names))


@dataclass(frozen=True, eq=False)
class Detected:
    """Detections as columns."""

    image_rows: Rows  # [m]
    labels: Rows  # [m]
    scores: Floats  # [m]
    boxes: Floats  # [m, 4]
    class_scores: NDArray[np.float32] | None = None  # [m, num_labels]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Evidence:
    """The evidence for the classes, the presence and the place of annotations, row by row."""

    num_labels: int
    keys: Rows  # [k] row * num_labels + label, ascending, of classes with any evidence
    values: Floats  # [k] evidence in addition to `rest`
    rest: Floats  # [n] evidence for every class
    support: Floats  # [n] from 0 to 1: evidence for an object of any class
    boxes: Floats  # [n, 4] where it was detected; NaN if it was not
    confidences: Floats  # [n] of the leading detection; 0 if there is none
    pull: float = 0.0  # share by which `boxes` follow the annotated ones; 0 if unknown

    def __len__(self) -> int:
        return len(self.rest)

    def for_labels(self, rows: Rows, labels: Rows) -> Floats:
        """Return the evidence of these rows for these labels."""
        wanted = rows * self.num_labels + labels
        places = np.minimum(np.searchsorted(self.keys, wanted), max(len(self.keys) - 1, 0))
        if not len(self.keys):
            return self.rest[rows].copy()
        values: Floats = np.where(self.keys[places] == wanted, self.values[places], 0.0)
        return values + self.rest[rows]

    def best_other(self, rows: Rows, labels: Rows) -> tuple[Floats, Rows]:
        """Return the evidence for the best class other than the label, and this class or NONE."""
        first, first_values, second, second_values = self._leaders()
        is_first = first[rows] != labels
        best = np.where(is_first, first[rows], second[rows])
        values = np.where(is_first, first_values[rows], second_values[rows])
        return values + self.rest[rows], best

    def _leaders(self) -> tuple[Rows, Floats, Rows, Floats]:
        """Return the two classes with most evidence of every row, each with its value."""
        rows, labels = np.divmod(self.keys, self.num_labels)
        values, places = find_largest(rows, self.values, len(self))
        is_left = np.ones(len(self.keys), np.bool_)
        is_left[places[places >= 0]] = False
        left = np.flatnonzero(is_left)
        second_values, second = find_largest(rows[left], self.values[left], len(self))
        first_labels = np.where(places >= 0, _take_or_any(labels, places), NONE)
        second_labels = np.where(second >= 0, _take_or_any(labels[left], second), NONE)
        return first_labels, values, second_labels, second_values


def gather_evidence(objects: Objects, rivals: Objects, detected: Detected) -> Evidence:
    """Gather the evidence of detections for objects.

    A detection counts more with higher confidence and larger overlap, and less if it fits one of
    the `rivals` better. If `objects` are annotations, they are also the rivals. The evidence for a
    class uses the fitness of centre matching (Eq. 15), since the label of a badly placed box may be
    right; the evidence for presence and place uses the IoU.
    """
    pairs = find_overlaps(objects.image_rows, objects.boxes, detected.image_rows, detected.boxes)
    if rivals is objects:
        best, _ = find_largest(pairs.second, pairs.iou, len(detected))
    else:
        best = find_best_iou(rivals, detected)
    share = (pairs.iou / np.maximum(best[pairs.second], pairs.iou)) ** EVIDENCE.sharing_power
    values = detected.scores[pairs.second] * pairs.iou * share
    support, _ = find_largest(pairs.first, values, len(objects))
    matched = compute_fitness(objects.boxes[pairs.first], detected.boxes[pairs.second])
    keys, strongest = _find_strongest_by_class(
        objects, detected, pairs, np.clip(matched, 0, 1) * share
    )
    boxes, confidences = _average_seen_boxes(objects, detected, pairs, values)
    return Evidence(
        num_labels=objects.num_labels,
        keys=keys,
        values=strongest,
        rest=np.full(len(objects), EVIDENCE.min_class_evidence),
        support=support,
        boxes=boxes,
        confidences=confidences,
    )


def find_best_iou(objects: Objects, detected: Detected) -> Floats:
    """Return the IoU [m] of each detection with the object that it overlaps most."""
    pairs = find_overlaps(objects.image_rows, objects.boxes, detected.image_rows, detected.boxes)
    best, _ = find_largest(pairs.second, pairs.iou, len(detected))
    return best


def _find_strongest_by_class(
    objects: Objects, detected: Detected, pairs: Pairs, fit: Floats
) -> tuple[Rows, Floats]:
    """Return the largest evidence for each class of each object, without classes that have none.

    Keys are object * num_labels + label, ascending; `fit` [p] is the weight of each pair.
    """
    if detected.class_scores is None:
        labels, values = detected.labels[pairs.second], detected.scores[pairs.second] * fit
        keys = pairs.first * objects.num_labels + labels
    else:
        vectors = detected.class_scores[pairs.second]
        place, labels = np.nonzero(vectors > EVIDENCE.min_class_evidence)
        values = vectors[place, labels] * fit[place]
        keys = pairs.first[place] * objects.num_labels + labels
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1) != 0)
    if not len(starts):
        return keys, np.zeros(0)
    return keys[starts], np.maximum.reduceat(values[order], starts).astype(np.float64)


def _average_seen_boxes(
    objects: Objects, detected: Detected, pairs: Pairs, values: Floats
) -> tuple[Floats, Floats]:
    """Return where each object was detected, and the confidence of its leading detection.

    The place is the weighted mean of the boxes that overlap the leading detection.
    """
    near = np.flatnonzero(pairs.iou > EVIDENCE.place_min_iou)
    first, second, weights = pairs.first[near], pairs.second[near], values[near]
    _, places = find_largest(first, weights, len(objects))
    leader = np.where(places >= 0, _take_or_any(second, places), NONE)
    shared = compute_iou(detected.boxes[second], detected.boxes[leader[first]])
    weights = weights * (shared > EVIDENCE.average_min_iou)
    total = np.bincount(first, weights, len(objects))
    boxes = np.full((len(objects), 4), np.nan)
    is_seen = total > 0
    for side in range(4):
        sums = np.bincount(first, weights * detected.boxes[second, side], len(objects))
        boxes[is_seen, side] = sums[is_seen] / total[is_seen]
    confidences = np.where(is_seen, _take_or_any(detected.scores, leader), 0.0)
    return boxes, confidences


def _take_or_any(values: NDArray[np.generic], places: Rows) -> NDArray[np.generic]:
    """Return values at places; arbitrary values where the place is NONE."""
    if not len(values):
        return np.zeros(len(places), values.dtype)
    return values[np.maximum(places, 0)]
