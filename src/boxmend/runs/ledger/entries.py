"""The entries of a ledger as columns: what happened to each annotation at each visit."""

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
    """Some visits of annotations, one row each, in the order in which they happened.

    Boxes are xyxy in pixels of the image as annotated: flip and scale are undone. A value that
    a method does not have is NaN, a label that it does not have UNKNOWN (-1).
    """

    epochs: NDArray[np.int64]  # [n] never falling, from one batch to the next neither
    steps: NDArray[np.int64]  # [n]
    annotation_ids: Ids  # [n] as the dataset has them, int64 or object
    image_ids: Ids  # [n] likewise
    losses: NDArray[np.float32]  # [n] of the annotated label
    thresholds: NDArray[np.float32]  # [n] that the loss was held against; may be infinite
    verdicts: NDArray[np.int8]  # [n] Judgement
    num_candidates: NDArray[np.int64]  # [n]
    old_labels: NDArray[np.int64]  # [n] as annotated
    new_labels: NDArray[np.int64]  # [n] as trained on
    confidences: NDArray[np.float32]  # [n] in the new label
    noisy_boxes: NDArray[np.float32]  # [n, 4] as annotated
    matched_boxes: NDArray[np.float32]  # [n, 4] after centre matching
    final_boxes: NDArray[np.float32]  # [n, 4] as trained on
    is_kept: NDArray[np.bool_]  # [n] whether it was trained on

    def __len__(self) -> int:
        return len(self.epochs)


# Columns of the file, with the field of Entries that each comes from and its type here.
_SINGLE = {
    "epoch": ("epochs", np.int32),
    "step": ("steps", np.int64),
    "annotation_id": ("annotation_ids", None),  # int64 or texts
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

_VERDICT_NAMES = pa.array([one.name.lower() for one in Judgement], pa.string())

Columns = dict[str, NDArray[Any]]  # column of the file -> [n] values; ids int64 or object of str


def columns_of(entries: Entries) -> Columns:
    """The entries by column of the file, in its types; a ValueError where they do not fit."""
    n = len(entries)
    columns: Columns = {}
    for name, (field, dtype) in _SINGLE.items():
        values = _sized(field, getattr(entries, field), (n,))
        columns[name] = _ids(field, values) if dtype is None else _narrowed(field, values, dtype)
    for box, field in _BOXES.items():
        boxes = _narrowed(field, _sized(field, getattr(entries, field), (n, 4)), np.float32)
        columns |= {f"{box}_{side}": boxes[:, k] for k, side in enumerate(SIDES)}
    columns["is_kept"] = _narrowed("is_kept", _sized("is_kept", entries.is_kept, (n,)), np.bool_)
    if n and not (columns["verdict"].min() >= 0 and columns["verdict"].max() < len(Judgement)):
        raise ValueError(f"verdicts must lie between 0 and {len(Judgement) - 1}")
    return columns


def vacant_columns(num_rows: int, like: Columns) -> Columns:
    """Room for so many rows of the same types."""
    return {name: np.empty(num_rows, values.dtype) for name, values in like.items()}


def to_table(columns: Columns, metadata: dict[bytes, bytes]) -> pa.Table:
    """Columns as an Arrow table with the types of the file; numbers are not copied."""
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
    """Return the columns of a table as `to_table` makes it, or some of them."""
    columns: Columns = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if name == "verdict":
            column = column.indices
        columns[name] = column.to_numpy(zero_copy_only=False)
    return columns


def empty_table() -> pa.Table:
    """A ledger without any entry; whether its ids are numbers or texts is not known then."""
    dtypes: dict[str, Any] = {name: dtype or np.int64 for name, (_, dtype) in _SINGLE.items()}
    dtypes |= dict.fromkeys(BOX_COLUMNS, np.float32) | {"is_kept": np.bool_}
    return to_table({name: np.empty(0, dtype) for name, dtype in dtypes.items()}, {})


def _sized(field: str, values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if values.shape != shape:
        raise ValueError(f"{field} must have shape {shape}, got {values.shape}")
    return values


def _narrowed(field: str, values: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Values in a narrower type of their kind; floats may lose digits, integers nothing."""
    with np.errstate(over="ignore"):
        narrow = values.astype(dtype, casting="same_kind")
    if narrow.dtype.kind in "iu" and (narrow != values).any():
        raise ValueError(f"{field} does not fit into {narrow.dtype}")
    return narrow


def _ids(field: str, values: Ids) -> Ids:
    """Ids as int64, or as texts that are valid, escaped like those of `truth.parquet`."""
    if values.dtype != object:
        return _narrowed(field, values, np.int64)
    texts = np.empty(len(values), object)
    for row, value in enumerate(values.tolist()):
        if value is None:
            raise ValueError(f"{field} has no id at row {row}")
        texts[row] = escape_surrogates(value)
    return texts
