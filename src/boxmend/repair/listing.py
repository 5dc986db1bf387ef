"""The changes for people: a CSV file that any spreadsheet opens, and does not run."""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from boxmend.auditing.fixes.table import Kind
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.formats.documents import number
from boxmend.repair.changes import Changes
from boxmend.repair.fixing import Taken, reason_of

SIDES = ("x1", "y1", "x2", "y2")
COLUMNS = (
    *("annotation_id", "image", "old_label", "new_label"),
    *(f"old_{side}" for side in SIDES),
    *(f"new_{side}" for side in SIDES),
    *("iou", "confidence", "reason"),
)
FIX_COLUMNS = (
    *("annotation_id", "image", "kind", "old_label", "new_label"),
    *(f"old_{side}" for side in SIDES),
    *(f"new_{side}" for side in SIDES),
    *("p_wrong", "p_fix", "accepted", "reason", "fix"),
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what makes a spreadsheet compute a text


def changes_csv(dataset: Dataset, changes: Changes, *, is_dropped: bool) -> bytes:
    """The changes as CSV in UTF-8, a line each; the new half is empty where one was dropped.

    Ids are those of the dataset before. A text that a spreadsheet would take for a formula gets an
    apostrophe in front.
    """
    return _csv(COLUMNS, _lines(dataset, changes, is_dropped))


def fixes_csv(dataset: Dataset, taken: Taken) -> bytes:
    """The fixes that were taken as CSV, likewise, a line each.

    The old half is empty where one was missing, the new half where one was removed.
    """
    return _csv(FIX_COLUMNS, _fix_lines(dataset, taken))


def _csv(columns: Sequence[str], lines: Iterable[list[str]]) -> bytes:
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(lines)
    return file.getvalue().encode("utf-8", "backslashreplace")


def _fix_lines(dataset: Dataset, taken: Taken) -> Iterator[list[str]]:
    fixes, names, is_gone = taken.fixes, dataset.label_names, taken.is_removal
    for k, identity in enumerate(fixes.ids):
        row, old, new = int(fixes.rows[k]), int(fixes.old_labels[k]), int(fixes.new_labels[k])
        yield [
            "" if row == UNKNOWN else _identity(dataset.annotation_ids[row]),
            _safe(dataset.images.file_names[fixes.image_rows[k]]),
            Kind(int(fixes.kinds[k])).words,
            "" if old == UNKNOWN else _safe(names[old]),
            "" if is_gone[k] or new == UNKNOWN else _safe(names[new]),
            *_sides(fixes.old_boxes[k].tolist()),
            *([""] * 4 if is_gone[k] else _sides(fixes.new_boxes[k].tolist())),
            _share(float(fixes.p_wrong[k])),
            _share(float(taken.p_fix[k])),
            "" if taken.answers[k] is None else "yes",
            _safe(reason_of(taken, k)),
            _safe(identity),
        ]


def _lines(dataset: Dataset, changes: Changes, is_dropped: bool) -> Iterator[list[str]]:
    ids = dataset.annotation_ids[changes.rows].tolist()
    for k, row in enumerate(changes.rows.tolist()):
        image = int(dataset.image_rows[row])
        is_gone = is_dropped and bool(changes.is_discarded[k])
        yield [
            _identity(ids[k]),
            _safe(dataset.images.file_names[image]) if image != UNKNOWN else "",
            _safe(dataset.label_names[dataset.labels[row]]),
            "" if is_gone else _safe(dataset.label_names[changes.labels[k]]),
            *_sides(dataset.boxes[row].tolist()),
            *([""] * 4 if is_gone else _sides(changes.boxes[k].tolist())),
            "" if is_gone else _share(float(changes.iou[k])),
            _share(float(changes.confidences[k])),
            _safe(changes.reasons[k]),
        ]


def _identity(identity: Any) -> str:
    return _safe(identity) if isinstance(identity, str) else str(identity)


def _safe(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _sides(box: Sequence[float]) -> list[str]:
    return [number(side) if math.isfinite(side) else "" for side in box]


def _share(value: float) -> str:
    return "" if math.isnan(value) else number(value, 4)
