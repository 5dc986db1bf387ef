"""Find spurious annotations: at random places, on a part of an object, or on background clutter.

Annotations of these three kinds are planted and compared with the real ones, separately for each
kind. The features are the detections at the place of an annotation, and its overlap with other
annotations. See `likeness`.
"""

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.calibration import (
    CALIBRATION,
    NOT_MEASURED,
    Share,
    estimate_error_share,
    estimate_lowest_share,
    make_sample,
)
from boxmend.auditing.evidence import NONE, Detected, Evidence, Objects
from boxmend.auditing.likeness import fit_likeness, judge_by_ratios
from boxmend.auditing.missing import choose_most_confident
from boxmend.auditing.pairs import find_largest, find_overlaps
from boxmend.data.boxes import compute_areas
from boxmend.data.types import Floats, Mask, Rows


@dataclass(frozen=True)
class PresenceConstants:
    """Constants of planted spurious annotations, and of their comparison with real ones."""

    min_planted: int = 4_000  # boxes of each kind
    max_planted: int = 50_000
    min_learnt: int = 50  # annotations, and planted boxes; fewer are too few to fit
    part_shares: tuple[float, float] = (0.35, 0.65)  # of a side that a part of an object keeps
    part_shift_sides: float = 0.05  # of an edge of a part
    clutter_scores: tuple[float, float] = (0.1, 0.6)  # of detections of background
    clutter_max_iou: float = 0.3  # of these detections with annotations
    clutter_shift_sides: float = 0.1  # of an edge of a planted box on such a detection
    min_evidence: float = 0.005  # added before logarithms
    sharing_power: int = 3  # of the share of a detection that overlaps another annotation more
    touching_min_iou: float = 0.02  # of two annotations that count as neighbours
    min_overlooked_share: float = 0.01  # detectors miss some clear objects
    part_trust: float = 0.55  # in the share of parts; some objects are annotated in part
    kept_share: float = 1 / 50  # of an estimate that is not larger than these, to rank by
    min_clutter_share: float = 0.0245  # objects that are hard to detect look like clutter
    num_strata: int = 5  # of annotations by size
    num_large_strata: int = 2  # those of the largest objects, which detectors rarely miss
    stratum_caution_deviations: float = 4.5  # corrects for taking the minimum over strata
    min_stratum: int = 400  # annotations; fewer are not split by size
    min_rate: float = 0.01  # of spurious annotations; objects that are hard to detect look spurious
    overlooked_large_share: float = 0.35  # of overlooked objects, looks like boxes anywhere
    noise_clutter: float = 0.55  # share that looks like clutter, per squared box noise
    model_weight: float = 0.5  # of the regression, beside the counts, in log odds
    max_probability: float = 0.97  # some real objects are never detected


PRESENCE = PresenceConstants()


@dataclass(frozen=True, eq=False)
class Presence:
    """The probability that each annotation is spurious."""

    p_spurious: Floats  # [n]
    rate: Share  # of spurious annotations


