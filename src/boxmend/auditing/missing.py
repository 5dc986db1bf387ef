"""Objects without an annotation: confident detections that no annotation explains.

If an annotation is removed, the detections of its object remain. Such detections are compared with
all unexplained ones, separately for small, medium and large objects, since annotators miss small
objects more often. See `likeness`.
"""

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.calibration import Share, mean_curve, sample, share_of_errors
from boxmend.auditing.evidence import NONE, Detected, Objects
from boxmend.auditing.likeness import fit_likeness, judge_by_scores
from boxmend.auditing.pairs import Pairs, largest_by, overlapping
from boxmend.data.boxes import compute_areas
from boxmend.data.types import Floats, Mask, Rows


@dataclass(frozen=True)
class MissingConstants:
    """How objects without an annotation are found."""

    touching_min_iou: float = 0.02  # below it an annotation does not matter to a detection
    explained_min_iou: float = 0.3  # with an annotation, for a detection to be of its object
    ignored_min_cover: float = 0.5  # share of a detection within an ignored object, likewise
    same_object_min_iou: float = 0.4  # between two detections
    min_score_quantile: float = 0.05  # of known objects; a lower score is no candidate
    part_log_odds: float = 3.0  # against a detection wholly within an annotation
    num_sizes: int = 3  # strata of equally many known objects
    stratum_caution_deviations: float = 4.0  # instead of 3, as each stratum has its own share
    min_stratum_objects: int = 200  # fewer are not split by size
    min_learnt_objects: int = 30  # known objects and candidates; fewer teach nothing
    min_curved_objects: int = 500  # candidates; fewer are told apart by linear terms alone
    found_min_iou: float = 0.5  # with the true box, for a missing object to be found
    unseen_factor: float = 1.2  # at most so many missing for each that is like the known ones
    background_rate: float = 0.005  # of background that looks like objects, to annotations
    min_rate: float = 0.015  # detectors see about as many objects that are none


MISSING = MissingConstants()


@dataclass(frozen=True, eq=False)
class UnexplainedDetections:
    """Detections that no annotation explains, the most confident one of each object."""

    detections: Rows  # [c] rows
    p_missing: Floats  # [c] that there is an object without annotation
    p_fix: Floats  # [c] that class and box are right, too
    rate: Share  # of all objects


@dataclass(frozen=True, eq=False)
class _Surroundings:
    """The annotations around each detection: the largest values and whose they are."""

    cover: Floats  # [m] share of the detection within an annotation
    iou: Floats  # [m]
    same_cover: Floats  # [m] within an annotation of the detection's class


