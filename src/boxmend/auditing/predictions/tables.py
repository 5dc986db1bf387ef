"""Read CSV and Parquet tables of detections, one row each, with the usual column names."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from boxmend.auditing.predictions.raw import UNKNOWN_FOLD, BoxFormat, Key, RawDetections
from boxmend.data.files.limits import ensure_within_limit
from boxmend.data.files.parquet import read_parquet, refuse_duplicate_columns
from boxmend.data.files.reading import open_file
from boxmend.data.types import Floats, Rows
from boxmend.errors import DataError

KIND = "a table"
DELIMITERS = ",;\t"
VECTOR_PREFIX = "p_"
HEADER_BYTES = 2**20
# Names are compared in lower case, without spaces, hyphens and underscores.
COLUMNS = {
    "image_id": ("imageid",),
    "file_name": ("image", "filename", "imagename", "imagepath", "path", "file"),
    "category_id": ("categoryid", "classid", "labelid"),
    "category_name": ("label", "class", "category", "labelname", "classname", "categoryname"),
    "score": ("score", "confidence", "conf"),
    "fold": ("fold",),
}
CORNERS = (
    ("x1", "y1", "x2", "y2"),
    ("xmin", "ymin", "xmax", "ymax"),
    ("left", "top", "right", "bottom"),
)
SIZES = (("x", "y", "w", "h"), ("x", "y", "width", "height"), ("left", "top", "width", "height"))
BOX_FORMATS = {**dict.fromkeys(CORNERS, "xyxy"), **dict.fromkeys(SIZES, "xywh")}
EXPECTED = "expected the columns image, x1, y1, x2, y2, label and score"


def read_table(path: Path) -> RawDetections:
    """Read a CSV or Parquet file of detections, without interpretation."""
    table = _open_table(path)
    names = _normalise_names(path, table.column_names)
    sides = next((columns for columns in BOX_FORMATS if set(columns) <= set(names)), None)
    columns = {key: _first_column(names, usual) for key, usual in COLUMNS.items()}
    _ensure_complete(path, table.column_names, columns, sides)
    assert sides is not None
    assert columns["score"] is not None
    # A name counts more than an id, since ids differ between copies of a dataset.
    image_keys, images = _encode_keys(path, table, columns["file_name"] or columns["image_id"])
    class_keys, classes = _encode_keys(
        path, table, columns["category_name"] or columns["category_id"]
    )
    vector_columns = [name for name in table.column_names if name.startswith(VECTOR_PREFIX)]
    return RawDetections(
        kind=KIND,
        format=BoxFormat(BOX_FORMATS[sides]),
        image_keys=image_keys,
        images=images,
        class_keys=class_keys,
        classes=classes,
        scores=_floats(path, table, columns["score"]),
        boxes=np.stack([_floats(path, table, names[side]) for side in sides], axis=1),
        vectors=_vectors(path, table, vector_columns),
        vector_names=tuple(name.removeprefix(VECTOR_PREFIX) for name in vector_columns),
        folds=_folds(path, table, columns["fold"]),
        files=[str(path)],
        firsts=np.zeros(1, np.int64),
        unit="row",
    )


def _open_table(path: Path) -> pa.Table:
    try:
        with open_file(path) as file:
            head = file.read(HEADER_BYTES)
            size = os.fstat(file.fileno()).st_size
        if head.startswith(b"PAR1"):
            table = read_parquet(path)
        else:
            ensure_within_limit("prediction_bytes", size, path)
            table = _read_csv(path, head)
            refuse_duplicate_columns(path, table.column_names)
        _ = table.column_names  # raises if a name is not valid text
        return table
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: cannot be read as a table ({reason}); {EXPECTED}") from error


def _read_csv(path: Path, head: bytes) -> pa.Table:
    """Read a CSV; images and classes stay text, so that 000042 keeps its zeros."""
    header = head.lstrip(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode("utf-8", "replace")
    delimiter = max(DELIMITERS, key=header.count)
    names = [name.strip().strip('"') for name in header.strip("\r").split(delimiter)]
    text_columns = {name for key in list(COLUMNS)[:4] for name in COLUMNS[key]}
    return pyarrow.csv.read_csv(
        path,
        parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={name: pa.string() for name in names if _normalise(name) in text_columns}
        ),
    )


def _normalise(name: str) -> str:
    return "".join(letter for letter in name.strip().lower() if letter not in " _-")


def _normalise_names(path: Path, names: Sequence[str]) -> dict[str, str]:
    """Return column names by their normalised names, without those of class vectors."""
    columns: dict[str, str] = {}
    for name in names:
        if (
            not name.startswith(VECTOR_PREFIX)
            and columns.setdefault(_normalise(name), name) != name
        ):
            raise DataError(
                f"{path}: columns {columns[_normalise(name)]!r} and {name!r} mean the same; "
                "remove one of them"
            )
    if len(set(names)) < len(names):
        raise DataError(f"{path}: two columns have the same name; remove one of them")
    return columns


def _first_column(names: dict[str, str], usual: Sequence[str]) -> str | None:
    return next((names[name] for name in usual if name in names), None)


def _ensure_complete(
    path: Path,
    names: Sequence[str],
    columns: dict[str, str | None],
    sides: tuple[str, ...] | None,
) -> None:
    is_there = {
        "image": columns["image_id"] or columns["file_name"],
        "a box (x1, y1, x2, y2)": sides,
        "label": columns["category_id"] or columns["category_name"],
        "score": columns["score"],
    }
    if missing := [what for what, column in is_there.items() if column is None]:
        listed = ", ".join(names[:12]) or "none"
        raise DataError(f"{path}: has no column for {', '.join(missing)}; its columns are {listed}")


def _encode_keys(path: Path, table: pa.Table, column: str | None) -> tuple[list[Key], Rows]:
    """Return the distinct values of a column as keys, and the code of each row."""
    assert column is not None
    values = table[column]
    try:
        coded = values.dictionary_encode().combine_chunks()
    except pa.ArrowException as error:
        raise DataError(f"{path}: column {column} has neither names nor numbers") from error
    if coded.indices.null_count:
        raise _row_error(path, coded.indices.is_null(), column, "is empty")
    keys: list[Key] = []
    for value in coded.dictionary.to_pylist():
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise DataError(f"{path}: column {column}: {value!r} is neither a name nor a number")
        keys.append((value, None))
    return keys, coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _floats(path: Path, table: pa.Table, column: str) -> Floats:
    values = table[column]
    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
        try:
            values = pc.cast(values, pa.float64())
        except pa.ArrowException as error:
            reason = " ".join(str(error).split())[:120]
            raise DataError(
                f"{path}: column {column} has other values than numbers ({reason})"
            ) from error
    numbers: Floats = values.to_numpy().astype(np.float64)
    is_wrong = ~np.isfinite(numbers)
    if is_wrong.any():
        raise _row_error(path, is_wrong, column, "is empty or not a finite number")
    return numbers


def _folds(path: Path, table: pa.Table, column: str | None) -> Rows:
    if column is None:
        return np.full(len(table), UNKNOWN_FOLD, np.int64)
    numbers = _floats(path, table, column)
    is_wrong = (numbers != np.floor(numbers)) | (numbers < 0) | (numbers > 10**6)
    if is_wrong.any():
        raise _row_error(path, is_wrong, column, "is not a whole number from 0 on")
    return numbers.astype(np.int64)


def _vectors(path: Path, table: pa.Table, columns: list[str]) -> NDArray[np.float32] | None:
    if not columns:
        return None
    vectors = np.empty((len(table), len(columns)), np.float32)
    for k, column in enumerate(columns):
        with np.errstate(over="ignore"):
            vectors[:, k] = _floats(path, table, column)
    return vectors


def _row_error(path: Path, is_wrong: Any, column: str, why: str) -> DataError:
    row = int(np.argmax(np.asarray(is_wrong)))
    return DataError(f"{path}: row {row} (the first is 0): {column} {why}")
