"""Axes: the positions of numbers on a chart, its grid, ticks and titles."""

from collections.abc import Sequence
from dataclasses import dataclass

from boxmend.web.charts import marks
from boxmend.web.charts.sheet import SMALL
from boxmend.web.charts.ticks import tick_texts

Range = tuple[float, float]


@dataclass(frozen=True)
class Plot:
    """A rectangle of a chart, and the numbers at its edges, which must differ."""

    left: float
    top: float
    width: float
    height: float
    x: Range = (0.0, 1.0)
    y: Range = (0.0, 1.0)

    @property
    def right(self) -> float:
        """The right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.top + self.height

    def at_x(self, value: float) -> float:
        """Return the horizontal position of a number."""
        low, high = self.x
        return self.left + (value - low) / (high - low) * self.width

    def at_y(self, value: float) -> float:
        """Return the vertical position of a number."""
        low, high = self.y
        return self.bottom - (value - low) / (high - low) * self.height

    def at(self, x: float, y: float) -> marks.Point:
        """Return the position of a pair of numbers."""
        return self.at_x(x), self.at_y(y)


def across(
    plot: Plot, ticks: Sequence[float], texts: Sequence[str] | None = None, title: str = ""
) -> str:
    """Draw the axis below a plot: base line, ticks with texts, and the title under them."""
    parts = [marks.line((plot.left, plot.bottom), (plot.right, plot.bottom), "axis")]
    for tick, words in zip(ticks, tick_texts(ticks) if texts is None else texts, strict=True):
        x = plot.at_x(tick)
        parts.append(marks.line((x, plot.bottom), (x, plot.bottom + 4), "axis"))
        at = (x, plot.bottom + 18)
        parts.append(marks.text(at, words, "muted", size=SMALL, anchor="middle"))
    if title:
        at = (plot.left + plot.width / 2, plot.bottom + 37)
        parts.append(marks.text(at, title, "muted", size=SMALL, anchor="middle"))
    return "".join(parts)


def upwards(
    plot: Plot, ticks: Sequence[float], texts: Sequence[str] | None = None, title: str = ""
) -> str:
    """Draw the grid of a plot, the texts of its ticks on the left, and its title above it.

    A title above is easier to read than a rotated one, and takes no width.
    """
    parts = []
    for tick, words in zip(ticks, tick_texts(ticks) if texts is None else texts, strict=True):
        y = plot.at_y(tick)
        parts.append(marks.line((plot.left, y), (plot.right, y), "grid"))
        if words:
            at = (plot.left - 7, y + SMALL * 0.35)
            parts.append(marks.text(at, words, "muted", size=SMALL, anchor="end"))
    if title:
        parts.append(marks.text((plot.left, plot.top - 9), title, "muted", size=SMALL))
    return "".join(parts)


def vertical_grid(plot: Plot, ticks: Sequence[float]) -> str:
    """Draw grid lines from top to bottom, for horizontal bars."""
    return "".join(
        marks.line((plot.at_x(tick), plot.top), (plot.at_x(tick), plot.bottom), "grid")
        for tick in ticks
    )
