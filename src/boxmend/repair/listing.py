"""The changes for people: a CSV file that any spreadsheet opens, and does not run."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from boxmend.auditing.fixes.table import Kind
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.formats.documents import format_number
from boxmend.data.types import Floats, Rows
from boxmend.repair.changes import Changes, TakenFixes

SIDES = ("x1", "y1", "x2", "y2")
COLUMNS = (  # of settled visits, a line per annotation
    *("annotation_id", "image", "old_label", "new_label"),
    *(f"old_{side}" for side in SIDES),
    *(f"new_{side}" for side in SIDES),
    *("iou", "confidence", "reason"),
)
FIX_COLUMNS = (  # of an audit, a line per fix
    *("annotation_id", "image", "kind", "old_label", "new_label"),
    *(f"old_{side}" for side in SIDES),
    *(f"new_{side}" for side in SIDES),
    *("p_wrong", "p_fix", "accepted", "reason", "fix"),
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what makes a spreadsheet compute a text


def changes_csv(dataset: Dataset, changes: Changes) -> bytes:
    """Return the changes as CSV in UTF-8, a line per annotation, or per fix of an audit.

    The old half is empty where an annotation was missing, the new half where one was dropped. Ids
    are those of the dataset before. A text that a spreadsheet would take for a formula gets an
    apostrophe in front.
    """
    if changes.taken is None:
        layout, columns = COLUMNS, _annotation_columns(dataset, changes)
    else:
        layout, columns = FIX_COLUMNS, _fix_columns(dataset, changes.taken)
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(layout)
    writer.writerows(zip(*(columns[name] for name in layout), strict=True))
    return file.getvalue().encode("utf-8", "backslashreplace")


def _annotation_columns(dataset: Dataset, changes: Changes) -> dict[str, Iterable[str]]:
    rows, is_gone = changes.rows, changes.is_discarded & (changes.discarded == "drop")
    new_labels = np.where(is_gone, UNKNOWN, changes.labels)
    new_boxes = np.where(is_gone[:, None], np.nan, changes.boxes)
    return {
        **_places(dataset, rows, changes.image_rows),
        **_half(dataset, "old", dataset.labels[rows], dataset.boxes[rows]),
        **_half(dataset, "new", new_labels, new_boxes),
        "iou": map(_share, np.where(is_gone, np.nan, changes.iou).tolist()),
        "confidence": map(_share, changes.confidences.tolist()),
        "reason": map(_safe, changes.reasons),
    }


def _fix_columns(dataset: Dataset, taken: TakenFixes) -> dict[str, Iterable[str]]:
    fixes, is_gone = taken.fixes, taken.is_removal
    new_labels = np.where(is_gone, UNKNOWN, fixes.new_labels)
    new_boxes = np.where(is_gone[:, None], np.nan, fixes.new_boxes)
    return {
        **_places(dataset, fixes.rows, fixes.image_rows),
        "kind": (Kind(kind).words for kind in fixes.kinds.tolist()),
        **_half(dataset, "old", fixes.old_labels, fixes.old_boxes),
        **_half(dataset, "new", new_labels, new_boxes),
        "p_wrong": map(_share, fixes.p_wrong.tolist()),
        "p_fix": map(_share, fixes.p_fix.tolist()),
        "accepted": ("yes" if is_accepted else "" for is_accepted in taken.is_accepted.tolist()),
        "reason": map(_safe, fixes.reasons),
        "fix": map(_safe, fixes.ids),
    }


def _places(dataset: Dataset, rows: Rows, image_rows: Rows) -> dict[str, Iterable[str]]:
    """Say which annotations are meant, and in which images."""
    ids, files = dataset.annotation_ids, dataset.images.file_names
    return {
        "annotation_id": ("" if row == UNKNOWN else _identity(ids[row]) for row in rows.tolist()),
        "image": (_name(files, image) for image in image_rows.tolist()),
    }


def _half(dataset: Dataset, when: str, labels: Rows, boxes: Floats) -> dict[str, Iterable[str]]:
    """Say labels and boxes before or after."""
    names = dataset.label_names
    columns: dict[str, Iterable[str]] = {
        f"{when}_{side}": map(_side, boxes[:, k].tolist()) for k, side in enumerate(SIDES)
    }
    return {f"{when}_label": (_name(names, label) for label in labels.tolist()), **columns}


def _identity(identity: Any) -> str:
    return _safe(identity) if isinstance(identity, str) else str(identity)


def _name(names: Sequence[str], row: int) -> str:
    return "" if row == UNKNOWN else _safe(names[row])


def _safe(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _side(value: float) -> str:
    return format_number(value) if math.isfinite(value) else ""


def _share(value: float) -> str:
    return "" if math.isnan(value) else format_number(value, 4)
