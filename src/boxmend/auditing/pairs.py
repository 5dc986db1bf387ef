"""Which detections lie on which annotations: all pairs within an image that overlap.

Detections take the place of proposals here: what is written about matching in
`boxmend.methods.equations` holds for them, too.
"""

from dataclasses import dataclass

import numpy as np

from boxmend.data.boxes import compute_iou
from boxmend.data.types import Floats, Rows


@dataclass(frozen=True)
class MatchingConstants:
    """How detections are matched with annotations."""

    extent_weight: float = 0.1  # gamma of Eq. 15, as published
    min_iou: float = 0.1  # what overlaps less says nothing about an annotation
    pairs_per_chunk: int = 200_000  # so few that a processor has them at hand


MATCHING = MatchingConstants()


@dataclass(frozen=True, eq=False)
class Pairs:
    """Boxes of two lists that overlap within one image, one row per pair, ordered by the first."""

    first: Rows  # [p] rows of the first list
    second: Rows  # [p] rows of the second list
    iou: Floats  # [p]

    def __len__(self) -> int:
        return len(self.first)


def overlapping(
    image_rows: Rows,
    boxes: Floats,
    other_rows: Rows,
    others: Floats,
    least: float = MATCHING.min_iou,
) -> Pairs:
    """Find all pairs of boxes of the same image whose IoU is at least `least`, which is above 0.

    Rows of images below 0 belong to no image. The result does not depend on the order of the
    lists, except that its rows are numbered by them.
    """
    order = np.argsort(other_rows, kind="stable")
    sorted_rows = other_rows[order]
    starts = np.searchsorted(sorted_rows, image_rows, "left")
    counts = np.searchsorted(sorted_rows, image_rows, "right") - starts
    counts[image_rows < 0] = 0
    sides, other_sides = _columns(boxes), _columns(others[order])
    parts = []
    for rows in _portions(counts):
        number = counts[rows]
        first = np.repeat(rows, number)
        skipped = starts[rows] - (np.cumsum(number) - number)
        place = np.arange(len(first)) + np.repeat(skipped, number)
        for near, far in ((0, 2), (1, 3)):  # most have no width in common, and need no second look
            low = np.maximum(sides[near][first], other_sides[near][place])
            high = np.minimum(sides[far][first], other_sides[far][place])
            meet = np.flatnonzero(high > low)
            first, place = first[meet], place[meet]
        parts.append(_near(boxes, others, first, order[place], least))
    return Pairs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _columns(boxes: Floats) -> Floats:
    """The four sides of boxes [n, 4], one after the other, [4, n]."""
    return np.ascontiguousarray(boxes.T)


def _portions(counts: Rows) -> list[Rows]:
    """Split rows of the first list into chunks of pairs; there is at least one, maybe empty."""
    total, chunk = int(counts.sum()), MATCHING.pairs_per_chunk
    bounds = np.searchsorted(np.cumsum(counts), np.arange(chunk, total, chunk))
    return np.split(np.arange(len(counts)), bounds)


def _near(
    boxes: Floats, others: Floats, first: Rows, second: Rows, least: float
) -> tuple[Rows, Rows, Floats]:
    iou = compute_iou(boxes[first], others[second])
    is_near = iou >= least
    return first[is_near], second[is_near], iou[is_near]


def fitness(boxes: Floats, others: Floats) -> Floats:
    """Score detections against annotated boxes row by row: 1 - (D + gamma * C) (Eq. 15 to 17)."""
    extent = np.maximum((others[:, 2:] - others[:, :2]).sum(axis=1), 1e-9)
    offset = (boxes[:, :2] + boxes[:, 2:] - others[:, :2] - others[:, 2:]) / 2
    distance = np.hypot(offset[:, 0], offset[:, 1]) / extent
    mismatch = np.abs((boxes[:, 2:] - boxes[:, :2]).sum(axis=1) / extent - 1)
    found: Floats = 1 - (distance + MATCHING.extent_weight * mismatch)
    return found


def largest_by(keys: Rows, values: Floats, num_keys: int) -> tuple[Floats, Rows]:
    """[num_keys] The largest value of each key, 0 where there is none, and its place or -1.

    Of equal values the first place counts.
    """
    largest = np.full(num_keys, -np.inf)
    np.maximum.at(largest, keys, values)
    tops = np.flatnonzero(values == largest[keys])
    places = np.full(num_keys, len(keys), np.int64)
    np.minimum.at(places, keys[tops], tops)
    is_none = places == len(keys)
    places[is_none], largest[is_none] = -1, 0.0
    return largest, places
