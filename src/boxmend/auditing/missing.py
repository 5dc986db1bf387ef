"""Find objects without an annotation: confident detections that no annotation explains.

Missing annotations are planted by ignoring one: the detections of its object remain. Unexplained
detections are compared with these, separately for small, medium and large objects, since annotators
miss small objects more often. See `likeness`.
"""

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.calibration import (
    CALIBRATION,
    Share,
    estimate_error_share,
    fit_error_curve,
    fit_mean_curve,
    make_sample,
)
from boxmend.auditing.evidence import NONE, Detected, Objects
from boxmend.auditing.likeness import blend_log_odds, fit_likeness, keep_order, log_odds_of
from boxmend.auditing.pairs import Pairs, find_largest, find_overlaps
from boxmend.data.boxes import compute_areas
from boxmend.data.types import Floats, Mask, Rows


@dataclass(frozen=True)
class MissingConstants:
    """Constants of the search for objects without an annotation."""

    touching_min_iou: float = 0.02  # with an annotation; with less they are unrelated
    explained_min_iou: float = 0.45  # with an exact annotation, for a detection to be of its object
    explained_iou_slope: float = 0.4  # by which it is lower per unit of box noise
    explained_lowest_iou: float = 0.25
    ignored_min_cover: float = 0.5  # share of a detection within an ignored object that explains it
    same_object_min_iou: float = 0.4  # of two detections of one object
    min_score_quantile: float = 0.01  # of known objects; candidates have higher scores
    part_log_odds: float = 3.0  # subtracted from a detection that lies within an annotation
    num_sizes: int = 3  # strata, with equally many known objects each
    stratum_caution_deviations: float = 4.0  # instead of 3, since each stratum has its own share
    min_stratum_objects: int = 1_000  # known objects of each size; with fewer there is one size
    stratum_prior_objects: float = 100.0  # of each size, with the mean share of missing ones
    min_learnt_objects: int = 30  # known objects and candidates; fewer are too few to fit
    min_curved_objects: int = 500  # candidates; with fewer the regression is linear
    confident_scores: tuple[float, ...] = (0.97, 0.99)  # bands of confident detections
    confident_background: tuple[float, ...] = (0.007, 0.0025)  # of these, per annotation
    min_confident_share: float = 0.1  # of known objects, to conclude from confident ones to all
    model_weight: float = 0.06  # of the regression, beside the counts, in log odds
    found_min_iou: float = 0.5  # with the true box of a missing object that counts as found
    unseen_factor: float = 1.5  # missing objects per missing object that looks like a known one
    background_rate: float = 0.005  # detections of background per annotation
    noise_background_rate: float = 0.05  # of these, per squared box noise
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


@dataclass(frozen=True, eq=False)
class _Matches:
    """Detections that no annotation explains, and those that one annotation alone explains."""

    pairs: Pairs  # of annotations and detections
    candidates: Rows  # [c] detections without an annotation
    known: Rows  # [k] the most confident detection of each object that has one
    objects: Rows  # [k] their annotations
    iou: Floats  # [k] of both


