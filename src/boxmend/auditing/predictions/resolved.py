"""Predictions by rows and labels of a dataset: the columns, their order, and notes about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxmend.auditing.notes import warning
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.files.change_detection import State, ensure_states_unchanged
from boxmend.data.folds import FoldManifest
from boxmend.data.types import Floats, Mask, Rows

UNCUT_MIN_SCORE = 0.075  # some detections of an uncut list do not reach it
MIN_DETECTIONS = 200  # of fewer nothing is concluded about where a list was cut
SCORE_BITS = 32
SCORE_STEPS = 2**SCORE_BITS - 1


@dataclass(frozen=True, eq=False)
class Predictions:
    """Detections by rows and labels of a dataset: by image, the best of each first."""

    image_rows: Rows  # [m] of the dataset's images
    labels: Rows  # [m]
    scores: Floats  # [m] in 0..1
    boxes: Floats  # [m, 4] xyxy pixels
    class_scores: NDArray[np.float32] | None  # [m, C] by label, where all have a class vector
    folds: Rows  # [m] of the detector that found it; -1 unknown
    notes: list[str] = field(default_factory=list)  # what is to be said to the user
    manifest: FoldManifest | None = None  # of the folder of folds they were read from
    states: Mapping[str, State | None] = field(default_factory=dict, repr=False)
    """Size and times of the files just before they were read."""

    def __len__(self) -> int:
        return len(self.labels)

    def ensure_unchanged(self) -> None:
        """Raise a DataError where a file of predictions has changed since it was read."""
        ensure_states_unchanged(self.states)

    @property
    def cut(self) -> float:
        """The score below which there is no detection, in the fold that has the highest such."""
        return max(
            (float(self.scores[self.folds == fold].min()) for fold in np.unique(self.folds)),
            default=0.0,
        )

    def take(self, rows: Rows | Mask) -> Predictions:
        """The detections at `rows` (indices, or a mask), in that order."""
        columns: dict[str, Any] = {
            one.name: column[rows]
            for one in fields(self)
            if isinstance(column := getattr(self, one.name), np.ndarray)
        }
        return replace(self, **columns)


def seen_in_training(predictions: Predictions, manifest: FoldManifest) -> Mask:
    """Mark the detections in images that their detector was trained on; not known is not marked."""
    own = manifest.folds[predictions.image_rows]
    mark: Mask = (predictions.folds >= 0) & (own >= 0) & (predictions.folds != own)
    return mark


def joined_predictions(parts: Sequence[Predictions], notes: Sequence[str]) -> Predictions:
    """Join the predictions of several kinds of files; `notes` go before theirs."""
    vectors = [one.class_scores for one in parts if one.class_scores is not None]
    about = []
    if vectors and len(vectors) < len(parts):
        about = ["class vectors are left aside, since only some of the files have them"]
    return Predictions(
        image_rows=np.concatenate([one.image_rows for one in parts]),
        labels=np.concatenate([one.labels for one in parts]),
        scores=np.concatenate([one.scores for one in parts]),
        boxes=np.concatenate([one.boxes for one in parts]),
        class_scores=np.concatenate(vectors) if len(vectors) == len(parts) else None,
        folds=np.concatenate([one.folds for one in parts]),
        notes=[*notes, *(note for one in parts for note in one.notes), *about],
    )


def in_own_order(found: Predictions) -> Predictions:
    """The same in an order that does not depend on that of the files."""
    # One number for image and score is sorted quickly; what shares it is sorted by everything.
    keys = (found.image_rows << SCORE_BITS) + ((1 - found.scores) * SCORE_STEPS).astype(np.int64)
    order = np.argsort(keys)
    is_same = np.diff(keys[order]) == 0
    tied = np.flatnonzero(np.append(is_same, False) | np.insert(is_same, 0, False))
    rows = order[tied]
    columns = (
        *(*found.boxes[rows].T[::-1], found.folds[rows], found.labels[rows]),
        *(-found.scores[rows], keys[rows]),
    )
    order[tied] = rows[np.lexsort(columns)]
    return found.take(order)


def notes_on_scores(found: Predictions) -> list[str]:
    """Warn where faint detections were left out, as predicting tools do by default."""
    if len(found) < MIN_DETECTIONS or found.cut < UNCUT_MIN_SCORE:
        return []
    told = (
        f"no detection has a score below {found.cut:.2g}, as if the others had been left out. What "
        "was seen faintly then seems not to be seen at all, and good annotations may be called "
        "spurious: predict again with a low limit, like conf=0.01"
    )
    return [warning(told)]


def notes_on_images(found: Predictions, dataset: Dataset) -> list[str]:
    """Return notes on images without detections, and on those that detectors have seen."""
    notes = []
    num, every = len(np.unique(found.image_rows)), len(dataset.images)
    if num < every:
        notes.append(f"{every - num:,} of {every:,} images have no detection")
    if found.manifest is None:
        return notes
    if lost := int((found.manifest.folds == UNKNOWN).sum()):
        notes.append(f"{lost:,} of {every:,} images are in no fold")
    if seen := int(seen_in_training(found, found.manifest).sum()):
        told = (
            f"{seen:,} of {len(found):,} detections are in images that their detector was trained "
            "on, which hides errors; predict on the test part of each fold alone"
        )
        notes.append(warning(told))
    return notes
