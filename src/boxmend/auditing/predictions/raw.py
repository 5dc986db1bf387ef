"""Detections as they are in their files, before images, classes and boxes are interpreted.

Images and classes are codes into a list of keys, so that each key is looked up once. `exact`
interprets keys and boxes by the documented format of COCO results; `inference` compares them with
the annotations.
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
"""The id and the name that an entry gives for an image or a class."""


class KeyCodes:
    """Distinct keys in the order of their first occurrence; the code of a key is its place."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self._codes: dict[Key, int] = {}

    def encode(self, keys: Sequence[Key]) -> Rows:
        """Return the codes [m] of keys; new keys get the next codes in their order."""
        for key in dict.fromkeys(keys):
            if key not in self._codes:
                self._codes[key] = len(self.keys)
                self.keys.append(key)
        return np.fromiter(map(self._codes.__getitem__, keys), np.int64, len(keys))


@dataclass(frozen=True)
class BoxFormat:
    """The meaning of the four numbers of a box."""

    layout: str  # one of `box_formats.LAYOUTS`
    is_share: bool = False  # of the image's width and height, else pixels


@dataclass(frozen=True, eq=False)
class RawDetections:
    """Detections of one file, or of several files of the same kind."""

    kind: str  # of the file, for messages
    format: BoxFormat  # the documented one
    image_keys: list[Key]
    images: Rows  # [m] into image_keys
    class_keys: list[Key]
    classes: Rows  # [m] into class_keys
    scores: Floats  # [m]
    boxes: Floats  # [m, 4] as written
    vectors: NDArray[np.float32] | None  # [m, v] class vectors, if all detections have one
    vector_names: tuple[str, ...]  # [v] their classes, if the file names them
    folds: Rows  # [m] UNKNOWN_FOLD if unknown
    files: list[str]
    firsts: Rows  # [files] the row at which each file begins
    unit: str = "detection"  # name of a row of the file
    lines: Rows | None = None  # [m] line of each row in its file, from 1, if rows are lines
    counts_from_zero: bool = False  # whether documented class numbers start at 0

    def __len__(self) -> int:
        return len(self.scores)

    def error_at(self, row: int, why: str) -> DataError:
        """Return the error for the invalid detection at this row."""
        file = int(np.searchsorted(self.firsts, row, side="right")) - 1
        place = f"{self.unit} {row - int(self.firsts[file])} (the first is 0)"
        if self.lines is not None:
            place = f"line {int(self.lines[row])}"
        return DataError(f"{self.files[file]}: {place}: {why}")

    @property
    def files_text(self) -> str:
        """The names of the files, for a message."""
        more = f" and {len(self.files) - 1:,} more" if len(self.files) > 1 else ""
        return f"{self.files[0]}{more}" if self.files else "the predictions"


def join_detections(parts: Sequence[RawDetections]) -> RawDetections:
    """Join detections of one kind and format; keep class vectors if their classes are the same."""
    if len(parts) == 1:
        return parts[0]
    image_keys, images = _merge_codes([(part.image_keys, part.images) for part in parts])
    class_keys, classes = _merge_codes([(part.class_keys, part.classes) for part in parts])
    sizes = np.array([len(part) for part in parts], np.int64)
    starts = np.cumsum(sizes) - sizes
    shapes = {
        (part.vectors.shape[1] if part.vectors is not None else None, part.vector_names)
        for part in parts
        if len(part)
    }
    vectors = [part.vectors for part in parts if part.vectors is not None and len(part)]
    lines = [part.lines for part in parts if part.lines is not None]
    has_vectors = len(shapes) == 1 and len(vectors) > 0
    return RawDetections(
        kind=parts[0].kind,
        format=parts[0].format,
        image_keys=image_keys,
        images=images,
        class_keys=class_keys,
        classes=classes,
        scores=np.concatenate([part.scores for part in parts]),
        boxes=np.concatenate([part.boxes for part in parts]),
        vectors=np.concatenate(vectors) if has_vectors else None,
        vector_names=next((part.vector_names for part in parts if len(part)), ()),
        folds=np.concatenate([part.folds for part in parts]),
        files=[file for part in parts for file in part.files],
        firsts=np.concatenate(
            [part.firsts + start for part, start in zip(parts, starts, strict=True)]
        ),
        unit=parts[0].unit,
        lines=np.concatenate(lines) if len(lines) == len(parts) else None,
        counts_from_zero=parts[0].counts_from_zero,
    )


def _merge_codes(columns: Sequence[tuple[list[Key], Rows]]) -> tuple[list[Key], Rows]:
    known = KeyCodes()
    codes = [known.encode(keys)[column] for keys, column in columns]
    return known.keys, np.concatenate(codes)
