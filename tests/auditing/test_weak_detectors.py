"""A weak detector: how weak it is, and how much less follows from what it says."""

from dataclasses import replace

import numpy as np
import pytest

from boxmend.auditing.audit import Audit, AuditSettings
from boxmend.auditing.boxes import BoxOpinion
from boxmend.auditing.calibration import Share
from boxmend.auditing.completed import CompletedAudit, complete_audit
from boxmend.auditing.evidence import Detected, Evidence, Objects
from boxmend.auditing.fixes.choosing import choose_fixes
from boxmend.auditing.labels import LabelOpinion
from boxmend.auditing.missing import UnexplainedDetections
from boxmend.auditing.presence import Presence
from boxmend.auditing.weak_detectors import (
    count_clear_contradictions,
    doubt_boxes,
    doubt_labels,
    doubt_missing,
    doubt_of_ratio,
    doubt_presence,
    estimate_doubt,
)
from boxmend.data.dataset import Dataset
from boxmend.data.types import Floats, Mask
from tests.auditing.audit_scenes import LABELS, Noise, scene

NO_OBJECTS = Objects(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 4)), 2)


def one_in_each_image(is_right: Mask, scores: Floats) -> tuple[Objects, Detected]:
    """Annotations of class 0, one an image, each detected at its place, rightly or as class 1."""
    number = len(is_right)
    boxes = np.tile([10.0, 10.0, 50.0, 50.0], (number, 1))
    objects = Objects(np.arange(number), np.zeros(number, np.int64), boxes, 2)
    return objects, Detected(np.arange(number), (~is_right).astype(np.int64), scores, boxes)


def test_a_detector_is_weak_if_its_usual_detections_agree_far_less_than_its_surest() -> None:
    # 0.7 + 2 sqrt(0.7 * 0.3 / 1000) = 0.729 is below 0.8
    assert doubt_of_ratio((1.0, 0.7), (100, 1000)) == 1.0
    # 0.84 + 2 sqrt(0.84 * 0.16 / 1000) = 0.8632, and (0.9 - 0.8632) / (0.9 - 0.8) = 0.368
    assert doubt_of_ratio((1.0, 0.84), (100, 1000)) == pytest.approx(0.368, abs=0.001)
    assert doubt_of_ratio((1.0, 0.9), (100, 1000)) == 0.0


def test_what_few_detections_say_about_a_detector_is_no_doubt() -> None:
    # 0.84 + 2 sqrt(0.84 * 0.16 / 50) = 0.944
    assert doubt_of_ratio((1.0, 0.84), (5, 50)) == 0.0


def test_errors_of_the_annotator_are_no_doubt_in_the_detector() -> None:
    assert doubt_of_ratio((0.8, 0.78), (500, 5000)) == 0.0
    assert doubt_of_ratio((0.8, 0.56), (500, 5000)) == 1.0


def test_only_the_order_of_the_scores_counts() -> None:
    number = 1000
    scores = np.linspace(1, 0.01, number)
    is_right = np.arange(number) % 2 == 0  # of the usual 500, half agree
    is_right[:50] = True  # the surest twentieth
    objects, detected = one_in_each_image(is_right, scores)
    assert estimate_doubt(objects, NO_OBJECTS, detected) == 1.0
    faint = replace(detected, scores=scores**3 / 10)
    assert estimate_doubt(objects, NO_OBJECTS, faint) == 1.0
    objects, detected = one_in_each_image(np.arange(number) < 500, scores)
    assert estimate_doubt(objects, NO_OBJECTS, detected) == 0.0  # the others are less sure


def test_detections_on_ignored_objects_are_no_doubt() -> None:
    is_right = np.arange(1000) % 2 == 0
    is_right[:50] = True
    objects, detected = one_in_each_image(is_right, np.linspace(1, 0.01, 1000))
    ignored, others = take(objects, ~is_right), take(objects, is_right)
    assert estimate_doubt(others, ignored, detected) == 0.0


def take(objects: Objects, is_taken: Mask) -> Objects:
    return Objects(
        objects.image_rows[is_taken], objects.labels[is_taken], objects.boxes[is_taken], 2
    )


def test_without_detections_or_agreement_there_is_no_doubt() -> None:
    objects, detected = one_in_each_image(np.zeros(100, np.bool_), np.ones(100))
    assert estimate_doubt(objects, NO_OBJECTS, detected) == 0.0
    none = np.zeros(0, np.int64)
    nothing = Detected(none, none, np.zeros(0), np.zeros((0, 4)))
    assert estimate_doubt(objects, NO_OBJECTS, nothing) == 0.0
    assert estimate_doubt(NO_OBJECTS, NO_OBJECTS, detected) == 0.0


