"""Streams of random numbers: fixed for ever, independent, and the same for a row in any company."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmend.data.noise.streams import (
    Stream,
    choose_smallest,
    count_of_rate,
    pick_choices,
    uniform_rows,
    uniforms,
)


def test_the_draws_never_change() -> None:
    first_streams = [Stream(number) for number in range(1, 9)]
    draws = [uniforms(seed, stream, 100) for seed in (0, 2**40) for stream in first_streams]
    digest = hashlib.sha256(np.concatenate(draws).tobytes()).hexdigest()
    assert digest == "a1bba7c91a19bf2183c65072e20ecbf909d9b29b15539605142bc23afd1438a2"


def test_draws_are_the_upper_bits_of_pcg64_by_stream_attempt_and_seed() -> None:
    raw = np.random.PCG64(np.random.SeedSequence([4, 3, 7])).random_raw(8)
    expected = [int(one >> 11) / 2**53 for one in raw.tolist()]
    assert uniform_rows(7, Stream.BOXES, np.arange(2), 4, attempt=3).ravel().tolist() == expected


def test_draws_lie_in_the_half_open_unit_interval_and_fill_it_evenly() -> None:
    draws = uniforms(0, Stream.BOXES, 100_000)
    assert draws.min() >= 0
    assert draws.max() < 1
    assert np.histogram(draws, 10, (0, 1))[0] == pytest.approx(10_000, abs=400)


def test_streams_seeds_and_attempts_are_all_different() -> None:
    firsts = [uniforms(seed, stream, 1)[0] for seed in (0, 1, 2**32, 2**33) for stream in Stream]
    row = np.array([0])
    firsts += [uniform_rows(0, Stream.BOXES, row, 1, attempt)[0, 0] for attempt in range(1, 21)]
    assert len(set(firsts)) == 4 * len(Stream) + 20


def test_a_longer_draw_begins_with_the_shorter_one() -> None:
    assert uniforms(5, Stream.MISSING, 50)[:20].tolist() == uniforms(5, Stream.MISSING, 20).tolist()


@given(st.sets(st.integers(0, 300), max_size=40), st.integers(1, 5), st.integers(0, 3))
def test_a_row_gets_the_same_draws_whichever_other_rows_are_asked_for(
    rows: set[int], width: int, attempt: int
) -> None:
    picked = np.array(sorted(rows), np.int64)
    everything = uniform_rows(1, Stream.BOXES, np.arange(301), width, attempt)
    alone = uniform_rows(1, Stream.BOXES, picked, width, attempt)
    assert alone.tolist() == everything[picked].tolist()


def test_the_smallest_keys_are_chosen_in_ascending_order_of_rows() -> None:
    keys = np.array([0.5, 0.1, 0.9, 0.3])
    assert choose_smallest(keys, 2).tolist() == [1, 3]
    assert choose_smallest(keys, 0).tolist() == []
    assert choose_smallest(keys, 4).tolist() == [0, 1, 2, 3]
    assert choose_smallest(keys, 9).tolist() == [0, 1, 2, 3]


def test_of_equal_keys_the_earlier_row_is_chosen() -> None:
    assert choose_smallest(np.array([0.2, 0.1, 0.1, 0.1]), 2).tolist() == [1, 2]


@given(st.integers(0, 60), st.integers(0, 60))
def test_a_smaller_choice_is_part_of_a_larger_one(a: int, b: int) -> None:
    keys = uniforms(3, Stream.SUBSET, 60)
    small, large = choose_smallest(keys, min(a, b)), choose_smallest(keys, max(a, b))
    assert set(small) <= set(large)
    assert len(large) == max(a, b)


def test_picks_split_the_unit_interval_evenly() -> None:
    draws = np.array([0.0, 0.249, 0.25, 0.5, 0.75, 1 - 2.0**-53])
    assert pick_choices(draws, 4).tolist() == [0, 0, 1, 2, 3, 3]


@given(st.integers(1, 10**9))
def test_a_pick_never_reaches_the_number_of_choices(choices: int) -> None:
    assert pick_choices(np.array([1 - 2.0**-53]), choices)[0] == choices - 1


@pytest.mark.parametrize(
    ("rate", "count", "expected"),
    [(0.4, 10, 4), (0.25, 10, 2), (0.35, 10, 4), (1, 7, 7), (0, 7, 0)],
)
def test_a_share_is_rounded_with_halves_to_even(rate: float, count: int, expected: int) -> None:
    assert count_of_rate(rate, count) == expected
