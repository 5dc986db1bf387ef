"""Figures of an audit: estimated rates, yields of precisions, and the results of the probe."""

from collections.abc import Callable, Sequence

from boxmend.auditing.fixes.choosing import count_yields
from boxmend.auditing.fixes.table import Kind
from boxmend.web.charts import axes, drawing, legend, marks, words
from boxmend.web.charts.rows import ROW, row_middle, row_names, rows_plot
from boxmend.web.charts.sheet import EDGE, SIZE, WIDTH
from boxmend.web.charts.ticks import nice_ticks, percent_texts, round_above
from boxmend.web.report.audits.record import AuditRecord, RecordedShare
from boxmend.web.report.record import Figure

Cells = tuple[str | int | float | None, ...]

_RATES = {
    "wrong_labels": "wrong labels",
    "bad_boxes": "bad boxes",
    "missing": "missing",
    "spurious": "spurious",
    "duplicates": "duplicates",
}
_ALL_CAUSES = "all"
_OFFSET = 5.0  # of the two intervals of a row from its middle
_BAR_SHARE = 0.68  # of the height of a row


def rates(record: AuditRecord) -> Figure | None:
    """Draw the estimated rate of each kind of error with its interval; None without rates."""
    name, title = "rates", "Estimated errors"
    known = {
        words_of: record.recorded.rates[key]
        for key, words_of in _RATES.items()
        if key in record.recorded.rates
    }
    if not known:
        return None
    largest = max(known.items(), key=lambda item: item[1].value)
    caption = (
        f"The most frequent error is {largest[0]}: {words.percent(largest[1].value, 1)} of the "
        f"annotations, with 95 % confidence {words.percent(largest[1].low, 1)} to "
        f"{words.percent(largest[1].high, 1)}. Missing annotations are a share of all objects."
    )
    end = round_above(max(0.01, *(share.high for share in known.values())))
    plot = rows_plot(list(known), 12.0, 150.0, (0.0, end))
    ticks = nice_ticks(0.0, end, 3)
    parts = [axes.vertical_grid(plot, ticks), row_names(plot, list(known))]
    for k, share in enumerate(known.values()):
        parts.append(_interval(plot, row_middle(plot, k), share, "series-1"))
        text = words.percent(share.value, 1)
        text += f" ({100 * share.low:.1f}\N{EN DASH}{100 * share.high:.1f})"
        parts.append(_beside(plot, k, text))
    parts.append(axes.across(plot, ticks, percent_texts(ticks)))
    svg = drawing(name, title, caption, (WIDTH, plot.bottom + 28), "".join(parts))
    rows: list[Cells] = [(kind, s.value, s.low, s.high) for kind, s in known.items()]
    return Figure(name, title, caption, svg, ("error", "share", "low", "high"), rows)


def yields(record: AuditRecord) -> Figure | None:
    """Draw how many fixes several precisions apply; None without fixes."""
    name, title = "yields", "Fixes that a precision applies"
    if not len(record.fixes):
        return None
    counts = count_yields(record.fixes, record.latest)
    totals = {precision: sum(of_kind.values()) for precision, of_kind in counts.items()}
    texts = [f"{precision}" for precision in counts]
    caption = (
        f"A precision of {texts[0]} applies {totals[max(totals)]:,} of {len(record.fixes):,} "
        f"fixes, one of {texts[-1]} applies {totals[min(totals)]:,}. The lower it is, the more of "
        "the applied fixes are wrong."
    )
    end = float(max(1, *totals.values()))
    plot = rows_plot(texts, 12.0, 70.0, (0.0, end))
    ticks = nice_ticks(0.0, end, 4, whole=True)
    parts = [axes.vertical_grid(plot, ticks), row_names(plot, texts)]
    for k, total in enumerate(totals.values()):
        corner = (plot.left, row_middle(plot, k) - ROW * _BAR_SHARE / 2)
        size = (plot.at_x(total) - plot.left, ROW * _BAR_SHARE)
        parts.append(marks.bar(corner, size, "series-1", opacity=0.8, is_framed=total > 0))
        parts.append(_beside(plot, k, f"{total:,}"))
    parts.append(axes.across(plot, ticks, title="fixes"))
    svg = drawing(name, title, caption, (WIDTH, plot.bottom + 46), "".join(parts))
    kinds = [kind.words for kind in Kind]
    rows: list[Cells] = [
        (precision, *(of_kind[kind] for kind in kinds), totals[precision])
        for precision, of_kind in counts.items()
    ]
    return Figure(name, title, caption, svg, ("precision", *kinds, "in all"), rows)