def test_contradictions_are_counted_among_the_annotations_seen_most_clearly() -> None:
    # 80 annotations of class 0; row k has evidence k / 100 for class 1, and rows 78 and 79 for 0.
    rows = np.arange(80)
    keys = np.where(rows >= 78, 2 * rows, 2 * rows + 1)
    evidence = Evidence(
        num_labels=2,
        keys=keys,
        values=rows / 100,
        rest=np.full(80, 0.01),
        support=np.ones(80),
        boxes=np.zeros((80, 4)),
        confidences=np.ones(80),
    )
    objects = Objects(rows, np.zeros(80, np.int64), np.zeros((80, 4)), 2)
    assert count_clear_contradictions(objects, evidence) == (0, 2)
    assert count_clear_contradictions(replace(objects, labels=objects.labels + 1), evidence) == (
        2,
        2,
    )


def test_wrong_labels_are_as_frequent_as_among_the_annotations_seen_most_clearly() -> None:
    p_wrong, p_fix = np.array([0.9, 0.1]), np.array([0.8, 0.05])
    opinion = LabelOpinion(p_wrong, np.array([1, 1]), p_fix, Share(0.04, 0.03, 0.05))
    result = doubt_labels(opinion, 1.0, (9, 900))
    # At most (9 + 3 + 1) / 900 = 0.0144 are wrong; 0.04 - 0.01 + 0.005 are errors of the detector,
    # 0.875 for each of the 0.04.
    assert result.rate.value == pytest.approx(0.014444, abs=1e-6)
    factor = 0.014444 / 0.04 / (1 + 0.875 * p_wrong)
    assert result.p_wrong == pytest.approx(p_wrong * factor, abs=1e-4)
    assert result.p_fix == pytest.approx(p_fix * factor, abs=1e-4)
    assert result.rate.low == 0.0  # (sqrt(9.25) - 0.98)^2 - 0.25 = 4 of 900 are less than 0.015
    assert result.rate.high == pytest.approx(0.05 * 1.1 + 0.02)


def test_wrong_labels_that_the_surest_detections_show_stay() -> None:
    p_wrong = np.array([0.9, 0.1])
    opinion = LabelOpinion(p_wrong, np.array([1, 1]), p_wrong, Share(0.2, 0.15, 0.25))
    result = doubt_labels(opinion, 1.0, (200, 1000))
    assert result.rate.value == pytest.approx(0.2)
    # 5 errors of the detector for each 200 wrong labels
    assert result.p_wrong == pytest.approx(p_wrong / (1 + 0.025 * p_wrong))
    # (sqrt(200.25) - 0.98)^2 - 0.25 = 173.2 of 1000 are more than 0.15
    assert result.rate.low == pytest.approx(0.15 - 0.015)


def test_bad_boxes_and_missing_objects_lose_the_share_that_a_weak_detector_makes_up() -> None:
    p_bad = np.array([0.3, 0.1, 0.0, 0.0])
    boxes = doubt_boxes(BoxOpinion(p_bad, np.zeros((4, 4)), p_bad / 2, p_bad / 4), 1.0)
    assert boxes.p_bad == pytest.approx(p_bad * 0.6)  # 0.04 of 0.1 on average
    assert boxes.p_fix == pytest.approx(p_bad * 0.3)
    assert boxes.iou_gain == pytest.approx(p_bad * 0.15)
    p_missing = np.array([0.8, 0.2])
    found = UnexplainedDetections(np.arange(2), p_missing, p_missing, Share(0.05, 0.03, 0.1))
    less = doubt_missing(found, 1.0, 20)  # 1 of 20 is expected, 0.035 of 0.05 are background
    assert less.p_missing == pytest.approx(p_missing * 0.3)
    assert less.p_fix == pytest.approx(p_missing * 0.3)
    assert (less.rate.value, less.rate.low, less.rate.high) == pytest.approx((0.015, 0.0, 0.1))
    fewer = doubt_missing(replace(found, rate=Share(0.02, 0.0, 0.1)), 1.0, 2000)
    assert fewer.p_missing.tolist() == [0.0, 0.0]
    half = doubt_missing(replace(found, rate=Share(0.2, 0.15, 0.3)), 0.5, 20)
    # 0.0175 less, and the lower bound by half of that, too
    assert (half.rate.value, half.rate.low) == pytest.approx((0.1825, 0.15 - 0.02625))


