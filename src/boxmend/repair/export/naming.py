"""Names and texts that other tools accept: valid Unicode, valid XML, distinct."""

import re
from collections.abc import Iterable, Mapping

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
UNNAMED = "unnamed"


def escape_for_xml(text: str) -> str:
    r"""Escape characters that XML 1.0 forbids or discourages, like `\x0b`."""
    return _NOT_IN_XML.sub(_escape, text)


def escape_for_one_line(text: str) -> str:
    r"""Escape a text for XML, with all control characters, such as line ends as `\x0a`.

    XML attributes and forms would turn these into spaces, or cut the text there.
    """
    return _CONTROL.sub(_escape, escape_for_xml(text))


def make_distinct(
    names: Iterable[str], *, longest: int | None = None, swaps: Mapping[str, str] | None = None
) -> list[str]:
    """Return distinct names for a tool that reads them from a form or an XML file, in order.

    Names are on one line, trimmed, not empty, and have at most `longest` characters; `swaps` are
    replaced. If two names become equal, the later one gets a number.
    """
    used = set[str]()
    distinct = []
    for name in names:
        plain = escape_for_one_line(name).strip()
        for old, new in (swaps or {}).items():
            plain = plain.replace(old, new)
        new, count = _cut(plain or UNNAMED, "", longest), 1
        while new in used:
            count += 1
            new = _cut(plain or UNNAMED, f" ({count})", longest)
        used.add(new)
        distinct.append(new)
    return distinct


def shorten(text: str, longest: int = 60) -> str:
    """Return a text on one line, cut to at most `longest` characters."""
    plain = escape_for_one_line(text)
    return plain if len(plain) <= longest else f"{plain[: longest - 3]}..."


def _cut(name: str, ending: str, longest: int | None) -> str:
    if longest is None or len(name) + len(ending) <= longest:
        return name + ending
    return name[: longest - len(ending)].rstrip() + ending


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
