"""Heat maps: a square table of counts, the higher the darker, with the numbers in it."""

from collections.abc import Sequence

from boxmend.web.charts import marks
from boxmend.web.charts.sheet import EDGE, SIZE, SMALL
from boxmend.web.charts.words import breadth, cleaned, short_count, shortened

NARROW, WIDE = 480.0, 640.0  # of the sheet, by how many cells there are
FEW = 10  # cells across that fit onto the narrow one
_LARGEST = 54.0  # side of a cell
_LONGEST = 116.0  # of a name
_PALEST, _DARKEST = 0.08, 0.6  # so that ink can be read on all of them


def heat_map(
    names: Sequence[str], counts: Sequence[Sequence[int]], titles: tuple[str, str], most: int
) -> tuple[str, tuple[float, float]]:
    """Counts from one name (rows) to another (columns): what to draw, and the size it takes.

    `titles` say what rows and columns are. A count of `most` and above is darkest. Cells with
    nothing are empty.
    """
    n = len(names)
    width = NARROW if n <= FEW else WIDE
    size = SIZE if n <= FEW else 12.0
    room = min(max((breadth(cleaned(name), size) for name in names), default=0.0), _LONGEST)
    beside, beyond = max(room + 18, 112.0), room * 0.75 + EDGE  # slanted names lean to the right
    cell = min((width - beside - beyond) / max(n, 1), _LARGEST)
    left = beside + (width - beside - beyond - cell * n) / 2
    top = room * 0.72 + 42
    parts = [_titles(left, top, cell * n, titles)]
    for k, name in enumerate(names):
        parts.append(_names(name, left, top, cell, (k, size, room)))
    for row in range(n):
        for column in range(n):
            corner = (left + cell * column, top + cell * row)
            parts.append(_cell(corner, cell, counts[row][column], most, size))
    return "".join(parts), (width, top + cell * n + 10)


def _titles(left: float, top: float, side: float, titles: tuple[str, str]) -> str:
    return marks.text((left - 8, top - 8), f"{titles[0]} ↓", "muted", size=SMALL, anchor="end") + (
        marks.text((left, 16), f"{titles[1]} →", "muted", size=SMALL)
    )


def _names(
    name: str, left: float, top: float, cell: float, setting: tuple[int, float, float]
) -> str:
    """A name in front of its row and above its column, there slanted."""
    k, size, room = setting
    middle = cell * (k + 0.5) + size * 0.35
    text = shortened(name, room + 1, size)
    beside = marks.text((left - 8, top + middle), text, size=size, anchor="end")
    above = marks.text((left + middle, top - 8), text, size=size, turned=-45)
    return beside + above


def _cell(corner: marks.Point, side: float, count: int, most: int, size: float) -> str:
    x, y = corner
    frame = marks.bar((x + 0.5, y + 0.5), (side - 1, side - 1), "shade", opacity=0.06)
    if count == 0:
        return frame
    opacity = _PALEST + (_DARKEST - _PALEST) * min(count / most, 1.0)
    words = short_count(count)
    fitting = min(size, side / max(breadth(words, 1), 1e-9) * 0.95)
    at = (x + side / 2, y + side / 2 + fitting * 0.35)
    return marks.bar((x + 0.5, y + 0.5), (side - 1, side - 1), "heat", opacity=opacity) + (
        marks.text(at, words, size=round(max(fitting, 11.0), 1), anchor="middle")
    )
