"""Detections of any detector, read into columns.

`read_detections` takes COCO's results, a JSON list of `{image_id, category_id, bbox: [x, y, width,
height], score}`, and knows images and classes also by name. `Catalogue` says what there is to be
named. `read_predictions` takes other files, too, and finds out by the annotations what they mean.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from boxmend.auditing.predictions.catalogue import AMBIGUOUS, Catalogue
from boxmend.auditing.predictions.entries import DetectionEntry, portions, refused, shown
from boxmend.auditing.predictions.predictions import (
    Predictions,
    read_predictions,
    seen_in_training,
)
from boxmend.auditing.predictions.raw import Key
from boxmend.data.detections import SizedDetections
from boxmend.errors import DataError

__all__ = ["Catalogue", "Predictions", "read_detections", "read_predictions", "seen_in_training"]


def read_detections(path: str | Path, catalogue: Catalogue) -> SizedDetections:
    """Read a file of detections; rows keep the order of the file.

    `image_rows` and `labels` are those of the catalogue. Keys beyond those that are needed are
    passed over. A DataError names the file, the detection and the value that cannot be used.
    """
    return _Reading(Path(path), catalogue).columns()


class _Reading:
    """One file being read, with what has been found of its images and classes so far."""

    def __init__(self, path: Path, catalogue: Catalogue):
        self.path = path
        self.catalogue = catalogue
        self._image_rows: dict[Key, int] = {}
        self._labels: dict[Key, int] = {}

    def columns(self) -> SizedDetections:
        """Read the whole file."""
        none = np.zeros(0, np.int64)
        parts = [(none, none, np.zeros(0), np.zeros((0, 4)))]
        for first, entries in portions(self.path):
            parts.append(
                (
                    self._found(first, [(one.image_id, one.file_name) for one in entries], "image"),
                    self._found(
                        first, [(one.category_id, one.category_name) for one in entries], "class"
                    ),
                    np.fromiter([one.score for one in entries], np.float64, len(entries)),
                    _xywh(entries),
                )
            )
        image_rows, labels, scores, xywh = (
            np.concatenate(column) for column in zip(*parts, strict=True)
        )
        boxes = self._corners(xywh)
        return SizedDetections(image_rows, labels, scores, boxes, sizes=xywh[:, 2:])

    def _found(self, first: int, keys: list[Key], what: str) -> NDArray[np.int64]:
        """Look up images or classes; each way to tell one is looked up once in a file."""
        known = self._image_rows if what == "image" else self._labels
        find = self.catalogue.image_row if what == "image" else self.catalogue.label
        for key in set(keys):
            if key not in known:
                known[key] = find(*key)
        rows = np.fromiter(map(known.__getitem__, keys), np.int64, len(keys))
        if rows.min(initial=0) < 0:
            wrong = int(np.argmax(rows < 0))
            raise self._unknown(first + wrong, keys[wrong], int(rows[wrong]), what)
        return rows

    def _unknown(self, index: int, key: Key, row: int, what: str) -> DataError:
        number, name = key
        keys = ("image_id", "file_name") if what == "image" else ("category_id", "category_name")
        if number is None and name is None:
            return refused(self.path, index, f"it has neither {keys[0]} nor {keys[1]}")
        told = f"{keys[1]} {shown(name)}" if name is not None else f"{keys[0]} {shown(number)}"
        if row == AMBIGUOUS:
            remedy = f"give the {keys[0]}" if what == "image" else f"give the {keys[1]}"
            if what == "image" and name is None:
                remedy = "give the whole file_name, and image_id where images share that"
            return refused(self.path, index, f"{told} means more than one {what}; {remedy}")
        return refused(
            self.path,
            index,
            f"{told} is no {what} of the data; {self.catalogue.known(what)}",
        )

    def _corners(self, xywh: NDArray[np.float64]) -> NDArray[np.float64]:
        """Boxes as xyxy; refuse what is none."""
        with np.errstate(over="ignore", invalid="ignore"):
            boxes = np.concatenate([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]], axis=1)
            areas = xywh[:, 2] * xywh[:, 3]
        for is_wrong, why in (
            (~np.isfinite(boxes).all(axis=1) | ~np.isfinite(areas), "is too large to measure"),
            ((xywh[:, 2:] < 0).any(axis=1), "has a negative width or height; bbox is x, y, w, h"),
        ):
            if is_wrong.any():
                row = int(np.argmax(is_wrong))
                raise refused(self.path, row, f"bbox {shown(xywh[row].tolist())} {why}")
        return boxes


def _xywh(entries: list[DetectionEntry]) -> NDArray[np.float64]:
    sides = [side for one in entries for side in one.bbox]
    return np.fromiter(sides, np.float64, 4 * len(entries)).reshape(-1, 4)
