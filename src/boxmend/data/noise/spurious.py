"""Invented annotations: at random places, on parts of objects, or on clutter.

The annotations take turns over the chosen places, so a lower rate invents a part of what a higher
rate invents.
"""

from collections.abc import Sequence

import numpy as np

from boxmend.data.boxes import compute_iou, find_best_iou, iterate_image_pairs
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.detections import Detections
from boxmend.data.noise.boxes import (
    MIN_SIDE_PIXELS,
    clip_to_image,
    disturb_boxes,
    image_sizes,
    is_sound,
    uniform_moves,
)
from boxmend.data.noise.counts import BOX_DECIMALS, NO_ANNOTATIONS, Added, join_added
from boxmend.data.noise.streams import Stream, choose_smallest, pick_choices, uniform_rows, uniforms
from boxmend.data.types import Floats, Rows
from boxmend.errors import DataError

CLUTTER_SCORES = (0.1, 0.6)  # the detector likes the place, but hardly an unannotated object
MAX_CLUTTER_IOU = 0.3  # of clutter with any annotation of its image
MIN_TWIN_IOU = 0.5  # of two detections of the same place; the one with the lower score is left out
MAX_CLUTTER_SHIFT_SIDES = 0.1  # how far edges are moved off the detection, in shares of the side


def invent_annotations(
    dataset: Dataset,
    eligible: Rows,
    count: int,
    places: Sequence[str],
    detections: Detections | None,
    seed: int,
) -> Added:
    """Invent `count` annotations, which take turns over `places`.

    A place is "random", "corners" (of any size), "part" (half an object) or "clutter", which needs
    detections.
    """
    invented = NO_ANNOTATIONS
    for turn, place in enumerate(places):
        numbers = np.arange(turn, count, len(places))
        if not len(numbers):
            continue
        if place == "random":
            added = invent_anywhere(dataset, eligible, numbers, seed)
        elif place == "corners":
            added = invent_from_corners(dataset, numbers, seed)
        elif place == "part":
            added = invent_parts(dataset, eligible, numbers, seed)
        else:
            assert detections is not None, "clutter without detections"
            added = invent_on_clutter(dataset, detections, len(numbers), seed)
        invented = join_added(invented, added)
    return invented


def invent_anywhere(dataset: Dataset, eligible: Rows, numbers: Rows, seed: int) -> Added:
    """Invent annotations at random places of random images, with random labels.

    Their sides, relative to the image, are those of random eligible annotations. Only images
    with a known size get any. The number of an annotation determines its draws.
    """
    known = (dataset.images.widths > 0) & (dataset.images.heights > 0)
    images = np.flatnonzero(known)
    donors = relative_sides(dataset, eligible[known[dataset.image_rows[eligible]]])
    if not len(images) or not len(donors):
        raise DataError(
            "spurious annotations need images of known size that have annotations, but there are "
            "none; record the sizes in the annotation files or leave --spurious out"
        )
    draws = uniform_rows(seed, Stream.SPURIOUS, numbers, 5)
    image_rows = images[pick_choices(draws[:, 0], len(images))]
    labels = pick_choices(draws[:, 1], len(dataset.label_names))
    shares = donors[pick_choices(draws[:, 2], len(donors))]
    widths, heights = dataset.images.widths[image_rows], dataset.images.heights[image_rows]
    sizes = np.stack([widths, heights], axis=1).astype(np.float64)
    return _as_added(image_rows, labels, place_boxes(shares, sizes, draws[:, 3:]))


def invent_from_corners(dataset: Dataset, numbers: Rows, seed: int) -> Added:
    """Invent annotations between two random corners, with random labels (UNA).

    All images of known size take turns in a random order, so each gets nearly the same number.
    """
    known = (dataset.images.widths > 0) & (dataset.images.heights > 0)
    measured = np.flatnonzero(known)
    if not len(measured):
        raise DataError(
            "spurious annotations need images of known size, but there are none; record the sizes "
            "in the annotation files or leave --spurious out"
        )
    order = np.argsort(uniforms(seed, Stream.SPURIOUS_IMAGES, len(known))[measured], kind="stable")
    image_rows = measured[order[numbers % len(measured)]]
    draws = uniform_rows(seed, Stream.SPURIOUS_CORNERS, numbers, 5)
    sizes = dataset.images.sizes[image_rows].astype(np.float64)
    first, second = draws[:, 1:3] * sizes, draws[:, 3:] * sizes
    low = np.round(np.clip(np.minimum(first, second), 0, sizes - MIN_SIDE_PIXELS), BOX_DECIMALS)
    high = np.round(np.maximum(first, second), BOX_DECIMALS)
    high = np.minimum(np.maximum(high, low + MIN_SIDE_PIXELS), sizes)
    labels = pick_choices(draws[:, 0], len(dataset.label_names))
    return _as_added(image_rows, labels, np.concatenate([low, high], axis=1))


