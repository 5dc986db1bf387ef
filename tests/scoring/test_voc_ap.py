"""VOC's average precision by hand, and at its boundaries."""

import numpy as np
import pytest

from boxmend.data.detections import Detections
from boxmend.scoring.voc import TrueBoxes, VocScores, average_precision
from tests.scoring.voc_cases import (
    BOX,
    FAR,
    Detection,
    TrueBox,
    columns,
    place,
    score,
    truth_columns,
)


def score_pattern(pattern: str, num_truth: int) -> VocScores:
    """Detections by falling score: T finds a box of its own, F nothing, D a difficult one."""
    detections: list[Detection] = []
    result = 0
    for rank, sign in enumerate(pattern):
        box = {"T": place(result), "F": FAR, "D": (-50.0, 0.0, -40.0, 10.0)}[sign]
        detections.append((0, 0, 1.0 - 0.01 * rank, box))
        result += sign == "T"
    truth: list[TrueBox] = [(0, 0, place(k), False) for k in range(num_truth)]
    return score(detections, [*truth, (0, 0, (-50.0, 0.0, -40.0, 10.0), True)])


def false_positives(scores: VocScores) -> list[int]:
    others = scores.num_true_positives + scores.num_ignored
    result: list[int] = (scores.num_detections - others).tolist()
    return result


# Five boxes, detections T F T F T, two boxes never found:
#
#   rank  hit  precision  recall  envelope (best precision from here on)
#   1     T    1/1        1/5     1
#   2     F    1/2        1/5     2/3
#   3     T    2/3        2/5     2/3
#   4     F    2/4        2/5     3/5
#   5     T    3/5        3/5     3/5
#
# 11 points: recall 0, 0.1, 0.2 -> 1; 0.3, 0.4 -> 2/3; 0.5, 0.6 -> 3/5; 0.7 to 1 -> 0
#            (3 * 1 + 2 * 2/3 + 2 * 3/5) / 11 = (83/15) / 11 = 83/165
# area:      1/5 * 1 + 1/5 * 2/3 + 1/5 * 3/5 = 34/75
def test_a_precision_recall_table_worked_out_by_hand() -> None:
    scores = score_pattern("TFTFT", 5)
    assert scores.ap_11_points[0] == pytest.approx(83 / 165, abs=1e-12)
    assert scores.ap_area[0] == pytest.approx(34 / 75, abs=1e-12)
    assert scores.num_truth.tolist() == [5]
    assert scores.num_true_positives.tolist() == [3]
    assert false_positives(scores) == [2]


# Two boxes, detections F T T: the envelope is that of the last rank throughout.
#
#   rank  hit  precision  recall  envelope
#   1     F    0/1        0       2/3
#   2     T    1/2        1/2     2/3
#   3     T    2/3        1       2/3
def test_a_later_and_better_precision_counts_for_the_earlier_recalls() -> None:
    scores = score_pattern("FTT", 2)
    assert scores.ap_11_points[0] == pytest.approx(2 / 3, abs=1e-12)
    assert scores.ap_area[0] == pytest.approx(2 / 3, abs=1e-12)


# 3 of 10 found at once: recall is 3/10 at precision 1, so that the points 0, 0.1, 0.2 and 0.3
# count: 4/11. Adding 0.1 three times gives 0.30000000000000004 in floating point, which would make
# it 3.
def test_a_recall_that_is_a_tenth_reaches_its_point() -> None:
    scores = score_pattern("TTT", 10)
    assert scores.ap_11_points[0] == pytest.approx(4 / 11, abs=1e-12)
    assert scores.ap_area[0] == pytest.approx(3 / 10, abs=1e-12)


@pytest.mark.parametrize(
    ("pattern", "num_truth", "points", "area"),
    [
        ("TTT", 3, 1.0, 1.0),
        ("FFF", 3, 0.0, 0.0),
        ("", 3, 0.0, 0.0),
        ("T", 3, 4 / 11, 1 / 3),  # recall 1/3 reaches 0, 0.1, 0.2, 0.3
        ("FT", 1, 1 / 2, 1 / 2),
        ("TF", 1, 1.0, 1.0),  # what comes after all is found costs nothing
        ("DTD", 1, 1.0, 1.0),  # difficult ones cost no precision
        ("DDD", 1, 0.0, 0.0),  # and give none
    ],
)
def test_short_rankings(pattern: str, num_truth: int, points: float, area: float) -> None:
    scores = score_pattern(pattern, num_truth)
    assert scores.ap_11_points[0] == pytest.approx(points, abs=1e-12)
    assert scores.ap_area[0] == pytest.approx(area, abs=1e-12)


