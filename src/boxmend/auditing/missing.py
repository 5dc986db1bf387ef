"""Find objects without an annotation: confident detections that no annotation explains.

Missing annotations are planted by ignoring one: the detections of its object remain. Unexplained
detections are compared with these, separately for small, medium and large objects, since annotators
miss small objects more often. See `likeness`.
"""

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.calibration import Share, estimate_error_share, fit_mean_curve, make_sample
from boxmend.auditing.evidence import NONE, Detected, Objects
from boxmend.auditing.likeness import fit_likeness, judge_by_scores
from boxmend.auditing.pairs import Pairs, find_largest, find_overlaps
from boxmend.data.boxes import compute_areas
from boxmend.data.types import Floats, Mask, Rows


@dataclass(frozen=True)
class MissingConstants:
    """Constants of the search for objects without an annotation."""

    touching_min_iou: float = 0.02  # with an annotation; with less they are unrelated
    explained_min_iou: float = 0.3  # with an annotation that explains a detection
    ignored_min_cover: float = 0.5  # share of a detection within an ignored object that explains it
    same_object_min_iou: float = 0.4  # of two detections of one object
    min_score_quantile: float = 0.05  # of known objects; candidates have higher scores
    part_log_odds: float = 3.0  # subtracted from a detection that lies within an annotation
    num_sizes: int = 3  # strata, with equally many known objects each
    stratum_caution_deviations: float = 4.0  # instead of 3, since each stratum has its own share
    min_stratum_objects: int = 200  # fewer are not split by size
    min_learnt_objects: int = 30  # known objects and candidates; fewer are too few to fit
    min_curved_objects: int = 500  # candidates; with fewer the regression is linear
    found_min_iou: float = 0.5  # with the true box of a missing object that counts as found
    unseen_factor: float = 1.2  # missing objects per missing object that looks like a known one
    background_rate: float = 0.005  # detections of background per annotation
    min_rate: float = 0.015  # of missing objects; detectors find about as many in the background


MISSING = MissingConstants()


@dataclass(frozen=True, eq=False)
class UnexplainedDetections:
    """Detections that no annotation explains, the most confident one of each object."""

    detections: Rows  # [c] rows of detections
    p_missing: Floats  # [c] probability that there is an object without annotation
    p_fix: Floats  # [c] probability that its class and box are right, too
    rate: Share  # of missing annotations, of all objects


@dataclass(frozen=True, eq=False)
class _Surroundings:
    """The largest overlap of each detection with an annotation, by three measures."""

    cover: Floats  # [m] share of the detection within an annotation
    iou: Floats  # [m]
    same_cover: Floats  # [m] like `cover`, with annotations of the detection's class only


def find_missing(
    scene: tuple[Objects, Objects, Detected], p_real: Floats, p_right: Floats
) -> UnexplainedDetections:
    """Find objects without annotation, given annotations, ignored objects and detections.

    Ignored objects explain the detections on them. `p_real` [n] is the probability that an
    annotation is of an object, and `p_right` [n] that the label of such an annotation is right.
    """
    objects, ignored, detected = scene
    pairs = find_overlaps(
        objects.image_rows,
        objects.boxes,
        detected.image_rows,
        detected.boxes,
        MISSING.touching_min_iou,
    )
    own = np.flatnonzero(pairs.iou >= MISSING.explained_min_iou)
    number = np.bincount(pairs.second[own], minlength=len(detected))
    only = own[number[pairs.second[own]] == 1]  # without this annotation they would be unexplained
    scores = _to_log_odds(detected.scores)
    nobody = np.full(len(detected), NONE)
    around = _describe_surroundings(objects, detected, pairs, nobody)
    best, places = find_largest(pairs.first[only], scores[pairs.second[only]] + 20.0, len(objects))
    seen = np.flatnonzero(places >= 0)
    chosen = only[places[seen]]
    known = pairs.second[chosen]
    least = np.quantile(best - 20.0, MISSING.min_score_quantile) if len(best) else np.inf
    is_free = (number == 0) & ~_mark_on_ignored(ignored, detected)
    is_bold = scores - MISSING.part_log_odds * around.cover > least
    candidates = choose_most_confident(detected, np.flatnonzero(is_free & is_bold))
    owner = nobody.copy()
    owner[known] = seen
    features = _describe_detections(detected, around, candidates)
    besides = _describe_surroundings(objects, detected, pairs, owner)
    planted = _describe_detections(detected, besides, known)
    weights = p_real[seen]
    if min(len(candidates), len(seen)) < MISSING.min_learnt_objects:
        suspicions, known_suspicions = features[:, 0], planted[:, 0]
    else:
        is_linear = len(candidates) < MISSING.min_curved_objects
        model = fit_likeness(features, planted, weights, is_linear=is_linear)
        suspicions, known_suspicions = model.score(features), model.score(planted)
    sizes = compute_areas(detected.boxes)
    p_missing, lost = _judge_by_size(
        (suspicions, sizes[candidates]), (known_suspicions, sizes[known]), weights
    )
    is_right = detected.labels[known] == objects.labels[seen]
    is_right &= pairs.iou[chosen] >= MISSING.found_min_iou
    weighed = make_sample(known_suspicions, weights * p_right[seen])
    p_good = fit_mean_curve(weighed, is_right.astype(np.float64)).at(suspicions)
    p_missing *= _measure_trust(lost.value, len(objects))
    share_seen = len(seen) / max(len(objects), 1)  # assumed to be the same for missing objects
    return UnexplainedDetections(
        candidates,
        p_missing,
        p_missing * p_good,
        _estimate_missing_share(lost, share_seen, len(objects)),
    )


