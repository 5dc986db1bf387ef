"""Rows of a chart, each with the name of a label before it."""

from collections.abc import Sequence

from boxmend.web.charts import axes, marks
from boxmend.web.charts.sheet import EDGE, SIZE, WIDTH
from boxmend.web.charts.words import breadth, clean_text, shorten_text

ROW = 26.0  # height of a row
_MAX_NAME_WIDTH = 150.0
_GAP = 10.0


def rows_plot(names: Sequence[str], top: float, right: float, x: axes.Range) -> axes.Plot:
    """Return a plot with a row per name, room for the names on its left, and `right` free."""
    widths = [breadth(clean_text(name), SIZE) for name in names]
    room = min(max(widths, default=0) + 2, _MAX_NAME_WIDTH)
    left = EDGE + room + _GAP
    return axes.Plot(left, top, WIDTH - left - right - EDGE, ROW * len(names), x=x)


def row_names(plot: axes.Plot, names: Sequence[str]) -> str:
    """Draw the names before their rows; long ones are shortened."""
    return "".join(
        marks.text(
            (plot.left - _GAP, row_middle(plot, k) + SIZE * 0.35),
            shorten_text(name, plot.left - _GAP - EDGE, SIZE),
            anchor="end",
        )
        for k, name in enumerate(names)
    )


def row_middle(plot: axes.Plot, row: int) -> float:
    """Return the vertical middle of a row."""
    return plot.top + ROW * (row + 0.5)
