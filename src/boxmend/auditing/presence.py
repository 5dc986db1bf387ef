"""Spurious annotations: at random places, on a part of an object, or on background clutter.

Each of the three kinds is planted. Planted annotations are compared with the real ones, separately
for each kind: by the detections there, and by their position among the other annotations. See
`likeness`.
"""

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.calibration import (
    CALIBRATION,
    NOT_MEASURED,
    Share,
    error_curve,
    lowest_share,
    sample,
    share_of_errors,
)
from boxmend.auditing.evidence import NONE, Detected, Evidence, Objects
from boxmend.auditing.likeness import fit_likeness, keep_order
from boxmend.auditing.missing import choose_one_each
from boxmend.auditing.pairs import largest_by, overlapping
from boxmend.data.boxes import compute_areas
from boxmend.data.types import Floats, Mask, Rows


@dataclass(frozen=True)
class PresenceConstants:
    """What is planted, and how spurious annotations are distinguished from real ones."""

    min_planted: int = 4_000  # boxes of each kind
    max_planted: int = 50_000
    min_learnt: int = 50  # annotations and planted boxes; fewer teach nothing
    part_shares: tuple[float, float] = (0.35, 0.65)  # of a side that a part of an object keeps
    part_shift_sides: float = 0.05  # of an edge of a part
    clutter_scores: tuple[float, float] = (0.1, 0.6)  # of detections of background
    clutter_max_iou: float = 0.3  # of these with annotations
    clutter_shift_sides: float = 0.1
    min_evidence: float = 0.005  # added before logarithms
    sharing_power: int = 3  # of the share of a detection that fits another annotation better
    touching_min_iou: float = 0.02  # of two annotations
    min_overlooked_share: float = 0.01  # a detector misses some objects however plain they are
    min_clutter_share: float = 0.02  # objects that are hard to see look like clutter
    num_strata: int = 5  # by size, of which the largest are the last to be overlooked
    num_large_strata: int = 2
    stratum_caution_deviations: float = 4.5  # corrects for taking the minimum over strata
    min_stratum: int = 400  # annotations; fewer are not split by size
    min_rate: float = 0.01  # objects that are hard to see look spurious
    max_probability: float = 0.9  # nobody can be surer that there is no object


PRESENCE = PresenceConstants()


@dataclass(frozen=True, eq=False)
class Presence:
    """The probability that each annotation is of nothing."""

    p_spurious: Floats  # [n]
    rate: Share


def judge_presence(
    objects: Objects,
    evidence: Evidence,
    detected: Detected,
    sizes: Floats,
    random: np.random.Generator,
) -> Presence:
    """Judge whether annotations are of anything; `sizes` [images, 2] in pixels.

    Only images with detections and a known size get planted boxes.
    """
    images = np.unique(detected.image_rows)
    images = images[(sizes[images] > 0).all(axis=1)]
    n = len(objects)
    if not len(images) or n < PRESENCE.min_learnt:
        return Presence(np.zeros(n), NOT_MEASURED)
    number = int(np.clip(n, PRESENCE.min_planted, PRESENCE.max_planted))
    observed = _describe(objects, (objects, np.arange(n)), detected, sizes)
    overlooked = overlooked_share(evidence, detected)
    p_spurious, rates = np.zeros(n), []
    anywhere = plant_anywhere(objects, images, sizes, (number, random))
    least = _share_without_support(observed, anywhere, (objects, detected, sizes), overlooked)
    for planted, floor in (
        (anywhere, overlooked),
        (plant_parts(objects, number, random), PRESENCE.min_overlooked_share / 2),
        (
            plant_on_clutter(objects, detected, number, random),
            max(PRESENCE.min_clutter_share, overlooked),
        ),
    ):
        if len(planted) < PRESENCE.min_learnt:
            continue
        known = _describe(planted, (objects, np.full(len(planted), NONE)), detected, sizes)
        model = fit_likeness(observed, known)
        scores = model.of(observed)
        seen, of_planted = sample(scores), sample(model.of(known))
        share = without_overlooked(share_of_errors(seen, of_planted), floor)
        if planted is anywhere and least.value > share.value:
            share = Share(least.value, min(share.low, least.low), max(share.high, least.high))
        p = error_curve(seen, of_planted, share.cautious).at(scores)
        p_spurious = np.maximum(p_spurious, keep_order(p, scores))
        rates.append(share)
    return Presence(np.minimum(p_spurious, PRESENCE.max_probability), _total(rates))


