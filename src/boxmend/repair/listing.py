"""The list of changes, as a table and as a CSV file that is safe to open in a spreadsheet."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from boxmend.auditing.fixes.table import Kind, to_shown_table
from boxmend.data.arrow_columns import take_values, to_id_values, to_texts
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.formats.documents import format_number
from boxmend.data.table import Table, make_table
from boxmend.data.types import Floats, Mask, Rows
from boxmend.repair.changes import Changes, TakenFixes

SIDES = ("x1", "y1", "x2", "y2")
COLUMNS = (  # for settled visits: one line per annotation
    *("annotation_id", "image", "old_label", "new_label"),
    *(f"old_{side}" for side in SIDES),
    *(f"new_{side}" for side in SIDES),
    *("iou", "confidence", "reason"),
)
FIX_COLUMNS = (  # for fixes: one line per fix
    *("annotation_id", "image", "kind", "old_label", "new_label"),
    *(f"old_{side}" for side in SIDES),
    *(f"new_{side}" for side in SIDES),
    *("p_wrong", "p_fix", "accepted", "reason", "fix"),
)
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets evaluate such texts


def changes_csv(dataset: Dataset, changes: Changes) -> bytes:
    """Return the changes as CSV in UTF-8, one line per annotation, or per fix.

    The old columns of an added annotation and the new columns of a removed one are empty. Ids are
    those of the original dataset. A text that a spreadsheet would evaluate gets a leading
    apostrophe.
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


def changes_table(dataset: Dataset, changes: Changes) -> Table:
    """Return the changes as a table, one row per annotation, or per fix.

    The old columns of an added annotation and the new columns of a removed one are null. Ids are
    those of the original dataset.
    """
    taken = changes.taken
    if taken is not None:
        labels, boxes = _blank(taken.is_removal, taken.fixes.new_labels, taken.fixes.new_boxes)
        table = to_shown_table(dataset, replace(taken.fixes, new_labels=labels, new_boxes=boxes))
        table = table.drop_columns(["iou_gain"]).append_column(
            "is_accepted", pa.array(taken.is_accepted)
        )
        return Table(table, "changes", {"kind": tuple(kind.words for kind in Kind)})
    rows = changes.rows
    is_removed = changes.is_discarded & (changes.discarded == "drop")
    new_labels, new_boxes = _blank(is_removed, changes.labels, changes.boxes)
    names, files = to_texts(dataset.label_names), to_texts(dataset.images.file_names)
    columns = {
        "file_name": take_values(files, changes.image_rows),
        "annotation_id": take_values(to_id_values(dataset.annotation_ids), rows),
        "old_label": take_values(names, dataset.labels[rows]),
        "new_label": take_values(names, new_labels),
        "iou": _shares(np.where(is_removed, np.nan, changes.iou)),
        "confidence": _shares(changes.confidences),
        "reason": to_texts(changes.reasons),
        "image_id": take_values(to_id_values(dataset.images.ids), changes.image_rows),
        **_box_arrays("old", dataset.boxes[rows]),
        **_box_arrays("new", new_boxes),
        "is_discarded": pa.array(changes.is_discarded),
    }
    return make_table(columns, "changes")


def _blank(is_removed: Mask, labels: Rows, boxes: Floats) -> tuple[Rows, Floats]:
    """Return new labels and boxes without those of removed annotations."""
    return np.where(is_removed, UNKNOWN, labels), np.where(is_removed[:, None], np.nan, boxes)


def _box_arrays(when: str, boxes: Floats) -> dict[str, pa.Array]:
    return {f"{when}_{side}": _shares(boxes[:, k]) for k, side in enumerate(SIDES)}


def _shares(values: Floats) -> pa.Array:
    return pa.array(values, mask=np.isnan(values))


def _annotation_columns(dataset: Dataset, changes: Changes) -> dict[str, Iterable[str]]:
    rows, is_removed = changes.rows, changes.is_discarded & (changes.discarded == "drop")
    new_labels, new_boxes = _blank(is_removed, changes.labels, changes.boxes)
    return {
        **_id_columns(dataset, rows, changes.image_rows),
        **_value_columns(dataset, "old", dataset.labels[rows], dataset.boxes[rows]),
        **_value_columns(dataset, "new", new_labels, new_boxes),
        "iou": map(_format_share, np.where(is_removed, np.nan, changes.iou).tolist()),
        "confidence": map(_format_share, changes.confidences.tolist()),
        "reason": map(_escape, changes.reasons),
    }


def _fix_columns(dataset: Dataset, taken: TakenFixes) -> dict[str, Iterable[str]]:
    fixes, is_removal = taken.fixes, taken.is_removal
    new_labels, new_boxes = _blank(is_removal, fixes.new_labels, fixes.new_boxes)
    return {
        **_id_columns(dataset, fixes.rows, fixes.image_rows),
        "kind": (Kind(kind).words for kind in fixes.kinds.tolist()),
        **_value_columns(dataset, "old", fixes.old_labels, fixes.old_boxes),
        **_value_columns(dataset, "new", new_labels, new_boxes),
        "p_wrong": map(_format_share, fixes.p_wrong.tolist()),
        "p_fix": map(_format_share, fixes.p_fix.tolist()),
        "accepted": ("yes" if is_accepted else "" for is_accepted in taken.is_accepted.tolist()),
        "reason": map(_escape, fixes.reasons),
        "fix": map(_escape, fixes.ids),
    }


def _id_columns(dataset: Dataset, rows: Rows, image_rows: Rows) -> dict[str, Iterable[str]]:
    """Return the columns of annotation ids and image names."""
    ids, files = dataset.annotation_ids, dataset.images.file_names
    return {
        "annotation_id": ("" if row == UNKNOWN else _format_id(ids[row]) for row in rows.tolist()),
        "image": (_name_at(files, image) for image in image_rows.tolist()),
    }


def _value_columns(
    dataset: Dataset, prefix: str, labels: Rows, boxes: Floats
) -> dict[str, Iterable[str]]:
    """Return the columns of labels and boxes; `prefix` is "old" or "new"."""
    names = dataset.label_names
    columns: dict[str, Iterable[str]] = {
        f"{prefix}_{side}": map(_format_side, boxes[:, k].tolist()) for k, side in enumerate(SIDES)
    }
    return {f"{prefix}_label": (_name_at(names, label) for label in labels.tolist()), **columns}


def _format_id(annotation_id: Any) -> str:
    return _escape(annotation_id) if isinstance(annotation_id, str) else str(annotation_id)


def _name_at(names: Sequence[str], row: int) -> str:
    return "" if row == UNKNOWN else _escape(names[row])


def _escape(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def _format_side(value: float) -> str:
    return format_number(value) if math.isfinite(value) else ""


def _format_share(value: float) -> str:
    return "" if math.isnan(value) else format_number(value, 4)
