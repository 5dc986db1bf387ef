"""Class vectors of detections, put into the order of a dataset's labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.predictions.raw import RawDetections
from boxmend.data.dataset import Dataset
from boxmend.data.formats.coco.sizes import get_category_ids
from boxmend.data.types import Rows, Singles
from boxmend.errors import DataError


@dataclass(frozen=True)
class VectorConstants:
    """When class vectors are read in an order."""

    max_detections: int = 5000  # the best, since of others many are doubtful
    min_agreement: float = 0.5  # share whose label has the highest value
    probability_tolerance: float = 1e-4  # by which a probability may leave 0..1


VECTORS = VectorConstants()


def in_order(
    found: RawDetections, labels: Rows, dataset: Dataset
) -> tuple[Singles | None, list[str]]:
    """The class vectors [m, C] by label, and what is to be said about them.

    A table names its columns. A list has C values, or C + 1 with the background first or last, in
    the order of the classes or of their category ids: in the one in which the label of a detection
    is the most probable.
    """
    if found.vectors is None:
        return None, []
    _ensure_probabilities(found, found.vectors)
    if found.vector_names:
        return _by_name(found, found.vectors, dataset)
    num = len(dataset.label_names)
    if found.vectors.shape[1] not in (num, num + 1):
        raise DataError(
            f"{found.told_files}: class vectors have {found.vectors.shape[1]} values, but the data "
            f"have {num} classes; expected one value for each, or one more for the background"
        )
    orders = _orders(dataset, found.vectors.shape[1])
    rows = np.flatnonzero(labels >= 0)
    if len(rows) > VECTORS.max_detections:
        best_first = np.argpartition(-found.scores[rows], VECTORS.max_detections)
        rows = rows[best_first[: VECTORS.max_detections]]
    agreement = {
        words: float((found.vectors[np.ix_(rows, order)].argmax(axis=1) == labels[rows]).mean())
        if len(rows)
        else 1.0
        for words, order in orders.items()
    }
    best = max(agreement, key=lambda one: agreement[one])  # the first of equals
    if agreement[best] < VECTORS.min_agreement:
        raise DataError(
            f"{found.told_files}: the class vectors do not fit the labels: the highest value is "
            f"that of the label in {agreement[best]:.0%} of the detections; expected the order of "
            "the classes"
        )
    vectors = found.vectors
    if not np.array_equal(orders[best], np.arange(vectors.shape[1])):
        vectors = vectors[:, orders[best]]
    is_plain = best == next(iter(orders)) and len(orders[best]) == found.vectors.shape[1]
    return vectors, [] if is_plain else [f"the class vectors were read in {best}"]


def _ensure_probabilities(found: RawDetections, vectors: Singles) -> None:
    slack = VECTORS.probability_tolerance
    is_wrong = ~((vectors >= -slack) & (vectors <= 1 + slack))
    if is_wrong.any():
        row = int(np.argmax(is_wrong.any(axis=1)))
        value = float(vectors[row][is_wrong[row]][0])
        raise found.refused(
            row, f"its class vector has the value {value:.6g}; expected probabilities from 0 to 1"
        )


def _by_name(found: RawDetections, vectors: Singles, dataset: Dataset) -> tuple[Singles, list[str]]:
    """Columns by the names of classes; a class without a column has the probability 0."""
    column_of = {name: k for k, name in enumerate(found.vector_names)}
    known = [name for name in dataset.label_names if name in column_of]
    lost = [name for name in found.vector_names if name not in set(dataset.label_names)]
    if not known:
        raise DataError(
            f"{found.told_files}: no column p_NAME is of a class of the data; the first of them is "
            f"p_{found.vector_names[0]}, the first class {''.join(dataset.label_names[:1])}"
        )
    result = np.zeros((len(vectors), len(dataset.label_names)), np.float32)
    for label, name in enumerate(dataset.label_names):
        if name in column_of:
            result[:, label] = vectors[:, column_of[name]]
    notes = [f"columns of no class of the data: {', '.join(f'p_{one}' for one in lost[:5])}"]
    return result, notes if lost else []


def _orders(dataset: Dataset, length: int) -> dict[str, Rows]:
    """For each order that a vector may have, where the value of each label stands in it."""
    num = len(dataset.label_names)
    numbers = get_category_ids(dataset)
    ranks = np.arange(num)
    if all(isinstance(one, int) for one in numbers):
        ranks[np.argsort(np.array(numbers, object).astype(np.float64), kind="stable")] = np.arange(
            num
        )
    every = {"the order of the classes": np.arange(num), "the order of the category ids": ranks}
    if length == num:
        return every
    backgrounds = {"last": 0, "first": 1}
    return {
        f"{words}, with the background {where}": order + shift
        for where, shift in backgrounds.items()
        for words, order in every.items()
    }