def find_missing(
    scene: tuple[Objects, Objects, Detected], p_real: Floats, p_right: Floats, box_noise: float
) -> UnexplainedDetections:
    """Find objects without annotation, given annotations, ignored objects and detections.

    Ignored objects explain the detections on them. `p_real` [n] is the probability that an
    annotation is of an object, `p_right` [n] that the label of such an annotation is right, and
    `box_noise` the error of edges in shares of the side.
    """
    objects, _, detected = scene
    matches = _match_detections(scene, box_noise)
    candidates, known = matches.candidates, matches.known
    weights = p_real[matches.objects]
    features, planted = _describe_both(objects, detected, matches)
    is_fitted = min(len(candidates), len(known)) >= MISSING.min_learnt_objects
    if not is_fitted:
        suspicions, known_suspicions = features[:, 0], planted[:, 0]
    else:
        is_linear = len(candidates) < MISSING.min_curved_objects
        model = fit_likeness(features, planted, weights, is_linear=is_linear)
        suspicions, known_suspicions = model.score(features), model.score(planted)
    sizes = compute_areas(detected.boxes)
    lost, factors, known_factors = _compare_sizes(
        (suspicions, sizes[candidates]), (known_suspicions, sizes[known]), weights
    )
    excess = _count_excess(detected.scores[candidates], len(objects), box_noise)
    is_confident = detected.scores[known] >= MISSING.confident_scores[0]
    confident_share = float(is_confident.mean()) if len(known) else 1.0
    least = sum(count for _, count in excess) / max(confident_share, MISSING.min_confident_share)
    lost = Share(max(lost.value, least), lost.low, max(lost.high, least))
    trust = _measure_trust(lost.value, len(objects), box_noise)
    share = lost.value * trust / max(len(candidates), 1)
    suspicions = suspicions + np.log(factors)
    known_suspicions = known_suspicions + np.log(known_factors)
    samples = make_sample(suspicions), make_sample(known_suspicions, weights * known_factors)
    p_missing = keep_order(fit_error_curve(*samples, share).at(suspicions), suspicions)
    if is_fitted:  # then suspicions are log ratios of densities
        p_missing = blend_log_odds(p_missing, log_odds_of(suspicions, share), MISSING.model_weight)
    for is_own, count in excess:
        bound = min(count / max(int(is_own.sum()), 1), CALIBRATION.max_probability)
        p_missing[is_own] = np.maximum(p_missing[is_own], bound)
    is_right = detected.labels[known] == objects.labels[matches.objects]
    is_right &= matches.iou >= MISSING.found_min_iou
    weighed = make_sample(known_suspicions, weights * p_right[matches.objects])
    p_good = fit_mean_curve(weighed, is_right.astype(np.float64)).at(suspicions)
    share_seen = len(known) / max(len(objects), 1)  # assumed to be the same for missing objects
    return UnexplainedDetections(
        candidates,
        p_missing,
        p_missing * p_good,
        _estimate_missing_share(lost, trust, share_seen, len(objects)),
    )


def _match_detections(scene: tuple[Objects, Objects, Detected], box_noise: float) -> _Matches:
    """Find out which detections are explained, by how many annotations."""
    objects, ignored, detected = scene
    pairs = find_overlaps(
        objects.image_rows,
        objects.boxes,
        detected.image_rows,
        detected.boxes,
        MISSING.touching_min_iou,
    )
    own = np.flatnonzero(pairs.iou >= explained_min_iou(box_noise))
    number = np.bincount(pairs.second[own], minlength=len(detected))
    only = own[number[pairs.second[own]] == 1]  # without this annotation they would be unexplained
    scores = _to_log_odds(detected.scores)
    best, places = find_largest(pairs.first[only], scores[pairs.second[only]] + 20.0, len(objects))
    seen = np.flatnonzero(places >= 0)
    chosen = only[places[seen]]
    least = np.quantile(best - 20.0, MISSING.min_score_quantile) if len(best) else np.inf
    around = _describe_surroundings(objects, detected, pairs, np.full(len(detected), NONE))
    is_free = (number == 0) & ~mark_on_ignored(ignored, detected)
    is_bold = scores - MISSING.part_log_odds * around.cover > least
    candidates = choose_most_confident(detected, np.flatnonzero(is_free & is_bold))
    return _Matches(pairs, candidates, pairs.second[chosen], seen, pairs.iou[chosen])


def explained_min_iou(box_noise: float) -> float:
    """Return the IoU with an annotation from which it explains a detection."""
    reached = MISSING.explained_min_iou - MISSING.explained_iou_slope * box_noise
    return max(reached, MISSING.explained_lowest_iou)


def _describe_both(
    objects: Objects, detected: Detected, matches: _Matches
) -> tuple[Floats, Floats]:
    """Return features of candidates [c, 5] and, without their annotations, of objects [k, 5]."""
    without_owner = np.full(len(detected), NONE)
    owner = without_owner.copy()
    owner[matches.known] = matches.objects
    by_class = _compare_classes(detected, matches, objects.num_labels)
    described = []
    for rows, without in ((matches.candidates, without_owner), (matches.known, owner)):
        around = _describe_surroundings(objects, detected, matches.pairs, without)
        plain = _describe_detections(detected, around, rows)
        described.append(np.column_stack([plain, by_class[detected.labels[rows]]]))
    return described[0], described[1]


def _compare_classes(detected: Detected, matches: _Matches, num_labels: int) -> Floats:
    """Return for each class [C] the log ratio of its known objects to its hesitant candidates.

    A detector hesitates more often over background in some classes than in others.
    """
    scores = detected.scores[matches.candidates]
    labels = detected.labels[matches.candidates]
    hesitant = np.bincount(labels, scores * (1 - scores), num_labels)
    known = np.bincount(detected.labels[matches.known], minlength=num_labels)
    ratios: Floats = np.log((known + 0.5) / (hesitant + 1.0))
    return ratios


def _count_excess(scores: Floats, number: int, box_noise: float) -> list[tuple[Mask, float]]:
    """Return for each band of confident scores the candidates in it, and how many are objects.

    A detector is rarely confident about background. The more confident candidates there are, for
    `number` annotations, the larger is the share of objects, whatever else they look like.
    """
    unmatched = MISSING.noise_background_rate * box_noise**2
    ends = (*MISSING.confident_scores[1:], np.inf)
    bands = zip(MISSING.confident_scores, ends, MISSING.confident_background, strict=True)
    counts = []
    for least, end, rate in bands:
        is_own = (scores >= least) & (scores < end)
        counts.append((is_own, max(float(is_own.sum()) - (rate + unmatched) * number, 0.0)))
    return counts


def _measure_trust(lost: float, number: int, box_noise: float) -> float:
    """Return the share of the missing objects that are not background, given two numbers.

    `lost` is the number of missing objects, `number` that of annotations.
    """
    rate = MISSING.background_rate + MISSING.noise_background_rate * box_noise**2
    return max(1 - rate * number / max(lost, 1e-9), 0.0)


def _estimate_missing_share(lost: Share, trust: float, share_seen: float, number: int) -> Share:
    """Return the share of all objects that lack an annotation, from the number of detected ones."""

    def of_all(count: float) -> float:
        total = count / max(share_seen, 0.1)
        return total / (number + total) if number + total else 0.0

    real = lost.value * trust
    most = lost.high * MISSING.unseen_factor
    return Share(of_all(real), of_all(min(lost.low, real)), of_all(most))


def _compare_sizes(
    candidates: tuple[Floats, Floats], known: tuple[Floats, Floats], weights: Floats
) -> tuple[Share, Floats, Floats]:
    """Return the number of missing objects, and factors of candidates [c] and known objects [k].

    `candidates` and `known` objects are given as suspicions and sizes. The number is estimated for
    each size, since annotators miss small objects more often. A factor says how much more often an
    object of its size is missing than others.
    """
    (seen, sizes), (planted, known_sizes) = candidates, known
    number = int(np.clip(len(planted) // MISSING.min_stratum_objects, 1, MISSING.num_sizes))
    limits = np.quantile(known_sizes, np.arange(1, number) / number) if number > 1 else np.zeros(0)
    strata = np.searchsorted(limits, sizes, side="right")
    known_strata = np.searchsorted(limits, known_sizes, side="right")
    bounds, totals = np.zeros((number, 3)), np.zeros(number)
    for k in range(number):
        is_own, is_known = strata == k, known_strata == k
        pair = make_sample(seen[is_own]), make_sample(planted[is_known], weights[is_known])
        share = (
            estimate_error_share(*pair, MISSING.stratum_caution_deviations)
            if number > 1
            else estimate_error_share(*pair)
        )
        bounds[k] = np.array([share.value, share.low, share.high]) * is_own.sum()
        totals[k] = pair[1].total
    values = bounds[:, 0]
    expected = values.sum() / max(totals.sum(), 1e-9) * totals
    prior = MISSING.stratum_prior_objects
    factors = (values + prior) / (expected + prior)
    spread = [float(np.sqrt(((bounds[:, side] - values) ** 2).sum())) for side in (1, 2)]
    total = float(values.sum())
    number_missing = Share(total, max(total - spread[0], 0.0), total + spread[1])
    return number_missing, factors[strata], factors[known_strata]


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


def mark_on_ignored(ignored: Objects, detected: Detected) -> Mask:
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
