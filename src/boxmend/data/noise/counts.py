"""Noise that removes annotations or duplicates them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import Dataset
from boxmend.data.noise.boxes import disturb_boxes, image_sizes, uniform_moves
from boxmend.data.noise.streams import (
    Stream,
    choose_smallest,
    count_of_rate,
    uniform_rows,
    uniforms,
)
from boxmend.data.types import Floats, Rows

MAX_DUPLICATE_SHIFT_SIDES = 0.05  # how far an edge of a duplicate lies off, in shares of the side
BOX_DECIMALS = 2  # of invented boxes, in pixels


@dataclass(frozen=True)
class Added:
    """Columns of annotations to add."""

    image_rows: Rows
    labels: NDArray[np.int64]
    boxes: Floats
    originals: Rows  # row of the annotation that this one duplicates; -1 for an invented one

    def __len__(self) -> int:
        return len(self.labels)


_NO_ROWS = np.empty(0, np.int64)
NO_ANNOTATIONS = Added(_NO_ROWS, _NO_ROWS, np.empty((0, 4)), _NO_ROWS)


def join_added(first: Added, second: Added) -> Added:
    """Join two sets of annotations, in this order."""
    return Added(
        np.concatenate([first.image_rows, second.image_rows]),
        np.concatenate([first.labels, second.labels]),
        np.concatenate([first.boxes, second.boxes]),
        np.concatenate([first.originals, second.originals]),
    )


def choose_missing(eligible: Rows, rate: float, seed: int, areas: Floats | None = None) -> Rows:
    """Return round(rate * n) of the eligible rows, ascending: the annotations to remove.

    With the areas [n] of their boxes, the chance of a row is inversely proportional to its area.
    """
    keys = uniforms(seed, Stream.MISSING, len(eligible))
    if areas is not None:
        keys = keys * areas  # a key lies below a threshold t with a chance of t / area
    return eligible[choose_smallest(keys, count_of_rate(rate, len(eligible)))]


def duplicate_annotations(
    dataset: Dataset,
    eligible: Rows,
    is_kept: NDArray[np.bool_],
    *,
    rate: float,
    seed: int,
    clip: bool = True,
) -> Added:
    """Annotate round(rate * n) of the kept eligible rows a second time.

    The label is the same; each edge lies off by up to 5 % of the side. If fewer annotations are
    kept than that, all of them are duplicated.
    """
    kept = np.flatnonzero(is_kept[eligible])  # places in `eligible`; a place keeps its draws
    keys = uniforms(seed, Stream.DUPLICATE_CHOICE, len(eligible))
    places = kept[choose_smallest(keys[kept], count_of_rate(rate, len(eligible)))]
    rows = eligible[places]

    def draws(pending: Rows, attempt: int) -> Floats:
        return uniform_rows(seed, Stream.DUPLICATE_BOXES, places[pending], 4, attempt)

    def shift_edges(numbers: Floats) -> Floats:
        return uniform_moves(numbers, MAX_DUPLICATE_SHIFT_SIDES)

    first = dataset.boxes[rows]
    second = disturb_boxes(
        first, image_sizes(dataset, dataset.image_rows[rows], clip), draws, shift_edges
    )
    return Added(dataset.image_rows[rows], dataset.labels[rows], _round_moved(first, second), rows)


def _round_moved(first: Floats, second: Floats) -> Floats:
    """Round the second boxes, except those equal to the first: rounding might empty them."""
    is_moved = (first != second).any(axis=1, keepdims=True)
    return np.where(is_moved, np.round(second, BOX_DECIMALS), second)
