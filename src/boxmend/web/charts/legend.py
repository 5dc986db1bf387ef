"""The legend of a chart: a swatch and a text for each kind of mark, in one or more rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from boxmend.web.charts import marks
from boxmend.web.charts.sheet import SIZE
from boxmend.web.charts.words import breadth

ROW = 22.0  # height of a row of keys
_SWATCH = 24.0
_GAP = 22.0


@dataclass(frozen=True)
class Key:
    """One entry of a legend."""

    words: str  # users' texts must be cleaned before
    css: str
    mark: Literal["line", "area", "dot", "ring", "strip"] = "line"
    dash: str = "solid"  # of a line
    fill: str = "currentColor"  # of an area


def keys(entries: Sequence[Key], left: float, top: float, room: float) -> tuple[str, float]:
    """Draw the entries from left to right in rows of width `room`; return drawing and height."""
    parts, x, y = [], left, top
    for entry in entries:
        width = _SWATCH + 7 + breadth(entry.words, SIZE)
        if x > left and x + width > left + room:
            x, y = left, y + ROW
        parts.append(_swatch(entry, x, y + ROW / 2))
        parts.append(marks.text((x + _SWATCH + 7, y + ROW / 2 + SIZE * 0.35), entry.words))
        x += width + _GAP
    return "".join(parts), (y + ROW - top if entries else 0.0)


def _swatch(entry: Key, x: float, y: float) -> str:
    if entry.mark in ("dot", "ring"):
        return marks.dot((x + _SWATCH / 2, y), entry.css, is_hollow=entry.mark == "ring")
    if entry.mark == "area":
        opacity = 0.28 if entry.fill == "currentColor" else 1
        box = ((x, y - 6.5), (_SWATCH, 13.0))
        return marks.bar(*box, entry.css, fill=entry.fill, opacity=opacity, is_framed=True)
    if entry.mark == "strip":
        return marks.bar((x, y - 6.5), (_SWATCH, 13.0), entry.css, opacity=0.18)
    ends = ((x, y), (x + _SWATCH, y))
    return marks.line(*ends, entry.css, width=2.5, dash=entry.dash)
