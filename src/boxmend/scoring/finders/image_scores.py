"""Compute Ultralytics' scores of images, by the public description of its pull request 24995.

They rank images, not annotations:

- `possible_fp`: a confident prediction with little label overlap; here the largest score times
  (1 - the largest IoU with any annotation) of an image.
- `possible_fn`: the mean deficit of the annotations, which is 1 - the largest score times IoU of a
  prediction of the same class; 0 without annotations.
- `possible_label_confusion`: the largest score times IoU of a prediction and an annotation of
  different classes.

The description names a confidence limit of 0.25. It does not say how score and IoU are combined;
the product is an assumption. Only the facts are used; the code is boxmend's own.
"""

from collections.abc import Mapping

import numpy as np

from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.data.types import Floats, Mask, Rows
from boxmend.scoring.finders.overlapping import OverlapTable

MIN_SCORE = 0.25
SCORE_OF_KIND = {
    Kind.WRONG_LABEL: "possible_label_confusion",
    Kind.BAD_BOX: "possible_fn",
    Kind.MISSING: "possible_fp",
    Kind.SPURIOUS: "possible_fn",
}
"""The score that ranks images with an error of each kind."""


def score_images(
    objects: Dataset, detections: Detections, table: OverlapTable
) -> dict[str, Floats]:
    """Return the three scores [images] by name."""
    num_images = len(objects.images)
    scores = np.where(detections.scores >= MIN_SCORE, detections.scores, 0.0).astype(np.float64)
    product = scores[table.detections] * table.iou
    is_same = detections.labels[table.detections] == objects.labels[table.annotations]

    covered = np.zeros(len(scores))
    np.maximum.at(covered, table.detections, table.iou)
    false_positive = _highest(detections.image_rows, scores * (1 - covered), num_images)

    matched = np.zeros(len(objects))
    np.maximum.at(matched, table.annotations[is_same], product[is_same])
    counts = np.bincount(objects.image_rows, minlength=num_images)
    deficits = np.bincount(objects.image_rows, weights=1 - matched, minlength=num_images)

    rows = objects.image_rows[table.annotations[~is_same]]
    return {
        "possible_fp": false_positive,
        "possible_fn": deficits / np.maximum(counts, 1),
        "possible_label_confusion": _highest(rows, product[~is_same], num_images),
    }


def score_images_by_audit(
    dataset: Dataset, p_wrong: Mapping[Kind, Floats], missing: Fixes
) -> dict[Kind, Floats]:
    """Return, by kind of error, the highest probability of an audit in each image."""
    num_images = len(dataset.images)
    scores = {Kind.MISSING: _highest(missing.image_rows, missing.p_fix, num_images)}
    for kind, column in p_wrong.items():
        rows = np.flatnonzero(~np.isnan(column))
        scores[kind] = _highest(dataset.image_rows[rows], column[rows], num_images)
    return scores


def mark_images(image_rows: Rows, num_images: int) -> Mask:
    """Return a mask [images] of the images at these rows."""
    marks = np.zeros(num_images, np.bool_)
    marks[image_rows] = True
    return marks


def _highest(image_rows: Rows, values: Floats, num_images: int) -> Floats:
    """Return the highest value [images] of each image; 0 without values."""
    highest = np.zeros(num_images)
    np.maximum.at(highest, image_rows, values)
    return highest
