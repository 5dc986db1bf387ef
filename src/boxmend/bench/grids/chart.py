"""Draw a table: a panel for each noise, a row for each method, with our and published figures.

The picture shows shares of the lost accuracy if the table has them, because these are comparable
with figures that others published on other data. Otherwise it shows differences to baseline, or
the figures themselves.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from boxmend.bench.grids.table_spec import Column
from boxmend.bench.grids.tables import GridTable, TableEntry
from boxmend.web.charts import axes, drawing, legend, marks, standalone
from boxmend.web.charts.rows import ROW, row_middle, row_names
from boxmend.web.charts.sheet import EDGE, SIZE, SMALL, WIDTH
from boxmend.web.charts.ticks import nice_ticks, percent_texts, tick_texts
from boxmend.web.charts.words import breadth

MAX_PANELS_PER_LINE = 4
_PANEL_WIDTH = 158.0
_NUMBERS_WIDTH = 58.0  # to the right of a panel
_MAX_NAME_WIDTH = 520.0
_TITLE_HEIGHT, _AXIS_HEIGHT = 30.0, 40.0  # above and below a line of panels
_SHARE_RANGE = (-0.25, 1.15)  # values outside are arrows at the edge
_MIN_SPAN = 0.02  # of differences; keeps small ones small


@dataclass(frozen=True)
class Point:
    """One entry of the table: our figure with its error, and the published figure."""

    ours: float | None = None
    error: float | None = None
    paper: float | None = None
    is_best: bool = False

    @property
    def values(self) -> list[float]:
        """Return the figures that are known."""
        return [value for value in (self.ours, self.paper) if value is not None]


@dataclass(frozen=True)
class Ruler:
    """The axis that all panels share."""

    title: str
    ends: axes.Range
    ticks: tuple[float, ...]
    texts: tuple[str, ...]
    lines: tuple[float, ...] = ()
    """Values with a vertical line: those of `baseline` and of `clean`."""


def draw_svg(table: GridTable) -> bytes:
    """Draw a table as an SVG file, which follows the dark mode of the reader's system."""
    columns, names, points = _select_known(table)
    ruler = _make_ruler(table, [point for line in points for point in line])
    entries = [legend.Key(f"here, with its {_name_error(table)}", "series-1", "dot")]
    if any(point.paper is not None for line in points for point in line):
        entries.append(legend.Key("as published", "series-2", "ring"))
    room = min(max((breadth(name, SIZE) for name in names), default=0.0) + 2, _MAX_NAME_WIDTH)
    names_right = EDGE + room + 10
    number = math.ceil(
        len(columns) / max(math.ceil(len(columns) / MAX_PANELS_PER_LINE), 1)
    )  # in a line
    width = max(names_right + number * (_PANEL_WIDTH + _NUMBERS_WIDTH) + EDGE, WIDTH)
    keys, top = legend.keys(entries, EDGE, 4, width - 2 * EDGE)
    parts, top = [keys], top + 8
    for first in range(0, len(columns), max(number, 1)):
        top += _TITLE_HEIGHT
        for place, column in enumerate(columns[first : first + number]):
            left = names_right + place * (_PANEL_WIDTH + _NUMBERS_WIDTH)
            plot = axes.Plot(left, top, _PANEL_WIDTH, ROW * len(names), x=ruler.ends)
            parts.append("" if place else row_names(plot, names))
            parts.append(_draw_panel(plot, column, ruler, [line[first + place] for line in points]))
        top += ROW * len(names) + _AXIS_HEIGHT
    if not columns:
        parts.append(marks.text((EDGE, top + ROW), "There are no results yet.", "muted"))
        top += 2 * ROW
    parts.append(marks.text((EDGE, top), ruler.title, "muted", size=SMALL))
    title = table.layout.title
    content = "".join(parts)
    picture = drawing(f"table-{table.layout.name}", title, ruler.title, (width, top + 12), content)
    return standalone(picture).encode("utf-8", "backslashreplace")


