"""Check arrays from users: an error names the argument and the first wrong row."""

from collections.abc import Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np

from boxmend.data.types import Floats, Rows
from boxmend.errors import DataError, UsageError

Identity = int | str
MAX_COORDINATE_PIXELS = 1e7  # larger ones are damaged values
SCORE_TOLERANCE = 1e-6  # by which a score may lie outside 0 to 1


def to_array(name: str, value: Any) -> Any:
    """Return an argument as a NumPy array; tensors are copied to the CPU."""
    if hasattr(value, "detach"):
        value = value.detach()
    if hasattr(value, "cpu"):
        value = value.cpu()
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{name} cannot be read as an array ({error})") from error


def to_floats(name: str, value: Any) -> Floats:
    """Return numbers of any shape; raise a UsageError for other values."""
    column = to_array(name, value)
    if column.dtype.kind == "c":
        raise UsageError(f"{name} has complex numbers; expected real numbers")
    try:
        floats: Floats = column.astype(np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(f"{name} has other values than numbers ({error})") from error
    return floats


def to_boxes(name: str, value: Any, *, allow_empty: bool = False) -> Floats:
    """Return boxes [n, 4] as x1, y1, x2, y2, which must be finite.

    They need an area, unless `allow_empty`: detectors return boxes without area now and then.
    """
    boxes = to_floats(name, value)
    if not boxes.size:
        return np.zeros((0, 4))
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise UsageError(f"{name} has shape {boxes.shape}; expected (n, 4): x1, y1, x2, y2")
    is_finite = (np.abs(boxes) <= MAX_COORDINATE_PIXELS).all(axis=1)  # False for NaN
    refuse_rows(name, ~is_finite, boxes, "expected four finite numbers")
    sides = boxes[:, 2:] - boxes[:, :2]
    is_valid = ((sides >= 0) if allow_empty else (sides > 0)).all(axis=1)
    refuse_rows(name, ~is_valid, boxes, "expected x1, y1, x2, y2 in pixels with x1 < x2, y1 < y2")
    return boxes


def to_scores(name: str, value: Any, number: int) -> Floats:
    """Return scores [n] from 0 to 1."""
    scores = to_floats(name, value)
    check_length(name, scores, number)
    is_wrong = ~((scores >= -SCORE_TOLERANCE) & (scores <= 1 + SCORE_TOLERANCE))  # also NaN
    refuse_rows(name, is_wrong, scores, "expected a number from 0 to 1")
    return np.clip(scores, 0.0, 1.0)


def to_identities(name: str, value: Any, number: int) -> list[Identity]:
    """Return ids or names [n] as plain integers and texts; paths become texts."""
    plain = to_array(name, value).tolist() if hasattr(value, "dtype") else value
    if isinstance(plain, str | bytes) or not hasattr(plain, "__iter__"):
        raise UsageError(f"{name} is {plain!r}; expected a list or an array")
    values = [to_identity(entry) for entry in plain]
    check_length(name, values, number)
    for row, entry in enumerate(values):
        if not isinstance(entry, int | str) or isinstance(entry, bool):
            raise DataError(f"{name}[{row}] is {entry!r}; expected an id or a name")
    return values


def to_identity(value: Any) -> Any:
    """Return a NumPy number or a whole float as an integer, and a path as a text."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and plain.is_integer():
        return int(plain)
    return fspath(plain) if isinstance(plain, PathLike) else plain


def to_labels(name: str, value: Any, number: int) -> Rows | list[str]:
    """Return labels [n]: indices as an array of integers, or names as a list."""
    column = to_array(name, value)
    check_length(name, column, number)
    if not column.size:
        return np.zeros(0, np.int64)
    if column.dtype.kind in "iu":
        return np.asarray(column, np.int64)
    if column.dtype.kind == "f":
        is_wrong = ~((column == np.floor(column)) & (np.abs(column) < 2**31))
        refuse_rows(name, is_wrong, column, "expected an index or a name")
        return np.asarray(column, np.int64)
    names = [to_identity(entry) for entry in column.tolist()]
    is_text = [isinstance(entry, str) for entry in names]
    if all(is_text):
        return names
    if all(isinstance(entry, int) and not isinstance(entry, bool) for entry in names):
        return np.array(names, np.int64)
    refuse_rows(name, ~np.array(is_text), names, "expected only indices or only names")
    return list(names)


def to_label_rows(name: str, labels: Rows | list[str], label_names: Sequence[str]) -> Rows:
    """Return labels as indices into `label_names`; raise a DataError for an unknown one."""
    if isinstance(labels, list):
        places = {label_name: place for place, label_name in enumerate(label_names)}
        rows = np.array([places.get(label, -1) for label in labels], np.int64)
        is_wrong, values = rows < 0, np.array(labels, object)
    else:
        rows = labels
        is_wrong, values = (rows < 0) | (rows >= len(label_names)), rows
    refuse_rows(name, is_wrong, values, describe_labels(label_names))
    return rows


def to_names(name: str, values: Any) -> tuple[str, ...]:
    """Return distinct names in their order; raise an error for anything but a list of texts."""
    names = to_list(name, values)
    is_wrong = [not (isinstance(entry, str) and entry) for entry in names]
    refuse_rows(name, is_wrong, names, "expected a text")
    return tuple(dict.fromkeys(names))


def to_list(name: str, values: Any) -> list[Any]:
    """Return the entries of an iterable; raise a UsageError for a single text or number."""
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise UsageError(f"{name} is {values!r}; expected a list, like [{values!r}]")
    return list(values)


def describe_labels(label_names: Sequence[str]) -> str:
    """Describe the labels of a dataset, for a message."""
    shown = ", ".join(f"{index} ({name[:40]})" for index, name in enumerate(label_names[:5]))
    more = ", ..." if len(label_names) > 5 else ""
    return f"expected one of the {len(label_names):,} labels: {shown}{more}"


def check_type(name: str, value: Any, kind: type, expected: str) -> None:
    """Raise a UsageError for an argument of another type."""
    if not isinstance(value, kind):
        raise UsageError(f"{name} is a {type(value).__name__}; expected {expected}")


def check_length(name: str, column: Any, number: int) -> None:
    """Raise a UsageError for a column that does not have `number` rows and one dimension."""
    shape = tuple(column.shape) if hasattr(column, "shape") else (len(column),)
    if shape != (number,):
        raise UsageError(f"{name} has shape {shape}; expected ({number},), a value for each box")


def refuse_rows(name: str, is_wrong: Any, values: Any, expected: str) -> None:
    """Raise a DataError that names the first wrong row, if there is one."""
    wrong_rows = np.flatnonzero(is_wrong)
    if len(wrong_rows):
        row = int(wrong_rows[0])
        value = values[row].tolist() if hasattr(values[row], "tolist") else values[row]
        more = f" ({len(wrong_rows):,} rows are wrong)" if len(wrong_rows) > 1 else ""
        raise DataError(f"{name}[{row}] is {str(value)[:120]}; {expected}{more}")
