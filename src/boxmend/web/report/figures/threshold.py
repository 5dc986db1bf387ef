"""Threshold, flagged labels and estimated noise during training."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from boxmend.runs.history import History
from boxmend.runs.judgement import Judgement
from boxmend.web.charts import axes, drawing, marks, series, words
from boxmend.web.charts.sheet import SIZE, WIDTH
from boxmend.web.charts.ticks import nice_ticks, percent_texts
from boxmend.web.report.figures.contested import contested_thresholds
from boxmend.web.report.figures.training_axis import (
    epoch_axis,
    shaded_warm_up,
    steps_per_epoch,
    warm_up_end,
)
from boxmend.web.report.record import Figure, RunRecord

NAME, TITLE = "threshold", "Threshold and flagged labels during training"
MAX_POINTS = 60  # approximately, over all epochs
MIN_VISITS = 50  # approximately, per point; fewer would be noise
COLUMNS = ("series", "epoch", "value", "low", "high")
BAND_QUANTILES = (0.1, 0.9)  # of the thresholds
_LOOKS = {
    "threshold": ("series-4", "solid"),
    "relabelled": ("series-2", "solid"),
    "discarded": ("series-3", "dotted"),
    "estimated noise": ("series-1", "dashed"),
}
_LEFT, _RIGHT = 48.0, 136.0  # room for texts beside the plots


@dataclass(frozen=True)
class Series:
    """A series over epochs with its bounds; unknown values are NaN."""

    epochs: list[float]
    values: list[float]
    low: list[float]
    high: list[float]


def threshold(record: RunRecord) -> Figure | None:
    """Draw the threshold and the shares relabelled and discarded during training.

    Warm-up is shaded. If the metrics have an estimate of the label noise, draw it with its bounds.
    Return None if no label was judged.
    """
    history = record.opened.history
    if not history.is_judged.any():
        return None
    lines = _lines_of(history)
    estimate = _estimate(record.metrics, history)
    if estimate is not None:
        lines["estimated noise"] = estimate
    rows: list[tuple[str | int | float | None, ...]] = [
        (name, epoch, _none_if_nan(value), _none_if_nan(low), _none_if_nan(high))
        for name, line in lines.items()
        for epoch, value, low, high in zip(
            line.epochs, line.values, line.low, line.high, strict=True
        )
    ]  # fmt: skip
    caption = _caption(lines)
    return Figure(NAME, TITLE, caption, _svg(caption, lines, history), COLUMNS, rows)


def _lines_of(history: History) -> dict[str, Series]:
    """Return threshold and shares in pieces of the training, equally many per epoch."""
    epochs = history.num_epochs
    per_epoch = steps_per_epoch(history)
    most = min(MAX_POINTS // epochs, len(history) // epochs // MIN_VISITS)
    pieces = epochs * max(1, min(int(per_epoch), most))
    limits = np.arange(pieces + 1) * (epochs * per_epoch / pieces)
    ends = np.searchsorted(history.steps, limits)
    is_judged = history.is_judged
    points = [_piece(history, is_judged, slice(*ends[k : k + 2])) for k in range(pieces)]
    at = ((np.arange(pieces) + 0.5) * epochs / pieces).tolist()
    columns = list(map(list, zip(*points, strict=True)))
    bare = [math.nan] * pieces
    lines = {"relabelled": Series(at, columns[3], bare, bare),
             "discarded": Series(at, columns[4], bare, bare)}  # fmt: skip
    if any(map(math.isfinite, columns[0])):
        lines = {"threshold": Series(at, *columns[:3]), **lines}
    return lines


def _piece(history: History, is_judged: np.ndarray[Any, Any], piece: slice) -> list[float]:
    """Return the threshold with its bounds, and the shares relabelled and discarded, of a piece."""
    chosen = is_judged[piece]
    if not chosen.any():
        return [math.nan] * 5
    losses, thresholds = history.losses[piece][chosen], history.thresholds[piece][chosen]
    contested = contested_thresholds(losses, thresholds)
    quantiles = [math.nan] * 3
    if len(contested):
        quantiles = np.quantile(contested, (0.5, *BAND_QUANTILES)).tolist()
    verdicts = history.verdicts[piece][chosen]
    kinds = (Judgement.RELABELLED, Judgement.DISCARDED)
    return [*quantiles, *(float((verdicts == kind).mean()) for kind in kinds)]


def _estimate(metrics: list[dict[str, Any]], history: History) -> Series | None:
    """Return the estimated label noise at the steps where the metrics have a valid one."""
    per_epoch, points = steps_per_epoch(history), []
    for record in metrics:
        step, noise = record.get("step"), _share(record.get("label_noise"))
        # The ledger may end before the metrics: images without annotations have no visits.
        if isinstance(step, int) and 0 <= step <= history.steps[-1] + per_epoch:
            at = min(step / per_epoch, float(history.num_epochs))
            band = [_share(record.get(f"label_noise_{end}")) for end in ("low", "high")]
            points += [(at, noise, *band)] if math.isfinite(noise) else []
    return Series(*map(list, zip(*points, strict=True))) if points else None


def _share(value: Any) -> float:
    """Return a number from 0 to 1, or NaN for anything else."""
    is_share = isinstance(value, int | float) and 0 <= value <= 1
    return float(value) if is_share else math.nan


def _none_if_nan(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _caption(lines: dict[str, Series]) -> str:
    last = {name: words.percent(_last(line)) for name, line in lines.items()}
    sentence = (
        f"At the end, {last['relabelled']} of the labels are relabelled and {last['discarded']} "
        "are discarded"
    )
    if "estimated noise" in lines:
        sentence += f"; an estimated {last['estimated noise']} are wrong"
    if "threshold" not in lines:
        return f"{sentence}."
    text = words.number(_last(lines["threshold"]))
    return f"{sentence}. A label is doubtful if its loss exceeds the threshold, finally {text}."


def _last(line: Series) -> float:
    return next((value for value in reversed(line.values) if math.isfinite(value)), math.nan)


def _svg(caption: str, lines: dict[str, Series], history: History) -> str:
    parts, top = [], 34.0
    across = (0.0, float(history.num_epochs))
    until = warm_up_end(history)
    width = WIDTH - _LEFT - _RIGHT
    if "threshold" in lines:
        line = lines["threshold"]
        plot = axes.Plot(_LEFT, top, width, 120, across, _range(line))
        parts.append(_draw(plot, {"threshold": line}, until, "threshold on the loss"))
        parts.append(axes.across(plot, [], []))
        top = plot.bottom + 46
    shares = {name: line for name, line in lines.items() if name != "threshold"}
    values = [value for line in shares.values() for value in (*line.values, *line.high)]
    high = max((value for value in values if math.isfinite(value)), default=0.0)
    plot = axes.Plot(_LEFT, top, width, 180, across, (0.0, min(high * 1.2, 1.0) or 1.0))
    parts.append(_draw(plot, shares, until, "share of the labels"))
    parts.append(epoch_axis(plot))
    return drawing(NAME, TITLE, caption, (WIDTH, plot.bottom + 48), "".join(parts))


def _range(line: Series) -> axes.Range:
    """Return a range from zero, or a lower minimum, to some way above the line."""
    values = [value for value in (*line.values, *line.low, *line.high) if math.isfinite(value)]
    low, high = min(*values, 0.0), max(*values, 0.0)
    return low, high + 0.25 * (high - low or 1.0)


def _draw(plot: axes.Plot, lines: dict[str, Series], until: float, title: str) -> str:
    """Draw one plot: shade, grid, bands, lines, and their names at the right end."""
    ticks = nice_ticks(*plot.y, 4)
    is_share = "threshold" not in lines
    texts = percent_texts(ticks) if is_share else None
    parts = [shaded_warm_up(plot, until), axes.upwards(plot, ticks, texts, title)]
    for name, line in lines.items():
        parts.append(series.band(plot, line.epochs, line.low, line.high, _LOOKS[name][0]))
    for name, line in lines.items():
        css, dash = _LOOKS[name]
        parts.append(series.curve(plot, line.epochs, line.values, css, dash=dash))
    wanted = [plot.at_y(_last(line)) for line in lines.values()]
    spread = series.spread(wanted, SIZE * 1.3, plot.top + 6, plot.bottom - 4)
    for (name, line), y in zip(lines.items(), spread, strict=True):
        value = words.percent(_last(line)) if is_share else words.number(_last(line))
        at = (plot.right + 8, y + SIZE * 0.35)
        parts.append(marks.text(at, f"{_short(name)} {value}", _LOOKS[name][0]))
    return "".join(parts)


def _short(name: str) -> str:
    return {"estimated noise": "noise, est.", "threshold": "final"}.get(name, name)
