"""How many changes were right, how many did harm, and how many errors were missed."""

from boxmend.scoring.corrections.changes import ChangeScores, score_changes
from boxmend.web.charts import axes, drawing, marks, words
from boxmend.web.charts.rows import ROW, row_middle, row_names, rows_plot
from boxmend.web.charts.sheet import EDGE, SIZE, WIDTH
from boxmend.web.charts.ticks import nice_ticks
from boxmend.web.report.record import Figure, RunRecord

NAME, TITLE = "changes", "Changes compared with the truth"
COLUMNS = ("of", "outcome", "count", "share_of_annotations")
_LOOKS = {
    "right": ("series-1", "currentColor", 0.8),
    "neutral": ("quiet", "currentColor", 0.5),
    "harm": ("series-2", "rising", 1.0),
    "missed": ("series-3", "falling", 1.0),
}  # class, fill and opacity
_MEANING = {
    "labels": ("wrong, now right", "wrong, still wrong", "right, now wrong", "wrong, not changed"),
    "boxes": ("closer to the truth", "as close as before", "farther away", "bad, not moved"),
}
_RIGHT = 70.0  # room for counts beside the bars


def changes(record: RunRecord) -> Figure | None:
    """Draw how many changes of labels and boxes were right, neutral, harmful and missed.

    Return None if the truth is unknown or the run changed nothing.
    """
    if record.truth is None or len(record.changes) == 0:
        return None
    scores = score_changes(record.opened, record.changes, record.truth)
    if scores.annotations == 0:
        return None
    counts = _counts(scores)
    rows: list[tuple[str | int | float | None, ...]] = [
        (of, outcome, count, count / scores.annotations)
        for of, outcomes in counts.items()
        for outcome, count in outcomes.items()
    ]
    caption = _caption(scores)
    return Figure(NAME, TITLE, caption, _svg(caption, counts, scores), COLUMNS, rows)


def _counts(scores: ChangeScores) -> dict[str, dict[str, int]]:
    labels, boxes = scores.labels, scores.boxes
    return {
        "labels": {
            "right": labels.right,
            "neutral": labels.wrong_to_wrong,
            "harm": labels.harm,
            "missed": labels.missed,
        },
        "boxes": {
            "right": boxes.better,
            "neutral": boxes.alike,
            "harm": boxes.worse,
            "missed": boxes.missed,
        },
    }


def _caption(scores: ChangeScores) -> str:
    labels, boxes = scores.labels, scores.boxes
    sentences = []
    if labels.relabelled:
        right, harm = (words.percent(n / labels.relabelled) for n in (labels.right, labels.harm))
        sentences.append(
            f"Of {labels.relabelled:,} changed labels, {right} are right now and {harm} were right "
            "before."
        )
    if boxes.moved:
        better, worse = (words.percent(n / boxes.moved) for n in (boxes.better, boxes.worse))
        sentences.append(
            f"Of {boxes.moved:,} moved boxes, {better} are closer to the truth and {worse} are "
            "farther away."
        )
    if labels.missed:
        sentences.append(
            f"Of {labels.wrong_before:,} wrong labels, {labels.missed:,} were not changed."
        )
    return " ".join(sentences)


def _svg(caption: str, counts: dict[str, dict[str, int]], scores: ChangeScores) -> str:
    rising, rises = marks.hatching(f"chart-{NAME}-rising", "series-2")
    falling, falls = marks.hatching(f"chart-{NAME}-falling", "series-3", is_rising=False)
    fills = {"rising": rises, "falling": falls, "currentColor": "currentColor"}
    most = max(count for outcomes in counts.values() for count in outcomes.values())
    titles = {
        "labels": f"labels changed: {scores.labels.relabelled:,}",
        "boxes": f"boxes moved: {scores.boxes.moved:,}",
    }
    parts, top = [rising, falling], 30.0
    every = [name for names in _MEANING.values() for name in names]
    for of, outcomes in counts.items():
        left = rows_plot(every, top, _RIGHT, (0.0, float(most) or 1.0))
        plot = axes.Plot(left.left, top, left.width, ROW * len(outcomes), left.x)
        ticks = nice_ticks(*plot.x, 4, whole=True)
        parts.append(axes.vertical_grid(plot, ticks))
        parts.append(row_names(plot, _MEANING[of]))
        head = f"{titles[of]} of {scores.annotations:,}"
        parts.append(marks.text((plot.left, top - 9), head, "muted"))
        for k, (outcome, count) in enumerate(outcomes.items()):
            parts.append(_bar(plot, k, (outcome, count), fills))
        if of == "boxes":
            parts.append(axes.across(plot, ticks))
        top = plot.bottom + 42
    return drawing(NAME, TITLE, caption, (WIDTH, top - 16), "".join(parts))


def _bar(plot: axes.Plot, row: int, counted: tuple[str, int], fills: dict[str, str]) -> str:
    css, fill, opacity = _LOOKS[counted[0]]
    middle = row_middle(plot, row)
    size = (plot.at_x(counted[1]) - plot.left, ROW * 0.68)
    bar = marks.bar(
        (plot.left, middle - ROW * 0.34), size, css, fill=fills[fill], opacity=opacity,
        is_framed=counted[1] > 0,
    )  # fmt: skip
    at = (WIDTH - EDGE, middle + SIZE * 0.35)
    return bar + marks.text(at, f"{counted[1]:,}", anchor="end")
