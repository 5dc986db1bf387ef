"""The evidence of detections about annotations, computed by hand."""

import numpy as np
import pytest

from boxmend.auditing.evidence import (
    EVIDENCE,
    NONE,
    Detected,
    Evidence,
    Objects,
    gather_evidence,
)

SQUARE = (0.0, 0.0, 10.0, 10.0)


def objects(*boxes: tuple[float, ...], labels: tuple[int, ...] = (0,)) -> Objects:
    shape = np.array(boxes, np.float64).reshape(-1, 4)
    return Objects(np.zeros(len(shape), np.int64), np.array(labels), shape, 3)


def make_detected(*rows: tuple[int, float, tuple[float, ...]]) -> Detected:
    labels = np.array([row[0] for row in rows], np.int64)
    scores = np.array([row[1] for row in rows], np.float64)
    boxes = np.array([row[2] for row in rows], np.float64).reshape(-1, 4)
    return Detected(np.zeros(len(rows), np.int64), labels, scores, boxes)


def test_a_detection_speaks_by_its_score_and_its_overlap() -> None:
    one = objects(SQUARE)
    evidence = gather_evidence(one, one, make_detected((1, 0.9, (0, 0, 10, 5))))  # IoU 0.5
    rows = np.array([0])
    # for the class by centres: they are 2.5 apart, over 15; the extents are 20 over 15
    fit = 1 - (2.5 / 15 + 0.1 * (20 / 15 - 1))
    assert evidence.for_labels(rows, np.array([1])) == pytest.approx(
        [0.9 * fit + EVIDENCE.min_class_evidence]
    )
    assert evidence.for_labels(rows, np.array([0])) == pytest.approx([EVIDENCE.min_class_evidence])
    assert evidence.support == pytest.approx([0.45])


def test_of_several_detections_of_a_class_the_strongest_counts() -> None:
    one = objects(SQUARE)
    evidence = gather_evidence(one, one, make_detected((2, 0.9, (0, 0, 10, 5)), (2, 0.8, SQUARE)))
    assert evidence.for_labels(np.array([0]), np.array([2])) == pytest.approx(
        [0.8 + EVIDENCE.min_class_evidence]
    )


def test_a_detection_that_fits_another_annotation_better_counts_less() -> None:
    # it fits the second one exactly and the first one by 0.5: 0.5 times (0.5 / 1) cubed
    both = objects(SQUARE, (0, 0, 10, 5), labels=(0, 1))
    evidence = gather_evidence(both, both, make_detected((1, 0.8, (0, 0, 10, 5))))
    assert evidence.support == pytest.approx([0.8 * 0.5 * 0.125, 0.8])


def evidence_of(evidence: Evidence) -> tuple[float, float, int]:
    """Return the evidence of the first annotation for its label, for the best other one, and it."""
    rows = labels = np.array([0])
    others, best = evidence.best_other(rows, labels)
    return float(evidence.for_labels(rows, labels)[0]), float(others[0]), int(best[0])


def test_the_best_other_class_has_the_most_evidence_beside_the_label() -> None:
    one = objects(SQUARE)
    evidence = gather_evidence(one, one, make_detected((0, 0.2, SQUARE), (2, 0.6, SQUARE)))
    assert evidence_of(evidence) == pytest.approx((0.21, 0.61, 2))


def test_where_only_the_label_was_seen_no_other_is_proposed() -> None:
    one = objects(SQUARE)
    evidence = gather_evidence(one, one, make_detected((0, 0.9, SQUARE)))
    own, other, best = evidence_of(evidence)
    assert best == NONE
    assert own > other


def test_without_detections_all_classes_are_alike() -> None:
    one = objects(SQUARE)
    evidence = gather_evidence(one, one, make_detected())
    own, other, best = evidence_of(evidence)
    assert own == other
    assert best == NONE
    assert np.isnan(evidence.boxes).all()
    assert evidence.confidences.tolist() == [0.0]


def test_the_place_is_the_mean_around_the_leading_detection() -> None:
    one = objects(SQUARE)
    detections = make_detected((0, 0.6, SQUARE), (0, 0.3, (0, 0, 10, 8)), (1, 0.2, (0, 0, 10, 4)))
    evidence = gather_evidence(one, one, detections)
    # the last one overlaps the leader by 0.4 and is left out; weights 0.6 * 1 and 0.3 * 0.8
    assert evidence.boxes[0] == pytest.approx([0, 0, 10, (0.6 * 10 + 0.24 * 8) / 0.84])
    assert evidence.confidences.tolist() == [0.6]


def test_a_detection_that_barely_overlaps_does_not_say_where_the_box_is() -> None:
    one = objects(SQUARE)
    evidence = gather_evidence(one, one, make_detected((0, 0.9, (0, 0, 10, 2.5))))  # an IoU of 0.25
    assert evidence.support == pytest.approx([0.9 * 0.25])
    assert np.isnan(evidence.boxes).all()
    assert evidence.confidences.tolist() == [0.0]


def test_class_vectors_take_the_place_of_single_scores() -> None:
    one = objects(SQUARE)
    vectors = np.array([[0.1, 0.7, 0.005]], np.float32)
    base = make_detected((1, 0.7, SQUARE))
    detected = Detected(base.image_rows, base.labels, base.scores, base.boxes, vectors)
    evidence = gather_evidence(one, one, detected)
    assert evidence.for_labels(np.zeros(3, int), np.arange(3)) == pytest.approx(
        [
            0.1 + EVIDENCE.min_class_evidence,
            0.7 + EVIDENCE.min_class_evidence,
            EVIDENCE.min_class_evidence,
        ],
        abs=1e-6,
    )
