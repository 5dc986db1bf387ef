"""Infer the meaning of the images, boxes and classes of a prediction file.

A right interpretation agrees with the annotations better than a wrong one. The interpretation that
agrees best is used, and a note says if it is not the documented one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.predictions import box_formats
from boxmend.auditing.predictions.box_formats import FORMATS
from boxmend.auditing.predictions.catalogue import Catalogue
from boxmend.auditing.predictions.class_names import find_labels
from boxmend.auditing.predictions.class_vectors import order_vectors
from boxmend.auditing.predictions.image_names import (
    ImageNaming,
    ensure_unambiguous,
    find_image_sizes,
    possible_namings,
)
from boxmend.auditing.predictions.overlap import (
    KnownAnnotations,
    find_best_annotations,
    select_detections,
)
from boxmend.auditing.predictions.raw import BoxFormat, RawDetections
from boxmend.auditing.predictions.resolved import ResolvedPredictions
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats, Rows

PAIR_MIN_IOU = 0.5  # of a detection and an annotation of one object
SCORE_TOLERANCE = 1e-6  # by which a score may lie outside 0..1
PERCENT = 100


def infer_meaning(
    raw: RawDetections, dataset: Dataset, catalogue: Catalogue, known: KnownAnnotations
) -> ResolvedPredictions:
    """Return the detections of one kind of file with rows and labels of the dataset."""
    scores = _check_scores(raw)
    interpretations = [
        _interpret(raw, naming, dataset, known)
        for naming in possible_namings(raw, dataset, catalogue)
    ]
    best = interpretations[0]
    notes: list[str] = []
    needed = max(FORMATS.good_mean_iou, FORMATS.min_iou_ratio * best.quality)
    if len(interpretations) > 1 and interpretations[1].quality > needed:
        best = interpretations[1]
        notes.append(f"the images in {raw.files_text} are read as {best.naming.words}, not as ids")
    notes += ensure_unambiguous(raw, best.naming.rows, dataset)
    format, format_notes = box_formats.choose_format(raw, best.ious, len(best.rows))
    image_rows = best.image_rows
    kept = image_rows >= 0
    sizes = find_image_sizes(dataset, image_rows if format.is_share else np.zeros(0, np.int64))[
        image_rows
    ]
    boxes = box_formats.to_corners(raw.boxes, format, sizes)
    if format.is_share:
        _ensure_known_sizes(raw, dataset, image_rows, sizes)
    boxes[~kept] = 0
    box_formats.ensure_valid_boxes(raw, boxes, format)
    chance = box_formats.chance_iou(image_rows[best.rows], boxes[best.rows], known)
    format_notes += box_formats.ensure_own_images(raw, best.ious[format], chance, len(best.rows))
    true_labels, iou = find_best_annotations(image_rows[best.rows], boxes[best.rows], known)
    is_pair = iou >= PAIR_MIN_IOU
    label_of, class_notes = find_labels(raw, dataset, best.rows[is_pair], true_labels[is_pair])
    labels = label_of[raw.classes]
    vectors, vector_notes = order_vectors(raw, labels, dataset)
    kept &= labels != UNKNOWN
    predictions = ResolvedPredictions(
        image_rows,
        labels,
        scores,
        boxes,
        vectors,
        raw.folds,
        notes + format_notes + class_notes + vector_notes,
    )
    return predictions if kept.all() else predictions.take(kept)


@dataclass(frozen=True, eq=False)
class _Interpretation:
    """One interpretation of the images of a file, and how well it fits."""

    naming: ImageNaming
    image_rows: Rows  # [m]
    rows: Rows  # detections that are compared with annotations
    ious: dict[BoxFormat, float]
    quality: float  # the mean best IoU, times the share of detections in known images


def _interpret(
    raw: RawDetections, naming: ImageNaming, dataset: Dataset, known: KnownAnnotations
) -> _Interpretation:
    image_rows = np.maximum(naming.rows, UNKNOWN)[raw.images]
    rows = select_detections(image_rows, raw.scores, raw.boxes, known)
    sizes = find_image_sizes(dataset, image_rows[rows])[image_rows[rows]]
    ious = box_formats.fit_by_format(raw, rows, image_rows[rows], sizes, known)
    quality = max(ious.values()) * float((image_rows >= 0).mean())
    return _Interpretation(naming, image_rows, rows, ious, quality)


def _check_scores(raw: RawDetections) -> Floats:
    """Return the scores; raise an error with a likely cause if one lies outside 0..1."""
    scores = raw.scores
    is_wrong = ~((scores >= -SCORE_TOLERANCE) & (scores <= 1 + SCORE_TOLERANCE))
    if not is_wrong.any():
        return np.clip(scores, 0.0, 1.0)
    row = int(np.argmax(is_wrong))
    if scores.min() < 0:
        remedy = "scores below 0 look like logits: apply a sigmoid or softmax"
    elif scores.max() <= PERCENT and np.median(scores) > 1:
        remedy = "scores look like percentages: divide them by 100"
    else:
        remedy = "give probabilities, or other numbers from 0 to 1 that rise with them"
    raise raw.error_at(row, f"the score {scores[row]:.6g} does not lie between 0 and 1; {remedy}")


def _ensure_known_sizes(
    raw: RawDetections, dataset: Dataset, image_rows: Rows, sizes: Floats
) -> None:
    is_wrong = (image_rows >= 0) & ~np.isfinite(sizes).all(axis=1)
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        name = dataset.images.file_names[int(image_rows[row])]
        raise raw.error_at(
            row,
            f"the box is in shares of {name}, whose size is unknown; give the size in the "
            "dataset, or the folder of the images, or boxes in pixels",
        )
