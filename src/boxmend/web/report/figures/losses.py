"""Distribution of the losses of right and wrong labels (figure 2 of the paper)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from boxmend.data.types import Floats, Mask, Rows
from boxmend.runs.judgement import Judgement
from boxmend.web.charts import axes, drawing, legend, marks, series, words
from boxmend.web.charts.sheet import EDGE, SIZE, SMALL, WIDTH
from boxmend.web.charts.ticks import log_ticks, nice_ticks, percent_texts, round_above, round_below
from boxmend.web.report.figures.contested import contested_thresholds
from boxmend.web.report.record import Figure, RunRecord

NAME = "losses"
NUM_BINS = 30
AXIS_QUANTILES = (0.005, 0.995)  # of the losses, at the ends of the axis
MAX_AXIS_FACTOR = 1e5
SAME_THRESHOLD_SHARE = 0.05  # thresholds that differ by less count as one
COLUMNS = ("run", "group", "loss_from", "loss_to", "annotations", "share", "threshold")
_LOOKS = {
    "right": "series-1",
    "wrong": "series-2",
    "accepted": "series-1",
    "rejected": "series-2",
    "not judged": "series-3",
}
_HATCHED = ("wrong", "rejected")
_PLOT_HEIGHT, _PANEL_GAP = 190.0, 40.0
_LEFT, _BELOW = 48.0, 48.0
_END_SHARE = 0.12  # of the axis, kept free for the text at its end


@dataclass(frozen=True, eq=False)
class LossSample:
    """The losses of one run at its last epoch."""

    name: str
    losses: Floats  # [v] without NaN
    groups: dict[str, Mask]  # [v] each
    is_rejected: Mask  # [v]
    threshold: float  # NaN if there is none
    is_shared: bool  # whether the threshold is nearly the same for all


def losses(record: RunRecord) -> Figure | None:
    """Draw the losses of the last epoch by group, with the threshold, in one panel per run.

    The groups are right and wrong labels if the truth of all runs is known, else accepted and
    rejected ones. Runs without losses are left out; return None if no run has any.
    """
    records = (record, *record.beside)
    by_truth = all(run.truth is not None for run in records)
    samples = [sample for run in records if (sample := _sample(run, by_truth)) is not None]
    if not samples:
        return None
    edges = _edges(samples)
    rows: list[tuple[str | int | float | None, ...]] = []
    for sample in samples:
        rows += _rows(sample, edges)
    title = f"Losses of {'right and wrong' if by_truth else 'accepted and rejected'} labels"
    caption = " ".join([*_separation(samples, by_truth), *_ends(samples, edges)])
    return Figure(NAME, title, caption, _svg(title, caption, samples, edges), COLUMNS, rows)


def _sample(record: RunRecord, by_truth: bool) -> LossSample | None:
    history = record.opened.history
    chosen = (history.epochs == history.num_epochs - 1) & ~np.isnan(history.losses)
    if not chosen.any():
        return None
    verdicts = history.verdicts[chosen]
    is_judged = verdicts != Judgement.UNJUDGED
    is_rejected = is_judged & (verdicts != Judgement.KEPT)
    if by_truth and record.truth is not None:
        is_wrong = record.truth.is_wrong(record.opened.dataset.labels)[history.rows[chosen]]
        groups = {"right": ~is_wrong, "wrong": is_wrong}
    else:
        accepted = is_judged & ~is_rejected
        groups = {"accepted": accepted, "rejected": is_rejected, "not judged": ~is_judged}
    thresholds = history.thresholds[chosen]
    contested = contested_thresholds(history.losses[chosen], thresholds)
    middle = float(np.median(contested)) if len(contested) else math.nan
    spread = np.ptp(thresholds[np.isfinite(thresholds)]) if len(contested) else 0.0
    return LossSample(
        name=words.clean_text(record.name),
        losses=np.maximum(history.losses[chosen].astype(np.float64), 0),
        groups={group: mask for group, mask in groups.items() if mask.any()},
        is_rejected=is_rejected,
        threshold=middle,
        is_shared=bool(spread <= SAME_THRESHOLD_SHARE * abs(middle)) or not len(contested),
    )


def _edges(samples: Sequence[LossSample]) -> Floats:
    """Return the edges [NUM_BINS + 1] of bins of equal width on a log scale, with round ends."""
    all_losses = (sample.losses for sample in samples)
    usable = [losses[np.isfinite(losses) & (losses > 0)] for losses in all_losses]
    ends = np.array([np.quantile(losses, AXIS_QUANTILES) for losses in usable if len(losses)])
    low, high = (ends[:, 0].min(), ends[:, 1].max()) if len(ends) else (0.1, 1.0)
    for sample in samples:
        if high < sample.threshold <= 10 * high:  # close enough to show it
            high = sample.threshold
    high = round_above(high)
    low = round_below(max(low, high / MAX_AXIS_FACTOR))
    return np.geomspace(low, high if high > low else low * 10, NUM_BINS + 1)


def _counts(losses: Floats, edges: Floats) -> Rows:
    """Return the number [NUM_BINS] of losses in each bin; the outer bins include those beyond."""
    bins = np.clip(np.searchsorted(edges, losses, side="right") - 1, 0, NUM_BINS - 1)
    return np.bincount(bins, minlength=NUM_BINS)


def _rows(sample: LossSample, edges: Floats) -> list[tuple[str | int | float | None, ...]]:
    limits: list[float | None] = [0.0, *edges[1:-1].tolist(), None]  # the outer bins are open
    threshold = sample.threshold if math.isfinite(sample.threshold) else None
    return [
        (
            *(sample.name, group, limits[k], limits[k + 1]),
            *(count, count / len(sample.losses), threshold),
        )
        for group, mask in sample.groups.items()
        for k, count in enumerate(_counts(sample.losses[mask], edges).tolist())
    ]


def _separation(samples: Sequence[LossSample], by_truth: bool) -> list[str]:
    """Return a sentence about the rejected labels of the first run in the last epoch."""
    sample = samples[0]
    shares = [
        f"{words.percent(float(sample.is_rejected[mask].mean()))} of the {group} labels"
        for group, mask in sample.groups.items()
    ]
    name = f" by {words.isolate_text(sample.name)}" if len(samples) > 1 else ""
    if by_truth and sample.is_rejected.any():
        return [f"In the last epoch, {' and '.join(shares)} were rejected{name}."]
    share = words.percent(float(sample.is_rejected.mean()))
    return [f"In the last epoch, {share} of the labels were rejected{name}."]


def _ends(samples: Sequence[LossSample], edges: Floats) -> list[str]:
    """Return sentences about the losses and thresholds beyond the axis."""
    sentences = ["The farther apart the two groups, the more reliable the verdicts."]
    beyond = _num_beyond(samples, edges)
    if beyond:
        losses = "loss" if beyond == 1 else "losses"
        high = words.number(float(edges[-1]))
        sentences.append(f"The last bin also holds {beyond:,} {losses} above {high}.")
    if not any(_is_shown(sample, edges) for sample in samples):
        sentences.append("No threshold is on this axis.")
    elif not all(sample.is_shared for sample in samples):
        sentences.append(
            "Each label has its own threshold; the line is their median over close decisions."
        )
    return sentences


def _num_beyond(samples: Sequence[LossSample], edges: Floats) -> int:
    return sum(int((sample.losses > edges[-1]).sum()) for sample in samples)


def _is_shown(sample: LossSample, edges: Floats) -> bool:
    """Return whether the threshold is on the axis; False for NaN."""
    return bool(edges[0] <= sample.threshold <= edges[-1])


def _svg(title: str, caption: str, samples: Sequence[LossSample], edges: Floats) -> str:
    hatch, hatched = marks.hatching(f"chart-{NAME}-hatch", "series-2")
    groups = list(dict.fromkeys(group for sample in samples for group in sample.groups))
    fills = {group: hatched if group in _HATCHED else "currentColor" for group in _LOOKS}
    entries = [legend.Key(f"{group} labels", _LOOKS[group], "area", fill=fills[group])
               for group in groups]  # fmt: skip
    if any(_is_shown(sample, edges) for sample in samples):
        entries.append(legend.Key("threshold", "ink", dash="dashed"))
    keys, top = legend.keys(entries, _LEFT, 4, WIDTH - _LEFT - EDGE)
    top += 22 if len(samples) > 1 else 0  # names are above panels
    columns = _columns(len(samples))
    width = (WIDTH - _LEFT - 16 - _PANEL_GAP * (columns - 1)) / columns
    panel_height = _PLOT_HEIGHT + _BELOW + 30
    highest = max(
        float(_counts(sample.losses[mask], edges).max()) / len(sample.losses)
        for sample in samples
        for mask in sample.groups.values()
    )
    title_at = (_LEFT, top + (2 if len(samples) > 1 else 21))
    above = marks.text(title_at, "share of the labels", "muted", size=SMALL)
    parts, is_open = [hatch, keys, above], _num_beyond(samples, edges) > 0
    for k, sample in enumerate(samples):
        row, column = divmod(k, columns)
        left = _LEFT + column * (width + _PANEL_GAP)
        plot = axes.Plot(
            *(left, top + 30 + row * panel_height, width, _PLOT_HEIGHT),
            x=(math.log10(edges[0]), math.log10(edges[-1])),
            y=(0.0, highest * 1.08),
        )
        parts.append(_scales(plot, edges, is_first=column == 0, is_open=is_open))
        parts.append(_panel(plot, sample, edges, fills))
        if len(samples) > 1:
            name = words.shorten_text(sample.name, width, SIZE)
            parts.append(marks.text((left, plot.top - 9), name))
    rows = -(-len(samples) // columns)
    return drawing(NAME, title, caption, (WIDTH, top + 8 + rows * panel_height), "".join(parts))


def _columns(panels: int) -> int:
    return {4: 2}.get(panels, min(panels, 3))


def _panel(plot: axes.Plot, sample: LossSample, edges: Floats, fills: dict[str, str]) -> str:
    at = np.log10(edges).tolist()
    parts = []
    for group, mask in sample.groups.items():
        shares = (_counts(sample.losses[mask], edges) / len(sample.losses)).tolist()
        parts.append(series.histogram(plot, at, shares, _LOOKS[group], fills[group]))
    if _is_shown(sample, edges):
        x = plot.at_x(math.log10(sample.threshold))
        parts.append(marks.line((x, plot.top), (x, plot.bottom), "ink", width=2, dash="dashed"))
        is_left = x < plot.left + plot.width * 0.7
        at_words = (x + 6 if is_left else x - 6, plot.top + SIZE * 0.7)
        shown = words.number(sample.threshold)
        parts.append(marks.text(at_words, shown, anchor="start" if is_left else "end"))
    return "".join(parts)


def _scales(plot: axes.Plot, edges: Floats, *, is_first: bool, is_open: bool) -> str:
    """Draw the axes of a panel; only the first panel in a row has texts on its left.

    If the last bin also holds losses beyond the axis, its end has a plus sign.
    """
    ticks = nice_ticks(0, plot.y[1], 4)
    texts = percent_texts(ticks) if is_first else [""] * len(ticks)
    low, high = float(edges[0]), float(edges[-1])
    across = {tick: words.number(tick) for tick in log_ticks(low, high)}
    if is_open:
        room = (high / low) ** _END_SHARE  # ticks closer to the end are left out
        across = {tick: text for tick, text in across.items() if tick * room < high}
        across[high] = f"{words.number(high)}+"
    title = "loss, log scale" if plot.width < 300 else "loss of the annotated label (log scale)"
    places = [math.log10(tick) for tick in across]
    return axes.upwards(plot, ticks, texts) + axes.across(plot, places, [*across.values()], title)