def _select_known(table: GridTable) -> tuple[list[Column], list[str], list[list[Point]]]:
    """Return the columns and the names of rows that have a figure, and the points."""
    is_compared = table.layout.compare != "none"
    rows = [
        (row.name, [_make_point(table, entry) for entry in line])
        for row, line in table.lines()
        if not row.is_clean and not (is_compared and (row.name == "baseline" or row.figure))
    ]
    kept = [
        number
        for number in range(len(table.layout.columns))
        if any(line[number].ours is not None for _, line in rows)
    ]
    known_rows = [(name, [line[number] for number in kept]) for name, line in rows]
    known_rows = [(name, line) for name, line in known_rows if any(point.values for point in line)]
    columns = [table.layout.columns[number] for number in kept]
    return columns, [name for name, _ in known_rows], [line for _, line in known_rows]


def _make_point(table: GridTable, entry: TableEntry) -> Point:
    if table.layout.compare == "none":
        if entry.ours is None:
            return Point(paper=entry.paper)
        return Point(entry.ours.mean, entry.ours.deviation, entry.paper)
    gain, paper = entry.gain, entry.paper_gain
    if gain is None or gain.value is None:
        return Point(paper=paper)
    return Point(gain.value, gain.error, paper, entry.is_best)


def _name_error(table: GridTable) -> str:
    return "standard deviation" if table.layout.compare == "none" else "standard error"


def _make_ruler(table: GridTable, points: Sequence[Point]) -> Ruler:
    if table.layout.compare == "share":
        ticks = (0.0, 0.5, 1.0)
        title = "Share of the lost accuracy recovered: 0 % is baseline, 100 % as good as clean"
        return Ruler(title, _SHARE_RANGE, ticks, tuple(percent_texts(ticks)), lines=(0.0, 1.0))
    if table.layout.compare == "none":
        ticks = (0.0, 0.5, 1.0)
        return Ruler(table.layout.title, (-0.05, 1.05), ticks, tuple(percent_texts(ticks)))
    widest = max((abs(value) for point in points for value in point.values), default=0.0)
    end = 1.1 * max(widest, _MIN_SPAN)
    points_ticks = tuple(nice_ticks(-end, end, 4))
    texts = tuple(tick_texts([100 * tick for tick in points_ticks]))
    return Ruler(
        "Difference to baseline, in points", (-end, end), points_ticks, texts, lines=(0.0,)
    )


def _draw_panel(plot: axes.Plot, column: Column, ruler: Ruler, points: Sequence[Point]) -> str:
    parts = [marks.text((plot.left, plot.top - 10), column.title)]
    parts.append(axes.vertical_grid(plot, ruler.ticks))
    for value in ruler.lines:
        x = plot.at_x(value)
        parts.append(marks.line((x, plot.top), (x, plot.bottom), "axis", dash="dashed"))
    parts += [_draw_row(plot, k, point) for k, point in enumerate(points)]
    parts.append(axes.across(plot, ruler.ticks, ruler.texts))
    return "".join(parts)


def _draw_row(plot: axes.Plot, row: int, point: Point) -> str:
    y = row_middle(plot, row)
    parts = [marks.line((plot.left, y), (plot.right, y), "grid")]
    if point.ours is not None:
        if point.error is not None:
            low, high = max(point.ours - point.error, plot.x[0]), point.ours + point.error
            ends = plot.at_x(low), plot.at_x(min(high, plot.x[1]))
            parts.append(marks.line((ends[0], y), (ends[1], y), "series-1", width=3))
        parts.append(_draw_mark(plot, point.ours, y, "series-1"))
        at = (plot.right + 6, y + SMALL * 0.35)
        css = "ink" if point.is_best else "muted"
        parts.append(marks.text(at, f"{100 * point.ours:.1f}", css, size=SMALL))
    if point.paper is not None:  # drawn last, so that our mark does not hide it
        parts.append(_draw_mark(plot, point.paper, y, "series-2", is_hollow=True))
    return "".join(parts)


def _draw_mark(
    plot: axes.Plot, value: float, y: float, css: str, *, is_hollow: bool = False
) -> str:
    """Draw a disc or a ring, or an arrow at the edge if the value lies beyond it."""
    low, high = plot.x
    if low <= value <= high:
        return marks.dot((plot.at_x(value), y), css, radius=4.5, is_hollow=is_hollow)
    edge, inwards = (plot.left, 9.0) if value < low else (plot.right, -9.0)
    outline = [(edge, y), (edge + inwards, y - 5), (edge + inwards, y + 5)]
    return marks.area(outline, css, opacity=0.45 if is_hollow else 1)
