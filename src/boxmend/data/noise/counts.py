"""Noise on the number of annotations: missing, spurious and duplicate ones."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import Dataset
from boxmend.data.noise.boxes import MIN_SIDE, disturbed, image_sizes, uniform_moves
from boxmend.data.noise.streams import Stream, chosen, picks, share, uniform_rows, uniforms
from boxmend.data.types import Floats, Rows
from boxmend.errors import DataError

SECOND_HAND = 0.05  # how far, in shares of the side, an edge lies off when annotated again
DECIMALS = 2  # of the boxes that are invented here


@dataclass(frozen=True)
class Added:
    """Columns of annotations to add."""

    image_rows: Rows
    labels: NDArray[np.int64]
    boxes: Floats
    originals: Rows  # row of the annotation that this one repeats; -1 where it repeats none

    def __len__(self) -> int:
        return len(self.labels)


_NO_ROWS = np.empty(0, np.int64)
NOTHING = Added(_NO_ROWS, _NO_ROWS, np.empty((0, 4)), _NO_ROWS)


def joined(first: Added, second: Added) -> Added:
    """Put two sets of annotations to add into one, in this order."""
    return Added(
        np.concatenate([first.image_rows, second.image_rows]),
        np.concatenate([first.labels, second.labels]),
        np.concatenate([first.boxes, second.boxes]),
        np.concatenate([first.originals, second.originals]),
    )


def missing(eligible: Rows, rate: float, seed: int) -> Rows:
    """Choose round(rate * n) of the eligible rows to be removed, ascending."""
    keys = uniforms(seed, Stream.MISSING, len(eligible))
    return eligible[chosen(keys, share(rate, len(eligible)))]


def spurious(dataset: Dataset, eligible: Rows, rate: float, seed: int) -> Added:
    """Invent round(rate * n) annotations on random images, with random labels.

    Their sides, relative to the image, are those of random eligible annotations. Only images of
    known size take part.
    """
    count = share(rate, len(eligible))
    if not count:
        return NOTHING
    known = (dataset.images.widths > 0) & (dataset.images.heights > 0)
    images = np.flatnonzero(known)
    donors = relative_sides(dataset, eligible[known[dataset.image_rows[eligible]]])
    if not len(images) or not len(donors):
        raise DataError(
            "spurious annotations need images of known size that have annotations, but there are "
            "none; record the sizes in the annotation files or leave --spurious out"
        )
    draws = uniform_rows(seed, Stream.SPURIOUS, np.arange(count), 5)
    image_rows = images[picks(draws[:, 0], len(images))]
    labels = picks(draws[:, 1], len(dataset.label_names))
    shares = donors[picks(draws[:, 2], len(donors))]
    widths, heights = dataset.images.widths[image_rows], dataset.images.heights[image_rows]
    boxes = placed(shares, np.stack([widths, heights], axis=1).astype(np.float64), draws[:, 3:])
    return Added(image_rows, labels, boxes, np.full(count, -1, np.int64))


def relative_sides(dataset: Dataset, rows: Rows) -> Floats:
    """Measure the sides of annotations [m, 2] in shares of their image; flat boxes are left out."""
    with np.errstate(over="ignore"):
        sides = dataset.boxes[rows, 2:] - dataset.boxes[rows, :2]
    shares: Floats = sides / image_sizes(dataset, rows)
    return shares[(shares > 0).all(axis=1)]


def placed(shares: Floats, sizes: Floats, draws: Floats) -> Floats:
    """Place boxes of these relative sides within images, uniformly by draws from [0, 1).

    Sides are at least a pixel and at most the image. All arguments are [n, 2], x and y.
    """
    sides = np.clip(shares * sizes, MIN_SIDE, sizes)
    low = np.round(draws * (sizes - sides), DECIMALS)
    high = np.minimum(np.round(low + sides, DECIMALS), sizes)
    return np.concatenate([low, high], axis=1)


def duplicates(
    dataset: Dataset,
    eligible: Rows,
    is_kept: NDArray[np.bool_],
    *,
    rate: float,
    seed: int,
    clip: bool = True,
) -> Added:
    """Annotate round(rate * n) of the eligible rows that are kept a second time.

    The label is the same; each edge lies off by up to 5 % of the side. Where fewer are kept than
    should be repeated, all of them are.
    """
    kept = np.flatnonzero(is_kept[eligible])  # numbers within the eligible: what draws go by
    keys = uniforms(seed, Stream.DUPLICATE_CHOICE, len(eligible))
    numbers = kept[chosen(keys[kept], share(rate, len(eligible)))]
    rows = eligible[numbers]

    def draws(pending: Rows, attempt: int) -> Floats:
        return uniform_rows(seed, Stream.DUPLICATE_BOXES, numbers[pending], 4, attempt)

    def second_hand(drawn: Floats) -> Floats:
        return uniform_moves(drawn, SECOND_HAND)

    first = dataset.boxes[rows]
    second = disturbed(first, image_sizes(dataset, rows, clip), draws, second_hand)
    return Added(dataset.image_rows[rows], dataset.labels[rows], _rounded(first, second), rows)


def _rounded(first: Floats, second: Floats) -> Floats:
    """Round the second boxes, but those that equal the first: rounded, one might be empty."""
    is_moved = (first != second).any(axis=1, keepdims=True)
    return np.where(is_moved, np.round(second, DECIMALS), second)
