"""The truth beside a noisy dataset: what every annotation was before, as columns and as Parquet.

The file has one row per annotation of the clean and the noisy dataset together, with the columns
of `SCHEMA`: first the clean annotations in their order, then those that were added.
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
    """Where an annotation comes from, or what became of it."""

    KEPT = 0
    MISSING = 1
    SPURIOUS = 2
    DUPLICATE = 3


@dataclass(frozen=True, eq=False)
class Truth:
    """Columns with one row per annotation of the clean and the noisy dataset together.

    Without the missing ones, the rows are those of the noisy dataset, in its order.
    """

    label_names: tuple[str, ...]
    annotation_ids: Ids  # in the noisy dataset; means nothing where `is_missing`
    source_ids: Ids  # in the clean dataset, of the original; means nothing where `is_spurious`
    labels: NDArray[np.int64]  # clean; UNKNOWN where there is none
    boxes: NDArray[np.float64]  # [n, 4] clean; NaN where `is_spurious`
    label_changed: NDArray[np.bool_]  # whether the noisy one differs; False where there is none
    box_changed: NDArray[np.bool_]
    origins: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.origins)

    @property
    def is_missing(self) -> NDArray[np.bool_]:
        """[n] Annotations that the noisy dataset lacks."""
        is_missing: NDArray[np.bool_] = self.origins == Origin.MISSING
        return is_missing

    @property
    def is_spurious(self) -> NDArray[np.bool_]:
        """[n] Annotations of nothing."""
        is_spurious: NDArray[np.bool_] = self.origins == Origin.SPURIOUS
        return is_spurious

    def with_annotation_ids(self, ids: Ids) -> Truth:
        """The same truth for a noisy dataset whose annotations have these ids, row by row."""
        spread = np.zeros(len(self), ids.dtype)
        spread[~self.is_missing] = ids
        return replace(self, annotation_ids=spread)


def write_truth(truth: Truth, path: Path) -> None:
    """Write the truth into a new Parquet file; the same truth gives the same bytes."""
    content = encode_parquet(
        _table(truth),
        compression="zstd",
        use_dictionary=["label", "label_name", "origin"],
        row_group_size=ROWS_PER_GROUP,
    )
    with path.open("xb") as file:
        file.write(content)


def read_truth(path: Path) -> Truth:
    """Read a file that `write_truth` wrote; a DataError says why another one is refused."""
    import pyarrow as pa

    from boxmend.data.files.parquet import read_parquet

    try:
        table = read_parquet(path, remedy=REMEDY)
        label_names = _checked_label_names(path, table.schema)
        return _truth(path, table, label_names)
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read as a truth file ({reason})") from error


def _table(truth: Truth) -> pa.Table:
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
        "label_name": _texts(truth.labels, truth.label_names, no_label),
        **edges,
        "label_changed": pa.array(truth.label_changed),
        "box_changed": pa.array(truth.box_changed),
        "origin": _texts(truth.origins, [one.name.lower() for one in Origin]),
    }
    names = json.dumps(truth.label_names).encode()
    return pa.table(columns).replace_schema_metadata({FORMAT_KEY: FORMAT_VERSION, NAMES_KEY: names})


def _id_column(ids: Ids, is_null: NDArray[np.bool_]) -> pa.Array:
    import pyarrow as pa

    if ids.dtype != object:
        return pa.array(ids, pa.int64(), mask=is_null)
    pairs = zip(ids.tolist(), is_null.tolist(), strict=True)
    return pa.array(
        [None if null else escape_surrogates(str(one)) for one, null in pairs], pa.string()
    )


def _texts(
    codes: NDArray[Any], texts: Sequence[str], is_null: NDArray[np.bool_] | None = None
) -> pa.Array:
    """The text of each code, as a plain string column."""
    import pyarrow as pa

    known = pa.array([escape_surrogates(text) for text in texts], pa.string())
    indices = pa.array(codes.astype(np.int32), mask=is_null)
    return pa.DictionaryArray.from_arrays(indices, known).cast(pa.string())


def _checked_label_names(path: Path, schema: pa.Schema) -> tuple[str, ...]:
    """Label names from the schema of a truth file; a DataError where it is none of ours."""
    metadata = schema.metadata or {}
    if metadata.get(FORMAT_KEY) != FORMAT_VERSION:
        raise DataError(
            f"{path}: no truth file of version {FORMAT_VERSION.decode()}; "
            "`boxmend noise` writes them as truth.parquet"
        )
    types = {name: str(type) for name, type in zip(schema.names, schema.types, strict=True)}
    for name, allowed in SCHEMA.items():
        if types.get(name) not in allowed:
            found = types.get(name, "missing")
            raise DataError(f"{path}: column {name} is {found}, expected {' or '.join(allowed)}")
    names = json.loads(metadata.get(NAMES_KEY, b"null"))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{path}: the label names are missing")
    return tuple(names)


def _truth(path: Path, table: pa.Table, label_names: tuple[str, ...]) -> Truth:
    import pyarrow as pa
    import pyarrow.compute as pc

    words = pa.array([one.name.lower() for one in Origin])  # in the order of their codes
    origins = pc.index_in(table["origin"], value_set=words).fill_null(UNKNOWN)
    labels = table["label"].fill_null(UNKNOWN).to_numpy()
    boxes = [table[name].fill_null(np.nan).to_numpy() for name in ("x1", "y1", "x2", "y2")]
    truth = Truth(
        label_names=label_names,
        annotation_ids=_ids_back(table["annotation_id"]),
        source_ids=_ids_back(table["source_id"]),
        labels=labels,
        boxes=np.stack(boxes, axis=1),
        label_changed=table["label_changed"].to_numpy(),
        box_changed=table["box_changed"].to_numpy(),
        origins=origins.to_numpy().astype(np.int8),
    )
    _check_rows(path, table, truth)
    return truth


def _ids_back(column: pa.ChunkedArray) -> Ids:
    if str(column.type) == "int64":
        ids: Ids = column.fill_null(0).to_numpy()
        return ids
    texts = np.empty(len(column), object)
    texts[:] = column.to_pylist()
    return texts


def _check_rows(path: Path, table: pa.Table, truth: Truth) -> None:
    """Refuse values that no noise leaves behind; the message names the first row."""
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
