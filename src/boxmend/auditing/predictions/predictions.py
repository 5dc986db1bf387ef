"""Predictions of any detector for an audit: read, understood by the annotations, and in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxmend.auditing.predictions import box_formats
from boxmend.auditing.predictions.catalogue import Catalogue
from boxmend.auditing.predictions.class_names import labels_of
from boxmend.auditing.predictions.class_vectors import in_order
from boxmend.auditing.predictions.image_names import ImageNaming, ensure_clear, readings, sizes_of
from boxmend.auditing.predictions.locating import PredictionFile, files_of, places_of, read_place
from boxmend.auditing.predictions.overlap import Annotated, annotated, asked, best_annotations
from boxmend.auditing.predictions.raw import BoxFormat, RawDetections, joined
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.files.unchanged import State, ensure_same_states, states_of
from boxmend.data.folds import FoldManifest
from boxmend.data.formats.coco.sizes import contested_images
from boxmend.data.types import Floats, Mask, Rows
from boxmend.errors import DataError

OVERLAPS = 0.5  # IoU from which a detection and an annotation are of one object
ROUNDING = 1e-6  # by which a score may leave 0..1
PERCENT = 100
FAINT = 0.075  # score that some detections of an uncut list do not reach
MANY = 200  # detections that tell where a list was cut
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
        ensure_same_states(self.states)

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


def read_predictions(paths: Sequence[str | Path], dataset: Dataset) -> Predictions:
    """Read files, label folders and folders of folds into one table, in an order of its own.

    What a file means by its images, classes and boxes is found out by their overlap with the
    annotations; what was found out, and what was passed over, stands in `notes`. A DataError names
    what cannot be used.
    """
    places, manifest = places_of(paths, dataset)
    states = states_of(files_of(places))
    parts: dict[tuple[str, BoxFormat], list[RawDetections]] = {}
    for place in places:
        found = _of_fold(read_place(place), place)
        parts.setdefault((found.kind, found.format), []).append(found)
    known, catalogue = annotated(dataset), _catalogue(dataset)
    notes: list[str] = []
    if empty := [one.files for group in parts.values() for one in group if not len(one)]:
        notes.append(f"no detection at all in {', '.join(file for one in empty for file in one)}")
    settled = [
        _settled(joined(group), dataset, catalogue, known)
        for _, group in sorted(parts.items(), key=lambda item: str(item[0]))
        if any(map(len, group))
    ]
    if not settled:
        told = ", ".join(str(one.path) for one in places[:3])
        raise DataError(f"{told}: no detection at all; an audit needs what a detector found")
    result = _sorted(_together(settled, notes))
    result = replace(result, manifest=manifest, states=states)
    return replace(
        result, notes=result.notes + _about_scores(result) + _about_images(result, dataset)
    )


def seen_in_training(predictions: Predictions, manifest: FoldManifest) -> Mask:
    """Mark the detections in images that their detector was trained on; not known is not marked."""
    own = manifest.folds[predictions.image_rows]
    mark: Mask = (predictions.folds >= 0) & (own >= 0) & (predictions.folds != own)
    return mark


def _of_fold(found: RawDetections, place: PredictionFile) -> RawDetections:
    if place.fold is None:
        return found
    return replace(found, folds=np.full(len(found), place.fold, np.int64))


def _catalogue(dataset: Dataset) -> Catalogue:
    """The images of a dataset by all their names; classes are looked up elsewhere."""
    return Catalogue(dataset.images, dataset.label_names, {}, contested_images(dataset))


def _settled(
    found: RawDetections, dataset: Dataset, catalogue: Catalogue, known: Annotated
) -> Predictions:
    """Detections of one kind of file, understood."""
    scores = _probabilities(found)
    ways = [
        _understood(found, reading, dataset, known)
        for reading in readings(found, dataset, catalogue)
    ]
    best = ways[0]
    notes: list[str] = []
    if len(ways) > 1 and ways[1].quality > max(box_formats.FITS, 1.3 * ways[0].quality):
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
    is_pair = iou >= OVERLAPS
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
    is_wrong = ~((scores >= -ROUNDING) & (scores <= 1 + ROUNDING))
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


def _together(parts: Sequence[Predictions], notes: Sequence[str]) -> Predictions:
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


def _sorted(found: Predictions) -> Predictions:
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


def _about_scores(found: Predictions) -> list[str]:
    """What is said where faint detections were left out, as predicting tools do by default."""
    if len(found) < MANY or found.cut < FAINT:
        return []
    return [
        f"WARNING: no detection has a score below {found.cut:.2g}, as if the others had been left "
        "out. What was seen faintly then seems not to be seen at all, and good annotations may be "
        "called spurious: predict again with a low limit, like conf=0.01"
    ]


def _about_images(found: Predictions, dataset: Dataset) -> list[str]:
    """What is to be said of images without detections, and of those that detectors have seen."""
    notes = []
    num, every = len(np.unique(found.image_rows)), len(dataset.images)
    if num < every:
        notes.append(f"{every - num:,} of {every:,} images have no detection")
    if found.manifest is None:
        return notes
    if lost := int((found.manifest.folds == UNKNOWN).sum()):
        notes.append(f"{lost:,} of {every:,} images are in no fold")
    if seen := int(seen_in_training(found, found.manifest).sum()):
        notes.append(
            f"WARNING: {seen:,} of {len(found):,} detections are in images that their detector was "
            "trained on, which hides errors; predict on the test part of each fold alone"
        )
    return notes