@pytest.mark.parametrize(
    ("width", "is_found"),
    [
        (5.0, True),  # 50 of 100 pixels: IoU is 0.5 exactly
        (4.99, False),
        (20.0, True),  # 100 of 200
        (20.01, False),
    ],
)
def test_an_iou_of_one_half_is_enough_and_widths_have_no_one_added(
    width: float, is_found: bool
) -> None:
    scores = score([(0, 0, 0.9, (0, 0, width, 10))], [(0, 0, BOX, False)])
    assert scores.num_true_positives[0] == is_found


def test_another_minimum_iou_can_be_set() -> None:
    detections, truth = columns([(0, 0, 0.9, (0, 0, 7.5, 10))]), truth_columns([(0, 0, BOX, False)])
    for min_iou, expected in ((0.75, 1.0), (0.76, 0.0)):
        result = average_precision(detections, truth, num_labels=1, min_iou=min_iou)
        assert result.mean_area == expected


def test_the_second_hit_of_a_box_is_a_false_positive_even_if_it_fits_better() -> None:
    scores = score(
        [(0, 0, 0.9, (0, 0, 8, 10)), (0, 0, 0.8, BOX), (0, 0, 0.7, BOX)], [(0, 0, BOX, False)]
    )
    assert scores.num_true_positives.tolist() == [1]
    assert false_positives(scores) == [2]
    assert scores.mean_area == 1.0  # the best score found it


# Both detections overlap A most, the second one also B by more than half (9 * 10 / (100 + 100 - 90)
# = 0.82 with A against 80/120 = 0.67 with B). It looks at A alone, which is taken, and B stays.
def test_a_detection_whose_best_box_is_matched_does_not_match_the_next_one() -> None:
    truth: list[TrueBox] = [(0, 0, (0, 0, 10, 10), False), (0, 0, (3, 0, 13, 10), False)]
    scores = score([(0, 0, 0.9, (0, 0, 10, 10)), (0, 0, 0.8, (1, 0, 11, 10))], truth)
    assert scores.num_true_positives.tolist() == [1]
    assert scores.ap_area[0] == 0.5


def test_of_equal_overlaps_the_first_box_is_matched() -> None:
    plain, difficult = (0, 0, BOX, False), (0, 0, BOX, True)
    assert score([(0, 0, 0.9, BOX)], [plain, difficult]).num_true_positives[0] == 1
    assert score([(0, 0, 0.9, BOX)], [difficult, plain]).num_ignored[0] == 1


def test_difficult_boxes_are_neither_required_nor_counted() -> None:
    truth: list[TrueBox] = [(0, 0, BOX, True), (0, 0, place(1), False)]
    detections: list[Detection] = [
        (0, 0, 0.9, BOX),  # ignored
        (0, 0, 0.8, BOX),  # ignored too: a difficult box can be found any number of times
        (0, 0, 0.7, place(1)),
    ]
    scores = score(detections, truth)
    assert scores.num_truth.tolist() == [1]
    assert scores.num_difficult.tolist() == [1]
    assert scores.num_ignored.tolist() == [2]
    assert false_positives(scores) == [0]
    assert scores.mean_11_points == scores.mean_area == 1.0


def test_only_boxes_of_the_same_image_and_label_are_found() -> None:
    truth: list[TrueBox] = [(0, 0, BOX, False), (1, 1, BOX, False)]
    assert score([(1, 0, 0.9, BOX), (0, 1, 0.9, BOX)], truth, 2).num_true_positives.sum() == 0
    assert score([(0, 0, 0.9, BOX), (1, 1, 0.9, BOX)], truth, 2).num_true_positives.sum() == 2


def test_a_detection_in_an_image_beyond_all_true_ones_matches_no_box() -> None:
    truth: list[TrueBox] = [(0, 0, BOX, False), (0, 1, BOX, False)]
    scores = score([(1, 0, 0.9, BOX), (7, 0, 0.9, BOX)], truth, 2)
    assert scores.num_true_positives.tolist() == [0, 0]
    assert scores.num_detections.tolist() == [2, 0]