def probe(record: AuditRecord) -> Figure | None:
    """Draw which shares of the planted errors the audit found and fixed; None without a probe."""
    name, title = "probe", "Planted errors found and fixed"
    known = {
        kind.words: record.recorded.probe[kind.words]
        for kind in Kind
        if record.recorded.probe and kind.words in record.recorded.probe
    }
    if not known:
        return None
    planted, found, right = (
        sum(getattr(counts, what) for counts in known.values())
        for what in ("planted", "found", "right")
    )
    caption = (
        f"Of {planted:,} errors that the audit planted to test itself, it found {found:,} and "
        f"fixed {right:,} rightly. Lines are 95 % intervals."
    )
    entries = [
        legend.Key("found", "series-1", "dot"),
        legend.Key("of those, fixed rightly", "series-2", "ring"),
    ]
    keys, height = legend.keys(entries, EDGE, 4, WIDTH - EDGE)
    plot = rows_plot(list(known), height + 14, 30.0, (0.0, 1.0))
    ticks = (0, 0.25, 0.5, 0.75, 1)
    parts = [keys, axes.vertical_grid(plot, ticks), row_names(plot, list(known))]
    for k, counts in enumerate(known.values()):
        middle = row_middle(plot, k)
        parts.append(_interval(plot, middle - _OFFSET, counts.found_share, "series-1"))
        at = middle + _OFFSET
        parts.append(_interval(plot, at, counts.right_share, "series-2", is_hollow=True))
    parts.append(axes.across(plot, ticks, percent_texts(ticks)))
    svg = drawing(name, title, caption, (WIDTH, plot.bottom + 28), "".join(parts))
    counted = ("planted", "found", "right", *_columns("found"), *_columns("right"))
    columns = ("kind", "cause", *counted)
    rows: list[Cells] = [
        (kind, cause, c.planted, c.found, c.right, *_cells(c.found_share), *_cells(c.right_share))
        for kind, of_kind in known.items()
        for cause, c in {_ALL_CAUSES: of_kind, **of_kind.causes}.items()
    ]
    return Figure(name, title, caption, svg, columns, rows)


AUDIT_FIGURES: dict[str, Callable[[AuditRecord], Figure | None]] = {
    "rates": rates,
    "yields": yields,
    "probe": probe,
}
"""The figures by name, in the order of the page; one returns None if it has no data."""


def _interval(
    plot: axes.Plot, y: float, share: RecordedShare | None, css: str, *, is_hollow: bool = False
) -> str:
    """Draw a share as a dot on the line of its interval; nothing if it is unknown."""
    if share is None:
        return ""
    low, value, high = (
        plot.at_x(min(number, plot.x[1])) for number in (share.low, share.value, share.high)
    )
    interval = marks.line((low, y), (high, y), css, width=2)
    return interval + marks.dot((value, y), css, radius=4, is_hollow=is_hollow)


def _beside(plot: axes.Plot, row: int, text: str) -> str:
    """Draw a text at the right end of a row."""
    at = (WIDTH - EDGE, row_middle(plot, row) + SIZE * 0.35)
    return marks.text(at, text, anchor="end")


def _columns(what: str) -> Sequence[str]:
    return f"{what}_share", f"{what}_low", f"{what}_high"


def _cells(share: RecordedShare | None) -> Sequence[float | None]:
    return (None, None, None) if share is None else (share.value, share.low, share.high)