def _total(rates: list[Share]) -> Share:
    """Return the share of all kinds together; kinds that look alike are counted once."""
    value = max(rate.value for rate in rates)
    low = max(rate.low for rate in rates)
    return Share(value, low, min(sum(rate.high for rate in rates), 1.0))


def _share_without_support(
    observed: Floats, planted: Objects, scene: tuple[Objects, Detected, Floats], overlooked: float
) -> Share:
    """Return the share of annotations as little supported by detections as boxes anywhere.

    It is measured over all annotations or, where that is lower, over large ones. It uses one
    feature alone, so it holds where planted boxes differ from real errors in other features.
    """
    objects, detected, sizes = scene
    known = _describe(planted, (objects, np.full(len(planted), NONE)), detected, sizes)
    pairs = [(sample(-observed[:, 0]), sample(-known[:, 0]), CALIBRATION.caution_deviations)]
    if len(observed) >= PRESENCE.num_strata * PRESENCE.min_stratum:
        limits = np.quantile(
            observed[:, 6], np.arange(1, PRESENCE.num_strata) / PRESENCE.num_strata
        )
        for limit in limits[-PRESENCE.num_large_strata :]:
            seen, of = observed[:, 6] >= limit, known[:, 6] >= limit
            caution = PRESENCE.stratum_caution_deviations
            pairs.append((sample(-observed[seen, 0]), sample(-known[of, 0]), caution))
    return without_overlooked(lowest_share(pairs), overlooked)


def overlooked_share(evidence: Evidence, detected: Detected) -> float:
    """Return the share of objects that a detector overlooks.

    Where a list of detections is cut at a score, about as many objects lie below it as within its
    double.
    """
    cut = float(detected.scores.min())
    is_nearly_cut = (evidence.confidences > 0) & (evidence.confidences < 2 * cut)
    return max(float(is_nearly_cut.mean()), PRESENCE.min_overlooked_share)


def without_overlooked(rate: Share, overlooked: float) -> Share:
    """Return a share without what a detector overlooks; a small part of it always stays."""
    low, value = (max(bound - overlooked, bound / 20) for bound in (rate.low, rate.value))
    return Share(value, low, rate.high)


def plant_anywhere(
    objects: Objects, images: Rows, sizes: Floats, amount: tuple[int, np.random.Generator]
) -> Objects:
    """Put boxes of the sizes of annotations at random places of random images."""
    number, random = amount
    donors = random.integers(len(objects), size=number)
    image_rows = images[random.integers(len(images), size=number)]
    sides = objects.boxes[donors, 2:] - objects.boxes[donors, :2]
    sides = np.minimum(sides, sizes[image_rows])
    low = random.random((number, 2)) * (sizes[image_rows] - sides)
    boxes = np.concatenate([low, low + sides], axis=1)
    labels = random.integers(objects.num_labels, size=number)
    return Objects(image_rows, labels, boxes, objects.num_labels)


def plant_parts(objects: Objects, number: int, random: np.random.Generator) -> Objects:
    """Put boxes with the labels of objects on about half of each."""
    rows = random.integers(len(objects), size=number)
    boxes = objects.boxes[rows].copy()
    sides = boxes[:, 2:] - boxes[:, :2]
    least, most = PRESENCE.part_shares
    cut = (1 - random.uniform(least, most, size=number))[:, None] * sides
    edges = random.integers(4, size=number)
    for edge in range(4):
        is_edge = edges == edge
        boxes[is_edge, edge] += (cut if edge < 2 else -cut)[is_edge, edge % 2]
    boxes = _shift(boxes, PRESENCE.part_shift_sides, random)
    return Objects(objects.image_rows[rows], objects.labels[rows], boxes, objects.num_labels)


