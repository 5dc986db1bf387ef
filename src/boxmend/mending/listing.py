"""The changes for people: a CSV file that any spreadsheet opens, and does not run."""

import csv
import io
import math
from collections.abc import Iterator, Sequence

from boxmend.dataset import UNKNOWN, Dataset
from boxmend.formats.documents import number
from boxmend.mending.changes import Changes

SIDES = ("x1", "y1", "x2", "y2")
COLUMNS = (
    *("annotation_id", "image", "old_label", "new_label"),
    *(f"old_{side}" for side in SIDES),
    *(f"new_{side}" for side in SIDES),
    *("iou", "confidence", "reason"),
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what makes a spreadsheet compute a text


def changes_csv(dataset: Dataset, changes: Changes, *, is_dropped: bool) -> bytes:
    """The changes as CSV in UTF-8, a line each; the new half is empty where one was dropped.

    Ids are those of the dataset before. A text that a spreadsheet would take for a formula gets an
    apostrophe in front.
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_lines(dataset, changes, is_dropped))
    return file.getvalue().encode("utf-8", "backslashreplace")


def _lines(dataset: Dataset, changes: Changes, is_dropped: bool) -> Iterator[list[str]]:
    ids = dataset.annotation_ids[changes.rows].tolist()
    for k, row in enumerate(changes.rows.tolist()):
        image = int(dataset.image_rows[row])
        is_gone = is_dropped and bool(changes.is_discarded[k])
        yield [
            _safe(ids[k]) if isinstance(ids[k], str) else str(ids[k]),
            _safe(dataset.images.file_names[image]) if image != UNKNOWN else "",
            _safe(dataset.label_names[dataset.labels[row]]),
            "" if is_gone else _safe(dataset.label_names[changes.labels[k]]),
            *_sides(dataset.boxes[row].tolist()),
            *([""] * 4 if is_gone else _sides(changes.boxes[k].tolist())),
            "" if is_gone else _share(float(changes.iou[k])),
            _share(float(changes.confidences[k])),
            _safe(changes.reasons[k]),
        ]


def _safe(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _sides(box: Sequence[float]) -> list[str]:
    return [number(side) if math.isfinite(side) else "" for side in box]


def _share(value: float) -> str:
    return "" if math.isnan(value) else number(value, 4)
