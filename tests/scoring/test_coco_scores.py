"""COCO's average precision: by hand, and the same as pycocotools on random scenes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.data.detections import Detections
from boxmend.scoring.coco import CocoScores, compute_sizes, score_by_coco
from tests.scoring.coco_cases import (
    Detection,
    TrueBox,
    by_pycocotools,
    columns,
    random_columns,
    score,
)

SMALL, LARGE = (10.0, 10.0, 20.0, 20.0), (0.0, 0.0, 100.0, 100.0)  # 400 and 10,000 pixels
FAR = (300.0, 300.0, 100.0, 100.0)
KEYS = [
    *("AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large"),
    *("AR_1", "AR_10", "AR_100", "AR_small", "AR_medium", "AR_large"),
]


# A small box in one image and a large one in another. Three detections by falling score: the small
# box itself; nothing; the large box but for a strip, IoU 82 * 100 / 10,000 = 0.82.
#
# IoU 0.5 to 0.8 (7 of 10):  T F T  precision 1, 1/2, 2/3 at recall 1/2, 1/2, 1
#                          51 recalls 0, 0.01, .. 0.5 -> 1 and 50 above -> 2/3: (51 + 100/3) / 101
# IoU 0.85 to 0.95 (3):      T F F  51 / 101
# small: only the first detection counts, the others lie on a large box or are not small: 1
# large: F T for 7 IoUs, 1/2 at any recall. For 3 the third finds nothing and is itself not large
#        (8,200 < 9,216), so that only the second counts, and nothing is found: 7 * 1/2 / 10
# AR: with 1 of an image, half is found. With 10 or 100: all for 7 IoUs, half for 3.
def test_three_detections_worked_out_by_hand() -> None:
    truth: list[TrueBox] = [(0, 0, SMALL, ""), (1, 0, LARGE, "")]
    detections: list[Detection] = [
        (0, 0, 0.9, SMALL),
        (1, 0, 0.8, FAR),
        (1, 0, 0.7, (0.0, 0.0, 100.0, 82.0)),
    ]
    scores = score(detections, truth)
    at_50 = (51 + 100 / 3) / 101
    expected = {
        "AP": (7 * at_50 + 3 * 51 / 101) / 10,
        "AP50": at_50,
        "AP75": at_50,
        "AP_small": 1.0,
        "AP_medium": np.nan,
        "AP_large": 0.35,
        "AR_1": 0.5,
        "AR_10": 0.85,
        "AR_100": 0.85,
        "AR_small": 1.0,
        "AR_medium": np.nan,
        "AR_large": 0.7,
    }
    assert list(scores.figures) == KEYS
    assert scores.figures == pytest.approx(expected, abs=1e-12, nan_ok=True)
    assert scores.ap.tolist() == pytest.approx([expected["AP"]])
    assert scores.ap50.tolist() == pytest.approx([at_50])


# The file gives an area of 5,000 pixels for a box of 20 x 20, so it is a medium one.
def test_the_area_in_the_truth_sets_the_size() -> None:
    detections, truth = columns([(0, 0, 0.9, SMALL)], [(0, 0, SMALL, "")])
    scores = score_by_coco(detections, replace(truth, areas=np.array([5_000.0])), num_labels=1)
    assert scores.figures["AP_medium"] == pytest.approx(1.0)
    assert np.isnan(scores.figures["AP_small"])


# Both detections lie on the box that is not asked for, before the one that is found. Of a crowd
# both are ignored: T alone, AP 1. A difficult box is taken by the first: F T, AP 1/2. A box that
# is asked for: T F T with two to be found, (51 + 50 * 2/3) / 101.
@pytest.mark.parametrize(
    ("kind", "expected"),
    [("crowd", 1.0), ("difficult", 0.5), ("", (51 + 100 / 3) / 101)],
)
def test_a_difficult_box_excuses_one_detection_and_a_crowd_any_number(
    kind: str, expected: float
) -> None:
    truth: list[TrueBox] = [(0, 0, LARGE, kind), (0, 0, FAR, "")]
    detections: list[Detection] = [(0, 0, 0.9, LARGE), (0, 0, 0.8, LARGE), (0, 0, 0.7, FAR)]
    scores = score(detections, truth)
    assert scores.figures["AP"] == pytest.approx(expected, abs=1e-12)
    assert scores.ap[0] == pytest.approx(expected, abs=1e-12)


# A small detection wholly inside: of itself all of it is in the crowd, but its IoU is 400/10,000.
@pytest.mark.parametrize(("kind", "expected"), [("crowd", 1.0), ("difficult", 0.5)])
def test_a_part_of_a_crowd_is_excused_and_a_part_of_a_difficult_box_is_not(
    kind: str, expected: float
) -> None:
    truth: list[TrueBox] = [(0, 0, LARGE, kind), (0, 0, FAR, "")]
    scores = score([(0, 0, 0.9, SMALL), (0, 0, 0.7, FAR)], truth)
    assert scores.figures["AP50"] == pytest.approx(expected, abs=1e-12)


def test_a_box_that_is_crowd_and_difficult_is_a_crowd() -> None:
    detections, truth = columns(
        [(0, 0, 0.9, SMALL), (0, 0, 0.7, FAR)], [(0, 0, LARGE, "crowd"), (0, 0, FAR, "")]
    )
    truth.is_difficult[:] = truth.is_crowd
    assert score_by_coco(detections, truth, num_labels=1).ap50[0] == pytest.approx(1.0)


def test_a_class_of_difficult_boxes_alone_has_no_average_precision() -> None:
    truth: list[TrueBox] = [(0, 0, LARGE, "difficult"), (0, 1, FAR, ""), (0, 2, SMALL, "crowd")]
    scores = score([(0, 1, 0.9, FAR), (0, 0, 0.8, FAR)], truth, 4)
    np.testing.assert_allclose(scores.ap, [np.nan, 1.0, np.nan, np.nan])
    np.testing.assert_allclose(scores.ap50, [np.nan, 1.0, np.nan, np.nan])
    assert scores.figures["AP"] == pytest.approx(1.0)


# 100 false positives rank above the hit, which is lost with at most 100 per class and image.
@pytest.mark.parametrize(("misses", "expected"), [(100, 0.0), (99, 1 / 100)])
def test_only_a_hundred_detections_of_an_image_and_class_count(
    misses: int, expected: float
) -> None:
    detections: list[Detection] = [(0, 0, 0.9, FAR)] * misses
    scores = score([*detections, (0, 0, 0.1, LARGE)], [(0, 0, LARGE, "")])
    assert scores.figures["AP50"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("num_labels", [0, 1, 3])
def test_without_detections_and_truth_all_figures_are_nan(num_labels: int) -> None:
    scores = score([], [], num_labels)
    assert list(scores.figures) == KEYS
    assert all(map(np.isnan, scores.figures.values()))
    assert len(scores.ap) == len(scores.ap50) == num_labels


def test_detections_without_truth_give_no_figure_and_truth_without_detections_zero() -> None:
    assert np.isnan(score([(0, 0, 0.9, FAR)], []).figures["AP"])
    assert score([], [(0, 0, FAR, "")]).figures["AP"] == 0.0


# A detection of half the width, at 0.1: 0.1 of 0.2 is an IoU of 1/2. But 0.1 + 0.2 is rounded up to
# 0.30000000000000004, and by its corners the box is 0.20000000000000004 wide, which makes it less.
def test_widths_are_used_as_they_were_read() -> None:
    truth: list[TrueBox] = [(0, 0, (0.1, 0.0, 0.2, 10.0), "")]
    detections, asked = columns([(0, 0, 0.9, (0.1, 0.0, 0.1, 10.0))], truth)
    assert score_by_coco(detections, asked, num_labels=1).ap50[0] == pytest.approx(1.0)
    assert by_pycocotools(detections, asked, 1).stats[1] == pytest.approx(1.0)
    corners = asked.boxes.astype(np.float64)
    by_corners = replace(asked, sizes=corners[:, 2:] - corners[:, :2])
    assert score_by_coco(detections, by_corners, num_labels=1).ap50[0] == 0.0


def test_sizes_of_plain_detections_are_those_of_their_corners() -> None:
    boxes = np.array([[1, 2, 4, 8]], np.float32)
    plain = Detections(np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1), boxes)
    assert compute_sizes(plain).tolist() == [[3.0, 6.0]]
    _, truth = columns([], [(0, 0, (1, 2, 3, 6), "")])
    assert score_by_coco(plain, truth, num_labels=1).figures["AP"] == pytest.approx(1.0)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_all_figures_are_those_of_pycocotools(seed: int) -> None:
    detections, truth, num_labels = random_columns(seed)
    ours = score_by_coco(detections, truth, num_labels=num_labels)
    expected = by_pycocotools(detections, truth, num_labels)
    assert _as_pycocotools(ours) == pytest.approx(expected.stats.tolist(), abs=1e-9)
    precision = expected.eval["precision"][:, :, :, 0, 2]
    for label in range(num_labels):
        for mine, theirs in (
            (ours.ap[label], precision[:, :, label]),
            (ours.ap50[label], precision[0, :, label]),
        ):
            expected = theirs[theirs > -1].mean() if (theirs > -1).any() else np.nan
            assert mine == pytest.approx(expected, abs=1e-9, nan_ok=True)


def test_the_random_scenes_have_something_to_tell() -> None:
    scenes = [random_columns(seed) for seed in range(60)]
    listed = [score_by_coco(*scene[:2], num_labels=scene[2]).figures["AP"] for scene in scenes]
    known = [one for one in listed if not np.isnan(one)]
    assert len(known) > 30
    assert len({round(one, 6) for one in known if 0.02 < one < 0.98}) > 15
    assert max(len(scene[0].labels) for scene in scenes) > 300
    assert any((scene[1].sizes == 0).any() for scene in scenes)


def test_scoring_changes_none_of_the_columns() -> None:
    detections, truth, num_labels = random_columns(8)
    before = [column.copy() for one in (detections, truth) for column in vars(one).values()]
    score_by_coco(detections, truth, num_labels=num_labels)
    after = [column for one in (detections, truth) for column in vars(one).values()]
    for was, now in zip(before, after, strict=True):
        np.testing.assert_array_equal(was, now)


def _as_pycocotools(scores: CocoScores) -> list[float]:
    """The figures with COCO's -1 for what is not defined."""
    return [-1.0 if np.isnan(value) else value for value in scores.figures.values()]
