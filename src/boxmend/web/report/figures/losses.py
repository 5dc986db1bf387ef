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
CLIPPED = (0.005, 0.995)  # quantiles of the losses between which the axis lies
WIDEST = 1e5  # the axis spans no more than this factor
NEARLY = 0.05  # thresholds that differ by no more than this share of them are one
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
_NEAR_END = 0.12  # of the axis


@dataclass(frozen=True, eq=False)
class LossSample:
    """The losses of one run at its last epoch."""

    name: str
    losses: Floats  # [v] none is NaN
    groups: dict[str, Mask]  # [v] each
    is_rejected: Mask  # [v]
    threshold: float  # NaN where there is none
    is_one: bool  # whether it is the same for all, or nearly so


def losses(record: RunRecord) -> Figure | None:
    """Draw the losses of the last epoch in groups with the threshold, one panel per run.

    The groups are right and wrong labels where the truth of all runs is known, else accepted and
    rejected ones. Runs without losses are passed over; None where none has any.
    """
    records = (record, *record.beside)
    by_truth = all(one.truth is not None for one in records)
    samples = [sample for one in records if (sample := _sample(one, by_truth)) is not None]
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
    found = contested_thresholds(history.losses[chosen], thresholds)
    middle = float(np.median(found)) if len(found) else math.nan
    spread = np.ptp(thresholds[np.isfinite(thresholds)]) if len(found) else 0.0
    return LossSample(
        name=words.cleaned(record.name),
        losses=np.maximum(history.losses[chosen].astype(np.float64), 0),
        groups={group: mask for group, mask in groups.items() if mask.any()},
        is_rejected=is_rejected,
        threshold=middle,
        is_one=bool(spread <= NEARLY * abs(middle)) or not len(found),
    )


def _edges(samples: Sequence[LossSample]) -> Floats:
    """[NUM_BINS + 1] Edges of bins that grow by one factor, between round ends."""
    usable = [one.losses[np.isfinite(one.losses) & (one.losses > 0)] for one in samples]
    ends = np.array([np.quantile(one, CLIPPED) for one in usable if len(one)])
    low, high = (ends[:, 0].min(), ends[:, 1].max()) if len(ends) else (0.1, 1.0)
    for sample in samples:
        if high < sample.threshold <= 10 * high:  # near enough to be shown
            high = sample.threshold
    high = round_above(high)
    low = round_below(max(low, high / WIDEST))
    return np.geomspace(low, high if high > low else low * 10, NUM_BINS + 1)


def _counts(losses: Floats, edges: Floats) -> Rows:
    """[NUM_BINS] How many losses each bin has; those beyond the ends are in the outer ones."""
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
    """What the first run's verdicts of the last epoch came to, in words."""
    sample = samples[0]
    found = [
        f"{words.percent(float(sample.is_rejected[mask].mean()))} of the {group} labels"
        for group, mask in sample.groups.items()
    ]
    name = f" by {words.isolated(sample.name)}" if len(samples) > 1 else ""
    if by_truth and sample.is_rejected.any():
        return [f"In the last epoch, {' and '.join(found)} were rejected{name}."]
    share = words.percent(float(sample.is_rejected.mean()))
    return [f"In the last epoch, {share} of the labels were rejected{name}."]


def _ends(samples: Sequence[LossSample], edges: Floats) -> list[str]:
    """What the axis does not show, in words."""
    told = ["The further apart the two, the surer the verdicts."]
    beyond = _num_beyond(samples, edges)
    if beyond:
        losses = "loss" if beyond == 1 else "losses"
        high = words.number(float(edges[-1]))
        told.append(f"The last bin also holds {beyond:,} {losses} above {high}.")
    if not any(_is_shown(one, edges) for one in samples):
        told.append("No threshold lies on this axis.")
    elif not all(one.is_one for one in samples):
        told.append(
            "Each label has a threshold of its own; the line is the median of those that decided "
            "narrowly."
        )
    return told


def _num_beyond(samples: Sequence[LossSample], edges: Floats) -> int:
    return sum(int((one.losses > edges[-1]).sum()) for one in samples)


def _is_shown(sample: LossSample, edges: Floats) -> bool:
    """Whether the threshold is on the axis; not so for NaN."""
    return bool(edges[0] <= sample.threshold <= edges[-1])


def _svg(title: str, caption: str, samples: Sequence[LossSample], edges: Floats) -> str:
    hatch, hatched = marks.hatching(f"chart-{NAME}-hatch", "series-2")
    groups = list(dict.fromkeys(group for one in samples for group in one.groups))
    fills = {group: hatched if group in _HATCHED else "currentColor" for group in _LOOKS}
    entries = [legend.Key(f"{group} labels", _LOOKS[group], "area", fill=fills[group])
               for group in groups]  # fmt: skip
    if any(_is_shown(one, edges) for one in samples):
        entries.append(legend.Key("threshold", "ink", dash="dashed"))
    keys, top = legend.keys(entries, _LEFT, 4, WIDTH - _LEFT - EDGE)
    top += 22 if len(samples) > 1 else 0  # names stand above panels
    columns = _columns(len(samples))
    width = (WIDTH - _LEFT - 16 - _PANEL_GAP * (columns - 1)) / columns
    panel_height = _PLOT_HEIGHT + _BELOW + 30
    highest = max(
        float(_counts(one.losses[mask], edges).max()) / len(one.losses)
        for one in samples
        for mask in one.groups.values()
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
            name = words.shortened(sample.name, width, SIZE)
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
    """The axes of a panel; those after the first in a row share its texts on the left.

    Where the last bin also holds what lies beyond, the end of the axis has a plus sign.
    """
    ticks = nice_ticks(0, plot.y[1], 4)
    texts = percent_texts(ticks) if is_first else [""] * len(ticks)
    low, high = float(edges[0]), float(edges[-1])
    across = {tick: words.number(tick) for tick in log_ticks(low, high)}
    if is_open:
        room = (high / low) ** _NEAR_END  # what stands nearer to the end makes way for it
        across = {tick: text for tick, text in across.items() if tick * room < high}
        across[high] = f"{words.number(high)}+"
    title = "loss, log scale" if plot.width < 300 else "loss of the annotated label (log scale)"
    places = [math.log10(tick) for tick in across]
    return axes.upwards(plot, ticks, texts) + axes.across(plot, places, [*across.values()], title)
