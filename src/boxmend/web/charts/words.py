"""Words and numbers on charts: safe as XML whatever a user's file says, and no longer than fits."""

import math
import unicodedata
from xml.sax.saxutils import escape

LONGEST = 80  # characters of a user's text that are looked at; nothing longer fits any chart
MISSING = "\N{EN DASH}"  # what stands for a number that is not there
_BREADTH = 0.6  # of a common character, as a share of the font size
_NARROW, _LARGE = 0.36, 0.9
_BROAD = 1.0  # of Chinese, Japanese and Korean ones, and of pictures
_REPLACED = "\N{REPLACEMENT CHARACTER}"
_INVISIBLE = ("Mn", "Me", "Cf")  # drawn upon the character before, or not at all


def cleaned(text: str) -> str:
    """One line of text without what XML forbids (shown as U+FFFD) or what turns the line around.

    Marks that override the direction of text are left out, and so are accents beyond the third
    on one letter, which would cover the lines above. Letters of any script stay.
    """
    told = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    told = " ".join("".join(_shown(character) for character in told).split())
    return "".join(one for k, one in enumerate(told) if not _is_heaped(told, k))


def escaped(text: str) -> str:
    """The text, cleaned, as the content or a quoted attribute of an XML element."""
    return prose(cleaned(text))


def prose(text: str) -> str:
    """Our own words, of any length, as XML; what users wrote in them must be cleaned before."""
    return escape(text, {'"': "&quot;"})


def isolated(text: str) -> str:
    """The text, cleaned, such that one read from right to left leaves its surroundings alone."""
    plain = cleaned(text)
    if any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in plain):
        return f"\u2068{plain}\u2069"
    return plain


def breadth(text: str, size: float) -> float:
    """About how wide a text is when set in a font of this size."""
    return size * sum(_breadth(character) for character in text)


def shortened(text: str, room: float, size: float) -> str:
    """The text, cleaned, cut with an ellipsis where it is wider than `room`."""
    plain = cleaned(text)
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
    """A number as people write it, to so many digits: 1,234 and 0.0512, no exponent."""
    if not math.isfinite(value):
        return MISSING if math.isnan(value) else ("∞" if value > 0 else "-∞")
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(decimals, 12)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float, decimals: int = 0) -> str:
    """A share of 1 as percent; what rounds to nothing or all but is neither is "<1 %", ">99 %"."""
    if not math.isfinite(share):
        return MISSING
    text, least = f"{share * 100:.{decimals}f}", 10**-decimals
    if share > 0 and float(text) == 0:
        return f"<{least:g} %"
    if share < 1 and float(text) == 100:
        return f">{100 - least:g} %"
    return f"{text} %"


def short_count(count: int) -> str:
    """A count in at most four characters: 999, 1.2k, 34k, 5.1M."""
    for limit, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= limit * 0.9995:  # what rounds to the next unit takes it
            value = count / limit
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return str(count)


def _shown(character: str) -> str:
    if character.isspace():
        return " "
    category = unicodedata.category(character)
    if category in ("Cc", "Cs") or ord(character) & 0xFFFE == 0xFFFE:  # and what is no character
        return _REPLACED
    if category == "Cf" and unicodedata.bidirectional(character) != "BN":
        return ""  # an embedding, override, isolate or mark of direction
    return character


def _is_heaped(text: str, at: int) -> bool:
    """Whether a character is an accent with three more directly before it."""
    pile = text[max(at - 3, 0) : at + 1]
    return len(pile) == 4 and all(unicodedata.category(one) in ("Mn", "Me") for one in pile)


def _breadth(character: str) -> float:
    if unicodedata.category(character) in _INVISIBLE:
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return _BROAD
    if character in "iIjl|.,:;'!f t()[]":
        return _NARROW
    return _LARGE if character in "mwMWOQ@%&" else _BREADTH
