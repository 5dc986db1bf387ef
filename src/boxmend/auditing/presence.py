"""Annotations of nothing, objects without an annotation, and objects annotated twice.

Each is planted: boxes put at random places are of nothing; an annotation taken away leaves what
the detector saw of it; a box drawn again beside itself is a duplicate. See `calibration`.
"""

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.calibration import (
    NOT_MEASURED,
    Share,
    error_curve,
    mean_curve,
    sample,
    share_of_errors,
)
from boxmend.auditing.evidence import Detected, Evidence, Objects, gather_evidence
from boxmend.auditing.pairs import Pairs, largest_by, overlapping
from boxmend.data.boxes import compute_areas, compute_iou
from boxmend.data.types import Floats, Mask, Rows


@dataclass(frozen=True)
class PresenceConstants:
    """How spurious annotations are told from real ones."""

    min_support: float = 1e-3  # below it nothing is told apart
    min_stratum_annotations: int = 400  # of like size, to be judged by themselves
    max_strata: int = 5
    num_large_strata: int = 2  # of the largest objects, which are the last to be overlooked
    stratum_caution_deviations: float = 4.5  # corrects for taking the minimum over five strata
    min_overlooked_share: float = 0.005  # a detector misses some objects however plain they are
    min_planted: int = 4_000  # boxes at random places
    max_planted: int = 200_000


PRESENCE = PresenceConstants()


@dataclass(frozen=True)
class MissingConstants:
    """How objects without an annotation are found."""

    touching_min_iou: float = 0.02  # below it an annotation does not matter to a detection
    explained_min_iou: float = 0.3  # with an annotation, for a detection to be of its object
    ignored_min_cover: float = 0.5  # share of a detection within an ignored object, likewise
    same_object_min_iou: float = 0.4  # between two detections
    part_log_odds: float = 3.0  # against a detection that lies wholly within an annotation
    min_log_odds: float = -12.0  # below it nothing is told apart
    found_min_iou: float = 0.5  # with the true box, for a missing object to be found
    min_score_quantile: float = 0.05  # of known objects; a lower score is no candidate


MISSING = MissingConstants()


@dataclass(frozen=True)
class RepeatConstants:
    """How objects annotated twice are found."""

    duplicate_min_iou: float = 0.5  # between two annotations that may be of one object
    min_redraw_error_sides: float = 0.05  # how far an edge lies off when it is drawn again


REPEATS = RepeatConstants()


@dataclass(frozen=True, eq=False)
class Presence:
    """How probable it is that each annotation is of nothing."""

    p_spurious: Floats  # [n]
    rate: Share


@dataclass(frozen=True, eq=False)
class UnexplainedDetections:
    """Detections that nothing explains, one for each object, the most confident of it."""

    detections: Rows  # [c] rows
    p_missing: Floats  # [c] that there is an object without annotation
    p_fix: Floats  # [c] that class and box are right, too
    rate: Share  # of all objects


@dataclass(frozen=True, eq=False)
class Repeats:
    """Annotations that repeat another one."""

    rows: Rows  # [d] to go
    kept: Rows  # [d] to stay
    p_duplicate: Floats  # [d]
    rate: Share  # of all annotations


def judge_presence(
    objects: Objects,
    evidence: Evidence,
    detected: Detected,
    sizes: Floats,
    random: np.random.Generator,
) -> Presence:
    """Weigh whether annotations are of anything, by their support; `sizes` [images, 2] in pixels.

    Only images with detections and a known size get planted boxes.
    """
    places = np.unique(detected.image_rows)
    places = places[(sizes[places] > 0).all(axis=1)]
    sides = objects.boxes[:, 2:] - objects.boxes[:, :2]
    nothing = Presence(np.zeros(len(objects)), NOT_MEASURED)
    if not len(places) or not len(objects):
        return nothing
    number = int(np.clip(4 * len(objects), PRESENCE.min_planted, PRESENCE.max_planted))
    donors = random.integers(len(objects), size=number)
    image_rows = places[random.integers(len(places), size=number)]
    sizes = sizes[image_rows]
    taken = np.minimum(sides[donors], sizes)
    low = random.random((number, 2)) * (sizes - taken)
    planted = Objects(
        image_rows,
        objects.labels[donors],
        np.concatenate([low, low + taken], axis=1),
        objects.num_labels,
    )
    found = gather_evidence(planted, objects, detected).support
    cut = float(detected.scores.min())
    is_nearly_cut = (evidence.confidences > 0) & (evidence.confidences < 2 * cut)
    return _by_size(objects, (evidence.support, is_nearly_cut), planted, found)