def invent_parts(dataset: Dataset, eligible: Rows, numbers: Rows, seed: int) -> Added:
    """Invent annotations that cover half of an object, with the label of that object.

    Each is on another eligible object: its left, right, upper or lower half.
    """
    sides = dataset.boxes[eligible, 2:] - dataset.boxes[eligible, :2]
    whole = eligible[(sides >= 2 * MIN_SIDE_PIXELS).all(axis=1)]
    if len(whole) < len(numbers):
        raise DataError(
            f"{len(numbers):,} spurious annotations on parts of objects need as many objects of at "
            f"least 2 x 2 pixels, but there are {len(whole):,}; lower --spurious"
        )
    keys = uniforms(seed, Stream.SPURIOUS_PART, len(whole))
    rows = whole[np.argsort(keys, kind="stable")[: len(numbers)]]
    halves = pick_choices(uniform_rows(seed, Stream.SPURIOUS_HALF, numbers, 1)[:, 0], 4)
    return _as_added(
        dataset.image_rows[rows], dataset.labels[rows], halve_boxes(dataset.boxes[rows], halves)
    )


def invent_on_clutter(dataset: Dataset, detections: Detections, count: int, seed: int) -> Added:
    """Invent annotations where the detector sees something and no annotation is, near its boxes."""
    rows = clutter_rows(dataset, detections)
    if len(rows) < count:
        raise DataError(
            f"{count:,} spurious annotations on clutter need as many detections with a score from "
            f"{CLUTTER_SCORES[0]} to {CLUTTER_SCORES[1]} that meet no annotation, but there are "
            f"{len(rows):,}; lower --spurious or use another place"
        )
    keys = uniforms(seed, Stream.SPURIOUS_CLUTTER, len(rows))
    numbers = choose_smallest(keys, count)
    rows = rows[numbers]
    images = detections.image_rows[rows]
    sizes = image_sizes(dataset, images)
    boxes = disturb_boxes(
        clip_to_image(detections.boxes[rows].astype(np.float64), sizes),
        sizes,
        lambda pending, attempt: uniform_rows(
            seed, Stream.SPURIOUS_CLUTTER_BOXES, numbers[pending], 4, attempt
        ),
        lambda draws: uniform_moves(draws, MAX_CLUTTER_SHIFT_SIDES),
    )
    return _as_added(
        images, detections.labels[rows].astype(np.int64), np.round(boxes, BOX_DECIMALS)
    )


def clutter_rows(dataset: Dataset, detections: Detections) -> Rows:
    """Return the rows of detections on background: of medium score, and away from annotations.

    Of detections of the same place, whatever their class, only the one with the highest score
    counts.
    """
    low, high = CLUTTER_SCORES
    is_medium = (detections.scores >= low) & (detections.scores <= high)
    rows = np.flatnonzero(is_medium & is_sound(detections.boxes.astype(np.float64)))
    boxes, images = detections.boxes[rows].astype(np.float64), detections.image_rows[rows]
    known = np.flatnonzero(dataset.image_rows != UNKNOWN)
    iou = find_best_iou(images, boxes, dataset.image_rows[known], dataset.boxes[known])
    order = np.argsort(-detections.scores[rows], kind="stable")
    order = order[iou[order] <= MAX_CLUTTER_IOU]
    is_twin = np.zeros(len(order), np.bool_)
    for first, second in iterate_image_pairs(images[order], images[order]):
        iou_of_pair = compute_iou(boxes[order[first]], boxes[order[second]])
        is_twin[second[(iou_of_pair >= MIN_TWIN_IOU) & (first < second)]] = True
    return np.sort(rows[order[~is_twin]])


def halve_boxes(boxes: Floats, halves: Rows) -> Floats:
    """Return one half of each box: 0 is the left, 1 the right, 2 the upper, 3 the lower one."""
    middle = np.round((boxes[:, :2] + boxes[:, 2:]) / 2, BOX_DECIMALS)
    result = boxes.copy()
    for half, (edge, axis) in enumerate(((2, 0), (0, 0), (3, 1), (1, 1))):
        result[halves == half, edge] = middle[halves == half, axis]
    return result


def relative_sides(dataset: Dataset, rows: Rows) -> Floats:
    """Return the sides [m, 2] of annotations in shares of their image, without flat boxes."""
    with np.errstate(over="ignore"):
        sides = dataset.boxes[rows, 2:] - dataset.boxes[rows, :2]
    shares: Floats = sides / image_sizes(dataset, dataset.image_rows[rows])
    return shares[(shares > 0).all(axis=1)]


def place_boxes(shares: Floats, sizes: Floats, draws: Floats) -> Floats:
    """Place boxes with these relative sides in images, uniformly by draws from [0, 1).

    A side is at least one pixel and at most the side of the image. All arguments are [n, 2].
    """
    sides = np.clip(shares * sizes, MIN_SIDE_PIXELS, sizes)
    low = np.round(draws * (sizes - sides), BOX_DECIMALS)
    high = np.minimum(np.round(low + sides, BOX_DECIMALS), sizes)
    return np.concatenate([low, high], axis=1)


def _as_added(image_rows: Rows, labels: Rows, boxes: Floats) -> Added:
    return Added(image_rows, labels, boxes, np.full(len(labels), -1, np.int64))
