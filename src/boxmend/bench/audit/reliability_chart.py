"""A reliability diagram: the share of right fixes by the probability that the audit states."""

from collections.abc import Mapping, Sequence

from boxmend.bench.audit.suite_tables import ReliabilityPoint
from boxmend.web.charts import axes, drawing, legend, marks, series, standalone
from boxmend.web.charts.sheet import EDGE, WIDTH
from boxmend.web.charts.ticks import percent_texts

TITLE = "Share of right fixes by the probability that the audit states"
LOOKS = ("series-1", "series-2", "series-3", "series-4", "ink")  # of the kinds of fixes
TICKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
LEFT, RIGHT, HEIGHT = 56.0, 24.0, 300.0  # of the plot and of the room beside it


def draw_reliability(points_by_kind: Mapping[str, Sequence[ReliabilityPoint]]) -> bytes:
    """Return an SVG file with a line for each kind of fix; the diagonal is perfect calibration."""
    kinds = {kind: points for kind, points in points_by_kind.items() if points}
    looks = dict(zip(kinds, LOOKS, strict=False))
    keys = [legend.Key("perfect", "muted", dash="dotted")]
    keys += [legend.Key(kind, css) for kind, css in looks.items()]
    top, height = legend.keys(keys, LEFT, 6.0, WIDTH - LEFT - EDGE)
    plot = axes.Plot(LEFT, height + 34.0, WIDTH - LEFT - RIGHT, HEIGHT)
    parts = [
        top,
        axes.upwards(plot, TICKS, percent_texts(TICKS), "share of the fixes that are right"),
        axes.across(plot, TICKS, percent_texts(TICKS), "stated probability"),
        marks.line(plot.at(0, 0), plot.at(1, 1), "muted", dash="dotted"),
    ]
    for kind, css in looks.items():
        x = [point.expected for point in kinds[kind]]
        y = [point.right for point in kinds[kind]]
        parts.append(series.curve(plot, x, y, css))
        parts += [marks.dot(plot.at(*at), css, radius=3) for at in zip(x, y, strict=True)]
    message = " ".join(_describe(kind, points) for kind, points in kinds.items())
    size = (WIDTH, plot.bottom + 48)
    return standalone(drawing("reliability", TITLE, message, size, "".join(parts))).encode()


def _describe(kind: str, points: Sequence[ReliabilityPoint]) -> str:
    """Return a sentence for readers who do not see the chart."""
    pairs = ", ".join(f"{p.right:.0%} of those stated as {p.expected:.0%}" for p in points)
    return f"{kind}: {pairs}."
