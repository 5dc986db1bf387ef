"""Predictions with rows and labels of a dataset, and notes about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxmend.auditing.notes import warning
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.describing import describe
from boxmend.data.files.change_detection import State, ensure_states_unchanged
from boxmend.data.folds import FoldManifest
from boxmend.data.types import Floats, Mask, Rows

UNCUT_MIN_SCORE = 0.075  # a list that is not cut off has lower scores
MIN_DETECTIONS = 200  # fewer are too few to find out whether a list was cut off
SCORE_BITS = 32
SCORE_STEPS = 2**SCORE_BITS - 1


@dataclass(frozen=True, eq=False, repr=False)
class ResolvedPredictions:
    """Detections with rows and labels of a dataset, sorted by image and falling score."""

    __repr__ = describe

    image_rows: Rows  # [m] of the dataset's images
    labels: Rows  # [m]
    scores: Floats  # [m] in 0..1
    boxes: Floats  # [m, 4] xyxy pixels
    class_scores: NDArray[np.float32] | None  # [m, C] by label, if all have a class vector
    folds: Rows  # [m] fold of the detector; -1 if unknown
    notes: list[str] = field(default_factory=list)  # for the user
    manifest: FoldManifest | None = None  # of the folder of folds that they were read from
    states: Mapping[str, State | None] = field(default_factory=dict, repr=False)
    """Size and times of the files just before reading them."""

    def __len__(self) -> int:
        return len(self.labels)

    def ensure_unchanged(self) -> None:
        """Raise a DataError where a file of predictions has changed since it was read."""
        ensure_states_unchanged(self.states)

    @property
    def cut(self) -> float:
        """The highest among the lowest scores of each fold."""
        return max(
            (float(self.scores[self.folds == fold].min()) for fold in np.unique(self.folds)),
            default=0.0,
        )

    def take(self, rows: Rows | Mask) -> ResolvedPredictions:
        """Return the detections at `rows` (indices, or a mask), in that order."""
        columns: dict[str, Any] = {
            field.name: column[rows]
            for field in fields(self)
            if isinstance(column := getattr(self, field.name), np.ndarray)
        }
        return replace(self, **columns)


def mark_seen_in_training(predictions: ResolvedPredictions, manifest: FoldManifest) -> Mask:
    """Mark detections [m] in images that their detector was trained on, as far as known."""
    own = manifest.folds[predictions.image_rows]
    mark: Mask = (predictions.folds >= 0) & (own >= 0) & (predictions.folds != own)
    return mark


def join_predictions(
    parts: Sequence[ResolvedPredictions], notes: Sequence[str]
) -> ResolvedPredictions:
    """Join the predictions of several kinds of files; `notes` come first."""
    vectors = [part.class_scores for part in parts if part.class_scores is not None]
    about = []
    if vectors and len(vectors) < len(parts):
        about = ["class vectors are ignored, since only some of the files have them"]
    return ResolvedPredictions(
        image_rows=np.concatenate([part.image_rows for part in parts]),
        labels=np.concatenate([part.labels for part in parts]),
        scores=np.concatenate([part.scores for part in parts]),
        boxes=np.concatenate([part.boxes for part in parts]),
        class_scores=np.concatenate(vectors) if len(vectors) == len(parts) else None,
        folds=np.concatenate([part.folds for part in parts]),
        notes=[*notes, *(note for part in parts for note in part.notes), *about],
    )


def sort_predictions(predictions: ResolvedPredictions) -> ResolvedPredictions:
    """Sort predictions so that the order of the files does not matter."""
    # Sorting by one number for image and score is fast; only ties are sorted by all columns.
    keys = (predictions.image_rows << SCORE_BITS) + ((1 - predictions.scores) * SCORE_STEPS).astype(
        np.int64
    )
    order = np.argsort(keys)
    is_same = np.diff(keys[order]) == 0
    tied = np.flatnonzero(np.append(is_same, False) | np.insert(is_same, 0, False))
    rows = order[tied]
    columns = (
        *(*predictions.boxes[rows].T[::-1], predictions.folds[rows], predictions.labels[rows]),
        *(-predictions.scores[rows], keys[rows]),
    )
    order[tied] = rows[np.lexsort(columns)]
    return predictions.take(order)


def notes_on_scores(predictions: ResolvedPredictions) -> list[str]:
    """Warn if detections with low scores are missing, as many tools drop them by default."""
    if len(predictions) < MIN_DETECTIONS or predictions.cut < UNCUT_MIN_SCORE:
        return []
    text = (
        f"no detection has a score below {predictions.cut:.2g}, so the detector probably dropped "
        "detections with lower scores. Without them, right annotations may be called spurious: "
        "predict again with a low limit, like conf=0.01"
    )
    return [warning(text)]


def notes_on_images(predictions: ResolvedPredictions, dataset: Dataset) -> list[str]:
    """Return notes on images without detections, and on images that detectors were trained on."""
    notes = []
    num_with_detections, num_images = len(np.unique(predictions.image_rows)), len(dataset.images)
    if num_with_detections < num_images:
        notes.append(
            f"{num_images - num_with_detections:,} of {num_images:,} images have no detection"
        )
    if predictions.manifest is None:
        return notes
    if num_unknown := int((predictions.manifest.folds == UNKNOWN).sum()):
        notes.append(f"{num_unknown:,} of {num_images:,} images are in no fold")
    if num_seen := int(mark_seen_in_training(predictions, predictions.manifest).sum()):
        text = (
            f"{num_seen:,} of {len(predictions):,} detections are in images that their detector "
            "was trained on, which hides errors; predict only the test part of each fold"
        )
        notes.append(warning(text))
    return notes
