"""Compare detections with annotations, to infer the meaning of a prediction file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boxmend.data.boxes import compute_iou
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats, Rows

MAX_IMAGES = 2000  # evenly spaced among images with both annotations and detections
DETECTIONS_PER_IMAGE = 3  # with the highest scores


@dataclass(frozen=True, eq=False)
class KnownAnnotations:
    """Annotations to compare detections with, sorted by image."""

    rows: Rows  # [a] of the dataset, sorted by image
    image_rows: Rows  # [a]
    boxes: Floats  # [a, 4]
    labels: Rows  # [a]


def usable_annotations(dataset: Dataset) -> KnownAnnotations:
    """Return the annotations with known image, label and box that are not ignored."""
    is_usable = (dataset.image_rows != UNKNOWN) & (dataset.labels != UNKNOWN)
    is_usable &= np.isfinite(dataset.boxes).all(axis=1) & ~dataset.is_ignored
    rows = np.flatnonzero(is_usable)
    rows = rows[np.argsort(dataset.image_rows[rows], kind="stable")]
    return KnownAnnotations(
        rows, dataset.image_rows[rows], dataset.boxes[rows], dataset.labels[rows]
    )


def select_detections(
    image_rows: Rows, scores: Floats, boxes: Floats, known: KnownAnnotations
) -> Rows:
    """Return rows of detections to compare: the best few of each image with annotations.

    The choice does not depend on the order of the detections.
    """
    num = 1 + max(int(image_rows.max(initial=-1)), int(known.image_rows.max(initial=-1)))
    is_detected = np.zeros(num + 1, np.bool_)  # the last entry is for UNKNOWN
    is_detected[image_rows] = True
    is_detected[-1] = False
    images = np.unique(known.image_rows[is_detected[known.image_rows]])
    if len(images) > MAX_IMAGES:
        images = images[np.linspace(0, len(images) - 1, MAX_IMAGES).astype(np.int64)]
    is_selected = np.zeros(num + 1, np.bool_)
    is_selected[images] = True
    rows = np.flatnonzero(is_selected[image_rows])
    rows = rows[np.lexsort((*boxes[rows].T, -scores[rows], image_rows[rows]))]
    ordered = image_rows[rows]
    place = np.arange(len(rows)) - np.searchsorted(ordered, ordered)
    return rows[place < DETECTIONS_PER_IMAGE]


def find_best_annotations(
    image_rows: Rows, boxes: Floats, known: KnownAnnotations
) -> tuple[Rows, NDArray[np.float64]]:
    """Return, for each box, the label of the annotation with the largest IoU, and this IoU."""
    first = np.searchsorted(known.image_rows, image_rows, side="left")
    counts = np.searchsorted(known.image_rows, image_rows, side="right") - first
    labels, best = np.full(len(boxes), UNKNOWN, np.int64), np.zeros(len(boxes))
    for k in np.flatnonzero(counts).tolist():
        own = slice(first[k], first[k] + counts[k])
        iou = compute_iou(boxes[k], known.boxes[own])
        top = int(np.argmax(iou))
        best[k], labels[k] = iou[top], known.labels[own][top]
    return labels, best
