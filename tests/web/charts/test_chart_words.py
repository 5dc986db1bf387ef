"""Words on charts: whatever a user's file says stays one short line of valid XML."""

from math import inf, nan
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmend.web.charts import words

ANY_TEXT = st.text(st.characters(), max_size=200)  # lone surrogates included


@given(ANY_TEXT)
def test_any_text_gives_well_formed_xml_on_one_line(text: str) -> None:
    shown = words.to_xml(words.clean_text(text))
    read = ElementTree.fromstring(f'<a b="{shown}">{shown}</a>'.encode())
    assert read.text == (read.get("b") or None)
    assert "\n" not in shown
    assert len(words.clean_text(text)) <= words.MAX_CHARACTERS + 1


@given(ANY_TEXT, st.floats(20, 200))
def test_a_shortened_text_is_no_wider_than_its_room(text: str, room: float) -> None:
    assert words.breadth(words.shorten_text(text, room, 14), 14) <= room


def test_short_words_stay_and_long_ones_end_in_an_ellipsis() -> None:
    assert words.shorten_text("dog", 100, 14) == "dog"
    assert words.shorten_text("x" * 10_000, 100, 10) == "x" * 15 + "…"  # 16 times 6 are 96


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\0b", "a\ufffdb"),
        ("\ud800", "\ufffd"),
        ("\ufffe", "\ufffd"),
        ("a\r\n\tb  c", "a b c"),
        ("\u202eevil\u202c", "evil"),
        ("\u200f\u05d0\u05d1", "\u05d0\u05d1"),
        ("e\u0301", "e\u0301"),
        ("e" + "\u0301" * 50, "e" + "\u0301" * 3),
        ("日本", "日本"),
    ],
)
def test_what_cannot_be_shown_is_replaced_and_what_turns_text_around_is_gone(
    text: str, expected: str
) -> None:
    assert words.clean_text(text) == expected


def test_only_text_from_right_to_left_is_isolated() -> None:
    assert words.isolate_text("dog") == "dog"
    assert words.isolate_text("\u05d0\u05d1") == "\u2068\u05d0\u05d1\u2069"


def test_wide_characters_take_more_room_and_accents_none() -> None:
    assert words.breadth("日本", 10) == 20
    assert words.breadth("e\u0301", 10) == pytest.approx(6)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1234, "1,234"),
        (0.05123, "0.0512"),
        (1.8456, "1.85"),
        (12345.6, "12,346"),
        (0.1, "0.1"),
        (-2.5, "-2.5"),
        (1e-7, "0.0000001"),
        (0.0, "0"),
        (nan, "–"),  # noqa: RUF001  # an en dash is what is shown
        (inf, "∞"),
    ],
)
def test_numbers_are_written_as_people_do(value: float, expected: str) -> None:
    assert words.number(value) == expected


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        *((0.294, "29 %"), (0.0, "0 %"), (0.004, "<1 %"), (0.005, "<1 %"), (0.006, "1 %")),
        *((1, "100 %"), (0.994, "99 %"), (0.999, ">99 %"), (nan, "–")),  # noqa: RUF001
    ],
)
def test_shares_are_percent_and_a_trace_is_not_nothing(share: float, expected: str) -> None:
    assert words.percent(share) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [(7, "7"), (999, "999"), (1000, "1.0k"), (1234, "1.2k"), (34_499, "34k"), (5_100_000, "5.1M"),
     (999_999, "1.0M")],
)  # fmt: skip
def test_counts_have_four_characters_at_most(count: int, expected: str) -> None:
    assert words.short_count(count) == expected
