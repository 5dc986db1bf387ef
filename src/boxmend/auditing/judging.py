"""Judge every annotation by the evidence: the probability of each kind of error, and its fix."""

from dataclasses import dataclass, replace

import numpy as np

from boxmend.auditing import boxes as box_model
from boxmend.auditing.boxes import BoxModel, BoxOpinion
from boxmend.auditing.calibration import NOT_MEASURED, Share
from boxmend.auditing.duplicates import REPEATS, Repeats, find_repeats
from boxmend.auditing.evidence import Detected, Evidence, Objects, gather_evidence
from boxmend.auditing.gross_boxes import GROSS_BOXES, GrossBoxes, judge_gross_boxes
from boxmend.auditing.labels import LabelOpinion, judge_labels
from boxmend.auditing.missing import MISSING, UnexplainedDetections, find_missing
from boxmend.auditing.presence import PRESENCE, Presence, judge_presence
from boxmend.auditing.weak_detectors import (
    WEAKNESS,
    count_clear_contradictions,
    doubt_boxes,
    doubt_labels,
    doubt_missing,
    doubt_presence,
    estimate_doubt,
)
from boxmend.data.types import Floats, Rows


@dataclass(frozen=True)
class PullConstants:
    """Constants of the measurement of how far detections follow annotated boxes."""

    max_annotations: int = 20_000  # whose boxes are shifted
    max_shift_sides: float = 0.2


@dataclass(frozen=True)
class RateConstants:
    """Constants of the bounds of estimated rates."""

    unseen_per_bad_box: float = 0.025  # objects that seem to have no detection


PULL = PullConstants()
RATES = RateConstants()


@dataclass(frozen=True, eq=False)
class AuditInputs:
    """The inputs of a judgement: annotations, ignored objects, sizes of images and detections."""

    objects: Objects
    ignored: Objects  # crowds and difficult objects: not judged, but they explain detections
    sizes: Floats  # [images, 2] width and height; 0 where unknown
    detected: Detected | None  # None where a training run gave the evidence
    box_noise: Share | None = None  # N, where a training run estimated it


@dataclass(frozen=True, eq=False)
class AuditOpinion:
    """The judgement of annotations, row by row."""

    labels: LabelOpinion
    boxes: BoxOpinion
    box_model: BoxModel
    presence: Presence
    repeats: Repeats
    missing: UnexplainedDetections
    p_there: Floats  # [n] probability that an annotation is neither spurious nor a duplicate
    gross: GrossBoxes | None = None  # None where a training run gave the evidence
    doubt: float = 0.0  # from 0 to 1, in a weak detector

    def estimate_rates(self) -> dict[str, Share]:
        """Return the estimated rates of all kinds of errors, with their bounds."""
        bad = self.estimate_bad_boxes()
        # The share of objects whose box is too bad to judge.
        hidden = RATES.unseen_per_bad_box * bad.value
        return {
            "wrong_labels": self.labels.rate.widen_bounds(hidden),
            "bad_boxes": bad,
            "missing": self.missing.rate.widen_bounds(MISSING.min_rate + hidden),
            "spurious": self.presence.rate.widen_bounds(PRESENCE.min_rate + 2 * hidden),
            "duplicates": self.repeats.rate.widen_bounds(REPEATS.min_rate),
        }

    def estimate_bad_boxes(self) -> Share:
        """Return the share of bad boxes, with bounds from their number and from the box noise."""
        p_bad, model = self.boxes.p_bad, self.box_model
        if not len(p_bad):
            return NOT_MEASURED
        mean = float(p_bad.mean())
        spread = 1.96 * float(np.sqrt((p_bad * (1 - p_bad)).sum())) / len(p_bad)
        low, middle, high = map(box_model.compute_bad_share, (model.low, model.noise, model.high))
        least = min(mean - spread, mean + low - middle)
        most = max(mean + spread, mean + high - middle)
        if self.gross is not None:
            least -= self.gross.rate.value - self.gross.rate.low
            most += self.gross.rate.high - self.gross.rate.value
        background = self.doubt * WEAKNESS.bad_boxes  # already taken off the mean
        share = Share(mean, max(least - background, 0.0), min(most + background, 1.0))
        return share.widen_bounds(GROSS_BOXES.min_rate)


