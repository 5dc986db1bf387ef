"""COCO results, and what Ultralytics writes like them: a JSON list, decoded in portions."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from boxmend.auditing.predictions.entries import DetectionEntry, RichEntry, portions, refused
from boxmend.auditing.predictions.raw import UNKNOWN_FOLD, BoxFormat, Key, KeyCodes, RawDetections
from boxmend.data.types import Rows, Singles

KIND = "COCO results"

KeyCheck = Callable[[int, list[Key], Rows], None]
"""Takes the first place of a portion, all keys so far, and its codes; raises for unknown keys."""


def read_results(path: Path) -> RawDetections:
    """Read a JSON list of detections as it stands, with class vectors and folds."""
    columns, folds, vectors = _Columns(), [np.zeros(0, np.int64)], list[Singles]()
    for first, entries in portions(path, RichEntry):
        columns.add(entries)
        told = [UNKNOWN_FOLD if one.fold is None else one.fold for one in entries]
        folds.append(np.fromiter(told, np.int64, len(told)))
        vectors += _vectors(path, first, entries, vectors[0].shape[1] if vectors else None)
    return columns.raw(path, np.concatenate(folds), vectors)


def read_plain_results(path: Path, checks: tuple[KeyCheck, KeyCheck]) -> RawDetections:
    """Read a JSON list of detections as it stands, without class vectors and folds.

    `checks`, one for images and one for classes, look at every portion before the next is decoded.
    """
    columns = _Columns()
    for first, entries in portions(path, DetectionEntry):
        images, classes = columns.add(entries)
        checks[0](first, columns.images.keys, images)
        checks[1](first, columns.classes.keys, classes)
    return columns.raw(path, None, [])


class _Columns:
    """The columns of a file, gathered portion by portion."""

    def __init__(self) -> None:
        self.images, self.classes = KeyCodes(), KeyCodes()
        none = np.zeros(0, np.int64)
        self._parts = [(none, none, np.zeros(0), np.zeros((0, 4)))]

    def add(self, entries: Sequence[DetectionEntry]) -> tuple[Rows, Rows]:
        """Add a portion; return the codes of its images and classes."""
        sides = [side for one in entries for side in one.bbox]
        part = (
            self.images.coded([(one.image_id, one.file_name) for one in entries]),
            self.classes.coded([(one.category_id, one.category_name) for one in entries]),
            np.fromiter([one.score for one in entries], np.float64, len(entries)),
            np.fromiter(sides, np.float64, 4 * len(entries)).reshape(-1, 4),
        )
        self._parts.append(part)
        return part[:2]

    def raw(self, path: Path, folds: Rows | None, vectors: Sequence[Singles]) -> RawDetections:
        """Return all portions; class vectors count where all detections have one."""
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
    """The class vectors of a portion, where all entries have one; none otherwise."""
    found = [one.probs if one.probs is not None else one.scores for one in entries]
    vectors = [one for one in found if one is not None]
    if not vectors or len(vectors) < len(found):
        return []
    length = len(vectors[0]) if length is None else length
    for k, one in enumerate(vectors):
        if len(one) != length:
            why = f"its class vector has {len(one)} values, that of the first one {length}"
            raise refused(path, first + k, why)
    with np.errstate(over="ignore"):  # what is beyond all measure is refused as no probability
        return [np.array(vectors, np.float32).reshape(len(vectors), length)]
