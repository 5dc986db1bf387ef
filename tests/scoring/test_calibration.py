"""Probabilities against what happened, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmend.scoring.calibration import NUM_BINS, measure_calibration


def test_the_error_is_the_mean_distance_of_bins_from_what_happened() -> None:
    # Two bins: 0.1 and 0.3 (mean 0.2, none so), 0.9 0.9 0.6 (mean 0.8, two of three so).
    probabilities = np.array([0.1, 0.9, 0.3, 0.9, 0.6])
    result = measure_calibration(
        probabilities, np.array([False, True, False, True, False]), num_bins=2
    )
    assert result.error == pytest.approx((2 * 0.2 + 3 * (0.8 - 2 / 3)) / 5)
    assert result.expected == pytest.approx(2.8 / 5)
    assert result.happened == 2 / 5
    low, high = result.bins
    assert (low.low, low.high, low.number, low.happened) == (0, 0.5, 2, 0)
    assert low.mean == pytest.approx(0.2)
    assert (high.number, high.happened) == (3, 2 / 3)


def test_errors_of_two_bins_do_not_make_up_for_each_other() -> None:
    # 0.2 where all are so, 0.8 where none is: each is off by 0.8, to either side
    result = measure_calibration(np.array([0.2, 0.8]), np.array([True, False]), num_bins=2)
    assert result.error == pytest.approx(0.8)


def test_an_edge_belongs_to_the_bin_above_and_one_to_the_last() -> None:
    result = measure_calibration(np.array([0.0, 0.5, 1.0]), np.ones(3, np.bool_), num_bins=2)
    assert [one.number for one in result.bins] == [1, 2]


def test_missing_probabilities_are_left_out() -> None:
    result = measure_calibration(np.array([np.nan, 1.0]), np.array([True, True]))
    assert (result.number, result.error, len(result.bins)) == (1, 0, NUM_BINS)


def test_without_probabilities_there_is_no_error() -> None:
    result = measure_calibration(np.zeros(0), np.zeros(0, np.bool_))
    assert result.error is result.expected is result.happened is None
    assert all(one.mean is one.happened is None for one in result.bins)
    assert result.to_json()["bins"][0]["number"] == 0


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1))
def test_the_error_is_a_share_and_at_least_the_distance_of_the_means(
    probabilities: list[tuple[float, bool]],
) -> None:
    p, was = (
        np.array([one for one, _ in probabilities]),
        np.array([one for _, one in probabilities]),
    )
    result = measure_calibration(p, was)
    assert result.error is not None
    assert abs(p.mean() - was.mean()) - 1e-9 <= result.error <= 1
    assert sum(one.number for one in result.bins) == len(probabilities)
