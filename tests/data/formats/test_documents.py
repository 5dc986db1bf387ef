"""Numbers as people write them, and bytes with a few spans replaced."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from boxmend.data.formats.documents import Edit, apply_edits, format_number, format_numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (-1e-9, "0"),
        (1.0, "1"),
        (-2.5, "-2.5"),
        (0.1 + 0.2, "0.3"),
        (1 / 3, "0.333333"),
        (2 / 3, "0.666667"),
        (1e-7, "0"),
        (1e-6, "0.000001"),
        (0.000123, "0.000123"),
        (123456.123456, "123456.123456"),
        (1e16, "10000000000000000"),
        (1e22, "10000000000000000000000"),
        (-1e15, "-1000000000000000"),
        (1234567890.5, "1234567890.5"),
    ],
)
def test_numbers_are_written_as_people_write_them(value: Any, text: str) -> None:
    assert format_number(value) == text
    assert format_numbers(np.array([value])) == [text.encode()]


def test_decimals_can_be_chosen() -> None:
    assert format_number(0.123456789, 3) == "0.123"
    assert format_number(2.9999, 2) == "3"


def test_no_numbers_give_no_texts() -> None:
    assert format_numbers(np.empty((0, 4))) == []


FLOATS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1e6, 1e6),
    st.integers(-(10**13), 10**13).map(lambda one: one / 2e6),  # half-way between two texts
    st.integers(-(10**9), 10**9).map(lambda one: one / 1e7),
    st.integers(10**13, 10**22).map(lambda one: one / 2e6),
    st.integers(-(10**6), 10**6).map(float),
)


@given(st.lists(FLOATS, max_size=30))
@example([7579786075000.084, 1911479847932.403])  # which scaling and back would change
@example([181.2292045, 2.0000005, 5e-7, -5e-7, 1.5e-6, 0.001, 0.0009999996, 1.7e308, 8e6, 1e15])
def test_many_numbers_are_written_like_single_ones(values: Any) -> None:
    texts = format_numbers(np.array(values, np.float64))
    assert texts == [format_number(value).encode() for value in values]


@given(FLOATS)
def test_text_equals_the_number_to_a_millionth(value: Any) -> None:
    text = format_number(value)
    assert abs(float(text) - value) <= 0.5000001e-6 + 1e-15 * abs(value)
    assert "e" not in text
    assert text not in ("-0", "")
    assert not (text.endswith("0") and "." in text)


def test_edits_replace_insert_and_remove() -> None:
    edits = [Edit(0, 1, b"A"), Edit(2, 2, b"--"), Edit(3, 5, b"")]
    assert b"".join(apply_edits(b"abcdef", edits)) == b"Ab--cf"


def test_no_edits_give_the_same_bytes() -> None:
    assert b"".join(apply_edits(b"abc", [])) == b"abc"


def test_edits_that_overlap_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap at byte 1"):
        list(apply_edits(b"abc", [Edit(0, 2, b"x"), Edit(1, 3, b"y")]))


def test_many_edits_come_in_few_pieces() -> None:
    data = b"ab" * 10_000
    edits = [Edit(k, k + 1, b"x") for k in range(0, len(data), 2)]
    pieces = list(apply_edits(data, edits))
    assert b"".join(pieces) == b"xb" * 10_000
    assert len(pieces) < 10


def test_a_number_of_numpy_is_written_like_any_other() -> None:
    assert format_number(np.float64(2.5)) == "2.5"
