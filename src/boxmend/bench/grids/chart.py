"""A table as a picture: a panel for each noise, a row for each method, ours beside the published.

Shares of the lost accuracy are drawn where the table has them, since those can be compared with
what others published on other data; else differences to baseline, or the figures themselves.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from boxmend.bench.grids.table_spec import Column
from boxmend.bench.grids.tables import Table, TableEntry
from boxmend.web.charts import axes, drawing, legend, marks, standalone
from boxmend.web.charts.rows import ROW, row_middle, row_names
from boxmend.web.charts.sheet import EDGE, SIZE, SMALL, WIDTH
from boxmend.web.charts.ticks import nice_ticks, percent_texts, tick_texts
from boxmend.web.charts.words import breadth

IN_A_LINE = 4  # panels at most
_PANEL = 158.0  # wide
_NUMBERS = 58.0  # room for the numbers on a panel's right
_LONGEST = 200.0  # of a row's name
_HEAD, _FOOT = 30.0, 40.0  # room above a line of panels for titles, and below for the axis
_SHARES = (-0.25, 1.15)  # what lies outside is drawn at the edge, as an arrow
_LEAST_SPAN = 0.02  # of a difference: smaller ones look like nothing


@dataclass(frozen=True)
class Point:
    """One entry of the table: our figure with its error, and the published one."""

    ours: float | None = None
    error: float | None = None
    paper: float | None = None
    is_best: bool = False

    @property
    def values(self) -> list[float]:
        """Return the figures that are known."""
        return [one for one in (self.ours, self.paper) if one is not None]


@dataclass(frozen=True)
class Ruler:
    """The axis that all panels share."""

    title: str
    ends: axes.Range
    ticks: tuple[float, ...]
    texts: tuple[str, ...]
    lines: tuple[float, ...] = ()
    """Where a line goes from top to bottom: at `baseline` and at `clean`."""


def svg(table: Table) -> bytes:
    """Draw a table as an SVG file, which follows the dark mode of the reader's system."""
    columns, names, points = _select_shown(table)
    ruler = _ruler(table, [one for line in points for one in line])
    entries = [legend.Key(f"here, with its {_spread(table)}", "series-1", "dot")]
    if any(one.paper is not None for line in points for one in line):
        entries.append(legend.Key("as published", "series-2", "ring"))
    room = min(max((breadth(name, SIZE) for name in names), default=0.0) + 2, _LONGEST)
    beside = EDGE + room + 10
    number = math.ceil(len(columns) / max(math.ceil(len(columns) / IN_A_LINE), 1))  # in a line
    width = max(beside + number * (_PANEL + _NUMBERS) + EDGE, WIDTH)
    keys, top = legend.keys(entries, EDGE, 4, width - 2 * EDGE)
    parts, top = [keys], top + 8
    for first in range(0, len(columns), max(number, 1)):
        top += _HEAD
        for place, column in enumerate(columns[first : first + number]):
            left = beside + place * (_PANEL + _NUMBERS)
            plot = axes.Plot(left, top, _PANEL, ROW * len(names), x=ruler.ends)
            parts.append("" if place else row_names(plot, names))
            parts.append(_panel(plot, column, ruler, [line[first + place] for line in points]))
        top += ROW * len(names) + _FOOT
    if not columns:
        parts.append(marks.text((EDGE, top + ROW), "Nothing was run yet.", "muted"))
        top += 2 * ROW
    parts.append(marks.text((EDGE, top), ruler.title, "muted", size=SMALL))
    title = table.layout.title
    content = "".join(parts)
    drawn = drawing(f"table-{table.layout.name}", title, ruler.title, (width, top + 12), content)
    return standalone(drawn).encode("utf-8", "backslashreplace")