def test_the_mean_is_over_the_classes_that_have_truth() -> None:
    truth: list[TrueBox] = [(0, 0, BOX, False), (0, 1, place(1), False), (0, 2, place(2), True)]
    scores = score([(0, 0, 0.9, BOX), (0, 3, 0.9, BOX), (0, 2, 0.8, FAR)], truth, 5)
    np.testing.assert_array_equal(scores.ap_area, [1, 0, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(scores.ap_11_points, [1, 0, np.nan, np.nan, np.nan])
    assert scores.mean_area == scores.mean_11_points == 0.5
    assert scores.num_truth.tolist() == [1, 1, 0, 0, 0]
    assert false_positives(scores) == [0, 0, 1, 1, 0]


def test_without_any_truth_there_is_no_mean() -> None:
    for scores in (score([], []), score([(0, 0, 0.5, BOX)], [])):
        assert np.isnan(scores.mean_area)
        assert np.isnan(scores.mean_11_points)


def test_equal_scores_keep_their_order() -> None:
    hit, miss = (0, 0, 0.5, BOX), (0, 0, 0.5, FAR)
    assert score([hit, miss], [(0, 0, BOX, False)]).mean_area == 1.0
    assert score([miss, hit], [(0, 0, BOX, False)]).mean_area == 0.5
    many = [miss] * 40 + [hit] + [miss] * 40  # an unstable sort would show at such lengths
    assert score(many, [(0, 0, BOX, False)]).mean_area == pytest.approx(1 / 41)


def test_boxes_without_area_or_with_nan_match_no_box() -> None:
    odd = [(5, 5, 5, 5), (9, 9, 1, 1), (np.nan, 0, 10, 10), (0, 0, np.inf, 10), (-np.inf, 0, 9, 9)]
    truth: list[TrueBox] = [(0, 0, box, False) for box in [*odd, BOX]]
    scores = score([(0, 0, 0.9, box) for box in odd] + [(0, 0, 0.1, BOX)], truth)
    assert scores.num_true_positives.tolist() == [1]
    assert scores.num_truth.tolist() == [6]


def test_infinite_scores_are_sorted_like_others() -> None:
    detections: list[Detection] = [(0, 0, -np.inf, FAR), (0, 0, 0.0, FAR), (0, 0, np.inf, BOX)]
    assert score(detections, [(0, 0, BOX, False)]).mean_area == 1.0


def test_narrow_integers_do_not_overflow() -> None:
    detections = Detections(
        np.array([30_000], np.int16),
        np.array([100], np.int16),
        np.array([0.5], np.float32),
        np.array([BOX], np.float32),
    )
    truth = TrueBoxes(detections.image_rows, detections.labels, detections.boxes, np.array([False]))
    assert average_precision(detections, truth, num_labels=101).mean_area == 1.0


@pytest.mark.parametrize(
    ("detection", "box", "message"),
    [
        ((0, 0, np.nan, BOX), (0, 0, BOX, False), "score of detection 0 is NaN"),
        ((0, 2, 0.5, BOX), (0, 0, BOX, False), "labels of the detections must lie between 0 and 1"),
        ((0, -1, 0.5, BOX), (0, 0, BOX, False), "labels of the detections"),
        ((-1, 0, 0.5, BOX), (0, 0, BOX, False), "image_rows of the detections must not be neg"),
        ((0, 0, 0.5, BOX), (0, 2, BOX, False), "labels of the truth"),
        ((0, 0, 0.5, BOX), (-1, 0, BOX, False), "image_rows of the truth"),
    ],
)
def test_senseless_columns_are_refused(detection: Detection, box: TrueBox, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score([detection], [box], 2)


def test_columns_of_unequal_length_are_refused() -> None:
    good = columns([(0, 0, 0.5, BOX)])
    truth = truth_columns([(0, 0, BOX, False)])
    short = Detections(good.image_rows, good.labels, good.scores[:0], good.boxes)
    flat = Detections(good.image_rows, good.labels, good.scores, good.boxes[:, :3])
    bare = TrueBoxes(truth.image_rows, truth.labels, truth.boxes, truth.is_difficult[:0])
    with pytest.raises(ValueError, match="scores of the detections must have 1 rows"):
        average_precision(short, truth, num_labels=1)
    with pytest.raises(ValueError, match=r"boxes of the detections must have shape \(1, 4\)"):
        average_precision(flat, truth, num_labels=1)
    with pytest.raises(ValueError, match="is_difficult of the truth must have 1 rows"):
        average_precision(good, bare, num_labels=1)