def plant_on_clutter(
    objects: Objects, detected: Detected, number: int, random: np.random.Generator
) -> Objects:
    """Put boxes on detections of medium confidence that meet no annotation."""
    pairs = overlapping(objects.image_rows, objects.boxes, detected.image_rows, detected.boxes)
    best, _ = largest_by(pairs.second, pairs.iou, len(detected))
    least, most = PRESENCE.clutter_scores
    is_medium = (detected.scores >= least) & (detected.scores <= most)
    places = np.flatnonzero(is_medium & (best <= PRESENCE.clutter_max_iou))
    rows = choose_one_each(detected, places)
    rows = rows[random.integers(len(rows), size=number)] if len(rows) else rows
    boxes = _shift(detected.boxes[rows], PRESENCE.clutter_shift_sides, random)
    return Objects(detected.image_rows[rows], detected.labels[rows], boxes, objects.num_labels)


def _shift(boxes: Floats, reach: float, random: np.random.Generator) -> Floats:
    """Move every edge by up to `reach` of the side."""
    sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    moved: Floats = boxes + (2 * random.random(boxes.shape) - 1) * reach * sides
    return moved


def _describe(
    objects: Objects, among: tuple[Objects, Rows], detected: Detected, sizes: Floats
) -> Floats:
    """Return features [n, 8] of boxes among annotations: what was seen there, and neighbours.

    `among` are the annotations, and which of them each box is itself, or NONE.
    """
    annotations, itself = among
    n = len(objects)
    pairs = overlapping(objects.image_rows, objects.boxes, detected.image_rows, detected.boxes)
    rivals = _rivals(annotations, detected, (itself[pairs.first], pairs.second))
    share = (pairs.iou / np.maximum(rivals, pairs.iou)) ** PRESENCE.sharing_power
    seen = detected.scores[pairs.second] * pairs.iou
    is_same = objects.labels[pairs.first] == detected.labels[pairs.second]
    own = np.where(is_same, seen * share, 0.0)
    near = overlapping(
        objects.image_rows,
        objects.boxes,
        annotations.image_rows,
        annotations.boxes,
        PRESENCE.touching_min_iou,
    )
    is_other = near.second != itself[near.first]
    first, second, iou = near.first[is_other], near.second[is_other], near.iou[is_other]
    own_areas = compute_areas(objects.boxes)
    both = own_areas[first] + compute_areas(annotations.boxes)[second]
    inside = iou / (1 + iou) * both / np.maximum(own_areas[first], 1e-9)
    alike = objects.labels[first] == annotations.labels[second]
    sides = np.maximum(objects.boxes[:, 2:] - objects.boxes[:, :2], 1e-3)
    image_areas = np.prod(sizes[objects.image_rows], axis=1)
    least = PRESENCE.min_evidence
    columns = (
        np.log(largest_by(pairs.first, seen * share, n)[0] + least),
        np.log(largest_by(pairs.first, seen, n)[0] + least),
        np.log(largest_by(pairs.first, own, n)[0] + least),
        largest_by(first, inside, n)[0],
        largest_by(first[alike], iou[alike], n)[0],
        largest_by(first[alike], inside[alike], n)[0],
        np.log(np.maximum(own_areas, 1.0) / np.maximum(image_areas, 1.0)),
        np.log(sides[:, 0] / sides[:, 1]),
    )
    return np.stack(columns, axis=1)


def _rivals(annotations: Objects, detected: Detected, pairs: tuple[Rows, Rows]) -> Floats:
    """Return, for pairs of an annotation or NONE and a detection, the best IoU of the detection
    with any other annotation.
    """
    itself, detections = pairs
    found = overlapping(
        annotations.image_rows, annotations.boxes, detected.image_rows, detected.boxes
    )
    best, places = largest_by(found.second, found.iou, len(detected))
    is_owned = places >= 0
    owners = np.full(len(detected), -2)
    owners[is_owned] = found.first[places[is_owned]]
    is_left: Mask = np.ones(len(found), np.bool_)
    is_left[places[is_owned]] = False
    second, _ = largest_by(found.second[is_left], found.iou[is_left], len(detected))
    rivals: Floats = np.where(owners[detections] == itself, second[detections], best[detections])
    return rivals
