"""The truth of a noisy dataset: the clean label and box of every annotation, also as Parquet.

The file has one row per annotation of the clean and the noisy dataset together, with the columns
of `SCHEMA`: first the clean annotations in their order, then the added ones.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import UNKNOWN
from boxmend.data.describing import describe
from boxmend.data.files.digests import encode_parquet
from boxmend.data.files.text import escape_surrogates
from boxmend.data.types import Ids
from boxmend.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa  # imported late at run time: most commands need no Parquet

FORMAT_KEY = b"boxmend.truth"
FORMAT_VERSION = b"1"
NAMES_KEY = b"boxmend.label_names"
ROWS_PER_GROUP = 2**20
REMEDY = "put a copy back, or make the noisy dataset again with `boxmend noise` and the same seed"

SCHEMA = {
    "annotation_id": ("int64", "string"),  # one or the other, as the dataset's ids are
    "source_id": ("int64", "string"),
    "label": ("int64",),
    "label_name": ("string",),
    "x1": ("double",),
    "y1": ("double",),
    "x2": ("double",),
    "y2": ("double",),
    "label_changed": ("bool",),
    "box_changed": ("bool",),
    "origin": ("string",),
}
"""The columns of the file, in order, with the Arrow types each may have."""


class Origin(IntEnum):
    """The origin of an annotation: kept or removed by the noise, invented, or a duplicate."""

    KEPT = 0
    MISSING = 1
    SPURIOUS = 2
    DUPLICATE = 3


@dataclass(frozen=True, eq=False, repr=False)
class Truth:
    """Columns with one row per annotation of the clean and the noisy dataset together.

    Without the missing annotations, the rows are those of the noisy dataset, in its order.
    """

    __repr__ = describe

    label_names: tuple[str, ...]
    annotation_ids: Ids  # in the noisy dataset; undefined where `is_missing`
    source_ids: Ids  # of the clean original; undefined where `is_spurious`
    labels: NDArray[np.int64]  # clean; UNKNOWN where `is_spurious`
    boxes: NDArray[np.float64]  # [n, 4] clean; NaN where `is_spurious`
    label_changed: NDArray[np.bool_]  # whether the noisy label differs; False where there is none
    box_changed: NDArray[np.bool_]
    origins: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.origins)

    @property
    def is_missing(self) -> NDArray[np.bool_]:
        """The mask [n] of annotations that the noisy dataset lacks."""
        is_missing: NDArray[np.bool_] = self.origins == Origin.MISSING
        return is_missing

    @property
    def is_spurious(self) -> NDArray[np.bool_]:
        """The mask [n] of invented annotations, which show no object."""
        is_spurious: NDArray[np.bool_] = self.origins == Origin.SPURIOUS
        return is_spurious

    def with_annotation_ids(self, ids: Ids) -> Truth:
        """Return this truth for a noisy dataset whose annotations have these ids, in order."""
        all_ids = np.zeros(len(self), ids.dtype)
        all_ids[~self.is_missing] = ids
        return replace(self, annotation_ids=all_ids)


def write_truth(truth: Truth, path: Path) -> None:
    """Write the truth to a new Parquet file; the same truth gives the same bytes."""
    content = encode_parquet(
        _to_table(truth),
        compression="zstd",
        use_dictionary=["label", "label_name", "origin"],
        row_group_size=ROWS_PER_GROUP,
    )
    with path.open("xb") as file:
        file.write(content)


def read_truth(path: Path) -> Truth:
    """Read a file that `write_truth` wrote; a DataError gives the reason if that fails."""
    import pyarrow as pa

    from boxmend.data.files.parquet import read_parquet

    try:
        table = read_parquet(path, remedy=REMEDY)
        label_names = _check_schema(path, table.schema)
        return _from_table(path, table, label_names)
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read as a truth file ({reason})") from error


def _to_table(truth: Truth) -> pa.Table:
    import pyarrow as pa

    no_box = truth.is_spurious
    edges = {
        name: pa.array(truth.boxes[:, k], mask=no_box)
        for k, name in enumerate(("x1", "y1", "x2", "y2"))
    }
    no_label = truth.labels == UNKNOWN
    columns = {
        "annotation_id": _id_column(truth.annotation_ids, truth.is_missing),
        "source_id": _id_column(truth.source_ids, no_box),
        "label": pa.array(truth.labels, mask=no_label),
        "label_name": _text_column(truth.labels, truth.label_names, no_label),
        **edges,
        "label_changed": pa.array(truth.label_changed),
        "box_changed": pa.array(truth.box_changed),
        "origin": _text_column(truth.origins, [origin.name.lower() for origin in Origin]),
    }
    names = json.dumps(truth.label_names).encode()
    return pa.table(columns).replace_schema_metadata({FORMAT_KEY: FORMAT_VERSION, NAMES_KEY: names})


def _id_column(ids: Ids, is_null: NDArray[np.bool_]) -> pa.Array:
    import pyarrow as pa

    if ids.dtype != object:
        return pa.array(ids, pa.int64(), mask=is_null)
    pairs = zip(ids.tolist(), is_null.tolist(), strict=True)
    return pa.array(
        [None if null else escape_surrogates(str(text)) for text, null in pairs], pa.string()
    )


def _text_column(
    codes: NDArray[Any], texts: Sequence[str], is_null: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Return the text of each code as a plain string column."""
    import pyarrow as pa

    known = pa.array([escape_surrogates(text) for text in texts], pa.string())
    indices = pa.array(codes.astype(np.int32), mask=is_null)
    return pa.DictionaryArray.from_arrays(indices, known).cast(pa.string())


