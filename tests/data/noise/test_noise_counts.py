"""Missing, spurious and duplicate annotations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmend.data.noise.counts import (
    choose_missing,
    duplicate_annotations,
    invent_annotations,
    place_boxes,
    relative_sides,
)
from boxmend.errors import DataError
from tests.data.noise.noise_data import build, many

rates = st.floats(0, 1)
ROWS = np.array([2, 3, 5, 7, 11, 13])


@given(rates, st.integers(0, 3))
def test_the_rounded_share_of_the_eligible_goes_missing(rate: float, seed: int) -> None:
    gone = choose_missing(ROWS, rate, seed)
    assert len(gone) == round(rate * 6)
    assert set(gone) <= set(ROWS)
    assert gone.tolist() == sorted(set(gone.tolist()))


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
    added = invent_annotations(dataset, rows, rate, seed)
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
    added = invent_annotations(dataset, np.arange(3000), 1.0, 0)
    assert np.bincount(added.image_rows) == pytest.approx(750, abs=120)
    assert np.bincount(added.labels) == pytest.approx(1000, abs=120)
    room = np.array([1000, 800]) - (added.boxes[:, 2:] - added.boxes[:, :2])
    assert (added.boxes[:, :2] / room).mean(0) == pytest.approx(0.5, abs=0.03)
    sides = added.boxes[:, 2:] - added.boxes[:, :2]
    assert sides.mean(0) == pytest.approx(np.array([89.5, 69.5]), abs=3)


def test_fewer_spurious_annotations_are_the_first_of_more() -> None:
    dataset = many(50)
    few, more = (invent_annotations(dataset, np.arange(50), rate, 4) for rate in (0.2, 0.6))
    assert few.boxes.tolist() == more.boxes[:10].tolist()
    assert few.labels.tolist() == more.labels[:10].tolist()


def test_spurious_annotations_without_any_image_size_are_refused_with_a_remedy() -> None:
    dataset = build([[0, 0, 10, 10]] * 4, [0, 1, 2, 0], size=(0, 0))
    with pytest.raises(DataError, match=r"record the sizes .* or leave --spurious out"):
        invent_annotations(dataset, np.arange(4), 0.5, 0)
    assert len(invent_annotations(dataset, np.arange(4), 0.0, 0)) == 0


@given(rates, st.integers(0, 3))
def test_duplicates_repeat_kept_annotations_at_most_five_percent_off(
    rate: float, seed: int
) -> None:
    dataset = many(40)
    is_kept = np.arange(40) % 4 != 0
    added = duplicate_annotations(dataset, np.arange(40), is_kept, rate=rate, seed=seed)
    assert len(added) == min(round(rate * 40), 30)
    assert is_kept[added.originals].all()
    assert len(set(added.originals.tolist())) == len(added)
    assert added.labels.tolist() == dataset.labels[added.originals].tolist()
    assert added.image_rows.tolist() == dataset.image_rows[added.originals].tolist()
    first = dataset.boxes[added.originals]
    sides = np.tile(first[:, 2:] - first[:, :2], 2)
    assert (np.abs(added.boxes - first) <= 0.05 * sides + 1e-9).all()
    assert (added.boxes != first).any(axis=1).all()


def test_duplicates_end_at_the_border_only_where_clipping_is_asked_for() -> None:
    dataset = build([[0, 0, 1000, 800]] * 50, [0] * 50)
    is_kept, rows = np.ones(50, np.bool_), np.arange(50)
    inside = duplicate_annotations(dataset, rows, is_kept, rate=1.0, seed=0).boxes
    assert (inside >= 0).all()
    assert (inside <= [1000, 800, 1000, 800]).all()
    free = duplicate_annotations(dataset, rows, is_kept, rate=1.0, seed=0, clip=False).boxes
    assert (free < 0).any()
    assert free.clip(0, [1000, 800, 1000, 800]).tolist() == inside.tolist()


def test_a_box_too_small_to_move_is_repeated_as_it_is() -> None:
    tiny = [10.001, 10.001, 10.003, 10.004]
    dataset = build([tiny, tiny], [0, 1])
    added = duplicate_annotations(dataset, np.arange(2), np.ones(2, np.bool_), rate=1.0, seed=0)
    assert added.boxes.tolist() == [tiny, tiny]
