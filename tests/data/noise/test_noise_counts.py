"""Missing, spurious and duplicate annotations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmend.data.noise.counts import (
    choose_missing,
    duplicate_annotations,
)
from tests.data.noise.noise_data import build, many

rates = st.floats(0, 1)
ROWS = np.array([2, 3, 5, 7, 11, 13])


@given(rates, st.integers(0, 3))
def test_the_rounded_share_of_the_eligible_goes_missing(rate: float, seed: int) -> None:
    gone = choose_missing(ROWS, rate, seed)
    assert len(gone) == round(rate * 6)
    assert set(gone) <= set(ROWS)
    assert gone.tolist() == sorted(set(gone.tolist()))


def test_small_objects_go_missing_sooner_by_the_inverse_of_their_area() -> None:
    n = 40_000
    areas = np.tile([100.0, 200, 400, 100_000], n // 4)
    gone = choose_missing(np.arange(n), 0.07, 5, areas)
    assert len(gone) == 2800
    # The chances are as 4 to 2 to 1 to almost none: 1,600, 800, 400 and 1.6.
    assert np.bincount(gone % 4, minlength=4) == pytest.approx([1600, 800, 400, 2], abs=90)
    fewer = choose_missing(np.arange(n), 0.02, 5, areas)
    assert set(fewer) <= set(gone)


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


def test_duplicates_end_at_the_border_only_with_clipping() -> None:
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
