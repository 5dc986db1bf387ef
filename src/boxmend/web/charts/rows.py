"""Rows of a chart that lie one under another, each with the name of a label in front."""

from collections.abc import Sequence

from boxmend.web.charts import axes, marks
from boxmend.web.charts.sheet import EDGE, SIZE, WIDTH
from boxmend.web.charts.words import breadth, cleaned, shortened

ROW = 26.0  # height of a row
_LONGEST = 150.0  # of a name
_GAP = 10.0


def rows_plot(names: Sequence[str], top: float, right: float, x: axes.Range) -> axes.Plot:
    """A plot with a row for each name: names on its left, and `right` of free room beside it."""
    room = min(max((breadth(cleaned(name), SIZE) for name in names), default=0) + 2, _LONGEST)
    left = EDGE + room + _GAP
    return axes.Plot(left, top, WIDTH - left - right - EDGE, ROW * len(names), x=x)


def row_names(plot: axes.Plot, names: Sequence[str]) -> str:
    """The names in front of their rows, shortened where they are long."""
    return "".join(
        marks.text(
            (plot.left - _GAP, row_middle(plot, k) + SIZE * 0.35),
            shortened(name, plot.left - _GAP - EDGE, SIZE),
            anchor="end",
        )
        for k, name in enumerate(names)
    )


def row_middle(plot: axes.Plot, row: int) -> float:
    """The middle of a row, up and down."""
    return plot.top + ROW * (row + 0.5)
