"""The table of fixes: a row per annotation and kind of error, or per object without annotation.

`Fixes` has columns by rows of a dataset; `fixes.parquet` has ids and label names instead. A fix
proposes a new label or box, or a removal, with the probabilities that the annotation is wrong and
that the fix is right.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from boxmend.data.arrow_columns import take_values, to_id_values, to_texts
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.describing import describe
from boxmend.data.files.atomic import open_atomic
from boxmend.data.files.digests import encode_parquet
from boxmend.data.files.parquet import read_parquet
from boxmend.data.types import Floats, Mask, Rows
from boxmend.errors import DataError, UsageError

FIXES_FILE = "fixes.parquet"
SIDES = ("x1", "y1", "x2", "y2")
SHOWN_FIRST = (
    *("kind", "file_name", "annotation_id", "old_label", "new_label", "p_wrong", "p_fix"),
    *("reason", "fix", "image_id"),
)
FORMAT_KEY = b"boxmend_fixes"
FORMAT_VERSION = b"1"
BOX_DECIMALS = 2
GOOD_IOU = 0.7  # with the true box; a box with less is bad


class Kind(IntEnum):
    """Kinds of annotation errors."""

    WRONG_LABEL = 0
    BAD_BOX = 1
    MISSING = 2
    SPURIOUS = 3
    DUPLICATE = 4

    @property
    def words(self) -> str:
        """The name of the kind, as in the table."""
        return self.name.lower().replace("_", " ")


KINDS = tuple(Kind)
KIND_WORDS = {kind.words: kind for kind in Kind}


@dataclass(frozen=True, eq=False, repr=False)
class Fixes:
    """Proposed fixes, one row each; an annotation may have several, of different kinds."""

    __repr__ = describe

    ids: list[str]  # [f] the same in a later audit
    kinds: NDArray[np.int8]  # [f] Kind
    rows: Rows  # [f] of the dataset; UNKNOWN for a missing annotation
    image_rows: Rows  # [f] of the dataset's images
    old_labels: Rows  # [f] UNKNOWN for a missing annotation
    new_labels: Rows  # [f] UNKNOWN for a removal
    old_boxes: Floats  # [f, 4] xyxy pixels; NaN for a missing annotation
    new_boxes: Floats  # [f, 4] NaN for a removal
    kept_rows: Rows  # [f] for a duplicate, the row of the annotation to keep; else UNKNOWN
    p_wrong: Floats  # [f] probability of this kind of error
    p_fix: Floats  # [f] probability that the fix is right
    iou_gain: Floats  # [f] expected gain of the IoU with the true box
    reasons: list[str]  # [f] for people

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Rows | Mask) -> Fixes:
        """Return the fixes at `rows` (indices, or a mask)."""
        index = np.arange(len(self))[rows]
        columns: dict[str, Any] = {}
        for field in fields(self):
            column = getattr(self, field.name)
            is_list = isinstance(column, list)
            columns[field.name] = [column[k] for k in index.tolist()] if is_list else column[index]
        return Fixes(**columns)


def write_fixes(path: Path, dataset: Dataset, fixes: Fixes, data_sha256: str) -> None:
    """Write the table, or replace it atomically."""
    table = to_table(dataset, fixes).replace_schema_metadata(
        {FORMAT_KEY: FORMAT_VERSION, b"data_sha256": data_sha256.encode()}
    )
    content = encode_parquet(table, compression="zstd")
    with open_atomic(path) as file:
        file.write(content)


def to_table(dataset: Dataset, fixes: Fixes) -> pa.Table:
    """Return the fixes as an Arrow table with ids and label names of the dataset."""
    names = to_texts(dataset.label_names)
    columns: dict[str, Any] = {
        "fix": to_texts(fixes.ids),
        "kind": take_values(to_texts(list(KIND_WORDS)), fixes.kinds),
        "annotation_id": take_values(to_id_values(dataset.annotation_ids), fixes.rows),
        "image_id": take_values(to_id_values(dataset.images.ids), fixes.image_rows),
        "file_name": take_values(to_texts(dataset.images.file_names), fixes.image_rows),
        "old_label": take_values(names, fixes.old_labels),
        "new_label": take_values(names, fixes.new_labels),
    }
    for when, boxes in (("old", fixes.old_boxes), ("new", fixes.new_boxes)):
        columns |= {
            f"{when}_{side}": pa.array(boxes[:, k], mask=np.isnan(boxes[:, k]))
            for k, side in enumerate(SIDES)
        }
    columns |= {
        "kept_annotation_id": take_values(to_id_values(dataset.annotation_ids), fixes.kept_rows),
        "p_wrong": pa.array(fixes.p_wrong),
        "p_fix": pa.array(fixes.p_fix),
        "iou_gain": pa.array(fixes.iou_gain),
        "reason": to_texts(fixes.reasons),
    }
    return pa.table(columns)


def to_shown_table(dataset: Dataset, fixes: Fixes) -> pa.Table:
    """Return the fixes as a table for people: what and how probable first, boxes last."""
    table = to_table(dataset, fixes)
    others = [name for name in table.column_names if name not in SHOWN_FIRST]
    return table.select([*SHOWN_FIRST, *others])


def read_fixes(path: Path, dataset: Dataset, data_sha256: str) -> Fixes:
    """Read the table of an audit of this dataset.

    Raise a UsageError if it does not exist, a DataError if it is damaged or of another dataset.
    """
    if not path.exists():
        raise UsageError(
            f"{path}: no such table; `boxmend audit` makes one from a run or predictions"
        )
    try:
        table = read_parquet(path, remedy="audit again")
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot be read ({error}); audit again") from error
    metadata = table.schema.metadata or {}
    if metadata.get(FORMAT_KEY) != FORMAT_VERSION:
        raise DataError(
            f"{path}: is not a table of fixes of version {FORMAT_VERSION.decode()}; audit again"
        )
    if metadata.get(b"data_sha256") != data_sha256.encode():
        raise DataError(f"{path}: belongs to other annotations; audit again")
    try:
        fixes = _from_table(table, dataset)
        _ensure_valid(fixes, dataset)
        return fixes
    except (KeyError, IndexError, ValueError, TypeError, pa.ArrowException) as error:
        raise DataError(f"{path}: is damaged ({error!r}); audit again") from error


def _from_table(table: pa.Table, dataset: Dataset) -> Fixes:
    names, ids = to_texts(dataset.label_names), to_id_values(dataset.annotation_ids)
    if pc.count_distinct(ids).as_py() != len(dataset):
        raise ValueError("several annotations of the dataset share an id; see `boxmend check`")

    def boxes(when: str) -> Floats:
        return np.stack([_floats(table[f"{when}_{side}"]) for side in SIDES], axis=1)

    kinds = _find_places(table["kind"], to_texts(list(KIND_WORDS)))
    if (kinds == UNKNOWN).any():
        raise ValueError("a fix has no kind")
    return Fixes(
        ids=table["fix"].to_numpy().tolist(),
        kinds=kinds.astype(np.int8),
        rows=_find_places(table["annotation_id"], ids),
        image_rows=_find_places(table["image_id"], to_id_values(dataset.images.ids)),
        old_labels=_find_places(table["old_label"], names),
        new_labels=_find_places(table["new_label"], names),
        old_boxes=boxes("old"),
        new_boxes=boxes("new"),
        kept_rows=_find_places(table["kept_annotation_id"], ids),
        p_wrong=_floats(table["p_wrong"]),
        p_fix=_floats(table["p_fix"]),
        iou_gain=_floats(table["iou_gain"]),
        reasons=table["reason"].to_numpy().tolist(),
    )


def _ensure_valid(fixes: Fixes, dataset: Dataset) -> None:
    """Raise a ValueError for fixes that no audit proposes; later code relies on this check."""
    is_missing = np.isin(fixes.kinds, (Kind.MISSING,))
    has_box = np.isin(fixes.kinds, (Kind.MISSING, Kind.BAD_BOX))
    has_label = np.isin(fixes.kinds, (Kind.MISSING, Kind.WRONG_LABEL))
    of_dataset = fixes.rows[~is_missing]
    faults: dict[str, Mask] = {
        "has no annotation, or is missing and has one": (fixes.rows >= 0) == is_missing,
        "has no image": fixes.image_rows < 0,
        "has an invalid box": (has_box & ~is_box(fixes.new_boxes))
        | np.isinf(fixes.new_boxes).any(axis=1),
        "has another old label or box than its annotation": ~_matches_annotation(fixes, dataset),
        "has no new label": has_label & (fixes.new_labels < 0),
        "has a probability outside 0 to 1": ~(
            _is_probability(fixes.p_wrong) & _is_probability(fixes.p_fix)
        ),
        "has an infinite gain": np.isinf(fixes.iou_gain),
        "is a duplicate without another annotation": np.isin(fixes.kinds, (Kind.DUPLICATE,))
        & ((fixes.kept_rows < 0) | (fixes.kept_rows == fixes.rows)),
    }
    for fault, is_faulty in faults.items():
        if is_faulty.any():
            raise ValueError(f"fix {fixes.ids[int(np.argmax(is_faulty))]!r} {fault}")
    is_text = all(isinstance(text, str) for text in (*fixes.ids, *fixes.reasons))
    if not is_text or not all(fixes.ids):
        raise ValueError("a fix has no id or no reason")
    if len(set(fixes.ids)) != len(fixes):
        raise ValueError("two fixes share an id")
    if (dataset.image_rows[of_dataset] != fixes.image_rows[~is_missing]).any():
        raise ValueError("a fix has another image than its annotation")
    if dataset.is_ignored[of_dataset].any():
        raise ValueError("a fix changes a crowd or difficult object, which an audit never does")


def is_box(boxes: Floats) -> Mask:
    """Mark boxes [n] that are finite and have an area."""
    x1, y1, x2, y2 = boxes.T
    has_area: Mask = np.isfinite(boxes).all(axis=1) & (x1 < x2) & (y1 < y2)
    return has_area


def _matches_annotation(fixes: Fixes, dataset: Dataset) -> Mask:
    """Mark fixes [f] whose old label and box are those of the annotation."""
    labels, boxes = np.full(len(fixes), UNKNOWN), np.full((len(fixes), 4), np.nan)
    has_row = fixes.rows >= 0
    rows = fixes.rows[has_row]
    labels[has_row], boxes[has_row] = dataset.labels[rows], dataset.boxes[rows]
    is_same = np.isclose(fixes.old_boxes, boxes, atol=10.0**-BOX_DECIMALS, equal_nan=True)
    matches: Mask = is_same.all(axis=1) & (fixes.old_labels == labels)
    return matches


def _is_probability(values: Floats) -> Mask:
    is_share: Mask = (values >= 0) & (values <= 1)
    return is_share


def _floats(column: pa.ChunkedArray) -> Floats:
    values: Floats = column.to_numpy().astype(np.float64)  # null becomes NaN
    return values


def _find_places(column: pa.ChunkedArray, values: pa.Array) -> Rows:
    """Return the places of a column's entries in `values`; UNKNOWN for null.

    Raise a KeyError for an entry that is not in `values`.
    """
    places = pc.index_in(column, value_set=values, skip_nulls=True)
    is_unknown = pc.and_(places.is_null(), column.is_valid())
    if pc.any(is_unknown).as_py():
        raise KeyError(column.filter(is_unknown)[0].as_py())
    rows: Rows = places.fill_null(UNKNOWN).to_numpy().astype(np.int64)
    return rows