def _measure_trust(lost: float, number: int) -> float:
    """Return the share of the missing objects that are not background, given two numbers.

    `lost` is the number of missing objects, `number` that of annotations.
    """
    background = MISSING.background_rate * number
    return max(1 - background / max(lost, 1e-9), 0.0)


def _estimate_missing_share(lost: Share, share_seen: float, number: int) -> Share:
    """Return the share of all objects that lack an annotation, from the number of detected ones."""

    def of_all(count: float) -> float:
        total = count / max(share_seen, 0.1)
        return total / (number + total) if number + total else 0.0

    most = lost.high * MISSING.unseen_factor
    return Share(of_all(lost.value), of_all(lost.low), of_all(most))


def _judge_by_size(
    candidates: tuple[Floats, Floats], known: tuple[Floats, Floats], weights: Floats
) -> tuple[Floats, Share]:
    """Return the probability [c] that candidates are objects, and the number of objects.

    `candidates` and `known` objects are given as suspicions and sizes.
    """
    (seen, sizes), (planted, known_sizes) = candidates, known
    number = int(np.clip(len(planted) // MISSING.min_stratum_objects, 1, MISSING.num_sizes))
    limits = np.quantile(known_sizes, np.arange(1, number) / number) if number > 1 else np.zeros(0)
    strata = np.searchsorted(limits, sizes, side="right")
    known_strata = np.searchsorted(limits, known_sizes, side="right")
    p, bounds = np.zeros(len(seen)), np.zeros((number, 3))
    for k in range(number):
        is_own, is_known = strata == k, known_strata == k
        pair = make_sample(seen[is_own]), make_sample(planted[is_known], weights[is_known])
        share = (
            estimate_error_share(*pair, MISSING.stratum_caution_deviations)
            if number > 1
            else estimate_error_share(*pair)
        )
        p[is_own], _ = judge_by_scores(
            seen[is_own], planted[is_known], weights[is_known], share.halved
        )
        bounds[k] = np.array([share.value, share.low, share.high]) * is_own.sum()
    values = bounds[:, 0]
    spread = [float(np.sqrt(((bounds[:, side] - values) ** 2).sum())) for side in (1, 2)]
    total = float(values.sum())
    return p, Share(total, max(total - spread[0], 0.0), total + spread[1])


def _to_log_odds(scores: Floats) -> Floats:
    inside = np.clip(scores, 1e-4, 1 - 1e-4)
    log_odds: Floats = np.log(inside / (1 - inside))
    return log_odds


def _describe_surroundings(
    objects: Objects, detected: Detected, pairs: Pairs, without: Rows
) -> _Surroundings:
    """Return the overlap of each detection with annotations other than `without` [m]."""
    is_there = pairs.first != without[pairs.second]
    first, second, iou = pairs.first[is_there], pairs.second[is_there], pairs.iou[is_there]
    own = compute_areas(detected.boxes)[second]
    both = compute_areas(objects.boxes)[first] + own
    cover = np.minimum(iou / (1 + iou) * both / np.maximum(own, 1e-9), 1.0)
    is_same = objects.labels[first] == detected.labels[second]
    number = len(detected)
    return _Surroundings(
        cover=find_largest(second, cover, number)[0],
        iou=find_largest(second, iou, number)[0],
        same_cover=find_largest(second[is_same], cover[is_same], number)[0],
    )


def _describe_detections(detected: Detected, around: _Surroundings, rows: Rows) -> Floats:
    """Return features [k, 4] of detections: their score and their overlap with annotations.

    The number of annotations of an image is not a feature, since missing annotations change it.
    """
    columns = (
        _to_log_odds(detected.scores[rows]),
        around.cover[rows],
        around.iou[rows],
        around.same_cover[rows],
    )
    return np.stack(columns, axis=1)


def _mark_on_ignored(ignored: Objects, detected: Detected) -> Mask:
    """Mark detections [m] that lie mostly within an ignored object."""
    pairs = find_overlaps(
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


def choose_most_confident(detected: Detected, rows: Rows) -> Rows:
    """Return the rows, ascending, without detections that overlap a more confident one."""
    rank = np.empty(len(rows), np.int64)
    rank[np.argsort(-detected.scores[rows], kind="stable")] = np.arange(len(rows))
    images, boxes = detected.image_rows[rows], detected.boxes[rows]
    pairs = find_overlaps(images, boxes, images, boxes, MISSING.same_object_min_iou)
    is_better = rank[pairs.second] < rank[pairs.first]
    first, second = pairs.first[is_better], pairs.second[is_better]
    is_kept = np.ones(len(rows), np.bool_)
    for _ in range(len(rows) + 1):  # ends after the longest chain of suppressions, which is short
        is_beaten = np.zeros(len(rows), np.bool_)
        is_beaten[first[is_kept[second]]] = True
        if (is_beaten != is_kept).all():
            break
        is_kept = ~is_beaten
    return rows[is_kept]
