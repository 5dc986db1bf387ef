"""Whether predictions come from a detector that has seen the images before, and what to say then.

A detector repeats what it was trained on, errors included: predictions on training images hide
what is wrong with their annotations.
"""

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.evidence import Detected, from_detections, objects_at
from boxmend.auditing.notes import warning
from boxmend.auditing.ordering import judgeable
from boxmend.auditing.predictions import Predictions
from boxmend.data.boxes import overlaps
from boxmend.data.dataset import Dataset
from boxmend.data.types import Mask

REMEDY = "`boxmend folds` makes splits to get predictions on images that the detector has not seen"


@dataclass(frozen=True)
class ProvenanceConstants:
    """When predictions agree with annotations suspiciously well."""

    min_label_agreement: float = 0.97  # share of annotations seen under their own label
    min_median_iou: float = 0.93  # of annotated boxes with what was seen
    max_annotations: int = 50_000  # to tell by; more add time


PROVENANCE = ProvenanceConstants()


def provenance_warnings(dataset: Dataset, predictions: Predictions, *, unseen: bool) -> list[str]:
    """Return warnings about where predictions come from; none where all is well."""
    if predictions.manifest is not None:
        return []  # whoever read them knows, and has said so
    if unseen or _has_folds(predictions):
        return []
    if is_too_good(dataset, predictions):
        told = (
            "the predictions agree with the annotations like those of a detector that was trained "
            f"on these images, which hides errors. {REMEDY}; --unseen if it was not"
        )
    else:
        told = (
            "nothing says that the detector has not seen these images. If it was trained on them, "
            f"errors are hidden: {REMEDY}. Pass --unseen if it was not"
        )
    return [warning(told)]


def is_too_good(dataset: Dataset, predictions: Predictions) -> bool:
    """Whether predictions repeat the annotations, labels and edges, better than is credible."""
    is_asked = _asked(dataset)
    rows = np.flatnonzero(judgeable(dataset) & is_asked[dataset.image_rows])
    if not len(rows):
        return False
    objects = objects_at(dataset, rows)
    chosen = np.flatnonzero(is_asked[predictions.image_rows])
    detected = Detected(
        predictions.image_rows[chosen],
        predictions.labels[chosen],
        predictions.scores[chosen],
        predictions.boxes[chosen],
    )
    evidence = from_detections(objects, objects, detected)
    place = np.arange(len(rows))
    others, _ = evidence.best_other(place, objects.labels)
    is_agreed = evidence.of(place, objects.labels) > others
    is_seen = ~np.isnan(evidence.boxes).any(axis=1)
    if not is_seen.any() or is_agreed.mean() < PROVENANCE.min_label_agreement:
        return False
    iou = overlaps(objects.boxes[is_seen], evidence.boxes[is_seen])
    return float(np.median(iou)) >= PROVENANCE.min_median_iou


def _asked(dataset: Dataset) -> Mask:
    """[images + 1] Images to look at, of all sorted by name one in so many; not that of UNKNOWN."""
    names = dataset.images.file_names
    by_name = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    is_asked = np.zeros(len(names) + 1, np.bool_)
    is_asked[by_name[:: 1 + len(dataset) // PROVENANCE.max_annotations]] = True
    return is_asked


def _has_folds(predictions: Predictions) -> bool:
    return bool((predictions.folds >= 0).all())
