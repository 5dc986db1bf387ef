"""Ticks against lists made by hand, and what holds for any axis."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmend.web.charts.ticks import (
    log_ticks,
    nice_ticks,
    percent_texts,
    round_above,
    round_below,
    tick_texts,
)


@pytest.mark.parametrize(
    ("low", "high", "count", "expected"),
    [
        (0, 1, 5, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 0.07, 4, [0, 0.02, 0.04, 0.06]),
        (0, 1234, 4, [0, 500, 1000]),
        (0, 1000, 4, [0, 250, 500, 750, 1000]),
        (-1, 1, 4, [-1, -0.5, 0, 0.5, 1]),
        (0.43, 0.78, 5, [0.5, 0.6, 0.7]),
        (3e-7, 9e-7, 3, [4e-7, 6e-7, 8e-7]),
        (0.3, 0.3, 5, [0.3]),
    ],
)
def test_ticks_are_round_numbers_within_the_ends(
    low: float, high: float, count: int, expected: list[float]
) -> None:
    assert nice_ticks(low, high, count) == pytest.approx(expected)


def test_an_axis_of_whole_numbers_has_no_ticks_between_them() -> None:
    assert nice_ticks(0, 3, 8, whole=True) == [0, 1, 2, 3]
    assert nice_ticks(0, 12, 8, whole=True) == [0, 2, 4, 6, 8, 10, 12]
    assert nice_ticks(0, 20, 8, whole=True) == [0, 3, 6, 9, 12, 15, 18]  # a step of 2.5, rounded up
    assert nice_ticks(0.5, 1.5, 8, whole=True) == [1]


@pytest.mark.parametrize(("low", "high"), [(1, 0), (nan, 1), (0, inf)])
def test_ends_that_are_none_are_refused(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="no ticks"):
        nice_ticks(low, high)


@given(
    st.floats(-1e9, 1e9),
    st.floats(1e-6, 1e9),
    st.integers(1, 12),
)
def test_ticks_rise_within_the_ends_and_are_about_as_many_as_wanted(
    low: float, span: float, count: int
) -> None:
    high = low + span
    ticks = nice_ticks(low, high, count)
    slack = 1e-6 * span + 1e-9 * max(abs(low), abs(high))
    assert all(low - slack <= tick <= high + slack for tick in ticks)
    assert ticks == sorted(ticks)
    assert len(ticks) <= count + 2
    if count >= 3:
        assert ticks, "an axis that wants three ticks has one at least"


def test_texts_have_equally_many_decimals_and_thousands_apart() -> None:
    assert tick_texts([0, 0.25, 0.5]) == ["0.00", "0.25", "0.50"]
    assert tick_texts([0, 500, 1000]) == ["0", "500", "1,000"]
    assert tick_texts([]) == []


def test_shares_are_percent_with_equally_many_decimals() -> None:
    assert percent_texts([0, 0.005, 0.01]) == ["0.0 %", "0.5 %", "1.0 %"]
    assert percent_texts([0, 0.07, 0.14]) == ["0 %", "7 %", "14 %"]


def test_ticks_of_a_log_scale_are_powers_of_ten_or_finer_over_two_decades() -> None:
    assert log_ticks(0.01, 100) == [0.01, 0.1, 1, 10, 100]
    assert log_ticks(0.2, 5) == [0.2, 0.5, 1, 2, 5]
    assert log_ticks(0.03, 2) == [0.05, 0.1, 0.2, 0.5, 1, 2]


def test_rounding_goes_to_one_two_or_five() -> None:
    assert [round_below(one) for one in (0.2575, 5, 1, 0.99)] == pytest.approx([0.2, 5, 1, 0.5])
    assert [round_above(one) for one in (3.485, 5, 5.1, 0.011)] == pytest.approx([5, 5, 10, 0.02])


@given(st.floats(1e-9, 1e9))
def test_rounded_ends_enclose_the_number_within_a_factor(value: float) -> None:
    assert round_below(value) <= value * 1.000001
    assert round_above(value) >= value * 0.999999
    assert round_above(value) / round_below(value) <= 2.6
