"""Mean IoU of boxes with the true boxes, or with the annotated ones, by epoch."""

import math

import numpy as np

from boxmend.data.boxes import compute_iou
from boxmend.data.types import Floats
from boxmend.runs.settling import SAME_BOX_MIN_IOU
from boxmend.web.charts import axes, drawing, marks, series
from boxmend.web.charts.sheet import SIZE, WIDTH
from boxmend.web.charts.ticks import nice_ticks
from boxmend.web.report.figures.training_axis import epoch_axis, shaded_warm_up, warm_up_end
from boxmend.web.report.record import Figure, RunRecord

NAME = "iou"
COLUMNS = ("epoch", "boxes", "mean_iou", "annotations")
_LOOKS = {
    "annotated": ("series-2", "dashed"),
    "matched": ("series-4", "dotted"),
    "final": ("series-1", "solid"),
}
_LEFT, _RIGHT = 48.0, 130.0  # room for texts beside the plot


def iou(record: RunRecord) -> Figure | None:
    """Draw the mean IoU of annotated, matched and final boxes with the true boxes, by epoch.

    If the truth is unknown, draw that of matched and final boxes with the annotated ones. Return
    None if no box moved.
    """
    history = record.opened.history
    is_true = record.truth is not None
    reference = record.opened.dataset.boxes if record.truth is None else record.truth.boxes
    names = ("annotated", "matched", "final") if is_true else ("matched", "final")
    means, counts = _means(record, reference, names)
    if not np.isfinite(means).any() or _is_still(record):
        return None
    rows: list[tuple[str | int | float | None, ...]] = [
        (epoch + 1, name, _none_if_nan(means[epoch, k]), counts[epoch])
        for epoch in range(history.num_epochs)
        for k, name in enumerate(names)
    ]
    whose = "the true box" if is_true else "the annotated box"
    title = f"Mean IoU with {whose} during training"
    caption = _caption(dict(zip(names, means.T.tolist(), strict=True)), is_true)
    svg = _svg(title, caption, dict(zip(names, means.T.tolist(), strict=True)), record)
    return Figure(NAME, title, caption, svg, COLUMNS, rows)


def _means(
    record: RunRecord, reference: Floats, names: tuple[str, ...]
) -> tuple[Floats, list[int]]:
    """Return the mean IoU of each epoch and kind of box, and the number of visits per epoch."""
    history, annotated = record.opened.history, record.opened.dataset.boxes
    epochs = history.num_epochs
    ends = np.searchsorted(history.epochs, np.arange(epochs + 1))
    means, counts = np.full((epochs, len(names)), math.nan), [0] * epochs
    for epoch in range(epochs):  # all epochs at once would not fit into memory
        piece = slice(ends[epoch], ends[epoch + 1])
        rows = history.rows[piece]
        boxes = {
            "annotated": annotated[rows],
            "matched": history.matched_boxes[piece].astype(np.float64),
            "final": history.final_boxes[piece].astype(np.float64),
        }
        known = np.isfinite(reference[rows]).all(axis=1)
        counts[epoch] = int(known.sum())
        if counts[epoch]:
            means[epoch] = [
                compute_iou(reference[rows][known], boxes[name][known]).mean() for name in names
            ]
    return means, counts


def _is_still(record: RunRecord) -> bool:
    """Return whether no visit moved a box by more than a rounding error."""
    history, annotated = record.opened.history, record.opened.dataset.boxes
    visits = np.arange(len(history))
    for part in np.array_split(visits, max(len(visits) // 2**20, 1)):
        old = annotated[history.rows[part]]
        moved = (compute_iou(old, boxes[part].astype(np.float64)) < SAME_BOX_MIN_IOU
                 for boxes in (history.matched_boxes, history.final_boxes))  # fmt: skip
        if any(is_moved.any() for is_moved in moved):
            return False
    return True


def _none_if_nan(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _caption(means: dict[str, list[float]], is_true: bool) -> str:
    last = {name: next(v for v in reversed(values) if math.isfinite(v)) for name, values in
            means.items()}  # fmt: skip
    if is_true:
        return (
            f"In the last epoch, the mean IoU with the true boxes is {last['final']:.2f} for the "
            f"final boxes and {last['annotated']:.2f} for the annotated ones. "
            "An IoU of 1 is a perfect fit."
        )
    return (
        "In the last epoch, the mean IoU of the final and the annotated boxes is "
        f"{last['final']:.2f}. The lower, the farther boxes have moved; 1 means that none moved."
    )


def _svg(title: str, caption: str, means: dict[str, list[float]], record: RunRecord) -> str:
    history = record.opened.history
    epochs = history.num_epochs
    values = [value for line in means.values() for value in line if math.isfinite(value)]
    low, high = math.floor(min(values) * 10 - 0.5) / 10, math.ceil(max(values) * 10 + 0.2) / 10
    plot = axes.Plot(
        *(_LEFT, 34.0, WIDTH - _LEFT - _RIGHT, 220.0),
        x=(0.5, epochs + 0.5),
        y=(max(low, 0.0), min(high, 1.0)),
    )
    ticks = nice_ticks(*plot.y, 5)
    parts = [
        shaded_warm_up(plot, warm_up_end(history) + 0.5),
        axes.upwards(plot, ticks, None, "mean IoU"),
        epoch_axis(plot),
    ]
    last = []
    for name, line in means.items():
        css, dash = _LOOKS[name]
        parts.append(series.curve(plot, list(range(1, epochs + 1)), line, css, dash=dash))
        last.append(next(value for value in reversed(line) if math.isfinite(value)))
    wanted = [plot.at_y(value) for value in last]
    spread = series.spread(wanted, SIZE * 1.3, plot.top + 6, plot.bottom - 4)
    for name, value, y in zip(means, last, spread, strict=True):
        at = (plot.right + 8, y + SIZE * 0.35)
        parts.append(marks.text(at, f"{name} {value:.2f}", _LOOKS[name][0]))
    return drawing(NAME, title, caption, (WIDTH, plot.bottom + 48), "".join(parts))
