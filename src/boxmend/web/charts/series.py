"""Series of numbers on a plot: steps of a histogram, lines, bands, and the names beside them."""

import math
from collections.abc import Iterator, Sequence

from boxmend.web.charts import marks
from boxmend.web.charts.axes import Plot


def histogram(
    plot: Plot, edges: Sequence[float], heights: Sequence[float], css: str, fill: str
) -> str:
    """Bins as one outline of steps, filled; there is one edge more than heights.

    Empty bins at either end are left out, and so is all where no bin has anything.
    """
    tall = [k for k, height in enumerate(heights) if height > 0]
    if not tall:
        return ""
    outline = [plot.at(edges[tall[0]], 0)]
    for k in range(tall[0], tall[-1] + 1):
        outline += [plot.at(edges[k], heights[k]), plot.at(edges[k + 1], heights[k])]
    outline.append(plot.at(edges[tall[-1] + 1], 0))
    opacity = 0.28 if fill == "currentColor" else 1
    filled = marks.area(outline, css, fill=fill, opacity=opacity)
    return filled + marks.path(outline, css, width=2)


def curve(
    plot: Plot, x: Sequence[float], y: Sequence[float], css: str, *, dash: str = "solid"
) -> str:
    """A line through points, interrupted where a number is missing; a lone point is a dot."""
    parts = []
    for piece in _pieces(y):
        points = [plot.at(x[k], y[k]) for k in piece]
        lone = marks.dot(points[0], css, radius=3)
        parts.append(marks.path(points, css, width=2.5, dash=dash) if len(points) > 1 else lone)
    return "".join(parts)


def band(
    plot: Plot, x: Sequence[float], low: Sequence[float], high: Sequence[float], css: str
) -> str:
    """A pale strip between two lines, interrupted where either is missing."""
    parts = []
    for piece in _pieces([a + b for a, b in zip(low, high, strict=True)]):
        if len(piece) > 1:
            outline = [plot.at(x[k], high[k]) for k in piece]
            outline += [plot.at(x[k], low[k]) for k in reversed(piece)]
            parts.append(marks.area(outline, css, opacity=0.18))
    return "".join(parts)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions as near as can be to those wanted, in their order, at least `gap` apart.

    They stay between `low` and `high` where there is room for all.
    """
    order = sorted(range(len(wanted)), key=lambda k: wanted[k])
    placed = [0.0] * len(wanted)
    before = low - gap
    for k in order:
        placed[k] = before = max(wanted[k], before + gap)
    after = high + gap
    for k in reversed(order):
        placed[k] = after = min(placed[k], after - gap)
    return placed


def _pieces(values: Sequence[float]) -> Iterator[list[int]]:
    """Runs of indices whose values are finite."""
    piece: list[int] = []
    for k, value in enumerate(values):
        if math.isfinite(value):
            piece.append(k)
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece
