"""Measure how weak a detector is, and conclude less from the detections of a weak one.

A weak detector confuses, misplaces and overlooks many objects even where it is fairly confident.
Such errors look like errors of the annotator. Scores of different detectors have different scales,
so they do not show which detector is weak. Agreement with the annotations does: from the most
confident detections to less confident ones it falls slowly for a strong detector, and fast for a
weak one. Errors of the annotator lower the agreement of all detections, so their ratio is used.
"""

from dataclasses import dataclass, replace

import numpy as np

from boxmend.auditing.boxes import BoxOpinion
from boxmend.auditing.calibration import Share, find_lower_bound
from boxmend.auditing.evidence import NONE, Detected, Evidence, Objects
from boxmend.auditing.labels import LabelOpinion
from boxmend.auditing.missing import UnexplainedDetections, choose_most_confident, mark_on_ignored
from boxmend.auditing.notes import warning
from boxmend.auditing.pairs import find_largest, find_overlaps
from boxmend.auditing.presence import Presence
from boxmend.data.types import Floats


@dataclass(frozen=True)
class WeaknessConstants:
    """Constants of the doubt, from 0 to 1, and of what a detector of doubt 1 gets wrong."""

    agreeing_min_iou: float = 0.3  # with an annotation of the same class
    surest: float = 1 / 20  # detections per annotation that a weak detector is right about, too
    usual: float = 1 / 2  # detections per annotation that it is compared by
    compared: int = 2  # detections per annotation, among which are those of the usual confidence
    strong_ratio: float = 0.9  # of the agreement of the usual to that of the surest detections
    weak_ratio: float = 0.8
    clearest: float = 1 / 40  # of the annotations, by evidence, that a weak detector is right about
    label_margin: float = 0.015  # of the lower bound of the rate of wrong labels
    deviations: float = 2.0  # by which the ratio must be lower
    wrong_labels: float = 0.005  # right labels, per annotation, that look wrong
    hidden_labels: float = 0.02  # wrong labels, per annotation, where the detector errs likewise
    hidden_label_share: float = 0.1  # of the wrong labels, besides
    spurious_odds: float = 0.12  # of objects among annotations that look most spurious
    bad_boxes: float = 0.04  # good boxes, per annotation, that look bad
    missing: float = 0.035  # detections of background, per annotation, that look like objects
    missing_margin: float = 0.5  # of them, by which the lower bound of the rate is lower, too
    noted_doubt: float = 0.1  # from which `audit` warns


WEAKNESS = WeaknessConstants()


def estimate_doubt(objects: Objects, ignored: Objects, detected: Detected) -> float:
    """Return how much to doubt a detector: 0 if it is strong, 1 if it is weak.

    With few annotations, the ratio of agreements is uncertain, and the doubt is small.
    """
    order = np.argsort(-detected.scores, kind="stable")[: WEAKNESS.compared * len(objects)]
    first = Detected(
        detected.image_rows[order],
        detected.labels[order],
        detected.scores[order],
        detected.boxes[order],
    )
    rows = choose_most_confident(first, np.flatnonzero(~mark_on_ignored(ignored, first)))
    agrees = _measure_agreement(objects, first)[rows] >= WEAKNESS.agreeing_min_iou
    surest, usual = (round(share * len(objects)) for share in (WEAKNESS.surest, WEAKNESS.usual))
    if not surest or not agrees[:surest].any():
        return 0.0
    shares = float(agrees[:surest].mean()), float(agrees[:usual].mean())
    numbers = len(agrees[:surest]), len(agrees[:usual])
    return doubt_of_ratio(shares, numbers)


def doubt_of_ratio(shares: tuple[float, float], numbers: tuple[int, int]) -> float:
    """Return the doubt for the agreement of the surest and of the usual detections.

    `numbers` are those of the detections.
    """
    surest, usual = shares
    variances = [
        share * (1 - share) / number for share, number in zip(shares, numbers, strict=True)
    ]
    ratio = usual / surest
    error = float(np.hypot(ratio * np.sqrt(variances[0]), np.sqrt(variances[1]))) / surest
    excess = WEAKNESS.strong_ratio - (ratio + WEAKNESS.deviations * error)
    return float(np.clip(excess / (WEAKNESS.strong_ratio - WEAKNESS.weak_ratio), 0.0, 1.0))


