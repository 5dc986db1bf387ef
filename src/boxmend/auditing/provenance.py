"""Warn if predictions may come from a detector that was trained on the audited images.

A detector memorises annotations it was trained on, including wrong ones, so such predictions hide
errors.
"""

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.evidence import Detected, gather_evidence, select_objects
from boxmend.auditing.notes import warning
from boxmend.auditing.ordering import is_judgeable
from boxmend.auditing.predictions import ResolvedPredictions
from boxmend.data.boxes import compute_iou
from boxmend.data.dataset import Dataset
from boxmend.data.types import Mask

REMEDY = "`boxmend folds` makes splits to get predictions on images that the detector has not seen"
EXCEPTION = "Pass --unseen (in Python, AuditSettings(unseen=True)) if it was not"


@dataclass(frozen=True)
class ProvenanceConstants:
    """Thresholds above which predictions agree too well with annotations."""

    min_label_agreement: float = 0.97  # share of annotations detected with their own label
    min_median_iou: float = 0.93  # of annotated with detected boxes
    max_annotations: int = 50_000  # to compare; more only add time


PROVENANCE = ProvenanceConstants()


def provenance_warnings(
    dataset: Dataset, predictions: ResolvedPredictions, *, unseen: bool
) -> list[str]:
    """Return warnings about the origin of predictions, if any."""
    if predictions.manifest is not None:
        return []  # `notes_on_images` reports detections in images of the training folds
    if unseen or _has_folds(predictions):
        return []
    if is_too_good(dataset, predictions):
        text = (
            "the predictions agree so well with the annotations that the detector was probably "
            f"trained on these images, which hides errors. {REMEDY}. {EXCEPTION}"
        )
    else:
        text = (
            "the detector may have been trained on these images, which hides errors. "
            f"{REMEDY}. Pass --unseen (in Python, AuditSettings(unseen=True)) if it was not"
        )
    return [warning(text)]


def is_too_good(dataset: Dataset, predictions: ResolvedPredictions) -> bool:
    """Return whether predictions agree better with labels and boxes than on unseen images."""
    is_selected = _select_images(dataset)
    rows = np.flatnonzero(is_judgeable(dataset) & is_selected[dataset.image_rows])
    if not len(rows):
        return False
    objects = select_objects(dataset, rows)
    chosen = np.flatnonzero(is_selected[predictions.image_rows])
    detected = Detected(
        predictions.image_rows[chosen],
        predictions.labels[chosen],
        predictions.scores[chosen],
        predictions.boxes[chosen],
    )
    evidence = gather_evidence(objects, objects, detected)
    place = np.arange(len(rows))
    others, _ = evidence.best_other(place, objects.labels)
    is_agreed = evidence.for_labels(place, objects.labels) > others
    is_seen = ~np.isnan(evidence.boxes).any(axis=1)
    if not is_seen.any() or is_agreed.mean() < PROVENANCE.min_label_agreement:
        return False
    iou = compute_iou(objects.boxes[is_seen], evidence.boxes[is_seen])
    return float(np.median(iou)) >= PROVENANCE.min_median_iou


def _select_images(dataset: Dataset) -> Mask:
    """Mark images [images + 1] to compare, evenly spaced by name; the last entry is for UNKNOWN."""
    names = dataset.images.file_names
    by_name = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    is_selected = np.zeros(len(names) + 1, np.bool_)
    is_selected[by_name[:: 1 + len(dataset) // PROVENANCE.max_annotations]] = True
    return is_selected


def _has_folds(predictions: ResolvedPredictions) -> bool:
    return bool((predictions.folds >= 0).all())
