"""Label noise between classes that look alike, in exact counts.

A table of weights [C, C] says how likely an annotation of one class (row) gets the label of
another class (column). It comes from pairs that the user names, or from the confusions of a
detector.
"""

import math
from collections.abc import Sequence

import numpy as np

from boxmend.data.boxes import compute_iou, iterate_image_pairs
from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.data.noise.labels import apportion
from boxmend.data.types import Floats, Mask, Rows
from boxmend.errors import UsageError

MAX_CLASS_SHARE = (
    0.5  # of the annotations of a class: with more, the wrong label would be the most frequent
)
MIN_CONFUSION_IOU = 0.5  # of a detection with the annotation that it confuses
MIN_CONFUSION_SCORE = 0.1  # weaker detections do not show that two classes look alike


def weigh_pairs(pairs: Sequence[str], label_names: Sequence[str]) -> Floats:
    """Return weights of 1 in both directions for pairs like "cat/dog", and 0 elsewhere."""
    weights = np.zeros((len(label_names), len(label_names)))
    for pair in pairs:
        first, second = _read_pair(pair, label_names)
        weights[first, second] = weights[second, first] = 1.0
    return weights


def _read_pair(pair: str, label_names: Sequence[str]) -> tuple[int, int]:
    """Return the two labels of "cat/dog"; the names themselves may contain slashes."""
    parts = pair.split("/") if isinstance(pair, str) else []
    for place in range(1, len(parts)):
        names = "/".join(parts[:place]), "/".join(parts[place:])
        if names[0] != names[1] and all(label_names.count(name) == 1 for name in names):
            return label_names.index(names[0]), label_names.index(names[1])
    raise UsageError(
        f"look_alike_pairs has {pair!r}; expected two labels of the dataset, like "
        f"{'/'.join(label_names[:2]) or 'cat/dog'}"
    )


def weigh_confusions(dataset: Dataset, eligible: Rows, detections: Detections) -> Floats:
    """Return how strongly the detector sees each class in the annotations of each other class.

    The evidence of an annotation for another class is the highest score of a detection of that
    class with an IoU of at least 0.5. Detections that overlap an annotation of their own class that
    much do not count, because they show another object. A weight is the mean of the evidence over
    the annotations of the row's class.
    """
    num_labels = len(dataset.label_names)
    rows = np.flatnonzero(~_shows_own_class(dataset, detections))
    evidence = np.zeros((len(eligible), num_labels))
    boxes = detections.boxes.astype(np.float64)
    for at_annotation, at_detection in iterate_image_pairs(
        dataset.image_rows[eligible], detections.image_rows[rows]
    ):
        detection_rows = rows[at_detection]
        iou = compute_iou(dataset.boxes[eligible[at_annotation]], boxes[detection_rows])
        scores = detections.scores[detection_rows]
        is_near = (iou >= MIN_CONFUSION_IOU) & (scores >= MIN_CONFUSION_SCORE)
        places = at_annotation[is_near], detections.labels[detection_rows[is_near]]
        np.maximum.at(
            evidence, places, detections.scores[detection_rows[is_near]].astype(np.float64)
        )
    labels = dataset.labels[eligible]
    sums = np.zeros((num_labels, num_labels))
    np.add.at(sums, labels, evidence)
    counts = np.bincount(labels, minlength=num_labels)
    weights: Floats = sums / np.maximum(counts, 1)[:, None]
    np.fill_diagonal(weights, 0.0)
    return weights


def _shows_own_class(dataset: Dataset, detections: Detections) -> Mask:
    """Return a mask [d] of detections that overlap any annotation of their own class."""
    marks = np.zeros(len(detections.labels), np.bool_)
    boxes = detections.boxes.astype(np.float64)
    for detection_rows, annotation_rows in iterate_image_pairs(
        detections.image_rows, dataset.image_rows
    ):
        is_same = detections.labels[detection_rows] == dataset.labels[annotation_rows]
        detection_rows, annotation_rows = detection_rows[is_same], annotation_rows[is_same]
        marks[
            detection_rows[
                compute_iou(boxes[detection_rows], dataset.boxes[annotation_rows])
                >= MIN_CONFUSION_IOU
            ]
        ] = True
    return marks


def relabel_look_alikes(labels: Rows, keys: Floats, weights: Floats, count: int) -> Rows:
    """Replace exactly `count` labels by look-alikes, in proportion to class size times weight.

    Of each class at most half of the annotations change; the rest of its part goes to the other
    classes. The annotations with the smallest keys of a class change. A UsageError says when
    there are not enough annotations.
    """
    counts = np.bincount(labels, minlength=len(weights))
    amounts = counts[:, None] * weights
    limits = np.where(amounts.sum(axis=1) > 0, np.floor(counts * MAX_CLASS_SHARE), 0.0)
    if count > limits.sum():
        raise UsageError(
            f"look_alikes asks for {count:,} wrong labels, but half of the annotations of classes "
            f"with a look-alike are {int(limits.sum()):,}; lower the rate or name more pairs"
        )
    result = labels.copy()
    if not count:
        return result
    per_class = apportion(_limit_parts(amounts.sum(axis=1), limits, count).tolist(), count)
    for label, quota in enumerate(per_class):
        if quota:
            rows = np.flatnonzero(labels == label)
            rows = rows[np.argsort(keys[rows], kind="stable")[:quota]]
            targets = apportion(amounts[label].tolist(), quota)
            result[rows] = np.repeat(np.arange(len(weights)), targets)
    return result


def _limit_parts(amounts: Floats, limits: Floats, total: int) -> Floats:
    """Scale amounts to a total, where no part exceeds its limit; the sum of limits suffices."""
    is_full = np.zeros(len(amounts), np.bool_)
    while True:
        rest = total - limits[is_full].sum()
        free = math.fsum(amounts[~is_full])
        parts = np.where(is_full, limits, amounts * (rest / free if free > 0 else 0.0))
        is_over = ~is_full & (parts > limits)
        if not is_over.any():
            return parts
        is_full |= is_over