def _by_size(
    objects: Objects, seen: tuple[Floats, Mask], planted: Objects, found: Floats
) -> Presence:
    """Small objects are missed more often: those of like size are held against each other.

    The share of spurious ones is taken to be the same for all, and told by all together or, where
    it is lower, by large objects. Where a list of detections is cut at a score, about as many
    objects lie below it as within its double: they are overlooked, and not spurious.
    """
    support, is_nearly_cut = seen
    number = int(np.clip(len(objects) // PRESENCE.min_stratum_annotations, 1, PRESENCE.max_strata))
    limits = np.quantile(compute_areas(objects.boxes), np.arange(1, number) / number)
    strata = np.searchsorted(limits, compute_areas(objects.boxes), side="right")
    planted_strata = np.searchsorted(limits, compute_areas(planted.boxes), side="right")
    pairs = [
        (
            sample(-np.log(support[strata == k] + PRESENCE.min_support)),
            sample(-np.log(found[planted_strata == k] + PRESENCE.min_support)),
        )
        for k in range(number)
    ]
    whole = (
        sample(-np.log(support + PRESENCE.min_support)),
        sample(-np.log(found + PRESENCE.min_support)),
    )
    told = [(share_of_errors(*whole), float(is_nearly_cut.mean()))]
    for k in range(max(number - PRESENCE.num_large_strata, 1), number):
        overlooked = float(is_nearly_cut[strata == k].mean())
        told.append((share_of_errors(*pairs[k], PRESENCE.stratum_caution_deviations), overlooked))
    rate = _less_overlooked(*min(told, key=lambda one: one[0].high))
    p_spurious = np.zeros(len(objects))
    for k, (observed, known) in enumerate(pairs):
        p_spurious[strata == k] = error_curve(observed, known, rate.cautious).at(
            observed.suspicions
        )
    return Presence(p_spurious, rate)


def _less_overlooked(rate: Share, overlooked: float) -> Share:
    """A share without what a detector overlooks; a small part of it always stays."""
    less = max(overlooked, PRESENCE.min_overlooked_share)
    low, value = (max(one - less, one / 20) for one in (rate.low, rate.value))
    return Share(value, low, rate.high)


def find_missing(
    scene: tuple[Objects, Objects, Detected], p_real: Floats, p_right: Floats
) -> UnexplainedDetections:
    """Find objects without annotation, given annotations, ignored objects and detections.

    What lies on an ignored object is explained by it. `p_real` [n] says how probable it is that
    an annotation is of anything, and `p_right` [n] that its label is right then.
    """
    objects, ignored, detected = scene
    pairs = overlapping(
        objects.image_rows,
        objects.boxes,
        detected.image_rows,
        detected.boxes,
        MISSING.touching_min_iou,
    )
    own = np.flatnonzero(pairs.iou >= MISSING.explained_min_iou)
    number = np.bincount(pairs.second[own], minlength=len(detected))
    only = own[number[pairs.second[own]] == 1]  # what would be left if it were not there
    inside, besides = _covered(objects, detected, pairs)
    left = _boldness(detected.scores[pairs.second[only]], besides[only])
    bold, places = largest_by(pairs.first[only], left - MISSING.min_log_odds, len(objects))
    bold += MISSING.min_log_odds
    is_free = (number == 0) & ~_on_ignored(ignored, detected)
    seen = _boldness(detected.scores, inside)
    least = np.quantile(bold, MISSING.min_score_quantile) if len(bold) else np.inf
    candidates = _one_each(detected, np.flatnonzero(is_free & (seen > least)))
    observed, planted = sample(seen[candidates]), sample(bold, p_real)
    share = share_of_errors(observed, planted)
    p_missing = error_curve(observed, planted, share.cautious).at(observed.suspicions)
    is_seen = places >= 0
    chosen = only[places[is_seen]]
    is_right = detected.labels[pairs.second[chosen]] == objects.labels[is_seen]
    is_right &= pairs.iou[chosen] >= MISSING.found_min_iou
    known = sample(bold[is_seen], (p_real * p_right)[is_seen])
    p_good = mean_curve(known, is_right.astype(np.float64)).at(observed.suspicions)
    lost = share.times(len(candidates))
    total = len(objects) + lost.value
    rate = lost.times(1 / total) if total else NOT_MEASURED
    return UnexplainedDetections(candidates, p_missing, p_missing * p_good, rate)


def _covered(objects: Objects, detected: Detected, pairs: Pairs) -> tuple[Floats, Floats]:
    """How much of each detection, [m], lies within an annotation; and of each pair's, [p], within
    another annotation than the one of the pair.
    """
    own = compute_areas(detected.boxes)[pairs.second]
    both = compute_areas(objects.boxes)[pairs.first] + own
    share = np.minimum(pairs.iou / (1 + pairs.iou) * both / np.maximum(own, 1e-9), 1.0)
    most, places = largest_by(pairs.second, share, len(detected))
    is_left = np.ones(len(pairs), np.bool_)
    is_left[places[places >= 0]] = False
    next_most, _ = largest_by(pairs.second[is_left], share[is_left], len(detected))
    besides = np.where(is_left, most[pairs.second], next_most[pairs.second])
    return most, besides


def _boldness(scores: Floats, covered: Floats) -> Floats:
    """How boldly a detection claims an object of its own, in log odds.

    What lies within an annotation is often a part of its object, seen twice.
    """
    inside = np.clip(scores, 1e-4, 1 - 1e-4)
    bold: Floats = np.log(inside / (1 - inside)) - MISSING.part_log_odds * covered
    return np.maximum(bold, MISSING.min_log_odds)


def _on_ignored(ignored: Objects, detected: Detected) -> Mask:
    """[m] Detections that lie mostly within an ignored object."""
    pairs = overlapping(
        ignored.image_rows, ignored.boxes, detected.image_rows, detected.boxes, 1e-6
    )
    boxes = detected.boxes[pairs.second]
    within = np.minimum(boxes, np.tile(ignored.boxes[pairs.first, 2:], 2))
    within = np.maximum(within, np.tile(ignored.boxes[pairs.first, :2], 2))
    is_inside = compute_areas(within) >= MISSING.ignored_min_cover * np.maximum(
        compute_areas(boxes), 1e-9
    )
    found = np.zeros(len(detected), np.bool_)
    found[pairs.second[is_inside]] = True
    return found


def _one_each(detected: Detected, rows: Rows) -> Rows:
    """The most confident of the detections that overlap each other, ascending."""
    rank = np.empty(len(rows), np.int64)
    rank[np.argsort(-detected.scores[rows], kind="stable")] = np.arange(len(rows))
    images, boxes = detected.image_rows[rows], detected.boxes[rows]
    pairs = overlapping(images, boxes, images, boxes, MISSING.same_object_min_iou)
    is_better = rank[pairs.second] < rank[pairs.first]
    first, second = pairs.first[is_better], pairs.second[is_better]
    is_kept = np.ones(len(rows), np.bool_)
    for _ in range(len(rows) + 1):  # as long as chains of suppression are, which is not long
        is_beaten = np.zeros(len(rows), np.bool_)
        is_beaten[first[is_kept[second]]] = True
        if (is_beaten != is_kept).all():
            break
        is_kept = ~is_beaten
    return rows[is_kept]


def find_repeats(
    objects: Objects, support: Floats, noise: float, random: np.random.Generator
) -> Repeats:
    """Find objects annotated twice under one name; the one that less speaks for is to go.

    `noise` says how far off, in shares of the side, an edge is drawn.
    """
    pairs = overlapping(
        objects.image_rows,
        objects.boxes,
        objects.image_rows,
        objects.boxes,
        REPEATS.duplicate_min_iou,
    )
    is_once = pairs.first < pairs.second
    is_once &= objects.labels[pairs.first] == objects.labels[pairs.second]
    first, second, iou = pairs.first[is_once], pairs.second[is_once], pairs.iou[is_once]
    reach = max(noise, REPEATS.min_redraw_error_sides)
    sides = np.tile(objects.boxes[:, 2:] - objects.boxes[:, :2], 2)
    again = objects.boxes + (2 * random.random(objects.boxes.shape) - 1) * reach * sides
    observed, planted = sample(iou), sample(compute_iou(objects.boxes, again))
    share = share_of_errors(observed, planted)
    p_duplicate = error_curve(observed, planted, share.cautious).at(iou)
    is_first_better = support[first] >= support[second]  # of equals the first stays
    rows = np.where(is_first_better, second, first)
    kept = np.where(is_first_better, first, second)
    _, places = largest_by(rows, p_duplicate, len(objects))  # of several, the likeliest
    chosen = np.sort(places[places >= 0])
    rate = share.times(len(iou) / len(objects)) if len(objects) else NOT_MEASURED
    return Repeats(rows[chosen], kept[chosen], p_duplicate[chosen], rate)
