"""Spurious annotations at random places, on parts of objects and on clutter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.data.noise import NoiseSettings, Origin, disturb
from boxmend.data.noise.counts import Added
from boxmend.data.noise.spurious import (
    clutter_rows,
    halve_boxes,
    invent_anywhere,
    place_boxes,
    relative_sides,
)
from boxmend.data.types import Rows
from boxmend.errors import DataError, UsageError
from tests.data.noise.noise_data import build, many

rates = st.floats(0, 1)


def invent(dataset: Dataset, rows: Rows, rate: float, seed: int) -> Added:
    return invent_anywhere(dataset, rows, np.arange(round(rate * len(rows))), seed)


def test_relative_sides_are_shares_of_the_image_and_leave_flat_boxes_out() -> None:
    dataset = build([[100, 100, 300, 140], [5, 5, 5, 9], [9, 9, 4, 12]], [0, 0, 0])
    assert relative_sides(dataset, np.arange(3)).tolist() == [[0.2, 0.05]]


def test_spurious_boxes_are_placed_by_draws_within_the_room_that_is_left() -> None:
    shares = np.array([[0.2, 0.5], [0.0001, 1.0], [3.0, 0.5]])
    sizes = np.array([[100.0, 80], [100, 80], [100, 80]])
    draws = np.array([[0.5, 0.25], [0.0, 0.9], [0.3, 0.999999]])
    # sides 20 x 40, 1 x 80 (a pixel at least), 100 x 40 (the image at most)
    expected = [[40, 10, 60, 50], [0, 0, 1, 80], [0, 40, 100, 80]]
    assert place_boxes(shares, sizes, draws).tolist() == expected


@given(rates, st.integers(0, 3))
def test_spurious_annotations_are_exact_in_number_and_lie_within_their_images(
    rate: float, seed: int
) -> None:
    dataset = many(40, num_images=3)
    dataset.images.widths[:] = [50, 333, 0]
    dataset.images.heights[:] = [40, 700, 100]
    rows = np.arange(30)
    added = invent(dataset, rows, rate, seed)
    assert len(added) == round(rate * 30)
    assert set(added.image_rows.tolist()) <= {0, 1}  # the size of the third is not known
    assert set(added.labels.tolist()) <= {0, 1, 2}
    assert (added.originals == -1).all()
    high = np.tile(np.stack([[50, 333], [40, 700]], 1)[added.image_rows], 2)
    assert (added.boxes >= 0).all()
    assert (added.boxes <= high).all()
    assert (added.boxes[:, 2:] - added.boxes[:, :2] >= 0.98).all()
    assert added.boxes * 100 == pytest.approx(np.round(added.boxes * 100), abs=1e-6)


def test_spurious_annotations_spread_over_images_labels_and_places() -> None:
    dataset = many(3000, num_images=4)
    added = invent(dataset, np.arange(3000), 1.0, 0)
    assert np.bincount(added.image_rows) == pytest.approx(750, abs=120)
    assert np.bincount(added.labels) == pytest.approx(1000, abs=120)
    room = np.array([1000, 800]) - (added.boxes[:, 2:] - added.boxes[:, :2])
    assert (added.boxes[:, :2] / room).mean(0) == pytest.approx(0.5, abs=0.03)
    sides = added.boxes[:, 2:] - added.boxes[:, :2]
    assert sides.mean(0) == pytest.approx(np.array([89.5, 69.5]), abs=3)


def test_fewer_spurious_annotations_are_the_first_of_more() -> None:
    dataset = many(50)
    few, more = (invent(dataset, np.arange(50), rate, 4) for rate in (0.2, 0.6))
    assert few.boxes.tolist() == more.boxes[:10].tolist()
    assert few.labels.tolist() == more.labels[:10].tolist()


def test_spurious_annotations_without_any_image_size_are_refused_with_a_remedy() -> None:
    dataset = build([[0, 0, 10, 10]] * 4, [0, 1, 2, 0], size=(0, 0))
    with pytest.raises(DataError, match=r"record the sizes .* or leave --spurious out"):
        invent(dataset, np.arange(4), 0.5, 0)


def test_halves_are_left_right_upper_and_lower() -> None:
    boxes = np.array([[10, 20, 50, 120.0]] * 4)
    expected = [[10, 20, 30, 120], [30, 20, 50, 120], [10, 20, 50, 70], [10, 70, 50, 120]]
    assert halve_boxes(boxes, np.arange(4)).tolist() == expected


def test_parts_are_halves_of_different_objects_with_their_labels() -> None:
    clean = many(40, num_images=1)
    noisy = disturb(clean, NoiseSettings(spurious=0.5, spurious_at="part", seed=1))
    assert noisy.counts["spurious"] == 20
    added = noisy.dataset.take(np.arange(40, 60))
    owners = []
    for box, label in zip(added.boxes, added.labels, strict=True):
        halves = np.stack([halve_boxes(clean.boxes, np.full(40, k)) for k in range(4)], axis=1)
        owner, _ = np.argwhere((halves == box).all(axis=2) & (clean.labels == label)[:, None])[0]
        owners.append(int(owner))
    assert len(set(owners)) == 20
    is_spurious = noisy.truth.origins == Origin.SPURIOUS
    assert is_spurious.tolist() == [False] * 40 + [True] * 20
    assert np.isnan(noisy.truth.boxes[is_spurious]).all()


def test_more_parts_than_objects_large_enough_are_refused() -> None:
    clean = build([[0, 0, 1.9, 50], [0, 0, 50, 50]], [0, 1])
    assert len(disturb(clean, NoiseSettings(spurious=0.5, spurious_at="part")).dataset) == 3
    with pytest.raises(DataError, match=r"2 spurious annotations on parts .* there are 1; lower"):
        disturb(clean, NoiseSettings(spurious=1.0, spurious_at="part"))


def detect(boxes: list[list[float]], scores: list[float]) -> Detections:
    """Detections of class 2 in the first image."""
    n = len(boxes)
    return Detections(np.zeros(n, np.int64), np.full(n, 2), np.array(scores), np.array(boxes))


def test_clutter_is_of_medium_score_away_from_annotations_and_each_place_once() -> None:
    clean = build([[0, 0, 100, 100], [300, 300, 400, 400]], [0, 1], num_images=1)
    clean.is_difficult[1] = True
    seen = detect(
        [
            [600, 0, 700, 100],
            [700, 0, 800, 100],  # too sure
            [800, 0, 900, 100],  # too faint
            [0, 0, 100, 31],  # an IoU of 0.31 with an annotation
            [0, 0, 100, 30],  # and of 0.3
            [300, 300, 400, 400],  # on a difficult object
            [600, 0, 700, 90],  # the first place again, with a higher score
            [600, 600, 600, 700],  # flat
        ],
        [0.3, 0.61, 0.09, 0.5, 0.6, 0.5, 0.4, 0.5],
    )
    assert clutter_rows(clean, seen).tolist() == [4, 6]


def test_annotations_on_clutter_lie_near_a_detection_and_have_its_label() -> None:
    clean = build([[0, 0, 100, 100]] * 4, [0, 1, 0, 1], num_images=1)
    seen = detect([[200 + 100 * k, 200, 280 + 100 * k, 280] for k in range(6)], [0.5] * 6)
    settings = NoiseSettings(spurious=1.0, spurious_at="clutter", seed=3)
    noisy = disturb(clean, settings, seen)
    added = noisy.dataset.take(np.arange(4, 8))
    assert added.labels.tolist() == [2] * 4
    nearest = np.abs(added.boxes[:, None] - seen.boxes).max(axis=2)
    assert (nearest.min(axis=1) <= 8.01).all()  # a tenth of 80 pixels, rounded
    assert (nearest.min(axis=1) > 0).all()
    assert len(set(nearest.argmin(axis=1).tolist())) == 4
    assert noisy.detections_sha256 is not None
    few = disturb(clean, NoiseSettings(spurious=0.5, spurious_at="clutter", seed=3), seen)
    kept = {tuple(box) for box in added.boxes.tolist()}
    assert {tuple(box) for box in few.dataset.boxes[4:].tolist()} <= kept


def test_too_little_clutter_and_no_detections_are_refused() -> None:
    clean = build([[0, 0, 100, 100]] * 4, [0, 1, 0, 1])
    settings = NoiseSettings(spurious=0.5, spurious_at="clutter")
    with pytest.raises(DataError, match=r"2 spurious annotations on clutter .* there are 1; lower"):
        disturb(clean, settings, detect([[500, 500, 600, 600]], [0.5]))
    with pytest.raises(UsageError, match="give them by --predictions"):
        disturb(clean, settings)


def test_several_places_take_turns() -> None:
    clean = many(40, num_images=1)
    seen = detect([[100 * k, 700, 100 * k + 50, 750] for k in range(10)], [0.5] * 10)
    noisy = disturb(clean, NoiseSettings(spurious=0.275, spurious_at="part,clutter"), seen)
    added = noisy.dataset.boxes[40:]
    assert len(added) == 11
    assert (added[:6, 1] < 650).all()  # on parts
    assert (added[6:, 1] > 650).all()  # on clutter
