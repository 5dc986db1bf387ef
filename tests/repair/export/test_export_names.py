"""Texts and names made fit for other tools."""

import xml.etree.ElementTree as ElementTree
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.data.files.text import escape_surrogates
from boxmend.repair.export.naming import escape_for_one_line, escape_for_xml, make_distinct, shorten

ANY_TEXT = st.text(st.characters(), max_size=12)  # lone surrogates and control characters, too


@pytest.mark.parametrize(
    ("text", "fit"),
    [
        ("plain", "plain"),
        ("<&'\">", "<&'\">"),
        ("\x00\x0b\x1f", "\\x00\\x0b\\x1f"),
        ("\ud800", "\\ud800"),
        ("\udc80x", "\\udc80x"),
        ("\ufffe\uffff", "\\ufffe\\uffff"),
        ("a\tb\nc\rd", "a\tb\nc\rd"),
        ("Größe 大 😀", "Größe 大 😀"),
    ],
)
def test_what_xml_forbids_is_spelt_out(text: str, fit: str) -> None:
    assert escape_for_xml(text) == fit


def test_line_ends_and_tabs_are_spelt_out_in_names() -> None:
    assert escape_for_one_line("a\tb\nc\rd\x85e\u2028") == "a\\x09b\\x0ac\\x0dd\\x85e\\u2028"


def test_half_a_character_is_spelt_as_in_the_ledger() -> None:
    assert escape_surrogates("a\ud800b\udc80") == "a\\ud800b\\udc80"
    assert escape_surrogates("a\nb😀") == "a\nb😀"


@settings(deadline=None)
@given(ANY_TEXT)
def test_any_text_survives_an_xml_parser_once_it_is_fit(text: str) -> None:
    fit = escape_for_one_line(text)
    document = f"<a b={quoteattr(fit)}>{escape(fit)}</a>".encode()
    element = ElementTree.fromstring(document)
    assert element.attrib["b"] == fit
    assert (element.text or "") == fit


def test_names_that_become_equal_stay_distinct() -> None:
    assert make_distinct(["a ", "a", " a"]) == ["a", "a (2)", "a (3)"]
    assert make_distinct(["", " ", "unnamed"]) == ["unnamed", "unnamed (2)", "unnamed (3)"]
    assert make_distinct(["$x", "\uff04x"], swaps={"$": "\uff04"}) == ["\uff04x", "\uff04x (2)"]


def test_long_names_are_cut_and_stay_distinct() -> None:
    assert make_distinct(["x" * 9, "x" * 10], longest=8) == ["x" * 8, "xxxx (2)"]


@settings(deadline=None)
@given(st.lists(ANY_TEXT, max_size=6), st.sampled_from([None, 8, 64]))
def test_names_for_tools_are_distinct_trimmed_and_not_empty(
    names: list[str], longest: int | None
) -> None:
    result = make_distinct(names, longest=longest)
    assert len(set(result)) == len(result) == len(names)
    for name in result:
        assert name == name.strip() != ""
        assert longest is None or len(name) <= longest
        name.encode()  # no half characters


def test_a_long_text_is_shortened_for_sentences() -> None:
    assert shorten("x" * 60) == "x" * 60
    assert shorten("x" * 61) == "x" * 57 + "..."
    assert shorten("a\nb") == "a\\x0ab"
