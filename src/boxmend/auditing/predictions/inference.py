"""What a file of detections means by its images, boxes and classes, inferred from the annotations.

Boxes and labels that are read as they are meant agree with the annotations better than those that
are not. So the reading that agrees best is taken, and notes say where it is not the expected one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.predictions import box_formats
from boxmend.auditing.predictions.box_formats import FORMATS
from boxmend.auditing.predictions.catalogue import Catalogue
from boxmend.auditing.predictions.class_names import labels_of
from boxmend.auditing.predictions.class_vectors import in_order
from boxmend.auditing.predictions.image_names import ImageNaming, ensure_clear, readings, sizes_of
from boxmend.auditing.predictions.overlap import Annotated, asked, best_annotations
from boxmend.auditing.predictions.raw import BoxFormat, RawDetections
from boxmend.auditing.predictions.resolved import Predictions
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats, Rows

PAIR_MIN_IOU = 0.5  # from which a detection and an annotation are of one object
SCORE_TOLERANCE = 1e-6  # by which a score may leave 0..1
PERCENT = 100


def infer_meaning(
    found: RawDetections, dataset: Dataset, catalogue: Catalogue, known: Annotated
) -> Predictions:
    """Return detections of one kind of file by rows and labels of the dataset."""
    scores = _probabilities(found)
    ways = [
        _understood(found, reading, dataset, known)
        for reading in readings(found, dataset, catalogue)
    ]
    best = ways[0]
    notes: list[str] = []
    needed = max(FORMATS.good_mean_iou, FORMATS.min_iou_ratio * best.quality)
    if len(ways) > 1 and ways[1].quality > needed:
        best = ways[1]
        notes.append(f"the images in {found.told_files} are told by {best.reading.words}, not ids")
    notes += ensure_clear(found, best.reading.rows, dataset)
    format, said = box_formats.chosen(found, best.fit, len(best.rows))
    image_rows = best.image_rows
    kept = image_rows >= 0
    sizes = sizes_of(dataset, image_rows if format.is_share else np.zeros(0, np.int64))[image_rows]
    boxes = box_formats.corners(found.boxes, format, sizes)
    if format.is_share:
        _ensure_sizes(found, dataset, image_rows, sizes)
    boxes[~kept] = 0
    box_formats.ensure_boxes(found, boxes, format)
    chance = box_formats.by_chance(image_rows[best.rows], boxes[best.rows], known)
    said += box_formats.ensure_images(found, best.fit[format], chance, len(best.rows))
    true_labels, iou = best_annotations(image_rows[best.rows], boxes[best.rows], known)
    is_pair = iou >= PAIR_MIN_IOU
    label_of, about_classes = labels_of(found, dataset, best.rows[is_pair], true_labels[is_pair])
    labels = label_of[found.classes]
    vectors, about_vectors = in_order(found, labels, dataset)
    kept &= labels != UNKNOWN
    every = Predictions(
        image_rows,
        labels,
        scores,
        boxes,
        vectors,
        found.folds,
        notes + said + about_classes + about_vectors,
    )
    return every if kept.all() else every.take(kept)


@dataclass(frozen=True, eq=False)
class _Understood:
    """What one reading of the images of a file leads to."""

    reading: ImageNaming
    image_rows: Rows  # [m]
    rows: Rows  # the detections that were asked about
    fit: dict[BoxFormat, float]
    quality: float  # how well it all fits: the mean best IoU, times the share of known images


def _understood(
    found: RawDetections, reading: ImageNaming, dataset: Dataset, known: Annotated
) -> _Understood:
    image_rows = np.maximum(reading.rows, UNKNOWN)[found.images]
    rows = asked(image_rows, found.scores, found.boxes, known)
    sizes = sizes_of(dataset, image_rows[rows])[image_rows[rows]]
    fit = box_formats.fits(found, rows, image_rows[rows], sizes, known)
    quality = max(fit.values()) * float((image_rows >= 0).mean())
    return _Understood(reading, image_rows, rows, fit, quality)


def _probabilities(found: RawDetections) -> Floats:
    """The scores, which lie in 0..1; an error says what they look like where they do not."""
    scores = found.scores
    is_wrong = ~((scores >= -SCORE_TOLERANCE) & (scores <= 1 + SCORE_TOLERANCE))
    if not is_wrong.any():
        return np.clip(scores, 0.0, 1.0)
    row = int(np.argmax(is_wrong))
    if scores.min() < 0:
        looks = "scores below 0 look like logits: give them through a sigmoid or softmax first"
    elif scores.max() <= PERCENT and np.median(scores) > 1:
        looks = "they look like percent: divide them by 100"
    else:
        looks = "give probabilities, or anything between 0 and 1 that grows with them"
    raise found.refused(row, f"the score {scores[row]:.6g} does not lie between 0 and 1; {looks}")


def _ensure_sizes(found: RawDetections, dataset: Dataset, image_rows: Rows, sizes: Floats) -> None:
    is_wrong = (image_rows >= 0) & ~np.isfinite(sizes).all(axis=1)
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        name = dataset.images.file_names[int(image_rows[row])]
        raise found.refused(
            row,
            f"the box is in shares of {name}, whose size is not known; give the size in the "
            "dataset, or the folder of the images, or boxes in pixels",
        )
