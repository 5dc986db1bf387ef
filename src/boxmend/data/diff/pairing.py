"""Pair the annotations of two datasets: by id, or within their image."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from boxmend.data.boxes import compute_iou, is_close
from boxmend.data.diff.images import NO_PAIR
from boxmend.data.types import Floats, Rows

Pairs = tuple[Rows, Rows]

MAX_OPTIMAL_ANNOTATIONS = 200  # the time of an optimal assignment grows with the cube
SAME_LABEL_BONUS_IOU = 1e-6  # decides between boxes with the same overlap


@dataclass(frozen=True)
class Side:
    """The columns of one dataset that pairing needs; both datasets share labels and numbers."""

    image_pairs: Rows  # [n] number of the image pair, or NO_PAIR
    labels: Rows  # [n]
    boxes: Floats  # [n, 4]
    ids: Rows | None  # [n] None if ids have no meaning


def pair_annotations(a: Side, b: Side, tolerance: float) -> Pairs:
    """Return the rows of `a` and `b` that are the same annotation, each row at most once."""
    by_id = _pair_by_id(a, b, tolerance)
    if by_id is not None:
        return by_id
    return _pair_within_images(a, b, (np.arange(len(a.boxes)), np.arange(len(b.boxes))), tolerance)


def _pair_by_id(a: Side, b: Side, tolerance: float) -> Pairs | None:
    """Pair equal ids in the same image; return None if the ids are unreliable.

    Ids are unreliable if most of the common ones lie in different images: then somebody assigned
    new ids. Rows with a repeated id are paired within their images instead.
    """
    if a.ids is None or b.ids is None:
        return None
    repeated = np.union1d(_find_repeated(a.ids), _find_repeated(b.ids))
    once_a, once_b = (np.flatnonzero(~np.isin(ids, repeated)) for ids in (a.ids, b.ids))
    _, at_a, at_b = np.intersect1d(
        a.ids[once_a], b.ids[once_b], assume_unique=True, return_indices=True
    )
    rows_a, rows_b = once_a[at_a], once_b[at_b]
    same_image = a.image_pairs[rows_a] == b.image_pairs[rows_b]
    same_image &= a.image_pairs[rows_a] != NO_PAIR
    if 2 * same_image.sum() <= len(same_image):
        return None
    pairs = rows_a[same_image], rows_b[same_image]
    if len(repeated) == 0:
        return pairs
    rest = np.flatnonzero(np.isin(a.ids, repeated)), np.flatnonzero(np.isin(b.ids, repeated))
    return _concatenate(pairs, _pair_within_images(a, b, rest, tolerance))


def _find_repeated(ids: Rows) -> Rows:
    ordered = np.sort(ids)
    is_repeated = ordered[1:] == ordered[:-1]
    return np.asarray(ordered[1:][is_repeated])


def _concatenate(*parts: Pairs) -> Pairs:
    return np.concatenate([a for a, _ in parts]), np.concatenate([b for _, b in parts])


def _pair_within_images(a: Side, b: Side, rows: Pairs, tolerance: float) -> Pairs:
    """Pair rows image by image; equal ones at the same position are paired all at once."""
    rows_a, rows_b = _sort_by_image(a, rows[0]), _sort_by_image(b, rows[1])
    images_a, images_b = a.image_pairs[rows_a], b.image_pairs[rows_b]
    num_images = 1 + int(max(a.image_pairs.max(initial=0), b.image_pairs.max(initial=0)))
    counts_a = np.bincount(images_a, minlength=num_images)
    is_even = counts_a == np.bincount(images_b, minlength=num_images)
    even_a, even_b = rows_a[is_even[images_a]], rows_b[is_even[images_b]]
    is_same = a.labels[even_a] == b.labels[even_b]
    is_same &= is_close(a.boxes[even_a], b.boxes[even_b], tolerance)
    pairs = [(even_a[is_same], even_b[is_same])]
    rest_a, rest_b = _without(rows_a, pairs[0][0]), _without(rows_b, pairs[0][1])
    for image, slice_a, slice_b in _split_by_image(a.image_pairs[rest_a], b.image_pairs[rest_b]):
        image_rows = rest_a[slice_a], rest_b[slice_b]
        pairs.append(_pair_in_image(a, b, image_rows, bool(is_even[image]), tolerance))
    return _concatenate(*pairs)


def _sort_by_image(side: Side, rows: Rows) -> Rows:
    """Return the rows whose image both datasets have, image by image."""
    rows = rows[side.image_pairs[rows] != NO_PAIR]
    return rows[np.argsort(side.image_pairs[rows], kind="stable")]


def _without(rows: Rows, others: Rows) -> Rows:
    return rows[~np.isin(rows, others)] if len(others) else rows


def _split_by_image(a: Rows, b: Rows) -> Iterator[tuple[int, slice, slice]]:
    """Yield each value that both sorted columns have, with its slice of either column."""
    images = np.intersect1d(a, b)
    bounds = [
        np.searchsorted(column, images, side).tolist()
        for column in (a, b)
        for side in ("left", "right")
    ]
    for image, first_a, last_a, first_b, last_b in zip(images.tolist(), *bounds, strict=True):
        yield image, slice(first_a, last_a), slice(first_b, last_b)


def _pair_in_image(a: Side, b: Side, rows: Pairs, is_even: bool, tolerance: float) -> Pairs:
    """Pair the annotations of one image: equal ones, then by position, then by overlap."""
    pairs = [_pair_equal(a, b, rows, tolerance)]
    rows = _without(rows[0], pairs[0][0]), _without(rows[1], pairs[0][1])
    if is_even:  # with equal numbers, the same position is most likely the same object
        is_overlapping = compute_iou(a.boxes[rows[0]], b.boxes[rows[1]]) > 0
        pairs.append((rows[0][is_overlapping], rows[1][is_overlapping]))
        rows = rows[0][~is_overlapping], rows[1][~is_overlapping]
    if len(rows[0]) and len(rows[1]):
        pairs.append(_pair_by_overlap(a, b, rows))
    return _concatenate(*pairs)


def _pair_equal(a: Side, b: Side, rows: Pairs, tolerance: float) -> Pairs:
    """Pair rows with the same label and box; candidates have the same left side."""
    order = rows[1][np.argsort(b.boxes[rows[1], 0], kind="stable")]
    lefts = a.boxes[rows[0], 0]
    first = np.searchsorted(b.boxes[order, 0], lefts - tolerance, "left").tolist()
    last = np.searchsorted(b.boxes[order, 0], lefts + tolerance, "right").tolist()
    is_free = np.ones(len(order), np.bool_)
    matched_a, matched_b = [], []
    for row, begin, end in zip(rows[0].tolist(), first, last, strict=True):
        if begin == end:
            continue
        candidates = order[begin:end]
        is_match = is_free[begin:end] & (b.labels[candidates] == a.labels[row])
        is_match &= is_close(a.boxes[row], b.boxes[candidates], tolerance)
        if is_match.any():
            k = int(is_match.argmax())
            is_free[begin + k] = False
            matched_a.append(row)
            matched_b.append(int(candidates[k]))
    return np.array(matched_a, np.int64), np.array(matched_b, np.int64)


def _pair_by_overlap(a: Side, b: Side, rows: Pairs) -> Pairs:
    """Pair rows so that the sum of overlaps is largest; boxes without overlap stay unpaired."""
    if max(len(rows[0]), len(rows[1])) > MAX_OPTIMAL_ANNOTATIONS:
        return _pair_greedily(a, b, rows)
    from scipy.optimize import linear_sum_assignment  # takes longer to import than most diffs

    iou = compute_iou(a.boxes[rows[0], None], b.boxes[rows[1]])  # [n, m]
    same_label = a.labels[rows[0], None] == b.labels[rows[1]]
    at_a, at_b = linear_sum_assignment(iou + SAME_LABEL_BONUS_IOU * same_label, maximize=True)
    is_overlapping = iou[at_a, at_b] > 0
    return rows[0][at_a[is_overlapping]], rows[1][at_b[is_overlapping]]


def _pair_greedily(a: Side, b: Side, rows: Pairs) -> Pairs:
    """Pair each row of `a` in turn with the free row of `b` that it overlaps most."""
    is_free = np.ones(len(rows[1]), np.bool_)
    matched_a, matched_b = [], []
    for row in rows[0].tolist():
        iou = compute_iou(a.boxes[row], b.boxes[rows[1]]) * is_free
        best = int((iou + SAME_LABEL_BONUS_IOU * (b.labels[rows[1]] == a.labels[row])).argmax())
        if iou[best] > 0:
            is_free[best] = False
            matched_a.append(row)
            matched_b.append(int(rows[1][best]))
    return np.array(matched_a, np.int64), np.array(matched_b, np.int64)