def test_nobody_is_sure_that_a_weak_detector_overlooks_nothing() -> None:
    presence = doubt_presence(Presence(np.array([0.97, 0.1]), Share(0.01, 0.0, 0.1)), 1.0)
    assert presence.p_spurious == pytest.approx([0.97 / 1.1164, 0.1 / 1.012])


def test_no_doubt_changes_nothing() -> None:
    p = np.array([0.9, 0.1])
    rate = Share(0.05, 0.03, 0.1)
    labels = doubt_labels(LabelOpinion(p, np.array([1, 1]), p, rate), 0.0, (1, 100))
    assert (labels.p_wrong.tolist(), labels.rate) == (p.tolist(), rate)
    missing = doubt_missing(UnexplainedDetections(np.arange(2), p, p, rate), 0.0, 100)
    assert (missing.p_fix.tolist(), missing.rate) == (p.tolist(), rate)
    assert doubt_presence(Presence(p, rate), 0.0).p_spurious.tolist() == p.tolist()
    boxes = doubt_boxes(BoxOpinion(p, np.zeros((2, 4)), p, p), 0.0)
    assert boxes.p_bad.tolist() == p.tolist()


def draw_weak_detections(dataset: Dataset, agreement: tuple[float, float]) -> Detected:
    """Detect every object, often hesitantly and then mostly as another class.

    `agreement` is the share of right classes at score 0, and the power with which it rises to 1.
    """
    random = np.random.default_rng(1)
    number, (least, power) = len(dataset), agreement
    scores = random.beta(0.6, 2.2, number)
    is_right = random.random(number) < least + (1 - least) * scores**power
    others = (dataset.labels + random.integers(1, len(LABELS), number)) % len(LABELS)
    labels = np.where(is_right, dataset.labels, others)
    sides = np.tile(dataset.boxes[:, 2:] - dataset.boxes[:, :2], 2)
    boxes = dataset.boxes + 0.06 * sides * random.normal(size=(number, 4))
    second = np.flatnonzero(~is_right & (random.random(number) < 0.6))
    return Detected(
        np.concatenate([dataset.image_rows, dataset.image_rows[second]]),
        np.concatenate([labels, dataset.labels[second]]),
        np.concatenate([scores, scores[second] * random.random(len(second))]),
        np.concatenate([boxes, boxes[second]]),
    )


def audit_by_weak(noise: Noise, agreement: tuple[float, float] = (0.38, 0.8)) -> CompletedAudit:
    one = scene(noise, images=800)
    detected = draw_weak_detections(scene(Noise(), images=800).dataset, agreement)
    return complete_audit(one.dataset, detected, AuditSettings(probe=0, unseen=True))


def count_taken(audit: Audit, precision: float) -> int:
    return len(choose_fixes(audit.fixes, {}, precision).rows)


@pytest.mark.parametrize("agreement", [(0.38, 0.8), (0.3, 0.8), (0.38, 0.6)])
def test_clean_annotations_are_not_called_wrong_by_a_weak_detector(
    agreement: tuple[float, float],
) -> None:
    result = audit_by_weak(Noise(), agreement)
    assert result.audit.doubt > 0.5
    assert any(note.startswith("WARNING: the detector is weak") for note in result.notes)
    rates = result.audit.rates
    assert [rates[name].low for name in ("wrong_labels", "bad_boxes", "missing")] == [0, 0, 0]
    assert rates["wrong_labels"].value < 0.02
    assert rates["wrong_labels"].high > 0.02  # the detector may err as the annotator does
    assert rates["bad_boxes"].high > 0.03
    assert count_taken(result.audit, 0.8) == 0


def test_a_weak_detector_still_shows_that_many_labels_are_wrong() -> None:
    audit = audit_by_weak(Noise(labels=0.2), (0.3, 0.7)).audit
    assert audit.doubt > 0.2
    rate = audit.rates["wrong_labels"]
    assert 0.1 < rate.low < 0.2 < rate.high


def test_a_strong_detector_is_not_doubted() -> None:
    one = scene(Noise(labels=0.2, boxes=0.2, missing=0.05, spurious=0.1, duplicates=0.05))
    result = complete_audit(one.dataset, one.detected, AuditSettings(probe=0, unseen=True))
    assert result.audit.doubt == 0.0
    assert not [note for note in result.notes if "weak" in note]