def find_missing(
    scene: tuple[Objects, Objects, Detected], p_real: Floats, p_right: Floats
) -> UnexplainedDetections:
    """Find objects without annotation, given annotations, ignored objects and detections.

    Detections on ignored objects are explained. `p_real` [n] is the probability that an annotation
    is of an object, and `p_right` [n] that its label is right then.
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
    only = own[number[pairs.second[own]] == 1]  # unexplained if the annotation were not there
    scores = _log_odds(detected.scores)
    nobody = np.full(len(detected), NONE)
    around = _surroundings(objects, detected, pairs, nobody)
    best, places = largest_by(pairs.first[only], scores[pairs.second[only]] + 20.0, len(objects))
    seen = np.flatnonzero(places >= 0)
    chosen = only[places[seen]]
    known = pairs.second[chosen]
    least = np.quantile(best - 20.0, MISSING.min_score_quantile) if len(best) else np.inf
    is_free = (number == 0) & ~_on_ignored(ignored, detected)
    is_bold = scores - MISSING.part_log_odds * around.cover > least
    candidates = choose_one_each(detected, np.flatnonzero(is_free & is_bold))
    owner = nobody.copy()
    owner[known] = seen
    features = _describe(detected, around, candidates)
    besides = _surroundings(objects, detected, pairs, owner)
    planted = _describe(detected, besides, known)
    weights = p_real[seen]
    if min(len(candidates), len(seen)) < MISSING.min_learnt_objects:
        suspicions, known_suspicions = features[:, 0], planted[:, 0]
    else:
        is_linear = len(candidates) < MISSING.min_curved_objects
        model = fit_likeness(features, planted, weights, is_linear=is_linear)
        suspicions, known_suspicions = model.of(features), model.of(planted)
    sizes = compute_areas(detected.boxes)
    p_missing, lost = _judge_by_size(
        (suspicions, sizes[candidates]), (known_suspicions, sizes[known]), weights
    )
    is_right = detected.labels[known] == objects.labels[seen]
    is_right &= pairs.iou[chosen] >= MISSING.found_min_iou
    weighed = sample(known_suspicions, weights * p_right[seen])
    p_good = mean_curve(weighed, is_right.astype(np.float64)).at(suspicions)
    p_missing *= _trust(lost.value, len(objects))
    share_seen = len(seen) / max(len(objects), 1)  # as many of the missing ones are seen
    return UnexplainedDetections(
        candidates, p_missing, p_missing * p_good, _rate(lost, share_seen, len(objects))
    )


def _trust(lost: float, number: int) -> float:
    """Return how far to trust candidates: some of them are what detectors take for objects."""
    background = MISSING.background_rate * number
    return max(1 - background / max(lost, 1e-9), 0.0)


def _rate(lost: Share, share_seen: float, number: int) -> Share:
    """Return the share of all objects that lack an annotation, from counts of those seen."""

    def of_all(count: float) -> float:
        total = count / max(share_seen, 0.1)
        return total / (number + total) if number + total else 0.0

    most = lost.high * MISSING.unseen_factor
    return Share(of_all(lost.value), of_all(lost.low), of_all(most))


def _judge_by_size(
    candidates: tuple[Floats, Floats], known: tuple[Floats, Floats], weights: Floats
) -> tuple[Floats, Share]:
    """Return the probability [c] that candidates are objects, and how many are.

    Both sides are given by their suspicions and sizes.
    """
    (seen, sizes), (planted, known_sizes) = candidates, known
    number = int(np.clip(len(planted) // MISSING.min_stratum_objects, 1, MISSING.num_sizes))
    limits = np.quantile(known_sizes, np.arange(1, number) / number) if number > 1 else np.zeros(0)
    strata = np.searchsorted(limits, sizes, side="right")
    known_strata = np.searchsorted(limits, known_sizes, side="right")
    p, bounds = np.zeros(len(seen)), np.zeros((number, 3))
    for k in range(number):
        at, of = strata == k, known_strata == k
        pair = sample(seen[at]), sample(planted[of], weights[of])
        share = (
            share_of_errors(*pair, MISSING.stratum_caution_deviations)
            if number > 1
            else share_of_errors(*pair)
        )
        p[at], _ = judge_by_scores(seen[at], planted[of], weights[of], share.halved)
        bounds[k] = np.array([share.value, share.low, share.high]) * at.sum()
    values = bounds[:, 0]
    spread = [float(np.sqrt(((bounds[:, side] - values) ** 2).sum())) for side in (1, 2)]
    total = float(values.sum())
    return p, Share(total, max(total - spread[0], 0.0), total + spread[1])


def _log_odds(scores: Floats) -> Floats:
    inside = np.clip(scores, 1e-4, 1 - 1e-4)
    log_odds: Floats = np.log(inside / (1 - inside))
    return log_odds


def _surroundings(
    objects: Objects, detected: Detected, pairs: Pairs, without: Rows
) -> _Surroundings:
    """Return what surrounds each detection, except the annotation `without` [m] of it."""
    is_there = pairs.first != without[pairs.second]
    first, second, iou = pairs.first[is_there], pairs.second[is_there], pairs.iou[is_there]
    own = compute_areas(detected.boxes)[second]
    both = compute_areas(objects.boxes)[first] + own
    cover = np.minimum(iou / (1 + iou) * both / np.maximum(own, 1e-9), 1.0)
    is_same = objects.labels[first] == detected.labels[second]
    number = len(detected)
    return _Surroundings(
        cover=largest_by(second, cover, number)[0],
        iou=largest_by(second, iou, number)[0],
        same_cover=largest_by(second[is_same], cover[is_same], number)[0],
    )


def _describe(detected: Detected, around: _Surroundings, rows: Rows) -> Floats:
    """Return features [k, 4] of detections: their score, and the annotations around them.

    How many annotations an image has is not among them: that an object lacks one changes it.
    """
    columns = (
        _log_odds(detected.scores[rows]),
        around.cover[rows],
        around.iou[rows],
        around.same_cover[rows],
    )
    return np.stack(columns, axis=1)


def _on_ignored(ignored: Objects, detected: Detected) -> Mask:
    """Mark detections [m] that lie mostly within an ignored object."""
    pairs = overlapping(
        ignored.image_rows, ignored.boxes, detected.image_rows, detected.boxes, 1e-6
    )
    boxes = detected.boxes[pairs.second]
    within = np.minimum(boxes, np.tile(ignored.boxes[pairs.first, 2:], 2))
    within = np.maximum(within, np.tile(ignored.boxes[pairs.first, :2], 2))
    is_inside = compute_areas(within) >= MISSING.ignored_min_cover * np.maximum(
        compute_areas(boxes), 1e-9
    )
    marks = np.zeros(len(detected), np.bool_)
    marks[pairs.second[is_inside]] = True
    return marks


def choose_one_each(detected: Detected, rows: Rows) -> Rows:
    """Return the most confident of the detections that overlap each other, ascending."""
    rank = np.empty(len(rows), np.int64)
    rank[np.argsort(-detected.scores[rows], kind="stable")] = np.arange(len(rows))
    images, boxes = detected.image_rows[rows], detected.boxes[rows]
    pairs = overlapping(images, boxes, images, boxes, MISSING.same_object_min_iou)
    is_better = rank[pairs.second] < rank[pairs.first]
    first, second = pairs.first[is_better], pairs.second[is_better]
    is_kept = np.ones(len(rows), np.bool_)
    for _ in range(len(rows) + 1):  # as often as the longest chain of suppressions, which is short
        is_beaten = np.zeros(len(rows), np.bool_)
        is_beaten[first[is_kept[second]]] = True
        if (is_beaten != is_kept).all():
            break
        is_kept = ~is_beaten
    return rows[is_kept]
