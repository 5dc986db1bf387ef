"""Average precision of each label, of this run and of a baseline."""

import math
from dataclasses import dataclass

from boxmend.web.charts import axes, drawing, legend, marks
from boxmend.web.charts.rows import ROW, row_middle, row_names, rows_plot
from boxmend.web.charts.sheet import EDGE, SIZE, SMALL, WIDTH
from boxmend.web.charts.ticks import percent_texts
from boxmend.web.report.record import Figure, RunRecord

NAME = "label-ap"
COLUMNS = ("label", "ap50", "baseline_ap50", "gain")
MAX_ROWS = 30  # with more labels, the first and the last 15
_RIGHT = 72.0  # room for numbers beside the dots


@dataclass(frozen=True)
class Pair:
    """A label's AP50, of this run and of the baseline (NaN if unknown)."""

    name: str
    ap: float
    baseline: float

    @property
    def gain(self) -> float:
        """The difference to the baseline."""
        return self.ap - self.baseline


def label_ap(record: RunRecord) -> Figure | None:
    """Draw AP50 by label next to that of the baseline, sorted by gain; return None if unknown.

    Without a baseline, labels are sorted by AP50.
    """
    pairs = _pairs(record)
    if not pairs:
        return None
    compared = [pair for pair in pairs if not math.isnan(pair.gain)]
    title = "AP50 by label" + (" compared with the baseline" if compared else "")
    rows: list[tuple[str | int | float | None, ...]] = [
        (pair.name, pair.ap, _none_if_nan(pair.baseline), _none_if_nan(pair.gain)) for pair in pairs
    ]
    caption = _caption(pairs, compared)
    svg = _svg(title, caption, pairs, is_compared=bool(compared))
    return Figure(NAME, title, caption, svg, COLUMNS, rows)


def _pairs(record: RunRecord) -> list[Pair]:
    pairs = [
        Pair(name, ap, record.baseline_ap.get(name, math.nan))
        for name, ap in record.label_ap.items()
        if math.isfinite(ap)
    ]
    # Labels without a baseline come last; equal labels keep their order.
    return sorted(pairs, key=lambda pair: (math.isnan(pair.gain), -_or_zero(pair.gain), -pair.ap))


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else round(value, 9)


def _none_if_nan(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _caption(pairs: list[Pair], compared: list[Pair]) -> str:
    mean = sum(pair.ap for pair in pairs) / len(pairs)
    if not compared:
        return f"The mean AP50 over labels is {mean * 100:.1f} %."
    gain = sum(pair.gain for pair in compared) / len(compared)
    better = sum(_or_zero(pair.gain) > 0 for pair in compared)
    return (
        f"The mean AP50 over labels is {abs(gain) * 100:.1f} points "
        f"{'higher' if gain >= 0 else 'lower'} than that of the baseline; it is higher for "
        f"{better} of {len(compared)} labels."
    )


def _svg(title: str, caption: str, pairs: list[Pair], *, is_compared: bool) -> str:
    shown: list[Pair | None] = [*pairs]
    if len(pairs) > MAX_ROWS:
        shown = [*pairs[: MAX_ROWS // 2], None, *pairs[-MAX_ROWS // 2 :]]
    left_out = f"({len(pairs) - MAX_ROWS} more)"
    names = [left_out if pair is None else pair.name for pair in shown]
    entries = [legend.Key("this run", "series-1", "dot")]
    if is_compared:
        entries.append(legend.Key("baseline", "series-2", "ring"))
    keys, height = legend.keys(entries, EDGE, 4, WIDTH - EDGE)
    plot = rows_plot(names, height + 32, _RIGHT, (0.0, 1.0))
    ticks = (0, 0.2, 0.4, 0.6, 0.8, 1)
    head = "gain" if is_compared else "AP50"
    parts = [
        *(keys, axes.vertical_grid(plot, ticks)),
        marks.text((WIDTH - EDGE, plot.top - 8), head, "muted", size=SMALL, anchor="end"),
        *(_row(plot, k, pair) for k, pair in enumerate(shown) if pair is not None),
        row_names(plot, names),
        axes.across(plot, ticks, percent_texts(ticks), "AP50"),
    ]
    return drawing(NAME, title, caption, (WIDTH, plot.bottom + 46), "".join(parts))


def _row(plot: axes.Plot, row: int, pair: Pair) -> str:
    y = row_middle(plot, row)
    at = (WIDTH - EDGE, y + SIZE * 0.35)
    x = plot.at_x(pair.ap)
    if math.isnan(pair.gain):
        stem = marks.line((plot.left, y), (x, y), "series-1", width=2)
        number = marks.text(at, f"{pair.ap * 100:.1f} %", anchor="end")
        return stem + marks.dot((x, y), "series-1") + number
    before = plot.at_x(pair.baseline)
    css = "series-1" if pair.gain >= 0 else "series-2"
    start = before + min(ROW * 0.2, abs(x - before)) * (1 if x > before else -1)  # at the ring
    bar = marks.bar((min(x, start), y - 1.5), (abs(x - start), 3), css, opacity=0.6)
    return "".join(
        [
            bar,
            marks.dot((before, y), "series-2", radius=ROW * 0.2, is_hollow=True),
            marks.dot((x, y), "series-1", radius=ROW * 0.2),
            marks.text(at, f"{pair.gain * 100:+.1f}", anchor="end"),
        ]
    )
