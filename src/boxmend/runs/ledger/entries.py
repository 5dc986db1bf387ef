"""The entries of a ledger, one for each visit of an annotation, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from boxmend.data.files.text import escape_surrogates
from boxmend.data.types import Ids
from boxmend.runs.judgement import Judgement

SIDES = ("x1", "y1", "x2", "y2")
ID_COLUMNS = ("annotation_id", "image_id")


@dataclass(frozen=True, eq=False)
class Entries:
    """Some visits of annotations in order, one row each.

    Boxes are xyxy in pixels of the original image: flip and scale are undone. A value that the
    method does not have is NaN, and such a label is UNKNOWN (-1).
    """

    epochs: NDArray[np.int64]  # [n] ascending, also from one batch to the next
    steps: NDArray[np.int64]  # [n]
    annotation_ids: Ids  # [n] those of the dataset, int64 or object
    image_ids: Ids  # [n] those of the dataset, int64 or object
    losses: NDArray[np.float32]  # [n] of the annotated label
    thresholds: NDArray[np.float32]  # [n] that the loss was compared with; may be infinite
    verdicts: NDArray[np.int8]  # [n] Judgement
    num_candidates: NDArray[np.int64]  # [n]
    old_labels: NDArray[np.int64]  # [n] annotated labels
    new_labels: NDArray[np.int64]  # [n] labels that were trained on
    confidences: NDArray[np.float32]  # [n] in the new label
    noisy_boxes: NDArray[np.float32]  # [n, 4] annotated boxes
    matched_boxes: NDArray[np.float32]  # [n, 4] after centre matching
    final_boxes: NDArray[np.float32]  # [n, 4] boxes that were trained on
    is_kept: NDArray[np.bool_]  # [n] whether the annotation was trained on

    def __len__(self) -> int:
        return len(self.epochs)


# Column of the file -> field of Entries and type in the file.
_SINGLE = {
    "epoch": ("epochs", np.int32),
    "step": ("steps", np.int64),
    "annotation_id": ("annotation_ids", None),  # int64 or string
    "image_id": ("image_ids", None),
    "loss": ("losses", np.float32),
    "threshold": ("thresholds", np.float32),
    "verdict": ("verdicts", np.int8),
    "num_candidates": ("num_candidates", np.int32),
    "old_label": ("old_labels", np.int32),
    "new_label": ("new_labels", np.int32),
    "confidence": ("confidences", np.float32),
}
_BOXES = {"noisy": "noisy_boxes", "matched": "matched_boxes", "final": "final_boxes"}
BOX_COLUMNS = tuple(f"{box}_{side}" for box in _BOXES for side in SIDES)
COLUMNS = (*_SINGLE, *BOX_COLUMNS, "is_kept")
"""The columns of a ledger, in order."""

_VERDICT_NAMES = pa.array([judgement.name.lower() for judgement in Judgement], pa.string())

Columns = dict[str, NDArray[Any]]  # column of the file -> [n] values; ids int64 or object of str


def entries_to_columns(entries: Entries) -> Columns:
    """Convert entries to the columns of the file; raise a ValueError if they do not fit."""
    n = len(entries)
    columns: Columns = {}
    for name, (field, dtype) in _SINGLE.items():
        values = _check_shape(field, getattr(entries, field), (n,))
        columns[name] = (
            _encode_ids(field, values) if dtype is None else _narrow(field, values, dtype)
        )
    for box, field in _BOXES.items():
        boxes = _narrow(field, _check_shape(field, getattr(entries, field), (n, 4)), np.float32)
        columns |= {f"{box}_{side}": boxes[:, k] for k, side in enumerate(SIDES)}
    columns["is_kept"] = _narrow(
        "is_kept", _check_shape("is_kept", entries.is_kept, (n,)), np.bool_
    )
    if n and not (columns["verdict"].min() >= 0 and columns["verdict"].max() < len(Judgement)):
        raise ValueError(f"verdicts must lie between 0 and {len(Judgement) - 1}")
    return columns


def allocate_columns(num_rows: int, like: Columns) -> Columns:
    """Allocate columns of `num_rows` rows with the types of `like`."""
    return {name: np.empty(num_rows, values.dtype) for name, values in like.items()}


def to_table(columns: Columns, metadata: dict[bytes, bytes]) -> pa.Table:
    """Return columns as an Arrow table with the types of the file; numbers are not copied."""
    fields, arrays = [], []
    for name in COLUMNS:
        values = columns[name]
        if name == "verdict":
            array = pa.DictionaryArray.from_arrays(pa.array(values), _VERDICT_NAMES)
        else:
            array = pa.array(values, pa.string() if values.dtype == object else None)
        fields.append(pa.field(name, array.type, nullable=False))
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata))


def from_table(table: pa.Table) -> Columns:
    """Return the columns of a table that `to_table` made, or of a part of it."""
    columns: Columns = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if name == "verdict":
            column = column.indices
        columns[name] = column.to_numpy(zero_copy_only=False)
    return columns


def empty_table() -> pa.Table:
    """Return a ledger without entries; its id columns are integers, as the types are unknown."""
    dtypes: dict[str, Any] = {name: dtype or np.int64 for name, (_, dtype) in _SINGLE.items()}
    dtypes |= dict.fromkeys(BOX_COLUMNS, np.float32) | {"is_kept": np.bool_}
    return to_table({name: np.empty(0, dtype) for name, dtype in dtypes.items()}, {})


def _check_shape(field: str, values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if values.shape != shape:
        raise ValueError(f"{field} must have shape {shape}, got {values.shape}")
    return values


def _narrow(field: str, values: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Convert values to a smaller type of the same kind; only floats may lose digits."""
    with np.errstate(over="ignore"):
        narrow = values.astype(dtype, casting="same_kind")
    if narrow.dtype.kind in "iu" and (narrow != values).any():
        raise ValueError(f"{field} does not fit into {narrow.dtype}")
    return narrow


def _encode_ids(field: str, values: Ids) -> Ids:
    """Return ids as int64, or as valid Unicode with the escapes of `truth.parquet`."""
    if values.dtype != object:
        return _narrow(field, values, np.int64)
    texts = np.empty(len(values), object)
    for row, value in enumerate(values.tolist()):
        if value is None:
            raise ValueError(f"{field} has no id at row {row}")
        texts[row] = escape_surrogates(value)
    return texts
