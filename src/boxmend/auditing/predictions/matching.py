"""Match predictions in memory with a dataset: images, labels, and the format of the boxes.

Unlike files, arrays have a documented meaning, so nothing is inferred. If another meaning agrees
with the annotations much better, an error says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from boxmend.auditing.predictions.box_formats import (
    chance_iou,
    choose_format,
    describe_format,
    ensure_own_images,
    fit_by_format,
)
from boxmend.auditing.predictions.catalogue import AMBIGUOUS, Catalogue, make_catalogue
from boxmend.auditing.predictions.class_names import find_labels, match_documented
from boxmend.auditing.predictions.class_vectors import order_vectors
from boxmend.auditing.predictions.image_names import find_image_sizes, find_row
from boxmend.auditing.predictions.inference import PAIR_MIN_IOU
from boxmend.auditing.predictions.overlap import (
    find_best_annotations,
    select_detections,
    usable_annotations,
)
from boxmend.auditing.predictions.raw import Key, RawDetections
from boxmend.auditing.predictions.resolved import (
    ResolvedPredictions,
    notes_on_images,
    notes_on_scores,
    sort_predictions,
)
from boxmend.data.arguments import describe_labels, refuse_rows
from boxmend.data.dataset import Dataset
from boxmend.data.types import Mask, Rows
from boxmend.errors import DataError

REMEDY = "predictions.select(dataset) leaves out the others"


def _advise_on_labels(raw: RawDetections, dataset: Dataset) -> str:
    """Return what to do about unknown labels; numbers from 1 to C include one for background."""
    numbers = [key for key, name in raw.class_keys if isinstance(key, int) and name is None]
    if numbers and min(numbers) >= 1 and max(numbers) == len(dataset.label_names):
        return "if they count from 1, subtract 1"
    return REMEDY


def match_predictions(
    raw: RawDetections,
    dataset: Dataset,
    *,
    is_compared: bool = True,
    catalogue: Catalogue | None = None,
) -> ResolvedPredictions:
    """Return detections by rows and labels of a dataset, with notes about them.

    They are compared with the annotations, unless `is_compared` is False: a detector that has just
    begun to learn does not fit them. Several calls for one dataset can share its `catalogue`.
    """
    image_rows = _match_images(raw, catalogue or make_catalogue(dataset))
    labels_by_key = match_documented(raw, dataset)
    labels = labels_by_key[raw.classes]
    refuse_rows(
        "predictions.labels",
        labels < 0,
        _Values(raw.class_keys, raw.classes),
        f"{describe_labels(dataset.label_names)}; {_advise_on_labels(raw, dataset)}",
    )
    notes = _check_agreement(raw, dataset, image_rows, labels_by_key) if is_compared else []
    vectors, vector_notes = order_vectors(raw, labels, dataset)
    resolved = ResolvedPredictions(
        image_rows=image_rows,
        labels=labels,
        scores=raw.scores,
        boxes=raw.boxes,
        class_scores=vectors,
        folds=raw.folds,
        notes=[*notes, *vector_notes],
    )
    result = sort_predictions(resolved) if is_compared else resolved
    return replace(
        result, notes=result.notes + notes_on_scores(result) + notes_on_images(result, dataset)
    )


def select_known(raw: RawDetections, dataset: Dataset) -> Mask:
    """Mark the detections [m] in images and of labels that the dataset has."""
    labels = match_documented(raw, dataset)[raw.classes]
    is_known: Mask = (_find_images(raw, make_catalogue(dataset)) >= 0) & (labels >= 0)
    return is_known


def _match_images(raw: RawDetections, catalogue: Catalogue) -> Rows:
    rows = _find_images(raw, catalogue)
    values = _Values(raw.image_keys, raw.images)
    name = "predictions.image_ids"
    expected = "this means several images of the dataset; give whole file names, or ids"
    refuse_rows(name, rows == AMBIGUOUS, values, expected)
    expected = f"not in the dataset: {catalogue.list_known('image')}; {REMEDY}"
    refuse_rows(name, rows < 0, values, expected)
    return rows


def _find_images(raw: RawDetections, catalogue: Catalogue) -> Rows:
    by_key = np.array([find_row(key, catalogue) for key in raw.image_keys], np.int64)
    rows: Rows = by_key[raw.images] if len(by_key) else np.zeros(0, np.int64)
    return rows


def _check_agreement(
    raw: RawDetections, dataset: Dataset, image_rows: Rows, labels_by_key: Rows
) -> list[str]:
    """Compare detections with annotations; raise a DataError if another meaning fits better."""
    known = usable_annotations(dataset)
    rows = select_detections(image_rows, raw.scores, raw.boxes, known)
    sizes = find_image_sizes(dataset, image_rows[rows])[image_rows[rows]]
    ious = fit_by_format(raw, rows, image_rows[rows], sizes, known)
    format, _ = choose_format(raw, ious, len(rows))
    if format != raw.format:
        raise DataError(
            f"predictions.boxes fit the annotations as {describe_format(format)} (mean IoU "
            f"{ious[format]:.2f}), but not as {describe_format(raw.format)} "
            f"({ious[raw.format]:.2f}); convert them to x1, y1, x2, y2 in pixels"
        )
    chance = chance_iou(image_rows[rows], raw.boxes[rows], known)
    notes = ensure_own_images(raw, ious[format], chance, len(rows))
    true_labels, iou = find_best_annotations(image_rows[rows], raw.boxes[rows], known)
    is_pair = iou >= PAIR_MIN_IOU
    inferred, label_notes = find_labels(raw, dataset, rows[is_pair], true_labels[is_pair])
    if (inferred != labels_by_key).any():
        raise DataError(
            f"predictions.labels seem to have another meaning: {'; '.join(label_notes)}; "
            "give names, or indices from 0 into the dataset's label_names"
        )
    return notes + label_notes


class _Values(Sequence[object]):
    """The ids or names of detections by row, for messages."""

    def __init__(self, keys: Sequence[Key], codes: Rows):
        self._keys, self._codes = keys, codes

    def __getitem__(self, row: int) -> object:  # type: ignore[override]  # rows only
        identity, name = self._keys[int(self._codes[row])]
        return repr(name if name is not None else identity)

    def __len__(self) -> int:
        return len(self._codes)
