"""Read COCO results as documented: known images and classes, boxes as xywh pixels.

Nothing is inferred and nothing is skipped. The first unknown image or class raises an error that
names its detection.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from boxmend.auditing.predictions.box_formats import find_bad_box, to_corners
from boxmend.auditing.predictions.catalogue import AMBIGUOUS, Catalogue
from boxmend.auditing.predictions.entries import entry_error, value_text
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
    boxes, sizes = to_corners(raw.boxes, raw.format), raw.boxes[:, 2:]
    if bad_box := find_bad_box(boxes, sizes, "bbox is x, y, w, h"):
        row, why = bad_box
        raise raw.error_at(row, f"bbox {value_text(raw.boxes[row].tolist())} {why}")
    return SizedDetections(
        image_rows.rows_of(raw.images), labels.rows_of(raw.classes), raw.scores, boxes, sizes=sizes
    )


class _Lookup:
    """Rows of the images, or of the classes, that a file has named so far."""

    def __init__(
        self, path: Path, catalogue: Catalogue, what: str, find: Callable[..., int]
    ) -> None:
        self.path = path
        self.catalogue = catalogue
        self.what = what
        self.find = find
        self.rows: list[int] = []

    def extend(self, first: int, keys: list[Key], codes: Rows) -> None:
        """Look up the new keys of a portion that begins at the detection `first`."""
        for key in keys[len(self.rows) :]:
            row = self.find(*key)
            if row < 0:
                place = first + int(np.argmax(codes == len(self.rows)))
                raise entry_error(self.path, place, self._why_not(key, row))
            self.rows.append(row)

    def rows_of(self, codes: Rows) -> Rows:
        """Return the rows [m] of the keys with these codes."""
        rows: Rows = np.array(self.rows, np.int64)[codes]
        return rows

    def _why_not(self, key: Key, row: int) -> str:
        (number, name), (id_key, name_key) = key, ID_AND_NAME[self.what]
        if number is None and name is None:
            return f"it has neither {id_key} nor {name_key}"
        key_text = (
            f"{name_key} {value_text(name)}"
            if name is not None
            else f"{id_key} {value_text(number)}"
        )
        if row != AMBIGUOUS:
            return (
                f"the data have no {self.what} with {key_text}; "
                f"{self.catalogue.list_known(self.what)}"
            )
        remedy = f"give the {id_key if self.what == 'image' else name_key}"
        if self.what == "image" and name is None:
            remedy = "give the whole file_name, and image_id if several images share it"
        return f"{key_text} means more than one {self.what}; {remedy}"
