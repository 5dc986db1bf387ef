"""Pairing the annotations of two datasets: by id, or within their image."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from boxmend.data.boxes import is_close, overlaps
from boxmend.data.diff.images import NOWHERE
from boxmend.data.types import Floats, Rows

Pairs = tuple[Rows, Rows]

LARGEST_ASSIGNMENT = 200  # annotations; the best assignment of n takes time as n cubed
SAME_LABEL_BONUS = 1e-6  # of IoU; decides between boxes that overlap alike


@dataclass(frozen=True)
class Side:
    """One of the two datasets, as far as pairing needs it; labels and places are common ones."""

    places: Rows  # [n] number of the image pair, or NOWHERE
    labels: Rows  # [n]
    boxes: Floats  # [n, 4]
    ids: Rows | None  # [n] None where ids mean nothing


def pair_annotations(a: Side, b: Side, tolerance: float) -> Pairs:
    """Rows of `a` and `b` that are the same annotation, each row at most once."""
    by_id = _pair_by_id(a, b, tolerance)
    if by_id is not None:
        return by_id
    return _pair_within_images(a, b, (np.arange(len(a.boxes)), np.arange(len(b.boxes))), tolerance)


def _pair_by_id(a: Side, b: Side, tolerance: float) -> Pairs | None:
    """Pair equal ids in the same image; None where ids are no help.

    They are none if most of those in common lie in different images: somebody numbered anew.
    Rows whose id is there twice are paired within their images instead.
    """
    if a.ids is None or b.ids is None:
        return None
    repeated = np.union1d(_repeated(a.ids), _repeated(b.ids))
    once_a, once_b = (np.flatnonzero(~np.isin(ids, repeated)) for ids in (a.ids, b.ids))
    _, at_a, at_b = np.intersect1d(
        a.ids[once_a], b.ids[once_b], assume_unique=True, return_indices=True
    )
    rows_a, rows_b = once_a[at_a], once_b[at_b]
    together = (a.places[rows_a] == b.places[rows_b]) & (a.places[rows_a] != NOWHERE)
    if 2 * together.sum() <= len(together):
        return None
    pairs = rows_a[together], rows_b[together]
    if len(repeated) == 0:
        return pairs
    rest = np.flatnonzero(np.isin(a.ids, repeated)), np.flatnonzero(np.isin(b.ids, repeated))
    return _joined(pairs, _pair_within_images(a, b, rest, tolerance))


def _repeated(ids: Rows) -> Rows:
    ordered = np.sort(ids)
    is_again = ordered[1:] == ordered[:-1]
    return np.asarray(ordered[1:][is_again])


def _joined(*parts: Pairs) -> Pairs:
    return np.concatenate([one for one, _ in parts]), np.concatenate([two for _, two in parts])


def _pair_within_images(a: Side, b: Side, rows: Pairs, tolerance: float) -> Pairs:
    """Pair rows image by image, most of them at one go: equal ones at the same position."""
    rows_a, rows_b = _by_place(a, rows[0]), _by_place(b, rows[1])
    num_places = 1 + int(max(a.places.max(initial=0), b.places.max(initial=0)))
    counts_a = np.bincount(a.places[rows_a], minlength=num_places)
    is_even = counts_a == np.bincount(b.places[rows_b], minlength=num_places)
    even_a, even_b = rows_a[is_even[a.places[rows_a]]], rows_b[is_even[b.places[rows_b]]]
    is_same = a.labels[even_a] == b.labels[even_b]
    is_same &= is_close(a.boxes[even_a], b.boxes[even_b], tolerance)
    pairs = [(even_a[is_same], even_b[is_same])]
    rest_a, rest_b = _without(rows_a, pairs[0][0]), _without(rows_b, pairs[0][1])
    for place, of_a, of_b in _places_in_both(a.places[rest_a], b.places[rest_b]):
        ours, theirs = rest_a[of_a], rest_b[of_b]
        pairs.append(_pair_in_image(a, b, (ours, theirs), bool(is_even[place]), tolerance))
    return _joined(*pairs)


def _by_place(side: Side, rows: Rows) -> Rows:
    """The rows whose image both have, image by image."""
    rows = rows[side.places[rows] != NOWHERE]
    return rows[np.argsort(side.places[rows], kind="stable")]


def _without(rows: Rows, others: Rows) -> Rows:
    return rows[~np.isin(rows, others)] if len(others) else rows


def _places_in_both(a: Rows, b: Rows) -> Iterator[tuple[int, slice, slice]]:
    """Each place that both sorted columns have, with where it lies in either."""
    places = np.intersect1d(a, b)
    bounds = [
        np.searchsorted(column, places, side).tolist()
        for column in (a, b)
        for side in ("left", "right")
    ]
    for place, first_a, last_a, first_b, last_b in zip(places.tolist(), *bounds, strict=True):
        yield place, slice(first_a, last_a), slice(first_b, last_b)


def _pair_in_image(a: Side, b: Side, rows: Pairs, is_even: bool, tolerance: float) -> Pairs:
    """Pair the annotations of one image: equal ones, then by position, then by overlap."""
    found = [_equal_pairs(a, b, rows, tolerance)]
    rows = _without(rows[0], found[0][0]), _without(rows[1], found[0][1])
    if is_even:  # as many in either, so the same position most likely is the same object
        do_meet = overlaps(a.boxes[rows[0]], b.boxes[rows[1]]) > 0
        found.append((rows[0][do_meet], rows[1][do_meet]))
        rows = rows[0][~do_meet], rows[1][~do_meet]
    if len(rows[0]) and len(rows[1]):
        found.append(_overlapping_pairs(a, b, rows))
    return _joined(*found)


def _equal_pairs(a: Side, b: Side, rows: Pairs, tolerance: float) -> Pairs:
    """Pair rows of the same label and box; those that begin at the same x are the candidates."""
    order = rows[1][np.argsort(b.boxes[rows[1], 0], kind="stable")]
    lefts = a.boxes[rows[0], 0]
    first = np.searchsorted(b.boxes[order, 0], lefts - tolerance, "left").tolist()
    last = np.searchsorted(b.boxes[order, 0], lefts + tolerance, "right").tolist()
    is_free = np.ones(len(order), np.bool_)
    ours, theirs = [], []
    for row, begin, end in zip(rows[0].tolist(), first, last, strict=True):
        if begin == end:
            continue
        candidates = order[begin:end]
        is_match = is_free[begin:end] & (b.labels[candidates] == a.labels[row])
        is_match &= is_close(a.boxes[row], b.boxes[candidates], tolerance)
        if is_match.any():
            at = int(is_match.argmax())
            is_free[begin + at] = False
            ours.append(row)
            theirs.append(int(candidates[at]))
    return np.array(ours, np.int64), np.array(theirs, np.int64)


def _overlapping_pairs(a: Side, b: Side, rows: Pairs) -> Pairs:
    """Pair rows so that the boxes overlap most; those that do not overlap stay alone."""
    if max(len(rows[0]), len(rows[1])) > LARGEST_ASSIGNMENT:
        return _greedy_pairs(a, b, rows)
    from scipy.optimize import linear_sum_assignment  # takes longer to import than most diffs

    iou = overlaps(a.boxes[rows[0], None], b.boxes[rows[1]])  # [n, m]
    is_alike = a.labels[rows[0], None] == b.labels[rows[1]]
    at_a, at_b = linear_sum_assignment(iou + SAME_LABEL_BONUS * is_alike, maximize=True)
    do_meet = iou[at_a, at_b] > 0
    return rows[0][at_a[do_meet]], rows[1][at_b[do_meet]]


def _greedy_pairs(a: Side, b: Side, rows: Pairs) -> Pairs:
    """Let each row of `a` in turn take the free row of `b` that it overlaps most."""
    is_free = np.ones(len(rows[1]), np.bool_)
    ours, theirs = [], []
    for row in rows[0].tolist():
        iou = overlaps(a.boxes[row], b.boxes[rows[1]]) * is_free
        at = int((iou + SAME_LABEL_BONUS * (b.labels[rows[1]] == a.labels[row])).argmax())
        if iou[at] > 0:
            is_free[at] = False
            ours.append(row)
            theirs.append(int(rows[1][at]))
    return np.array(ours, np.int64), np.array(theirs, np.int64)
