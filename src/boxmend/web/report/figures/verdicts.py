"""The shares of kept, relabelled and discarded annotations of each label."""

import numpy as np

from boxmend.data.dataset import UNKNOWN
from boxmend.data.types import Rows
from boxmend.runs.judgement import Judgement
from boxmend.web.charts import axes, drawing, legend, marks, words
from boxmend.web.charts.rows import ROW, row_middle, row_names, rows_plot
from boxmend.web.charts.sheet import EDGE, SIZE, SMALL, WIDTH
from boxmend.web.charts.ticks import percent_texts
from boxmend.web.report.record import Figure, RunRecord

NAME, TITLE = "verdicts", "Labels kept, changed and doubted"
COLUMNS = ("label", "annotations", "kept", "relabelled", "discarded")
MAX_ROWS = 24
OTHERS = "others"
_KINDS = {"kept": "quiet", "relabelled": "series-2", "discarded": "series-3"}
_RIGHT = 126.0  # room for numbers beside the bars


def verdicts(record: RunRecord) -> Figure | None:
    """Draw the shares kept, relabelled and discarded of each label, the most doubtful first.

    Annotations that were never judged do not count; return None if none was judged.
    """
    names, counts = _count_verdicts(record)
    if not names:
        return None
    shares = counts / counts.sum(axis=1, keepdims=True)
    rows: list[tuple[str | int | float | None, ...]] = [
        (name, int(counts[k].sum()), *shares[k].tolist()) for k, name in enumerate(names)
    ]
    total = counts.sum(axis=0) / counts.sum()
    caption = (
        f"Of {_many(int(counts.sum()))}, {words.percent(total[0])} keep their label, "
        f"{words.percent(total[1])} get another, and {words.percent(total[2])} are discarded: "
        "their label is doubtful but has no replacement, so it stays and is listed as unsure. The "
        f"largest share of changes is among those labelled {words.isolate_text(names[0])}."
    )
    if counts[0, 1:].sum() == 0:
        caption = f"Of {_many(int(counts.sum()))}, all keep their label."
    svg = _svg(caption, *_join_rare(names, counts))
    return Figure(NAME, TITLE, caption, svg, COLUMNS, rows)


def _many(number: int) -> str:
    return f"{number:,} annotation{'' if number == 1 else 's'}"


def _count_verdicts(record: RunRecord) -> tuple[list[str], Rows]:
    """Return the judged labels [l] and their verdict counts [l, 3], most doubtful first."""
    opened = record.opened
    names = opened.dataset.label_names
    known = (opened.settlement.verdicts != Judgement.UNJUDGED) & (opened.dataset.labels != UNKNOWN)
    keys = opened.dataset.labels[known] * 3 + opened.settlement.verdicts[known]
    counts = np.bincount(keys, minlength=3 * len(names)).reshape(len(names), 3)
    totals = counts.sum(axis=1)
    doubtful_shares = counts[:, 1:].sum(axis=1) / np.maximum(totals, 1)
    order = np.argsort(-doubtful_shares, kind="stable")
    order = order[totals[order] > 0]
    return [names[label] for label in order.tolist()], counts[order]


def _join_rare(names: list[str], counts: Rows) -> tuple[list[str], Rows]:
    """Join all labels after the first ones if there are too many to draw."""
    if len(names) <= MAX_ROWS:
        return names, counts
    others = counts[MAX_ROWS - 1 :].sum(axis=0, keepdims=True)
    name = f"{len(names) - MAX_ROWS + 1} {OTHERS}"
    return [*names[: MAX_ROWS - 1], name], np.concatenate([counts[: MAX_ROWS - 1], others])


def _svg(caption: str, names: list[str], counts: Rows) -> str:
    hatches = [
        marks.hatching(f"chart-{NAME}-rising", "series-2"),
        marks.hatching(f"chart-{NAME}-falling", "series-3", is_rising=False),
    ]
    fills = {"kept": "currentColor", "relabelled": hatches[0][1], "discarded": hatches[1][1]}
    entries = [legend.Key(kind, css, "area", fill=fills[kind]) for kind, css in _KINDS.items()]
    keys, height = legend.keys(entries, EDGE, 4, WIDTH - EDGE)
    plot = rows_plot(names, height + 36, _RIGHT, (0.0, 1.0))
    columns = (plot.right + 58, WIDTH - EDGE)
    parts = [
        *(definition for definition, _ in hatches),
        *(keys, axes.vertical_grid(plot, (0.25, 0.5, 0.75, 1))),
        *(
            marks.text((x, plot.top - 8), title, "muted", size=SMALL, anchor="end")
            for x, title in zip(columns, ("changed", "of"), strict=True)
        ),
    ]
    for k, row in enumerate(counts):
        parts.append(_bar(plot, k, row, fills))
        share = words.percent(row[1:].sum() / row.sum())
        y = row_middle(plot, k) + SIZE * 0.35
        parts.append(marks.text((columns[0], y), share, anchor="end"))
        parts.append(marks.text((columns[1], y), f"{row.sum():,}", "muted", anchor="end"))
    ticks = (0, 0.25, 0.5, 0.75, 1)
    parts.append(row_names(plot, names))
    parts.append(axes.across(plot, ticks, percent_texts(ticks)))
    return drawing(NAME, TITLE, caption, (WIDTH, plot.bottom + 28), "".join(parts))


def _bar(plot: axes.Plot, row: int, counts: Rows, fills: dict[str, str]) -> str:
    ends = np.append(0, np.cumsum(counts)) / counts.sum()
    parts = []
    for k, (kind, css) in enumerate(_KINDS.items()):
        if counts[k]:
            corner = (plot.at_x(ends[k]), row_middle(plot, row) - ROW * 0.34)
            size = (plot.at_x(ends[k + 1]) - corner[0], ROW * 0.68)
            opacity = 0.28 if kind == "kept" else 1
            parts.append(
                marks.bar(corner, size, css, fill=fills[kind], opacity=opacity, is_framed=True)
            )
    return "".join(parts)
