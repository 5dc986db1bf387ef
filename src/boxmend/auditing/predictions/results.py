"""COCO's results, and what Ultralytics writes like them: a JSON list, decoded in portions."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from boxmend.auditing.predictions.entries import RichEntry, refused, rich_portions
from boxmend.auditing.predictions.raw import UNKNOWN_FOLD, BoxFormat, Key, RawDetections
from boxmend.data.types import Rows

KIND = "COCO results"


def read_results(path: Path) -> RawDetections:
    """Read a JSON list of detections, as it stands there."""
    images: dict[Key, int] = {}
    classes: dict[Key, int] = {}
    parts: list[tuple[NDArray[np.generic], ...]] = [_part([], images, classes)]
    vectors: list[NDArray[np.float32]] = []
    for first, entries in rich_portions(path):
        parts.append(_part(entries, images, classes))
        vectors += _vectors(path, first, entries, vectors[0].shape[1] if vectors else None)
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    is_whole = sum(map(len, vectors)) == len(columns[0]) > 0
    return RawDetections(
        kind=KIND,
        format=BoxFormat("xywh"),
        image_keys=list(images),
        images=columns[0],
        class_keys=list(classes),
        classes=columns[1],
        scores=columns[2],
        boxes=columns[3],
        vectors=np.concatenate(vectors) if is_whole else None,
        vector_names=(),
        folds=columns[4],
        files=[str(path)],
        firsts=np.zeros(1, np.int64),
    )


def _part(
    entries: Sequence[RichEntry], images: dict[Key, int], classes: dict[Key, int]
) -> tuple[NDArray[np.generic], ...]:
    """Columns of a portion; keys that are new get the next codes."""
    n = len(entries)
    sides = [side for one in entries for side in one.bbox]
    folds = [UNKNOWN_FOLD if one.fold is None else one.fold for one in entries]
    return (
        _coded([(one.image_id, one.file_name) for one in entries], images),
        _coded([(one.category_id, one.category_name) for one in entries], classes),
        np.fromiter([one.score for one in entries], np.float64, n),
        np.fromiter(sides, np.float64, 4 * n).reshape(-1, 4),
        np.fromiter(folds, np.int64, n),
    )


def _coded(keys: list[Key], known: dict[Key, int]) -> Rows:
    for key in dict.fromkeys(keys):  # in their order, so that messages name the first ones
        known.setdefault(key, len(known))
    return np.fromiter(map(known.__getitem__, keys), np.int64, len(keys))


def _vectors(
    path: Path, first: int, entries: Sequence[RichEntry], length: int | None
) -> list[NDArray[np.float32]]:
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
