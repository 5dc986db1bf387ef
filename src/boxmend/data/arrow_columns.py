"""Columns of a dataset as Arrow arrays: ids, texts, and the table of its annotations."""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.files.text import escape_surrogates
from boxmend.data.table import Table

SIDES = ("x1", "y1", "x2", "y2")


def annotations_table(dataset: Dataset) -> pa.Table:
    """Return a table with a row per annotation; an unknown image or label is null."""
    images, rows = dataset.images, dataset.image_rows
    return pa.table(
        {
            "annotation_id": to_id_values(dataset.annotation_ids),
            "image_id": take_values(to_id_values(images.ids), rows),
            "file_name": take_values(to_texts(images.file_names), rows),
            "split": take_values(to_texts(images.splits), rows),
            "label": take_values(to_texts(dataset.label_names), dataset.labels),
            **{side: pa.array(dataset.boxes[:, k]) for k, side in enumerate(SIDES)},
            "is_crowd": pa.array(dataset.is_crowd),
            "is_difficult": pa.array(dataset.is_difficult),
        }
    )


def to_id_values(ids: NDArray[Any]) -> pa.Array:
    """Return ids as numbers or texts."""
    return to_texts(ids.tolist()) if ids.dtype == object else pa.array(ids)


def take_values(values: pa.Array, rows: NDArray[np.signedinteger[Any]]) -> pa.Array:
    """Return values at rows; null for UNKNOWN rows."""
    return values.take(pa.array(rows, mask=rows == UNKNOWN))


def to_texts(values: Sequence[Any]) -> pa.Array:
    """Return texts as an Arrow array, with lone surrogates escaped."""
    try:
        return pa.array(values, pa.string())
    except (UnicodeEncodeError, pa.ArrowException, TypeError):  # not all values are valid text
        return pa.array([escape_surrogates(value) for value in values], pa.string())


def summarise_as_html(dataset: Dataset) -> str:
    """Return the number of images, of annotations, and of annotations of each label as HTML."""
    counts = np.bincount(dataset.labels[dataset.labels >= 0], minlength=len(dataset.label_names))
    order = np.argsort(-counts, kind="stable")
    names = to_texts([dataset.label_names[label] for label in order.tolist()])
    table = pa.table({"label": names, "annotations": pa.array(counts[order])})
    lines = "<br>".join(escape(line) for line in repr(dataset).splitlines())
    return f"<p>{lines}</p>{Table(table, 'labels')._repr_html_()}"