def judge_presence(
    objects: Objects,
    evidence: Evidence,
    detected: Detected,
    sizes: Floats,
    box_noise: float,
    random: np.random.Generator,
) -> Presence:
    """Return the probability that each annotation is spurious.

    `sizes` [images, 2] are in pixels, `box_noise` is the error of edges in shares of the side.
    Boxes are planted only into images that have detections and a known size.
    """
    images = np.unique(detected.image_rows)
    images = images[(sizes[images] > 0).all(axis=1)]
    n = len(objects)
    if not len(images) or n < PRESENCE.min_learnt:
        return Presence(np.zeros(n), NOT_MEASURED)
    number = int(np.clip(n, PRESENCE.min_planted, PRESENCE.max_planted))
    observed = _describe_boxes(objects, (objects, np.arange(n)), detected, sizes)
    overlooked = estimate_overlooked_share(evidence, detected)
    p_spurious, rates = np.zeros(n), []
    anywhere = plant_anywhere(objects, images, sizes, (number, random))
    unsupported = _estimate_unsupported_share(
        observed, anywhere, (objects, detected, sizes), overlooked
    )
    large = PRESENCE.overlooked_large_share * overlooked  # most overlooked objects are small
    parts = plant_parts(objects, number, random)
    for planted, floor in (
        (anywhere, max(PRESENCE.min_overlooked_share, large)),
        (parts, 0.0),
        (
            plant_on_clutter(objects, detected, number, random),
            clutter_floor(large, box_noise),
        ),
    ):
        if len(planted) < PRESENCE.min_learnt:
            continue
        known = _describe_boxes(planted, (objects, np.full(len(planted), NONE)), detected, sizes)
        model = fit_likeness(observed, known)
        scores = model.score(observed)
        planted_scores = model.score(known)
        share = subtract_overlooked(
            estimate_error_share(make_sample(scores), make_sample(planted_scores)), floor
        )
        if planted is parts:
            trust = PRESENCE.part_trust
            share = Share(share.value * trust, share.low * trust, share.high)
        if planted is anywhere and unsupported.value > share.value:
            low, high = min(share.low, unsupported.low), max(share.high, unsupported.high)
            share = Share(unsupported.value, low, high)
        # Overlooked objects look like boxes anywhere at any suspicion, as only the counts show.
        weight = 0.0 if planted is anywhere else PRESENCE.model_weight
        least = PRESENCE.kept_share * share.high  # to rank by where no error is found
        p = judge_by_ratios(scores, planted_scores, None, max(share.value, least), weight)
        p_spurious = np.maximum(p_spurious, p)
        rates.append(share)
    return Presence(np.minimum(p_spurious, PRESENCE.max_probability), _combine_rates(rates))


def clutter_floor(overlooked: float, box_noise: float) -> float:
    """Return the share of correct annotations that look like clutter.

    They are objects that a detector nearly overlooks, and objects whose box is too loose.
    """
    return max(PRESENCE.min_clutter_share, overlooked) + PRESENCE.noise_clutter * box_noise**2


def _combine_rates(rates: list[Share]) -> Share:
    """Return the share of all three kinds: the largest, since one error can look like several."""
    value = max(rate.value for rate in rates)
    low = max(rate.low for rate in rates)
    return Share(value, low, min(sum(rate.high for rate in rates), 1.0))


def _estimate_unsupported_share(
    observed: Floats, planted: Objects, scene: tuple[Objects, Detected, Floats], overlooked: float
) -> Share:
    """Return the share of annotations with as little support as randomly placed boxes.

    It is measured over all annotations or, if that is lower, over large ones. It uses a single
    feature, so it is valid even if planted boxes differ from real errors in other features.
    """
    objects, detected, sizes = scene
    known = _describe_boxes(planted, (objects, np.full(len(planted), NONE)), detected, sizes)
    pairs = [
        (make_sample(-observed[:, 0]), make_sample(-known[:, 0]), CALIBRATION.caution_deviations)
    ]
    if len(observed) >= PRESENCE.num_strata * PRESENCE.min_stratum:
        limits = np.quantile(
            observed[:, 6], np.arange(1, PRESENCE.num_strata) / PRESENCE.num_strata
        )
        for limit in limits[-PRESENCE.num_large_strata :]:
            is_large, is_known_large = observed[:, 6] >= limit, known[:, 6] >= limit
            caution = PRESENCE.stratum_caution_deviations
            large = make_sample(-observed[is_large, 0]), make_sample(-known[is_known_large, 0])
            pairs.append((*large, caution))
    return subtract_overlooked(estimate_lowest_share(pairs), overlooked)


def estimate_overlooked_share(evidence: Evidence, detected: Detected) -> float:
    """Return the share of objects that the detector misses.

    If detections below a score are cut off, about as many objects lie below this score as between
    it and twice its value.
    """
    cut = float(detected.scores.min())
    is_nearly_cut = (evidence.confidences > 0) & (evidence.confidences < 2 * cut)
    return max(float(is_nearly_cut.mean()), PRESENCE.min_overlooked_share)


def subtract_overlooked(rate: Share, overlooked: float) -> Share:
    """Return the share minus the share of missed objects; at least a twentieth of it remains."""
    low, value = (
        max(bound - overlooked, bound * PRESENCE.kept_share) for bound in (rate.low, rate.value)
    )
    return Share(value, low, rate.high)


