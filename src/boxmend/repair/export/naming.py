"""Names and texts as other tools take them: valid Unicode, valid XML, none twice."""

import re
from collections.abc import Iterable, Mapping

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
UNNAMED = "unnamed"


def xml_text(text: str) -> str:
    r"""The text with characters that XML 1.0 forbids or discourages spelt out, like `\x0b`."""
    return _NOT_IN_XML.sub(_spelt, text)


def on_one_line(text: str) -> str:
    r"""The text fit for XML, with line ends, tabs and all control characters spelt out as `\x0a`.

    XML attributes and tools' forms would turn them into spaces, or cut the text there.
    """
    return _CONTROL.sub(_spelt, xml_text(text))


def distinct(
    names: Iterable[str], *, longest: int | None = None, swaps: Mapping[str, str] | None = None
) -> list[str]:
    """Names for a tool that reads them from a form or an XML file, in the same order, none twice.

    On one line, trimmed, not empty, at most `longest` characters, with the `swaps` made. Where two
    become equal by that, the later one gets a number behind it.
    """
    taken = set[str]()
    found = []
    for name in names:
        plain = on_one_line(name).strip()
        for old, new in (swaps or {}).items():
            plain = plain.replace(old, new)
        new, count = _cut(plain or UNNAMED, "", longest), 1
        while new in taken:
            count += 1
            new = _cut(plain or UNNAMED, f" ({count})", longest)
        taken.add(new)
        found.append(new)
    return found


def shortened(text: str, longest: int = 60) -> str:
    """The text for a sentence: on one line and, if it is long, only its beginning."""
    plain = on_one_line(text)
    return plain if len(plain) <= longest else f"{plain[: longest - 3]}..."


def _cut(name: str, ending: str, longest: int | None) -> str:
    if longest is None or len(name) + len(ending) <= longest:
        return name + ending
    return name[: longest - len(ending)].rstrip() + ending


def _spelt(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
