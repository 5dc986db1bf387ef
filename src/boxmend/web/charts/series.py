"""Series of numbers on a plot: histograms, lines, bands, and positions for their names."""

import math
from collections.abc import Iterator, Sequence

from boxmend.web.charts import marks
from boxmend.web.charts.axes import Plot


def histogram(
    plot: Plot, edges: Sequence[float], heights: Sequence[float], css: str, fill: str
) -> str:
    """Draw a histogram as one filled outline; there is one more edge than heights.

    Empty bins at both ends are left out; without any full bin the text is empty.
    """
    full = [k for k, height in enumerate(heights) if height > 0]
    if not full:
        return ""
    outline = [plot.at(edges[full[0]], 0)]
    for k in range(full[0], full[-1] + 1):
        outline += [plot.at(edges[k], heights[k]), plot.at(edges[k + 1], heights[k])]
    outline.append(plot.at(edges[full[-1] + 1], 0))
    opacity = 0.28 if fill == "currentColor" else 1
    filled = marks.area(outline, css, fill=fill, opacity=opacity)
    return filled + marks.path(outline, css, width=2)


def curve(
    plot: Plot, x: Sequence[float], y: Sequence[float], css: str, *, dash: str = "solid"
) -> str:
    """Draw a line through points with gaps where numbers are missing; a single point is a dot."""
    parts = []
    for piece in _finite_runs(y):
        points = [plot.at(x[k], y[k]) for k in piece]
        dot = marks.dot(points[0], css, radius=3)
        parts.append(marks.path(points, css, width=2.5, dash=dash) if len(points) > 1 else dot)
    return "".join(parts)


def band(
    plot: Plot, x: Sequence[float], low: Sequence[float], high: Sequence[float], css: str
) -> str:
    """Draw a pale band between two lines, with gaps where either is missing."""
    parts = []
    for piece in _finite_runs([a + b for a, b in zip(low, high, strict=True)]):
        if len(piece) > 1:
            outline = [plot.at(x[k], high[k]) for k in piece]
            outline += [plot.at(x[k], low[k]) for k in reversed(piece)]
            parts.append(marks.area(outline, css, opacity=0.18))
    return "".join(parts)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions close to the wanted ones, in their order and at least `gap` apart.

    They stay between `low` and `high` if there is room for all.
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


def _finite_runs(values: Sequence[float]) -> Iterator[list[int]]:
    """Yield the runs of indices whose values are finite."""
    piece: list[int] = []
    for k, value in enumerate(values):
        if math.isfinite(value):
            piece.append(k)
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece
