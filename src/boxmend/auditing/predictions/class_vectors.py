"""Put class vectors of detections into the order of a dataset's labels."""

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
    """Thresholds for finding the order of class vectors."""

    max_detections: int = 5000  # with the highest scores, whose labels are the most reliable
    min_agreement: float = 0.5  # share of detections whose label has the highest value
    probability_tolerance: float = 1e-4  # by which a probability may lie outside 0 to 1


VECTORS = VectorConstants()


def order_vectors(
    raw: RawDetections, labels: Rows, dataset: Dataset
) -> tuple[Singles | None, list[str]]:
    """Return the class vectors [m, C] by label, and notes about them.

    A table names its columns. A list has C values, or C + 1 with the background first or last, in
    the order of the classes or of their category ids. The order that gives the labels of the
    detections the highest values is chosen.
    """
    if raw.vectors is None:
        return None, []
    _ensure_probabilities(raw, raw.vectors)
    if raw.vector_names:
        return _columns_by_name(raw, raw.vectors, dataset)
    num_labels = len(dataset.label_names)
    if raw.vectors.shape[1] not in (num_labels, num_labels + 1):
        raise DataError(
            f"{raw.files_text}: class vectors have {raw.vectors.shape[1]} values, but the data "
            f"have {num_labels} classes; expected one value for each, or one more for the "
            "background"
        )
    orders = _possible_orders(dataset, raw.vectors.shape[1])
    rows = np.flatnonzero(labels >= 0)
    if len(rows) > VECTORS.max_detections:
        best_first = np.argpartition(-raw.scores[rows], VECTORS.max_detections)
        rows = rows[best_first[: VECTORS.max_detections]]
    agreement = {
        words: float((raw.vectors[np.ix_(rows, order)].argmax(axis=1) == labels[rows]).mean())
        if len(rows)
        else 1.0
        for words, order in orders.items()
    }
    best = max(agreement, key=lambda words: agreement[words])  # the first of equals
    if agreement[best] < VECTORS.min_agreement:
        raise DataError(
            f"{raw.files_text}: the class vectors do not fit the labels: the label has the "
            f"highest value in {agreement[best]:.0%} of the detections; expected values in the "
            "order of the classes"
        )
    vectors = raw.vectors
    if not np.array_equal(orders[best], np.arange(vectors.shape[1])):
        vectors = vectors[:, orders[best]]
    is_plain = best == next(iter(orders)) and len(orders[best]) == raw.vectors.shape[1]
    return vectors, [] if is_plain else [f"the class vectors were read in {best}"]


def _ensure_probabilities(raw: RawDetections, vectors: Singles) -> None:
    slack = VECTORS.probability_tolerance
    is_wrong = ~((vectors >= -slack) & (vectors <= 1 + slack))
    if is_wrong.any():
        row = int(np.argmax(is_wrong.any(axis=1)))
        value = float(vectors[row][is_wrong[row]][0])
        raise raw.error_at(
            row, f"its class vector has the value {value:.6g}; expected probabilities from 0 to 1"
        )


def _columns_by_name(
    raw: RawDetections, vectors: Singles, dataset: Dataset
) -> tuple[Singles, list[str]]:
    """Order columns by class names; a class without a column has the probability 0."""
    column_of = {name: k for k, name in enumerate(raw.vector_names)}
    known = [name for name in dataset.label_names if name in column_of]
    unknown = [name for name in raw.vector_names if name not in set(dataset.label_names)]
    if not known:
        raise DataError(
            f"{raw.files_text}: no column p_NAME has the name of a class of the data; the first "
            f"column is p_{raw.vector_names[0]}, the first class is "
            f"{''.join(dataset.label_names[:1])}"
        )
    result = np.zeros((len(vectors), len(dataset.label_names)), np.float32)
    for label, name in enumerate(dataset.label_names):
        if name in column_of:
            result[:, label] = vectors[:, column_of[name]]
    unknown_text = ", ".join(f"p_{name}" for name in unknown[:5])
    notes = [f"columns without a class of the data are ignored: {unknown_text}"]
    return result, notes if unknown else []


def _possible_orders(dataset: Dataset, length: int) -> dict[str, Rows]:
    """Return, for each possible order of a vector, the position of each label."""
    num_labels = len(dataset.label_names)
    numbers = get_category_ids(dataset)
    ranks = np.arange(num_labels)
    if all(isinstance(number, int) for number in numbers):
        ranks[np.argsort(np.array(numbers, object).astype(np.float64), kind="stable")] = np.arange(
            num_labels
        )
    orders = {
        "the order of the classes": np.arange(num_labels),
        "the order of the category ids": ranks,
    }
    if length == num_labels:
        return orders
    backgrounds = {"last": 0, "first": 1}
    return {
        f"{words}, with the background {where}": order + shift
        for where, shift in backgrounds.items()
        for words, order in orders.items()
    }
