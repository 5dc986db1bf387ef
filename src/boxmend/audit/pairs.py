"""Which detections lie on which annotations: all pairs within an image that overlap.

Detections take the place of proposals here: what is written about matching in
`boxmend.refinement` holds for them, too.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]

GAMMA = 0.1  # weight of the extents in the fitness of Eq. 15, as published
LEAST_OVERLAP = 0.1  # IoU; what overlaps less says nothing about an annotation
AT_ONCE = 2_000_000  # pairs looked at at a time, which bounds the memory


@dataclass(frozen=True, eq=False)
class Pairs:
    """Boxes of two lists that overlap within one image, one row per pair, ordered by the first."""

    first: Rows  # [p] rows of the first list
    second: Rows  # [p] rows of the second list
    iou: Floats  # [p]
    fitness: Floats  # [p] of the second to the first by their centres (Eq. 15)

    def __len__(self) -> int:
        return len(self.first)


def overlapping(
    image_rows: Rows, boxes: Floats, other_rows: Rows, others: Floats, least: float = LEAST_OVERLAP
) -> Pairs:
    """Find all pairs of boxes of the same image whose IoU is at least `least`.

    Rows of images below 0 belong to no image. The result does not depend on the order of the
    lists, except that its rows are numbered by them.
    """
    order = np.argsort(other_rows, kind="stable")
    sorted_rows = other_rows[order]
    starts = np.searchsorted(sorted_rows, image_rows, "left")
    counts = np.searchsorted(sorted_rows, image_rows, "right") - starts
    counts[image_rows < 0] = 0
    parts = []
    for rows in _portions(counts):
        number = counts[rows]
        first = np.repeat(rows, number)
        within = np.arange(len(first)) - np.repeat(np.cumsum(number) - number, number)
        second = order[np.repeat(starts[rows], number) + within]
        parts.append(_near(boxes, others, first, second, least))
    return Pairs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _portions(counts: Rows) -> list[Rows]:
    """Rows of the first list in portions of about AT_ONCE pairs; at least one, maybe empty."""
    total = int(counts.sum())
    bounds = np.searchsorted(np.cumsum(counts), np.arange(AT_ONCE, total, AT_ONCE))
    return np.split(np.arange(len(counts)), bounds)


def _near(
    boxes: Floats, others: Floats, first: Rows, second: Rows, least: float
) -> tuple[Rows, Rows, Floats, Floats]:
    iou = overlaps(boxes[first], others[second])
    is_near = iou >= least
    first, second, iou = first[is_near], second[is_near], iou[is_near]
    return first, second, iou, fitness(boxes[first], others[second])


def overlaps(first: Floats, second: Floats) -> Floats:
    """IoU of boxes [p, 4] row by row; 0 where both are empty."""
    low = np.maximum(first[:, :2], second[:, :2])
    high = np.minimum(first[:, 2:], second[:, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=1)
    both = areas(first) + areas(second) - shared
    iou: Floats = np.divide(shared, both, out=np.zeros(len(shared)), where=both > 0)
    return iou


def areas(boxes: Floats) -> Floats:
    """Areas of boxes [p, 4]; 0 for those turned inside out."""
    found: Floats = np.clip(boxes[:, 2:] - boxes[:, :2], 0, None).prod(axis=1)
    return found


def fitness(boxes: Floats, others: Floats) -> Floats:
    """Score detections against annotated boxes row by row: 1 - (D + gamma * C) (Eq. 15 to 17)."""
    extent = np.maximum((others[:, 2:] - others[:, :2]).sum(axis=1), 1e-9)
    offset = (boxes[:, :2] + boxes[:, 2:] - others[:, :2] - others[:, 2:]) / 2
    distance = np.hypot(offset[:, 0], offset[:, 1]) / extent
    mismatch = np.abs((boxes[:, 2:] - boxes[:, :2]).sum(axis=1) / extent - 1)
    found: Floats = 1 - (distance + GAMMA * mismatch)
    return found


def largest_by(keys: Rows, values: Floats, num_keys: int) -> tuple[Floats, Rows]:
    """[num_keys] The largest value of each key, 0 where there is none, and its place or -1.

    Of equal values the first place counts.
    """
    order = np.lexsort((-np.arange(len(keys)), values, keys))
    last = np.flatnonzero(np.diff(keys[order], append=-1) != 0)
    places = np.full(num_keys, -1, np.int64)
    places[keys[order[last]]] = order[last]
    largest = np.zeros(num_keys)
    largest[places >= 0] = values[places[places >= 0]]
    return largest, places
