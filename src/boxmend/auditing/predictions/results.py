"""Read COCO results, and similar files of Ultralytics: a JSON list, decoded in portions."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from boxmend.auditing.predictions.entries import (
    DetectionEntry,
    RichEntry,
    entry_error,
    read_portions,
)
from boxmend.auditing.predictions.raw import UNKNOWN_FOLD, BoxFormat, Key, KeyCodes, RawDetections
from boxmend.data.types import Rows, Singles

KIND = "COCO results"

KeyCheck = Callable[[int, list[Key], Rows], None]
"""Raises for unknown keys, given the first place of a portion, all keys so far and its codes."""


def read_results(path: Path) -> RawDetections:
    """Read a JSON list of detections with class vectors and folds, without interpretation."""
    columns, folds, vectors = _Columns(), [np.zeros(0, np.int64)], list[Singles]()
    for first, entries in read_portions(path, RichEntry):
        columns.add(entries)
        entry_folds = [UNKNOWN_FOLD if entry.fold is None else entry.fold for entry in entries]
        folds.append(np.fromiter(entry_folds, np.int64, len(entry_folds)))
        vectors += _vectors(path, first, entries, vectors[0].shape[1] if vectors else None)
    return columns.raw(path, np.concatenate(folds), vectors)


def read_plain_results(path: Path, checks: tuple[KeyCheck, KeyCheck]) -> RawDetections:
    """Read a JSON list of detections without class vectors and folds, without interpretation.

    Two `checks`, for images and for classes, are called for each portion before decoding the next.
    """
    columns = _Columns()
    for first, entries in read_portions(path, DetectionEntry):
        images, classes = columns.add(entries)
        checks[0](first, columns.images.keys, images)
        checks[1](first, columns.classes.keys, classes)
    return columns.raw(path, None, [])


class _Columns:
    """Columns of a file, collected portion by portion."""

    def __init__(self) -> None:
        self.images, self.classes = KeyCodes(), KeyCodes()
        none = np.zeros(0, np.int64)
        self._parts = [(none, none, np.zeros(0), np.zeros((0, 4)))]

    def add(self, entries: Sequence[DetectionEntry]) -> tuple[Rows, Rows]:
        """Add a portion; return the codes of its images and classes."""
        sides = [side for entry in entries for side in entry.bbox]
        part = (
            self.images.encode([(entry.image_id, entry.file_name) for entry in entries]),
            self.classes.encode([(entry.category_id, entry.category_name) for entry in entries]),
            np.fromiter([entry.score for entry in entries], np.float64, len(entries)),
            np.fromiter(sides, np.float64, 4 * len(entries)).reshape(-1, 4),
        )
        self._parts.append(part)
        return part[:2]

    def raw(self, path: Path, folds: Rows | None, vectors: Sequence[Singles]) -> RawDetections:
        """Return the detections of all portions; class vectors only if all detections have one."""
        images, classes, scores, boxes = (
            np.concatenate(column) for column in zip(*self._parts, strict=True)
        )
        is_whole = sum(map(len, vectors)) == len(scores) > 0
        return RawDetections(
            kind=KIND,
            format=BoxFormat("xywh"),
            image_keys=self.images.keys,
            images=images,
            class_keys=self.classes.keys,
            classes=classes,
            scores=scores,
            boxes=boxes,
            vectors=np.concatenate(vectors) if is_whole else None,
            vector_names=(),
            folds=np.full(len(scores), UNKNOWN_FOLD, np.int64) if folds is None else folds,
            files=[str(path)],
            firsts=np.zeros(1, np.int64),
        )


def _vectors(
    path: Path, first: int, entries: Sequence[RichEntry], length: int | None
) -> list[Singles]:
    """Return the class vectors of a portion; an empty list if some entries have none."""
    entry_vectors = [entry.probs if entry.probs is not None else entry.scores for entry in entries]
    vectors = [vector for vector in entry_vectors if vector is not None]
    if not vectors or len(vectors) < len(entry_vectors):
        return []
    length = len(vectors[0]) if length is None else length
    for k, vector in enumerate(vectors):
        if len(vector) != length:
            why = f"its class vector has {len(vector)} values, but the first one has {length}"
            raise entry_error(path, first + k, why)
    with np.errstate(over="ignore"):  # infinite values are refused later
        return [np.array(vectors, np.float32).reshape(len(vectors), length)]
