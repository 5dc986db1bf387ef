"""Texts and numbers on charts: safe as XML for any user's text, and short enough to fit."""

import math
import unicodedata
from xml.sax.saxutils import escape

MAX_CHARACTERS = 80  # of a user's text; no chart has room for more
MISSING = "\N{EN DASH}"  # shown for a missing number
_BREADTH = 0.6  # of a common character, as a share of the font size
_NARROW_BREADTH, _LARGE_BREADTH = 0.36, 0.9
_FULL_BREADTH = 1.0  # of Chinese, Japanese and Korean characters, and of emoji
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_INVISIBLE = ("Mn", "Me", "Cf")  # categories of characters without a width


def clean_text(text: str) -> str:
    """Return a text on one line, without characters that XML forbids (replaced by U+FFFD).

    Marks that change the direction of text are removed, and so are accents after the third on one
    letter, because they would cover the lines above. Letters of any script stay.
    """
    line = text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"
    line = " ".join("".join(_safe(character) for character in line).split())
    return "".join(character for k, character in enumerate(line) if not _is_fourth_accent(line, k))


def to_xml(text: str) -> str:
    """Return boxmend's own text of any length as XML; users' texts in it must be cleaned before."""
    return escape(text, {'"': "&quot;"})


def isolate_text(text: str) -> str:
    """Return a text, cleaned, so that right-to-left text does not affect its surroundings."""
    plain = clean_text(text)
    if any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in plain):
        return f"\u2068{plain}\u2069"
    return plain


def breadth(text: str, size: float) -> float:
    """Estimate the width of a text in a font of this size."""
    return size * sum(_breadth(character) for character in text)


def shorten_text(text: str, room: float, size: float) -> str:
    """Return a text, cleaned, and cut with an ellipsis if it is wider than `room`."""
    plain = clean_text(text)
    if breadth(plain, size) <= room:
        return plain
    kept, used = 0, size * _BREADTH
    for character in plain:
        used += size * _breadth(character)
        if used > room:
            break
        kept += 1
    return plain[:kept].rstrip() + "…"


def number(value: float, digits: int = 3) -> str:
    """Format a number with so many digits and without exponent: 1,234 and 0.0512."""
    if not math.isfinite(value):
        return MISSING if math.isnan(value) else ("∞" if value > 0 else "-∞")
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(decimals, 12)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float, decimals: int = 0) -> str:
    """Format a share as a percentage; small ones become "<1 %" instead of "0 %", large ">99 %"."""
    if not math.isfinite(share):
        return MISSING
    text, least = f"{share * 100:.{decimals}f}", 10**-decimals
    if share > 0 and float(text) == 0:
        return f"<{least:g} %"
    if share < 1 and float(text) == 100:
        return f">{100 - least:g} %"
    return f"{text} %"


def short_count(count: int) -> str:
    """Format a count in at most four characters: 999, 1.2k, 34k, 5.1M."""
    for limit, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= limit * 0.9995:  # 999,500 is 1.0M, not 1000k
            value = count / limit
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return str(count)


def _safe(character: str) -> str:
    if character.isspace():
        return " "
    category = unicodedata.category(character)
    if category in ("Cc", "Cs") or ord(character) & 0xFFFE == 0xFFFE:  # a noncharacter
        return _REPLACEMENT
    if category == "Cf" and unicodedata.bidirectional(character) != "BN":
        return ""  # it would change the direction of text
    return character


def _is_fourth_accent(text: str, at: int) -> bool:
    """Return whether a character and the three before it are all accents."""
    accents = text[max(at - 3, 0) : at + 1]
    categories = [unicodedata.category(character) for character in accents]
    return len(accents) == 4 and all(category in ("Mn", "Me") for category in categories)


def _breadth(character: str) -> float:
    if unicodedata.category(character) in _INVISIBLE:
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return _FULL_BREADTH
    if character in "iIjl|.,:;'!f t()[]":
        return _NARROW_BREADTH
    return _LARGE_BREADTH if character in "mwMWOQ@%&" else _BREADTH