def count_clear_contradictions(objects: Objects, evidence: Evidence) -> tuple[int, int]:
    """Return how many of the most clearly seen annotations are contradicted, and their number."""
    every = np.arange(len(objects))
    values, seen = evidence.best_other(every, np.full(len(every), NONE))
    number = round(WEAKNESS.clearest * len(every))
    rows = np.argsort(-np.where(seen == NONE, 0.0, values), kind="stable")[:number]
    return int((seen[rows] != objects.labels[rows]).sum()), number


def doubt_labels(opinion: LabelOpinion, doubt: float, surest: tuple[int, int]) -> LabelOpinion:
    """Return the opinion with wrong labels that the detector's errors may explain counted less.

    `surest` are the contradictions among the most clearly seen annotations, and their number. As
    many labels of other annotations are wrong; further contradictions are errors of the detector.
    """
    count, number = surest
    rate, total = opinion.rate, max(number, 1)
    most = min(rate.value, (count + np.sqrt(count) + 1) / total)
    value = rate.value + doubt * (most - rate.value)
    background = doubt * (max(rate.value - count / total, 0.0) + WEAKNESS.wrong_labels)
    odds = min(background / max(rate.value, 1e-9), 1.0)  # of the detector's errors
    factor = value / max(rate.value, 1e-9) / (1 + odds * opinion.p_wrong)
    least = min(rate.low, find_lower_bound(count) / total) - WEAKNESS.label_margin
    high = rate.high * (1 + doubt * WEAKNESS.hidden_label_share) + doubt * WEAKNESS.hidden_labels
    reach = min(doubt / WEAKNESS.noted_doubt, 1.0)  # full where `audit` warns
    low = rate.low + reach * (max(least, 0.0) - rate.low)
    return replace(
        opinion,
        p_wrong=opinion.p_wrong * factor,
        p_fix=opinion.p_fix * factor,
        rate=Share(value, min(low, value), min(high, 1.0)),
    )


def doubt_presence(opinion: Presence, doubt: float) -> Presence:
    """Return the opinion with even the most suspicious annotations possibly of an object."""
    p_spurious = opinion.p_spurious / (1 + doubt * WEAKNESS.spurious_odds * opinion.p_spurious)
    return replace(opinion, p_spurious=p_spurious)


def doubt_boxes(opinion: BoxOpinion, doubt: float) -> BoxOpinion:
    """Return the opinion with bad boxes that the detector's errors may explain counted less."""
    mean = float(opinion.p_bad.mean()) if len(opinion.p_bad) else 0.0
    factor = _keep_factor(mean, doubt * WEAKNESS.bad_boxes)
    return replace(
        opinion,
        p_bad=opinion.p_bad * factor,
        p_fix=opinion.p_fix * factor,
        iou_gain=opinion.iou_gain * factor,
    )


def doubt_missing(
    found: UnexplainedDetections, doubt: float, num_objects: int
) -> UnexplainedDetections:
    """Return what is found, with objects that background may explain counted less."""
    background = doubt * WEAKNESS.missing
    expected = float(found.p_missing.sum()) / max(num_objects, 1)
    rate = found.rate
    factor = _keep_factor(max(expected, rate.value), background)
    low = rate.low - background * (1 + WEAKNESS.missing_margin)
    return replace(
        found,
        p_missing=found.p_missing * factor,
        p_fix=found.p_fix * factor,
        rate=Share(max(rate.value - background, 0.0), max(low, 0.0), rate.high),
    )


def list_doubts(doubt: float) -> list[str]:
    """Return a warning if the detector is weak."""
    if doubt < WEAKNESS.noted_doubt:
        return []
    return [
        warning(
            "the detector is weak: only its surest detections agree with the annotations. Most "
            "contradictions may be errors of the detector, so fewer fixes are certain, and the "
            "intervals of the rates are wide; a better detector finds more"
        )
    ]


def _keep_factor(share: float, background: float) -> float:
    """Return the part of a share that is not background."""
    return max(1 - background / max(share, 1e-9), 0.0)


def _measure_agreement(objects: Objects, detected: Detected) -> Floats:
    """Return the largest IoU [m] of each detection with an annotation of its class."""
    pairs = find_overlaps(objects.image_rows, objects.boxes, detected.image_rows, detected.boxes)
    is_same = objects.labels[pairs.first] == detected.labels[pairs.second]
    return find_largest(pairs.second[is_same], pairs.iou[is_same], len(detected))[0]
