"""Find all pairs of overlapping boxes within images, such as annotations and detections.

The fitness of a pair is that of `boxmend.methods.equations`, with detections as proposals.
"""

from dataclasses import dataclass

import numpy as np

from boxmend.data.boxes import compute_iou
from boxmend.data.types import Floats, Rows


@dataclass(frozen=True)
class MatchingConstants:
    """Constants of the matching of detections with annotations."""

    extent_weight: float = 0.1  # gamma of Eq. 15, as published
    min_iou: float = 0.1  # with less, a detection is no evidence about an annotation
    pairs_per_chunk: int = 200_000  # so few that they fit into the processor's cache


MATCHING = MatchingConstants()


@dataclass(frozen=True, eq=False)
class Pairs:
    """Boxes of two lists that overlap within one image, one row per pair, ordered by the first."""

    first: Rows  # [p] rows of the first list
    second: Rows  # [p] rows of the second list
    iou: Floats  # [p]

    def __len__(self) -> int:
        return len(self.first)


def find_overlaps(
    image_rows: Rows,
    boxes: Floats,
    other_rows: Rows,
    others: Floats,
    min_iou: float = MATCHING.min_iou,
) -> Pairs:
    """Find all pairs of boxes of the same image whose IoU is at least `min_iou`, which is above 0.

    Boxes with an image row below 0 have no image. The pairs do not depend on the order of the
    lists.
    """
    order = np.argsort(other_rows, kind="stable")
    sorted_rows = other_rows[order]
    starts = np.searchsorted(sorted_rows, image_rows, "left")
    counts = np.searchsorted(sorted_rows, image_rows, "right") - starts
    counts[image_rows < 0] = 0
    sides, other_sides = _to_columns(boxes), _to_columns(others[order])
    parts = []
    for rows in _split_rows(counts):
        number = counts[rows]
        first = np.repeat(rows, number)
        skipped = starts[rows] - (np.cumsum(number) - number)
        place = np.arange(len(first)) + np.repeat(skipped, number)
        for near, far in (
            (0, 2),
            (1, 3),
        ):  # most pairs do not overlap in x, which saves the second test
            low = np.maximum(sides[near][first], other_sides[near][place])
            high = np.minimum(sides[far][first], other_sides[far][place])
            meet = np.flatnonzero(high > low)
            first, place = first[meet], place[meet]
        parts.append(_keep_overlapping(boxes, others, first, order[place], min_iou))
    return Pairs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _to_columns(boxes: Floats) -> Floats:
    """Return boxes [n, 4] as four contiguous columns [4, n]."""
    return np.ascontiguousarray(boxes.T)


def _split_rows(counts: Rows) -> list[Rows]:
    """Split rows of the first list into chunks of pairs; return at least one, maybe empty."""
    total, chunk = int(counts.sum()), MATCHING.pairs_per_chunk
    bounds = np.searchsorted(np.cumsum(counts), np.arange(chunk, total, chunk))
    return np.split(np.arange(len(counts)), bounds)


def _keep_overlapping(
    boxes: Floats, others: Floats, first: Rows, second: Rows, min_iou: float
) -> tuple[Rows, Rows, Floats]:
    iou = compute_iou(boxes[first], others[second])
    is_kept = iou >= min_iou
    return first[is_kept], second[is_kept], iou[is_kept]


def compute_fitness(boxes: Floats, others: Floats) -> Floats:
    """Return the fitness of detections for annotated boxes, row by row: 1 - (D + gamma * C).

    See Eq. 15 to 17.
    """
    extent = np.maximum((others[:, 2:] - others[:, :2]).sum(axis=1), 1e-9)
    offset = (boxes[:, :2] + boxes[:, 2:] - others[:, :2] - others[:, 2:]) / 2
    distance = np.hypot(offset[:, 0], offset[:, 1]) / extent
    mismatch = np.abs((boxes[:, 2:] - boxes[:, :2]).sum(axis=1) / extent - 1)
    fitness: Floats = 1 - (distance + MATCHING.extent_weight * mismatch)
    return fitness


def find_largest(keys: Rows, values: Floats, num_keys: int) -> tuple[Floats, Rows]:
    """Return the largest value [num_keys] of each key and its first place, or 0 and -1 if none."""
    largest = np.full(num_keys, -np.inf)
    np.maximum.at(largest, keys, values)
    tops = np.flatnonzero(values == largest[keys])
    places = np.full(num_keys, len(keys), np.int64)
    np.minimum.at(places, keys[tops], tops)
    is_none = places == len(keys)
    places[is_none], largest[is_none] = -1, 0.0
    return largest, places
