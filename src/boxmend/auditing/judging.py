"""One opinion of every annotation, from the evidence alone: what may be wrong with it."""

from dataclasses import dataclass

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
from boxmend.data.types import Floats, Rows


@dataclass(frozen=True)
class PullConstants:
    """How it is measured how far detections follow annotated boxes."""

    max_annotations: int = 20_000  # whose boxes are shifted to see what follows
    max_shift_sides: float = 0.2


PULL = PullConstants()
UNSEEN_PER_BAD_BOX = 0.025  # objects that a detection no longer seems to show


@dataclass(frozen=True, eq=False)
class AuditInputs:
    """What is looked at: annotations, others that explain detections, and images."""

    objects: Objects
    ignored: Objects  # crowds and the like: never judged
    sizes: Floats  # [images, 2] width and height; 0 where unknown
    detected: Detected | None  # None where a training run gave the evidence


@dataclass(frozen=True, eq=False)
class AuditOpinion:
    """What to think of annotations, row by row."""

    labels: LabelOpinion
    boxes: BoxOpinion
    box_model: BoxModel
    presence: Presence
    repeats: Repeats
    missing: UnexplainedDetections
    p_there: Floats  # [n] that it is neither spurious nor a duplicate
    gross: GrossBoxes | None = None  # None where a training run gave the evidence

    def rates(self) -> dict[str, Share]:
        """The estimated rates of all kinds of noise, with their bounds."""
        bad = self.bad_boxes()
        blurred = UNSEEN_PER_BAD_BOX * bad.value  # bad boxes hide what is right
        return {
            "wrong_labels": self.labels.rate.less_certain(blurred),
            "bad_boxes": bad,
            "missing": self.missing.rate.less_certain(MISSING.min_rate + blurred),
            "spurious": self.presence.rate.less_certain(PRESENCE.min_rate + 2 * blurred),
            "duplicates": self.repeats.rate.less_certain(REPEATS.min_rate),
        }

    def bad_boxes(self) -> Share:
        """The share of bad boxes; its bounds are those of their count and of the box noise."""
        p_bad, model = self.boxes.p_bad, self.box_model
        if not len(p_bad):
            return NOT_MEASURED
        mean = float(p_bad.mean())
        spread = 1.96 * float(np.sqrt((p_bad * (1 - p_bad)).sum())) / len(p_bad)
        low, middle, high = map(box_model.spoilt_share, (model.low, model.noise, model.high))
        least = min(mean - spread, mean + low - middle)
        most = max(mean + spread, mean + high - middle)
        if self.gross is not None:
            least -= self.gross.rate.value - self.gross.rate.low
            most += self.gross.rate.high - self.gross.rate.value
        found = Share(mean, max(least, 0.0), min(most, 1.0))
        return found.less_certain(GROSS_BOXES.min_rate)


def judge(
    scene: AuditInputs,
    evidence: Evidence,
    random: np.random.Generator,
    labels: LabelOpinion | None = None,
) -> AuditOpinion:
    """Weigh all annotations of a scene; presence needs detections, the rest only evidence.

    `labels` is an opinion on labels that there is already.
    """
    objects, detected = scene.objects, scene.detected
    presence = Presence(np.zeros(len(objects)), NOT_MEASURED)
    if detected is not None:
        presence = judge_presence(objects, evidence, detected, scene.sizes, random)
    p_real = 1 - presence.p_spurious
    if labels is None:
        labels = judge_labels(objects, evidence, p_real, random)
    model, boxes = _judge_boxes(scene, evidence, random)
    gross = None
    if detected is not None:
        gross = judge_gross_boxes(objects, detected, scene.sizes, random)
        boxes = _combine(boxes, gross)
    repeats = find_repeats(objects, evidence.support, model.noise, random)
    none = np.zeros(0)
    missing = UnexplainedDetections(none.astype(np.int64), none, none, NOT_MEASURED)
    if detected is not None:
        seen = objects, scene.ignored, detected
        missing = find_missing(seen, p_real, 1 - labels.p_wrong)
    p_there = p_real.copy()
    p_there[repeats.rows] *= 1 - repeats.p_duplicate
    return AuditOpinion(labels, boxes, model, presence, repeats, missing, p_there, gross)


def _judge_boxes(
    scene: AuditInputs, evidence: Evidence, random: np.random.Generator
) -> tuple[BoxModel, BoxOpinion]:
    """Weigh the boxes that were seen; others are as probably bad as those, and stay as they are."""
    objects = scene.objects
    seen = np.flatnonzero(~np.isnan(evidence.boxes).any(axis=1))
    annotated, detected = objects.boxes[seen], evidence.boxes[seen]
    confidences = evidence.confidences[seen]
    sizes = scene.sizes[objects.image_rows[seen]]
    pull = evidence.pull if scene.detected is None else _pull(scene, evidence, seen, random)
    model, detected = box_model.fit_box_model(annotated, detected, sizes, confidences, pull)
    model = box_model.temper_model(model, annotated, detected, confidences, sizes)
    found = box_model.judge_boxes(model, annotated, detected, confidences, sizes)
    opinion = BoxOpinion(
        p_bad=np.full(len(objects), found.p_bad.mean() if len(seen) else 0.0),
        boxes=objects.boxes.copy(),
        p_fix=np.zeros(len(objects)),
        iou_gain=np.zeros(len(objects)),
    )
    for name in ("p_bad", "boxes", "p_fix", "iou_gain"):
        getattr(opinion, name)[seen] = getattr(found, name)
    return model, opinion


def _combine(usual: BoxOpinion, gross: GrossBoxes) -> BoxOpinion:
    """Return a judgement in which a box may be bad by the usual noise or be grossly off."""
    is_gross = gross.p_fix > usual.p_fix
    return BoxOpinion(
        p_bad=1 - (1 - usual.p_bad) * (1 - gross.p_gross),
        boxes=np.where(is_gross[:, None], gross.boxes, usual.boxes),
        p_fix=np.where(is_gross, gross.p_fix, usual.p_fix),
        iou_gain=np.where(is_gross, gross.iou_gain, usual.iou_gain),
    )


def _pull(scene: AuditInputs, evidence: Evidence, seen: Rows, random: np.random.Generator) -> float:
    """Shift some annotated boxes and see how far what is detected follows."""
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
    answers = ((again - evidence.boxes[rows]) / sides)[is_there]
    return box_model.pull_of(shifts[is_there], answers)