def _check_schema(path: Path, schema: pa.Schema) -> tuple[str, ...]:
    """Return the label names of a truth file; raise a DataError if its schema is wrong."""
    metadata = schema.metadata or {}
    if metadata.get(FORMAT_KEY) != FORMAT_VERSION:
        raise DataError(
            f"{path}: not a truth file of version {FORMAT_VERSION.decode()}; give the "
            "truth.parquet that `boxmend noise` wrote"
        )
    types = {name: str(type) for name, type in zip(schema.names, schema.types, strict=True)}
    for name, allowed in SCHEMA.items():
        if types.get(name) not in allowed:
            actual = types.get(name, "missing")
            raise DataError(f"{path}: column {name} is {actual}, expected {' or '.join(allowed)}")
    names = json.loads(metadata.get(NAMES_KEY, b"null"))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{path}: the label names are missing; {REMEDY}")
    return tuple(names)


def _from_table(path: Path, table: pa.Table, label_names: tuple[str, ...]) -> Truth:
    import pyarrow as pa
    import pyarrow.compute as pc

    words = pa.array([origin.name.lower() for origin in Origin])  # in the order of their codes
    origins = pc.index_in(table["origin"], value_set=words).fill_null(UNKNOWN)
    labels = table["label"].fill_null(UNKNOWN).to_numpy()
    boxes = [table[name].fill_null(np.nan).to_numpy() for name in ("x1", "y1", "x2", "y2")]
    truth = Truth(
        label_names=label_names,
        annotation_ids=_read_ids(table["annotation_id"]),
        source_ids=_read_ids(table["source_id"]),
        labels=labels,
        boxes=np.stack(boxes, axis=1),
        label_changed=table["label_changed"].to_numpy(),
        box_changed=table["box_changed"].to_numpy(),
        origins=origins.to_numpy().astype(np.int8),
    )
    _check_rows(path, table, truth)
    return truth


def _read_ids(column: pa.ChunkedArray) -> Ids:
    if str(column.type) == "int64":
        ids: Ids = column.fill_null(0).to_numpy()
        return ids
    texts = np.empty(len(column), object)
    texts[:] = column.to_pylist()
    return texts


def _check_rows(path: Path, table: pa.Table, truth: Truth) -> None:
    """Refuse values that `boxmend noise` never writes; the message names the first row."""
    wrong = {
        "origin": truth.origins == UNKNOWN,
        "label": (truth.labels < UNKNOWN) | (truth.labels >= len(truth.label_names)),
        "annotation_id": _is_null(table["annotation_id"]) != truth.is_missing,
        "source_id": _is_null(table["source_id"]) != truth.is_spurious,
        "label_changed": _is_null(table["label_changed"]),
        "box_changed": _is_null(table["box_changed"]),
    }
    for column, rows in wrong.items():
        if rows.any():
            row = int(np.flatnonzero(rows)[0])
            raise DataError(f"{path}: row {row} has {table[column][row].as_py()!r} as {column}")


def _is_null(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    nulls: NDArray[np.bool_] = column.is_null().to_numpy()
    return nulls
