"""VOC's average precision on random data: against a slow reading of the rule, and properties."""

import time
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from boxmend.data.detections import Detections
from boxmend.scoring import voc
from boxmend.scoring.voc import TrueBoxes, average_precision
from tests.scoring.voc_cases import Detection, TrueBox, score

# The rule read slowly: one detection at a time, in exact numbers.


def slow_average_precision(
    detections: Sequence[Detection], truth: Sequence[TrueBox], label: int
) -> tuple[Fraction, Fraction] | None:
    """AP of one class by the 11-point rule and by area; None where it has no truth."""
    boxes = [one for one in truth if one[1] == label]
    num_truth = sum(not one[3] for one in boxes)
    if num_truth == 0:
        return None
    mine = sorted(
        (detection for detection in detections if detection[1] == label), key=lambda one: -one[2]
    )
    taken = set[int]()
    hits = misses = 0
    curve: list[tuple[Fraction, Fraction]] = []  # recall, precision
    for image, _, _, box in mine:
        best, at = Fraction(-1), -1
        for k, (other_image, _, other, _) in enumerate(boxes):
            if other_image == image and exact_iou(box, other) > best:
                best, at = exact_iou(box, other), k
        if best >= Fraction(1, 2):
            if boxes[at][3]:
                continue
            hits, misses = (hits, misses + 1) if at in taken else (hits + 1, misses)
            taken.add(at)
        else:
            misses += 1
        curve.append((Fraction(hits, num_truth), Fraction(hits, hits + misses)))
    points = [
        max((p for r, p in curve if r >= Fraction(k, 10)), default=Fraction(0)) for k in range(11)
    ]
    recalls = [Fraction(0), *(r for r, _ in curve), Fraction(1)]
    precisions = [Fraction(0), *(p for _, p in curve), Fraction(0)]
    for k in range(len(precisions) - 2, -1, -1):
        precisions[k] = max(precisions[k], precisions[k + 1])
    steps = range(1, len(recalls))
    area = sum(((recalls[k] - recalls[k - 1]) * precisions[k] for k in steps), Fraction(0))
    return sum(points, Fraction(0)) / 11, area


def exact_iou(a: Sequence[float], b: Sequence[float]) -> Fraction:
    (a1, b1, a2, b2), (c1, d1, c2, d2) = (tuple(map(Fraction, box)) for box in (a, b))
    shared = max(min(a2, c2) - max(a1, c1), Fraction(0)) * max(
        min(b2, d2) - max(b1, d1), Fraction(0)
    )
    union = (a2 - a1) * (b2 - b1) + (c2 - c1) * (d2 - d1) - shared
    return shared / union


coordinates = st.integers(0, 6)
boxes = st.builds(
    lambda x, y, w, h: (float(x), float(y), float(x + w), float(y + h)),
    coordinates,
    coordinates,
    st.integers(1, 4),
    st.integers(1, 4),
)
images, labels = st.integers(0, 3), st.integers(0, 2)
any_detections = st.lists(
    st.tuples(images, labels, st.sampled_from([0.1, 0.25, 0.5, 0.75, 0.9]), boxes), max_size=40
)
any_truth = st.lists(st.tuples(images, labels, boxes, st.booleans()), max_size=20)


@settings(max_examples=300, deadline=None)
@given(detections=any_detections, truth=any_truth)
def test_the_result_is_that_of_the_rule_read_slowly(
    detections: list[Detection], truth: list[TrueBox]
) -> None:
    scores = score(detections, truth, 3)
    expected = [slow_average_precision(detections, truth, label) for label in range(3)]
    for label, one in enumerate(expected):
        points, area = (np.nan, np.nan) if one is None else map(float, one)
        assert scores.ap_11_points[label] == pytest.approx(points, abs=1e-12, nan_ok=True)
        assert scores.ap_area[label] == pytest.approx(area, abs=1e-12, nan_ok=True)
    known = [one for one in expected if one is not None]
    if known:
        assert scores.mean_11_points == pytest.approx(
            float(sum(one[0] for one in known)) / len(known), abs=1e-12
        )


@settings(max_examples=60, deadline=None)
@given(detections=any_detections, truth=any_truth, pairs=st.integers(1, 5))
def test_comparing_in_chunks_gives_the_same_scores(
    detections: list[Detection], truth: list[TrueBox], pairs: int
) -> None:
    whole = score(detections, truth, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(voc, "PAIRS_PER_CHUNK", pairs)
        pieces = score(detections, truth, 3)
    np.testing.assert_array_equal(whole.ap_area, pieces.ap_area)
    np.testing.assert_array_equal(whole.num_true_positives, pieces.num_true_positives)


@settings(max_examples=60, deadline=None)
@given(detections=any_detections, truth=any_truth, data=st.data())
def test_the_order_of_detections_of_different_scores_is_irrelevant(
    detections: list[Detection], truth: list[TrueBox], data: st.DataObject
) -> None:
    apart = [(i, k, 1 / (1 + rank), box) for rank, (i, k, _, box) in enumerate(detections)]
    shuffled = data.draw(st.permutations(apart))
    np.testing.assert_array_equal(
        score(apart, truth, 3).ap_11_points, score(shuffled, truth, 3).ap_11_points
    )


def scene(num_images: int, per_image: int) -> tuple[Detections, TrueBoxes]:
    rng = np.random.default_rng(0)

    def random_boxes(n: int) -> NDArray[np.float64]:
        corner = rng.uniform(0, 300, (n, 2))
        return np.concatenate([corner, corner + rng.uniform(10, 200, (n, 2))], axis=1)

    n, m = num_images * per_image, num_images * 3
    result = Detections(
        np.repeat(np.arange(num_images), per_image),
        rng.integers(0, 20, n),
        rng.random(n),
        random_boxes(n),
    )
    truth = TrueBoxes(
        rng.integers(0, num_images, m), rng.integers(0, 20, m), random_boxes(m), rng.random(m) < 0.1
    )
    return result, truth


def test_scoring_changes_none_of_its_columns() -> None:
    detections, truth = scene(20, 10)
    before = [column.copy() for one in (detections, truth) for column in vars(one).values()]
    average_precision(detections, truth, num_labels=20)
    after = [column for one in (detections, truth) for column in vars(one).values()]
    for was, now in zip(before, after, strict=True):
        np.testing.assert_array_equal(was, now)


def test_half_a_million_detections_take_a_few_seconds_at_most() -> None:
    detections, truth = scene(4_952, 100)
    start = time.perf_counter()
    scores = average_precision(detections, truth, num_labels=20)
    assert time.perf_counter() - start < 5
    assert scores.num_detections.sum() == 495_200
