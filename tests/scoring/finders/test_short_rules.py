"""The short rules and the scores of images, against figures worked out on paper."""

import math

import numpy as np
import pytest

from boxmend.auditing.fixes.table import Kind
from boxmend.data.types import Box
from boxmend.scoring.finders import image_scores, short_rules
from boxmend.scoring.finders.overlapping import find_overlaps
from tests.scoring.assessed import BUS, TRUCK, VAN, annotated, detected, fix, fixes_of

BOX: Box = (0, 0, 10, 10)
FAR: Box = (50, 50, 60, 60)


def tall(height: float) -> Box:
    """A box within BOX: its IoU with it is height / 10."""
    return (0, 0, 10, height)


def test_overlaps_are_all_pairs_that_meet_in_one_image() -> None:
    dataset = annotated([BOX, FAR, BOX], [VAN] * 3, images=[0, 0, 1])
    table = find_overlaps(dataset, detected((1, BUS, 0.5, tall(5)), (0, VAN, 0.5, tall(2))))
    assert table.annotations.tolist() == [0, 2]
    assert table.detections.tolist() == [1, 0]
    assert table.iou == pytest.approx(np.array([0.2, 0.5]))


def test_labels_are_suspected_by_the_ratio_of_scores_and_the_share_of_confident_pairs() -> None:
    # Vans: two contradicted by a bus (one of them confidently), one confirmed, one not seen.
    dataset = annotated([BOX] * 4, [VAN] * 4, images=[0, 1, 2, 3])
    detections = detected(
        (0, BUS, 0.95, BOX),
        (0, VAN, 0.05, BOX),
        (1, BUS, 0.5, BOX),
        (1, TRUCK, 0.4, BOX),
        (2, VAN, 0.9, BOX),
        (2, BUS, 0.1, tall(3)),
        (3, BUS, 0.9, tall(2.9)),
    )
    scores = short_rules.suspect_by_kind(dataset, detections).annotations[Kind.WRONG_LABEL].scores
    share = (1 + 4 * 0.25) / (2 + 4)
    expected = [
        math.log(0.97 / 0.07) + math.log(share),
        math.log(0.52 / 0.02) + math.log(share),
        math.log(0.12 / 0.92) + math.log(share),
        math.log(0.02 / 0.02) + math.log(0.25),  # no contradiction, no pair
    ]
    assert scores == pytest.approx(np.array(expected), abs=1e-6)


def test_a_detection_that_shows_another_annotation_does_not_contradict() -> None:
    dataset = annotated([BOX, tall(6)], [VAN, BUS], images=[0, 0])
    detections = detected((0, BUS, 0.9, tall(6)))
    scores = short_rules.suspect_by_kind(dataset, detections).annotations[Kind.WRONG_LABEL].scores
    assert scores == pytest.approx(
        np.array([math.log(0.25), math.log(0.02 / 0.92) + math.log(0.25)]), abs=1e-6
    )


def test_boxes_are_suspected_by_the_best_detection_of_the_class_unless_another_owns_it() -> None:
    dataset = annotated([BOX, FAR, BOX, tall(4)], [VAN] * 4, images=[0, 0, 1, 1])
    detections = detected(
        (0, VAN, 0.9, tall(4)),  # score times IoU 0.36
        (0, VAN, 0.3, tall(9)),  # 0.27
        (0, BUS, 0.9, tall(8)),
        (1, VAN, 0.8, tall(4)),  # belongs to the last annotation
    )
    scores = short_rules.suspect_by_kind(dataset, detections).annotations[Kind.BAD_BOX].scores
    assert scores == pytest.approx(np.array([0.6 * 0.9, 0, 0, 0]), abs=1e-6)


def test_images_are_scored_by_their_worst_prediction_and_the_mean_deficit() -> None:
    dataset = annotated([BOX, FAR, BOX], [VAN, VAN, BUS], images=[0, 0, 1])
    detections = detected(
        (0, VAN, 0.75, tall(8)),
        (0, BUS, 0.5, tall(6)),
        (1, BUS, 0.2, BOX),  # below the limit
        (1, VAN, 0.5, FAR),
    )
    scores = image_scores.score_images(dataset, detections, find_overlaps(dataset, detections))
    assert scores["possible_fp"] == pytest.approx(np.array([0.5 * 0.4, 0.5]))
    assert scores["possible_fn"] == pytest.approx(np.array([(0.4 + 1) / 2, 1]))
    assert scores["possible_label_confusion"] == pytest.approx(np.array([0.5 * 0.6, 0]))


def test_an_audit_scores_images_by_its_highest_probability() -> None:
    dataset = annotated([BOX, FAR, BOX], [VAN] * 3, images=[0, 0, 1])
    missing = fixes_of(dataset, fix(Kind.MISSING, label=BUS, box=FAR, image=1, p=0.75))
    scores = image_scores.score_images_by_audit(
        dataset, {Kind.SPURIOUS: np.array([0.25, 0.5, np.nan])}, missing
    )
    assert scores[Kind.SPURIOUS].tolist() == [0.5, 0]
    assert scores[Kind.MISSING].tolist() == [0, 0.75]