def _select_shown(table: Table) -> tuple[list[Column], list[str], list[list[Point]]]:
    """Return the columns and the names of rows that have a figure, and their points."""
    is_compared = table.layout.compare != "none"
    rows = [
        (row.name, [_point(table, square) for square in line])
        for row, line in table.lines()
        if not row.is_clean and not (is_compared and (row.name == "baseline" or row.figure))
    ]
    kept = [
        number
        for number in range(len(table.layout.columns))
        if any(line[number].ours is not None for _, line in rows)
    ]
    found = [(name, [line[number] for number in kept]) for name, line in rows]
    found = [(name, line) for name, line in found if any(one.values for one in line)]
    columns = [table.layout.columns[number] for number in kept]
    return columns, [name for name, _ in found], [line for _, line in found]


def _point(table: Table, square: TableEntry) -> Point:
    if table.layout.compare == "none":
        if square.ours is None:
            return Point(paper=square.paper)
        return Point(square.ours.mean, square.ours.deviation, square.paper)
    gain, paper = square.gain, square.paper_gain
    if gain is None or gain.value is None:
        return Point(paper=paper)
    return Point(gain.value, gain.error, paper, square.is_best)


def _spread(table: Table) -> str:
    return "standard deviation" if table.layout.compare == "none" else "standard error"


def _ruler(table: Table, points: Sequence[Point]) -> Ruler:
    if table.layout.compare == "share":
        ticks = (0.0, 0.5, 1.0)
        title = "Share of the lost accuracy recovered: 0 % is baseline, 100 % as good as clean"
        return Ruler(title, _SHARES, ticks, tuple(percent_texts(ticks)), lines=(0.0, 1.0))
    if table.layout.compare == "none":
        ticks = (0.0, 0.5, 1.0)
        return Ruler(table.layout.title, (-0.05, 1.05), ticks, tuple(percent_texts(ticks)))
    widest = max((abs(value) for one in points for value in one.values), default=0.0)
    end = 1.1 * max(widest, _LEAST_SPAN)
    marked = tuple(nice_ticks(-end, end, 4))
    texts = tuple(tick_texts([100 * one for one in marked]))
    return Ruler("Difference to baseline, in points", (-end, end), marked, texts, lines=(0.0,))


def _panel(plot: axes.Plot, column: Column, ruler: Ruler, points: Sequence[Point]) -> str:
    parts = [marks.text((plot.left, plot.top - 10), column.title)]
    parts.append(axes.vertical_grid(plot, ruler.ticks))
    for value in ruler.lines:
        x = plot.at_x(value)
        parts.append(marks.line((x, plot.top), (x, plot.bottom), "axis", dash="dashed"))
    parts += [_row(plot, k, one) for k, one in enumerate(points)]
    parts.append(axes.across(plot, ruler.ticks, ruler.texts))
    return "".join(parts)


def _row(plot: axes.Plot, row: int, point: Point) -> str:
    y = row_middle(plot, row)
    parts = [marks.line((plot.left, y), (plot.right, y), "grid")]
    if point.ours is not None:
        if point.error is not None:
            low, high = max(point.ours - point.error, plot.x[0]), point.ours + point.error
            ends = plot.at_x(low), plot.at_x(min(high, plot.x[1]))
            parts.append(marks.line((ends[0], y), (ends[1], y), "series-1", width=3))
        parts.append(_mark(plot, point.ours, y, "series-1"))
        at = (plot.right + 6, y + SMALL * 0.35)
        css = "ink" if point.is_best else "muted"
        parts.append(marks.text(at, f"{100 * point.ours:.1f}", css, size=SMALL))
    if point.paper is not None:  # last, so that ours does not hide it
        parts.append(_mark(plot, point.paper, y, "series-2", is_hollow=True))
    return "".join(parts)


def _mark(plot: axes.Plot, value: float, y: float, css: str, *, is_hollow: bool = False) -> str:
    """Return a disc or a ring, or an arrow at the edge if the value lies beyond it."""
    low, high = plot.x
    if low <= value <= high:
        return marks.dot((plot.at_x(value), y), css, radius=4.5, is_hollow=is_hollow)
    edge, inwards = (plot.left, 9.0) if value < low else (plot.right, -9.0)
    outline = [(edge, y), (edge + inwards, y - 5), (edge + inwards, y + 5)]
    return marks.area(outline, css, opacity=0.45 if is_hollow else 1)