def plant_anywhere(
    objects: Objects, images: Rows, sizes: Floats, amount: tuple[int, np.random.Generator]
) -> Objects:
    """Return boxes with the sizes of annotations, at random places of random images."""
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
    """Return boxes that cover about half of an object, with its label."""
    rows = random.integers(len(objects), size=number)
    boxes = objects.boxes[rows].copy()
    sides = boxes[:, 2:] - boxes[:, :2]
    least, most = PRESENCE.part_shares
    cut = (1 - random.uniform(least, most, size=number))[:, None] * sides
    edges = random.integers(4, size=number)
    for edge in range(4):
        is_edge = edges == edge
        boxes[is_edge, edge] += (cut if edge < 2 else -cut)[is_edge, edge % 2]
    boxes = _shift_edges(boxes, PRESENCE.part_shift_sides, random)
    return Objects(objects.image_rows[rows], objects.labels[rows], boxes, objects.num_labels)


def plant_on_clutter(
    objects: Objects, detected: Detected, number: int, random: np.random.Generator
) -> Objects:
    """Return boxes on detections of medium confidence that hardly overlap an annotation."""
    pairs = find_overlaps(objects.image_rows, objects.boxes, detected.image_rows, detected.boxes)
    best, _ = find_largest(pairs.second, pairs.iou, len(detected))
    least, most = PRESENCE.clutter_scores
    is_medium = (detected.scores >= least) & (detected.scores <= most)
    places = np.flatnonzero(is_medium & (best <= PRESENCE.clutter_max_iou))
    rows = choose_most_confident(detected, places)
    rows = rows[random.integers(len(rows), size=number)] if len(rows) else rows
    boxes = _shift_edges(detected.boxes[rows], PRESENCE.clutter_shift_sides, random)
    return Objects(detected.image_rows[rows], detected.labels[rows], boxes, objects.num_labels)


def _shift_edges(boxes: Floats, reach: float, random: np.random.Generator) -> Floats:
    """Return boxes with every edge moved by up to `reach` sides."""
    sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    moved: Floats = boxes + (2 * random.random(boxes.shape) - 1) * reach * sides
    return moved


def _describe_boxes(
    objects: Objects, among: tuple[Objects, Rows], detected: Detected, sizes: Floats
) -> Floats:
    """Return features [n, 8] of boxes: the detections there, their neighbours, and their shape.

    `among` has the annotations, and for each box the annotation that it is itself, or NONE.
    """
    annotations, itself = among
    n = len(objects)
    pairs = find_overlaps(objects.image_rows, objects.boxes, detected.image_rows, detected.boxes)
    rivals = _find_rival_iou(annotations, detected, (itself[pairs.first], pairs.second))
    share = (pairs.iou / np.maximum(rivals, pairs.iou)) ** PRESENCE.sharing_power
    seen = detected.scores[pairs.second] * pairs.iou
    is_same = objects.labels[pairs.first] == detected.labels[pairs.second]
    own = np.where(is_same, seen * share, 0.0)
    near = find_overlaps(
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
        np.log(find_largest(pairs.first, seen * share, n)[0] + least),
        np.log(find_largest(pairs.first, seen, n)[0] + least),
        np.log(find_largest(pairs.first, own, n)[0] + least),
        find_largest(first, inside, n)[0],
        find_largest(first[alike], iou[alike], n)[0],
        find_largest(first[alike], inside[alike], n)[0],
        np.log(np.maximum(own_areas, 1.0) / np.maximum(image_areas, 1.0)),
        np.log(sides[:, 0] / sides[:, 1]),
    )
    return np.stack(columns, axis=1)


def _find_rival_iou(annotations: Objects, detected: Detected, pairs: tuple[Rows, Rows]) -> Floats:
    """Return the best IoU of the detection of each pair with any other annotation.

    Each pair has an annotation, or NONE, and a detection.
    """
    itself, detections = pairs
    overlaps = find_overlaps(
        annotations.image_rows, annotations.boxes, detected.image_rows, detected.boxes
    )
    best, places = find_largest(overlaps.second, overlaps.iou, len(detected))
    is_owned = places >= 0
    owners = np.full(len(detected), -2)
    owners[is_owned] = overlaps.first[places[is_owned]]
    is_left: Mask = np.ones(len(overlaps), np.bool_)
    is_left[places[is_owned]] = False
    left = overlaps.second[is_left], overlaps.iou[is_left]
    second, _ = find_largest(*left, len(detected))
    rivals: Floats = np.where(owners[detections] == itself, second[detections], best[detections])
    return rivals
