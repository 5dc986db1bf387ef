"""Detections as their files have them: images, classes and boxes in the files' own words.

Images and classes are codes into a list of keys, so that each is looked up once. What the keys
and the four numbers of a box mean is decided later: by the documentation of COCO results (`exact`),
or by what overlaps the annotations (`inference`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boxmend.data.types import Floats, Rows
from boxmend.errors import DataError

UNKNOWN_FOLD = -1

Key = tuple[int | float | str | None, str | None]
"""How an entry tells an image, or a class: by id and by name."""


class KeyCodes:
    """Keys in the order in which they first occur; the code of a key is its place."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self._codes: dict[Key, int] = {}

    def coded(self, keys: Sequence[Key]) -> Rows:
        """Return the codes [m] of keys; new ones get the next codes, in their order."""
        for key in dict.fromkeys(keys):
            if key not in self._codes:
                self._codes[key] = len(self.keys)
                self.keys.append(key)
        return np.fromiter(map(self._codes.__getitem__, keys), np.int64, len(keys))


@dataclass(frozen=True)
class BoxFormat:
    """What the four numbers of a box are."""

    layout: str  # one of `box_formats.LAYOUTS`
    is_share: bool = False  # of the image's width and height, else pixels


@dataclass(frozen=True, eq=False)
class RawDetections:
    """Detections of one file, or of several of one kind."""

    kind: str  # what people call such a file
    format: BoxFormat  # that such files should have
    image_keys: list[Key]
    images: Rows  # [m] into image_keys
    class_keys: list[Key]
    classes: Rows  # [m] into class_keys
    scores: Floats  # [m]
    boxes: Floats  # [m, 4] as written
    vectors: NDArray[np.float32] | None  # [m, v] class vectors, where all have one
    vector_names: tuple[str, ...]  # [v] their classes, where the file names them
    folds: Rows  # [m] UNKNOWN_FOLD where not told
    files: list[str]  # where they stand
    firsts: Rows  # [files] the row at which each file begins
    unit: str = "detection"  # what a row of a file is called
    counts_from_0: bool = False  # whether such files should number classes by their order

    def __len__(self) -> int:
        return len(self.scores)

    def refused(self, row: int, why: str) -> DataError:
        """The error that tells what is wrong with the detection at this row."""
        file = int(np.searchsorted(self.firsts, row, side="right")) - 1
        place = f"{self.unit} {row - int(self.firsts[file])} (the first is 0)"
        return DataError(f"{self.files[file]}: {place}: {why}")

    @property
    def told_files(self) -> str:
        """The files, for a message about all of them."""
        more = f" and {len(self.files) - 1:,} more" if len(self.files) > 1 else ""
        return f"{self.files[0]}{more}" if self.files else "the predictions"


def joined(parts: Sequence[RawDetections]) -> RawDetections:
    """Join detections of one kind and format; class vectors stay where all parts have alike."""
    if len(parts) == 1:
        return parts[0]
    image_keys, images = _recoded([(one.image_keys, one.images) for one in parts])
    class_keys, classes = _recoded([(one.class_keys, one.classes) for one in parts])
    sizes = np.array([len(one) for one in parts], np.int64)
    starts = np.cumsum(sizes) - sizes
    shapes = {
        (one.vectors.shape[1] if one.vectors is not None else None, one.vector_names)
        for one in parts
        if len(one)
    }
    vectors = [one.vectors for one in parts if one.vectors is not None and len(one)]
    has_vectors = len(shapes) == 1 and len(vectors) > 0
    return RawDetections(
        kind=parts[0].kind,
        format=parts[0].format,
        image_keys=image_keys,
        images=images,
        class_keys=class_keys,
        classes=classes,
        scores=np.concatenate([one.scores for one in parts]),
        boxes=np.concatenate([one.boxes for one in parts]),
        vectors=np.concatenate(vectors) if has_vectors else None,
        vector_names=next((one.vector_names for one in parts if len(one)), ()),
        folds=np.concatenate([one.folds for one in parts]),
        files=[file for one in parts for file in one.files],
        firsts=np.concatenate(
            [one.firsts + start for one, start in zip(parts, starts, strict=True)]
        ),
        unit=parts[0].unit,
        counts_from_0=parts[0].counts_from_0,
    )


def _recoded(columns: Sequence[tuple[list[Key], Rows]]) -> tuple[list[Key], Rows]:
    known = KeyCodes()
    codes = [known.coded(keys)[column] for keys, column in columns]
    return known.keys, np.concatenate(codes)
