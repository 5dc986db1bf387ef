"""Predictions in memory: detections as arrays, independent of a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.auditing.predictions import packages
from boxmend.auditing.predictions.catalogue import Catalogue
from boxmend.auditing.predictions.matching import match_predictions, select_known
from boxmend.auditing.predictions.raw import (
    UNKNOWN_FOLD,
    BoxFormat,
    Key,
    KeyCodes,
    RawDetections,
)
from boxmend.auditing.predictions.resolved import ResolvedPredictions
from boxmend.auditing.predictions.results import read_results
from boxmend.data.arguments import (
    refuse_rows,
    to_boxes,
    to_floats,
    to_identities,
    to_label_rows,
    to_labels,
    to_list,
    to_scores,
)
from boxmend.data.dataset import Dataset, list_first
from boxmend.data.table import Table, make_table
from boxmend.data.types import Floats, Mask, Rows, Singles
from boxmend.errors import UsageError

NAME = "predictions"  # of the argument, for messages


class Predictions:
    """The detections of a detector, one row each, in any order; `boxmend.audit` takes them.

    `image_ids` [m] are ids of images, file names or paths. `boxes` [m, 4] are x1, y1, x2, y2 in
    pixels of the image as stored. `labels` [m] are names, or indices into `label_names`, which are
    those of the dataset by default. `scores` [m] lie between 0 and 1, and so do `class_scores`
    [m, C], the probabilities of all labels, if there are any. Arrays, lists and tensors are
    accepted.
    """

    def __init__(
        self,
        image_ids: Any,
        boxes: Any,
        labels: Any,
        scores: Any,
        *,
        label_names: Sequence[str] | None = None,
        class_scores: Any = None,
    ) -> None:
        box_column = to_boxes(f"{NAME}.boxes", boxes, allow_empty=True)
        number = len(box_column)
        if label_names is not None:
            label_names = to_list(f"{NAME}.label_names", label_names)
        image_keys, images = _encode_images(image_ids, number)
        class_keys, classes = _encode_labels(labels, number, label_names)
        vectors = _to_vectors(class_scores, number, label_names)
        self._raw = _make_raw(
            (image_keys, images),
            (class_keys, classes),
            box_column,
            to_scores(f"{NAME}.scores", scores, number),
        )
        names = () if vectors is None or label_names is None else tuple(label_names)
        self._raw = replace(self._raw, vectors=vectors, vector_names=names, counts_from_zero=True)

    @classmethod
    def from_ultralytics(cls, results: Any) -> Predictions:
        """Return the detections of `model.predict(...)`: a list or generator of results."""
        return cls(**packages.read_ultralytics(results))

    @classmethod
    def from_supervision(
        cls, detections_by_image: Mapping[Any, Any], *, label_names: Sequence[str] | None = None
    ) -> Predictions:
        """Return the detections of a dict of `supervision.Detections` by image id or file name.

        Labels are the `class_name` in their data, or class ids as indices into `label_names`.
        """
        columns = packages.read_supervision(detections_by_image, label_names)
        return cls(**columns, label_names=label_names)

    @classmethod
    def from_torchvision(
        cls,
        outputs: Mapping[Any, Any] | Sequence[Any],
        *,
        image_ids: Sequence[Any] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> Predictions:
        """Return the detections of a torchvision model: a dict of its outputs by image id.

        A list of outputs needs `image_ids`. Label 0 is the background; label 1 is the first label
        of the dataset, or entry 1 of `label_names`, such as `weights.meta["categories"]`.
        """
        return cls(**packages.read_torchvision(outputs, image_ids, label_names))

    @classmethod
    def from_coco(cls, results: str | Path | Iterable[Mapping[str, Any]]) -> Predictions:
        """Return COCO results: a list of dicts, or the path of a JSON file.

        Category ids are those of the dataset; without a COCO file they number the labels from 1.
        """
        if isinstance(results, str | Path):
            return cls._of(packages.to_corner_boxes(read_results(Path(results))))
        return cls._of(_make_raw(*packages.read_coco(results)))

    @classmethod
    def from_fiftyone(cls, view: Any, field: str) -> Predictions:
        """Return the detections in a field of the samples of a FiftyOne dataset or view."""
        return cls(**packages.read_fiftyone(view, field))

    @property
    def image_ids(self) -> list[int | float | str | None]:
        """The id or file name of the image of each detection."""
        keys = [name if name is not None else identity for identity, name in self._raw.image_keys]
        return [keys[code] for code in self._raw.images.tolist()]

    @property
    def labels(self) -> list[int | float | str | None]:
        """The name or number of the label of each detection."""
        keys = [name if name is not None else identity for identity, name in self._raw.class_keys]
        return [keys[code] for code in self._raw.classes.tolist()]

    @property
    def boxes(self) -> Floats:
        """The boxes [m, 4] as x1, y1, x2, y2."""
        return self._raw.boxes

    @property
    def scores(self) -> Floats:
        """The scores [m]."""
        return self._raw.scores

    def __len__(self) -> int:
        return len(self._raw)

    def take(self, rows: Rows | Mask) -> Predictions:
        """Return the detections at `rows` (indices, or a mask)."""
        raw, index = self._raw, np.arange(len(self))[rows]
        part = replace(
            raw,
            images=raw.images[index],
            classes=raw.classes[index],
            scores=raw.scores[index],
            boxes=raw.boxes[index],
            vectors=None if raw.vectors is None else raw.vectors[index],
            folds=raw.folds[index],
        )
        return self._of(part)

    @classmethod
    def _of(cls, raw: RawDetections) -> Predictions:
        made = cls.__new__(cls)
        made._raw = raw
        return made

    def select(self, dataset: Dataset) -> Predictions:
        """Return the detections in images and of labels that the dataset has."""
        return self.take(select_known(self._raw, dataset))

    def resolve(
        self, dataset: Dataset, *, is_compared: bool = True, catalogue: Catalogue | None = None
    ) -> ResolvedPredictions:
        """Return the detections by rows and labels of a dataset.

        Raise a DataError for an unknown image or label and, unless `is_compared` is False, for
        boxes or labels that fit the annotations only in another format. `catalogue` is that of the
        dataset, to look up images faster.
        """
        return match_predictions(self._raw, dataset, is_compared=is_compared, catalogue=catalogue)

    def to_table(self) -> Table:
        """Return a table of the detections."""
        sides = {side: self.boxes[:, k] for k, side in enumerate(("x1", "y1", "x2", "y2"))}
        texts = {
            "image_id": list(map(str, self.image_ids)),
            "label": list(map(str, self.labels)),
        }
        return make_table({**texts, **sides, "score": self.scores}, "predictions")

    def __repr__(self) -> str:
        raw = self._raw
        images, labels = (
            [str(name if name is not None else identity) for identity, name in keys]
            for keys in (raw.image_keys, raw.class_keys)
        )
        return (
            f"Predictions: {len(self):,} detections\n"
            f"  {len(images):,} images: {list_first(images)}\n"
            f"  {len(labels):,} labels: {list_first(labels, 5)}"
        )

    def _repr_html_(self) -> str:
        """Return the first detections as HTML, for notebooks."""
        return self.to_table()._repr_html_()


def _make_raw(
    images: tuple[list[Key], Rows], classes: tuple[list[Key], Rows], boxes: Floats, scores: Floats
) -> RawDetections:
    number = len(scores)
    return RawDetections(
        kind="predictions in memory",
        format=BoxFormat("xyxy"),
        image_keys=images[0],
        images=images[1],
        class_keys=classes[0],
        classes=classes[1],
        scores=scores,
        boxes=boxes,
        vectors=None,
        vector_names=(),
        folds=np.full(number, UNKNOWN_FOLD, np.int64),
        files=[NAME],
        firsts=np.zeros(1, np.int64),
        unit="row",
    )


def _encode_images(image_ids: Any, number: int) -> tuple[list[Key], Rows]:
    codes = KeyCodes()
    identities = to_identities(f"{NAME}.image_ids", image_ids, number)
    rows = codes.encode([(identity, None) for identity in identities])
    return codes.keys, rows


def _encode_labels(
    labels: Any, number: int, label_names: Sequence[str] | None
) -> tuple[list[Key], Rows]:
    """Return names or indices as keys; `label_names` turn indices into names."""
    name = f"{NAME}.labels"
    column = to_labels(name, labels, number)
    codes = KeyCodes()
    if label_names is not None:
        rows = to_label_rows(name, column, label_names)
        keys: list[Key] = [(None, str(label_names[row])) for row in rows.tolist()]
    elif isinstance(column, list):
        keys = [(None, label) for label in column]
    else:
        keys = [(label, None) for label in column.tolist()]
    rows = codes.encode(keys)
    return codes.keys, rows


def _to_vectors(value: Any, number: int, label_names: Sequence[str] | None) -> Singles | None:
    """Return class scores [m, C]; None without any."""
    if value is None or not number:
        return None
    name = f"{NAME}.class_scores"
    vectors = to_floats(name, value)
    num_labels = None if label_names is None else len(label_names)
    if vectors.ndim != 2 or len(vectors) != number or num_labels not in (None, vectors.shape[1]):
        labels = "labels" if num_labels is None else num_labels
        raise UsageError(f"{name} has shape {vectors.shape}; expected ({number}, {labels})")
    singles: Singles = vectors.astype(np.float32)
    is_wrong = ~((singles >= -1e-4) & (singles <= 1 + 1e-4)).all(axis=1)
    refuse_rows(name, is_wrong, singles, "expected probabilities from 0 to 1")
    return singles
