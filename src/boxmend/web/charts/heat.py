"""Heat maps: a square table of counts; higher counts are darker."""

from collections.abc import Sequence

from boxmend.web.charts import marks
from boxmend.web.charts.sheet import EDGE, SIZE, SMALL
from boxmend.web.charts.words import breadth, clean_text, short_count, shorten_text

NARROW_WIDTH, WIDE_WIDTH = 480.0, 640.0  # of the sheet, depending on the number of cells
MAX_CELLS_NARROW = 10  # per row
_MAX_CELL_SIDE = 54.0
_MAX_NAME_WIDTH = 116.0
_MIN_OPACITY, _MAX_OPACITY = 0.08, 0.6  # text stays readable on all of them


def heat_map(
    names: Sequence[str], counts: Sequence[Sequence[int]], titles: tuple[str, str], most: int
) -> tuple[str, tuple[float, float]]:
    """Draw counts from one name (rows) to another (columns); return the drawing and its size.

    `titles` are those of rows and columns. Counts of at least `most` are darkest; cells without a
    count are empty.
    """
    n = len(names)
    width = NARROW_WIDTH if n <= MAX_CELLS_NARROW else WIDE_WIDTH
    size = SIZE if n <= MAX_CELLS_NARROW else 12.0
    widths = [breadth(clean_text(name), size) for name in names]
    room = min(max(widths, default=0.0), _MAX_NAME_WIDTH)
    beside, beyond = max(room + 18, 112.0), room * 0.75 + EDGE  # slanted names lean to the right
    cell = min((width - beside - beyond) / max(n, 1), _MAX_CELL_SIDE)
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
    """Draw a name before its row and, slanted, above its column."""
    k, size, room = setting
    middle = cell * (k + 0.5) + size * 0.35
    text = shorten_text(name, room + 1, size)
    beside = marks.text((left - 8, top + middle), text, size=size, anchor="end")
    above = marks.text((left + middle, top - 8), text, size=size, turned=-45)
    return beside + above


def _cell(corner: marks.Point, side: float, count: int, most: int, size: float) -> str:
    x, y = corner
    frame = marks.bar((x + 0.5, y + 0.5), (side - 1, side - 1), "shade", opacity=0.06)
    if count == 0:
        return frame
    opacity = _MIN_OPACITY + (_MAX_OPACITY - _MIN_OPACITY) * min(count / most, 1.0)
    words = short_count(count)
    fitting = min(size, side / max(breadth(words, 1), 1e-9) * 0.95)
    at = (x + side / 2, y + side / 2 + fitting * 0.35)
    return marks.bar((x + 0.5, y + 0.5), (side - 1, side - 1), "heat", opacity=opacity) + (
        marks.text(at, words, size=round(max(fitting, 11.0), 1), anchor="middle")
    )