def judge_annotations(
    scene: AuditInputs,
    evidence: Evidence,
    random: np.random.Generator,
    labels: LabelOpinion | None = None,
) -> AuditOpinion:
    """Judge all annotations of a scene.

    Spurious and missing annotations and gross boxes are judged only if the scene has detections.
    `labels` is a judgement of labels to use instead of a new one.
    """
    objects, detected = scene.objects, scene.detected
    doubt = 0.0 if detected is None else estimate_doubt(objects, scene.ignored, detected)
    model, boxes = _judge_boxes(scene, evidence, random)
    presence = Presence(np.zeros(len(objects)), NOT_MEASURED)
    if detected is not None:
        presence = judge_presence(objects, evidence, detected, scene.sizes, model.noise, random)
    p_real = 1 - presence.p_spurious
    if labels is None:
        is_weak = doubt > 0
        labels = judge_labels(objects, evidence, p_real, model.noise, random, is_weak=is_weak)
    gross = None
    if detected is not None:
        gross = judge_gross_boxes(objects, detected, scene.sizes, random)
        boxes = _combine_opinions(boxes, gross)
    repeats = find_repeats(objects, evidence.support, model.noise, random)
    none = np.zeros(0)
    missing = UnexplainedDetections(none.astype(np.int64), none, none, NOT_MEASURED)
    if detected is not None:
        seen = objects, scene.ignored, detected
        missing = find_missing(seen, p_real, 1 - labels.p_wrong, model.noise)
    p_there = p_real.copy()
    p_there[repeats.rows] *= 1 - repeats.p_duplicate
    opinion = AuditOpinion(labels, boxes, model, presence, repeats, missing, p_there, gross)
    return _doubt_opinion(opinion, doubt, (objects, evidence)) if doubt else opinion


def _doubt_opinion(
    opinion: AuditOpinion, doubt: float, scene: tuple[Objects, Evidence]
) -> AuditOpinion:
    """Return the opinion with errors that a weak detector may have made counted less."""
    presence = doubt_presence(opinion.presence, doubt)
    p_there = 1 - presence.p_spurious
    p_there[opinion.repeats.rows] *= 1 - opinion.repeats.p_duplicate
    return replace(
        opinion,
        labels=doubt_labels(opinion.labels, doubt, count_clear_contradictions(*scene)),
        boxes=doubt_boxes(opinion.boxes, doubt),
        presence=presence,
        missing=doubt_missing(opinion.missing, doubt, len(p_there)),
        p_there=p_there,
        doubt=doubt,
    )


def _judge_boxes(
    scene: AuditInputs, evidence: Evidence, random: np.random.Generator
) -> tuple[BoxModel, BoxOpinion]:
    """Judge annotated boxes by detected ones.

    A box without a detection has the mean probability of being bad, and no fix.
    """
    objects = scene.objects
    seen = np.flatnonzero(~np.isnan(evidence.boxes).any(axis=1))
    annotated, detected = objects.boxes[seen], evidence.boxes[seen]
    confidences = evidence.confidences[seen]
    sizes = scene.sizes[objects.image_rows[seen]]
    pull = evidence.pull if scene.detected is None else _measure_pull(scene, evidence, seen, random)
    model, detected = box_model.fit_box_model(annotated, detected, sizes, confidences, pull)
    if scene.box_noise is not None:
        known = scene.box_noise
        model = replace(model, noise=known.value, low=known.low, high=known.high)
    model = box_model.temper_model(model, annotated, detected, confidences, sizes)
    judged = box_model.judge_boxes(model, annotated, detected, confidences, sizes)
    opinion = BoxOpinion(
        p_bad=np.full(len(objects), judged.p_bad.mean() if len(seen) else 0.0),
        boxes=objects.boxes.copy(),
        p_fix=np.zeros(len(objects)),
        iou_gain=np.zeros(len(objects)),
    )
    for name in ("p_bad", "boxes", "p_fix", "iou_gain"):
        getattr(opinion, name)[seen] = getattr(judged, name)
    return model, opinion


def _combine_opinions(usual: BoxOpinion, gross: GrossBoxes) -> BoxOpinion:
    """Return the judgement of boxes that may be bad by the usual noise or be grossly off."""
    is_gross = gross.p_fix > usual.p_fix
    return BoxOpinion(
        p_bad=1 - (1 - usual.p_bad) * (1 - gross.p_gross),
        boxes=np.where(is_gross[:, None], gross.boxes, usual.boxes),
        p_fix=np.where(is_gross, gross.p_fix, usual.p_fix),
        iou_gain=np.where(is_gross, gross.iou_gain, usual.iou_gain),
    )


def _measure_pull(
    scene: AuditInputs, evidence: Evidence, seen: Rows, random: np.random.Generator
) -> float:
    """Return the share by which detections follow annotated boxes that are shifted."""
    objects, detected = scene.objects, scene.detected
    if detected is None or not len(seen):
        return 0.0
    rows = np.sort(random.permutation(seen)[: PULL.max_annotations])
    sides = np.tile(objects.boxes[rows, 2:] - objects.boxes[rows, :2], 2)
    shifts = (2 * random.random((len(rows), 4)) - 1) * PULL.max_shift_sides
    shifted = Objects(
        objects.image_rows[rows],
        objects.labels[rows],
        objects.boxes[rows] + shifts * sides,
        objects.num_labels,
    )
    again = gather_evidence(shifted, objects, detected).boxes
    is_there = ~np.isnan(again).any(axis=1)
    responses = ((again - evidence.boxes[rows]) / sides)[is_there]
    return box_model.estimate_pull(shifts[is_there], responses)
