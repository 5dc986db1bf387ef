"""A reliability diagram: the share of right fixes by the probability that the audit states."""

from collections.abc import Mapping, Sequence

from boxmend.bench.audit.suite_tables import ReliabilityPoint
from boxmend.web.charts import axes, drawing, legend, marks, series, standalone
from boxmend.web.charts.sheet import EDGE, WIDTH
from boxmend.web.charts.ticks import percent_texts

TITLE = "Share of right fixes by the probability that the audit states"
TICKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
LEFT, RIGHT, HEIGHT = 48.0, 16.0, 300.0  # of the plot and of the room beside it


def draw_reliability(points_by_kind: Mapping[str, Sequence[ReliabilityPoint]]) -> bytes:
    """Return an SVG file with a line for each kind of fix; the diagonal is perfect calibration."""
    kinds = {kind: points for kind, points in points_by_kind.items() if points}
    keys = [legend.Key("perfect", "muted", dash="dotted")]
    keys += [legend.Key(kind, f"series-{k}") for k, kind in enumerate(kinds, start=1)]
    top, height = legend.keys(keys, LEFT, 6.0, WIDTH - LEFT - EDGE)
    plot = axes.Plot(LEFT, height + 34.0, WIDTH - LEFT - RIGHT, HEIGHT)
    parts = [
        top,
        axes.upwards(plot, TICKS, percent_texts(TICKS), "share of the fixes that are right"),
        axes.across(plot, TICKS, percent_texts(TICKS), "stated probability"),
        marks.line(plot.at(0, 0), plot.at(1, 1), "muted", dash="dotted"),
    ]
    for k, points in enumerate(kinds.values(), start=1):
        x, y = [point.expected for point in points], [point.right for point in points]
        parts.append(series.curve(plot, x, y, f"series-{k}"))
        parts += [marks.dot(plot.at(*at), f"series-{k}", radius=3) for at in zip(x, y, strict=True)]
    message = " ".join(_describe(kind, points) for kind, points in kinds.items())
    size = (WIDTH, plot.bottom + 48)
    return standalone(drawing("reliability", TITLE, message, size, "".join(parts))).encode()


def _describe(kind: str, points: Sequence[ReliabilityPoint]) -> str:
    """Return a sentence for readers who do not see the chart."""
    pairs = ", ".join(f"{p.right:.0%} of those stated as {p.expected:.0%}" for p in points)
    return f"{kind}: {pairs}."
