"""COCO results as documented: every image and class is known by id or name, boxes are xywh pixels.

Nothing is inferred and nothing is passed over. What is unknown is refused as soon as it is read, so
that an error names the first detection that cannot be used.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from boxmend.auditing.predictions.box_formats import corners, first_fault
from boxmend.auditing.predictions.catalogue import AMBIGUOUS, Catalogue
from boxmend.auditing.predictions.entries import refused, shown
from boxmend.auditing.predictions.raw import Key
from boxmend.auditing.predictions.results import read_plain_results
from boxmend.data.detections import SizedDetections
from boxmend.data.types import Rows

ID_AND_NAME = {"image": ("image_id", "file_name"), "class": ("category_id", "category_name")}


def read_exactly(path: Path, catalogue: Catalogue) -> SizedDetections:
    """Read COCO results; rows keep the order of the file.

    `image_rows` and `labels` are those of the catalogue. Other keys of an entry are ignored. A
    DataError names the file, the detection and the value that cannot be used.
    """
    image_rows = _Lookup(path, catalogue, "image", catalogue.image_row)
    labels = _Lookup(path, catalogue, "class", catalogue.label)
    raw = read_plain_results(path, (image_rows.extend, labels.extend))
    boxes, sizes = corners(raw.boxes, raw.format), raw.boxes[:, 2:]
    if fault := first_fault(boxes, sizes, "bbox is x, y, w, h"):
        row, why = fault
        raise raw.refused(row, f"bbox {shown(raw.boxes[row].tolist())} {why}")
    return SizedDetections(
        image_rows.rows_of(raw.images), labels.rows_of(raw.classes), raw.scores, boxes, sizes=sizes
    )


class _Lookup:
    """The rows of the images, or of the classes, that a file has named so far."""

    def __init__(
        self, path: Path, catalogue: Catalogue, what: str, find: Callable[..., int]
    ) -> None:
        self.path = path
        self.catalogue = catalogue
        self.what = what
        self.find = find
        self.rows: list[int] = []

    def extend(self, first: int, keys: list[Key], codes: Rows) -> None:
        """Look up the keys that are new in a portion, which begins at the detection `first`."""
        for key in keys[len(self.rows) :]:
            row = self.find(*key)
            if row < 0:
                place = first + int(np.argmax(codes == len(self.rows)))
                raise refused(self.path, place, self._why_not(key, row))
            self.rows.append(row)

    def rows_of(self, codes: Rows) -> Rows:
        """Return the rows [m] of the keys with these codes."""
        rows: Rows = np.array(self.rows, np.int64)[codes]
        return rows

    def _why_not(self, key: Key, row: int) -> str:
        (number, name), (id_key, name_key) = key, ID_AND_NAME[self.what]
        if number is None and name is None:
            return f"it has neither {id_key} nor {name_key}"
        told = f"{name_key} {shown(name)}" if name is not None else f"{id_key} {shown(number)}"
        if row != AMBIGUOUS:
            return f"{told} is no {self.what} of the data; {self.catalogue.known(self.what)}"
        remedy = f"give the {id_key if self.what == 'image' else name_key}"
        if self.what == "image" and name is None:
            remedy = "give the whole file_name, and image_id where images share that"
        return f"{told} means more than one {self.what}; {remedy}"
