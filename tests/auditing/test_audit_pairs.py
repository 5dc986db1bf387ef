"""Which detections lie on which annotations, by hand and against the plain double loop."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.auditing import pairs
from boxmend.auditing.pairs import compute_fitness, find_largest, find_overlaps
from boxmend.data.boxes import compute_areas, compute_iou


def boxes(*rows: tuple[float, float, float, float]) -> np.ndarray:
    return np.array(rows, np.float64).reshape(-1, 4)


def test_two_boxes_that_share_a_third_of_their_union() -> None:
    # 10 x 10 each, shifted by 5: shared 50, union 150
    assert compute_iou(boxes((0, 0, 10, 10)), boxes((5, 0, 15, 10))) == pytest.approx([1 / 3])


def test_an_empty_box_overlaps_only_itself() -> None:
    assert compute_iou(boxes((1, 1, 1, 1)), boxes((1, 1, 1, 1))).tolist() == [1.0]
    assert compute_iou(boxes((1, 1, 1, 1)), boxes((0, 0, 9, 9), (2, 2, 2, 2))).tolist() == [
        0.0,
        0.0,
    ]
    assert compute_areas(boxes((5, 5, 3, 9))).tolist() == [0.0]


def test_fitness_is_one_less_the_distance_of_centres_and_a_tenth_of_the_mismatch() -> None:
    # centres 3 and 4 apart: 5; extent of the detection 10 + 10; extents 30 over 20: mismatch 0.5
    annotated = boxes((0, 0, 15, 15))
    detected = boxes((5.5, 6.5, 15.5, 16.5))
    assert compute_fitness(annotated, detected) == pytest.approx([1 - (5 / 20 + 0.1 * 0.5)])


def test_only_boxes_of_one_image_are_paired() -> None:
    overlaps = find_overlaps(
        np.array([0, 1]),
        boxes((0, 0, 10, 10), (0, 0, 10, 10)),
        np.array([1, 1, 2]),
        boxes((0, 0, 10, 10), (9, 9, 30, 30), (0, 0, 10, 10)),
    )
    assert overlaps.first.tolist() == [1]
    assert overlaps.second.tolist() == [0]
    assert overlaps.iou.tolist() == [1.0]


def test_boxes_that_overlap_by_just_as_much_as_asked_for_are_paired() -> None:
    one, half = boxes((0, 0, 10, 10)), boxes((0, 0, 10, 5))
    image = np.array([0])
    assert find_overlaps(image, one, image, half, 0.5).iou.tolist() == [0.5]
    assert len(find_overlaps(image, one, image, half, 0.51)) == 0


def test_an_annotation_without_an_image_has_no_pairs() -> None:
    one = boxes((0, 0, 10, 10))
    assert len(find_overlaps(np.array([-1]), one, np.array([-1]), one)) == 0


def test_nothing_pairs_with_nothing() -> None:
    none = np.zeros(0, np.int64)
    assert len(find_overlaps(none, boxes(), none, boxes())) == 0


@settings(deadline=None)
@given(seed=st.integers(0, 999), few=st.integers(0, 12), many=st.integers(0, 15))
def test_pairs_are_those_of_the_double_loop(seed: int, few: int, many: int) -> None:
    random = np.random.default_rng(seed)
    rows, other_rows = random.integers(3, size=few), random.integers(3, size=many)
    low, other_low = random.random((few, 2)) * 20, random.random((many, 2)) * 20
    first = np.concatenate([low, low + 1 + random.random((few, 2)) * 15], axis=1)
    second = np.concatenate([other_low, other_low + 1 + random.random((many, 2)) * 15], axis=1)
    expected = {
        (a, b)
        for a in range(few)
        for b in range(many)
        if rows[a] == other_rows[b] and compute_iou(first[a : a + 1], second[b : b + 1])[0] >= 0.1
    }
    overlaps = find_overlaps(rows, first, other_rows, second)
    assert set(zip(overlaps.first.tolist(), overlaps.second.tolist(), strict=True)) == expected


def test_portions_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    rows = random.integers(5, size=40)
    low = random.random((40, 2)) * 20
    some = np.concatenate([low, low + 8], axis=1)
    whole = find_overlaps(rows, some, rows, some)
    monkeypatch.setattr(pairs, "MATCHING", replace(pairs.MATCHING, pairs_per_chunk=7))
    parts = find_overlaps(rows, some, rows, some)
    assert parts.first.tolist() == whole.first.tolist()
    assert parts.second.tolist() == whole.second.tolist()
    assert parts.iou.tolist() == whole.iou.tolist()


def test_the_largest_value_of_a_key_and_the_first_of_equals() -> None:
    values, places = find_largest(np.array([2, 0, 2, 2]), np.array([0.1, 0.5, 0.7, 0.7]), 4)
    assert values.tolist() == [0.5, 0.0, 0.7, 0.0]
    assert places.tolist() == [1, -1, 2, -1]
