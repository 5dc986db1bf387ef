"""Noise on which annotations exist: missing, spurious and duplicate ones."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import Dataset
from boxmend.data.noise.boxes import MIN_SIDE_PIXELS, disturb_boxes, image_sizes, uniform_moves
from boxmend.data.noise.streams import (
    Stream,
    choose_smallest,
    count_of_rate,
    pick_choices,
    uniform_rows,
    uniforms,
)
from boxmend.data.types import Floats, Rows
from boxmend.errors import DataError

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


def choose_missing(eligible: Rows, rate: float, seed: int) -> Rows:
    """Return round(rate * n) of the eligible rows, ascending: the annotations to remove."""
    keys = uniforms(seed, Stream.MISSING, len(eligible))
    return eligible[choose_smallest(keys, count_of_rate(rate, len(eligible)))]


def invent_annotations(dataset: Dataset, eligible: Rows, rate: float, seed: int) -> Added:
    """Invent round(rate * n) annotations on random images, with random labels.

    Their sides, relative to the image, are those of random eligible annotations. Only images
    with a known size get any.
    """
    count = count_of_rate(rate, len(eligible))
    if not count:
        return NO_ANNOTATIONS
    known = (dataset.images.widths > 0) & (dataset.images.heights > 0)
    images = np.flatnonzero(known)
    donors = relative_sides(dataset, eligible[known[dataset.image_rows[eligible]]])
    if not len(images) or not len(donors):
        raise DataError(
            "spurious annotations need images of known size that have annotations, but there are "
            "none; record the sizes in the annotation files or leave --spurious out"
        )
    draws = uniform_rows(seed, Stream.SPURIOUS, np.arange(count), 5)
    image_rows = images[pick_choices(draws[:, 0], len(images))]
    labels = pick_choices(draws[:, 1], len(dataset.label_names))
    shares = donors[pick_choices(draws[:, 2], len(donors))]
    widths, heights = dataset.images.widths[image_rows], dataset.images.heights[image_rows]
    boxes = place_boxes(
        shares, np.stack([widths, heights], axis=1).astype(np.float64), draws[:, 3:]
    )
    return Added(image_rows, labels, boxes, np.full(count, -1, np.int64))


def relative_sides(dataset: Dataset, rows: Rows) -> Floats:
    """Return the sides [m, 2] of annotations in shares of their image, without flat boxes."""
    with np.errstate(over="ignore"):
        sides = dataset.boxes[rows, 2:] - dataset.boxes[rows, :2]
    shares: Floats = sides / image_sizes(dataset, rows)
    return shares[(shares > 0).all(axis=1)]


def place_boxes(shares: Floats, sizes: Floats, draws: Floats) -> Floats:
    """Place boxes with these relative sides in images, uniformly by draws from [0, 1).

    A side is at least one pixel and at most the side of the image. All arguments are [n, 2].
    """
    sides = np.clip(shares * sizes, MIN_SIDE_PIXELS, sizes)
    low = np.round(draws * (sizes - sides), BOX_DECIMALS)
    high = np.minimum(np.round(low + sides, BOX_DECIMALS), sizes)
    return np.concatenate([low, high], axis=1)


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

    def shift_edges(drawn: Floats) -> Floats:
        return uniform_moves(drawn, MAX_DUPLICATE_SHIFT_SIDES)

    first = dataset.boxes[rows]
    second = disturb_boxes(first, image_sizes(dataset, rows, clip), draws, shift_edges)
    return Added(dataset.image_rows[rows], dataset.labels[rows], _round_moved(first, second), rows)


def _round_moved(first: Floats, second: Floats) -> Floats:
    """Round the second boxes, except those equal to the first: rounding might empty them."""
    is_moved = (first != second).any(axis=1, keepdims=True)
    return np.where(is_moved, np.round(second, BOX_DECIMALS), second)
