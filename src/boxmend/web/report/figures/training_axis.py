"""The axis of epochs and the shaded warm-up of figures about the training."""

import numpy as np

from boxmend.runs.history import History
from boxmend.web.charts import axes, marks
from boxmend.web.charts.sheet import SMALL
from boxmend.web.charts.ticks import nice_ticks


def steps_per_epoch(history: History) -> float:
    """Return the number of steps per epoch of a history that is not empty."""
    return float(history.steps.max() + 1) / history.num_epochs


def warm_up_end(history: History) -> float:
    """Return the end of warm-up in epochs; 0 if there is none."""
    steps = history.steps[history.is_warm_up]
    return float(steps.max() + 1) / steps_per_epoch(history) if len(steps) else 0.0


def shaded_warm_up(plot: axes.Plot, until: float) -> str:
    """Shade a plot up to the end of warm-up, and label the shade if there is room."""
    end = float(np.clip(until, *plot.x))
    width = plot.at_x(end) - plot.left
    if width <= 0:
        return ""
    shade = marks.bar((plot.left, plot.top), (width, plot.height), "shade", opacity=0.13)
    if width < 60:
        return shade
    at = (plot.left + 6, plot.bottom - 7)  # at the top, grid lines would cross the text
    return shade + marks.text(at, "warm-up", "muted", size=SMALL)


def epoch_axis(plot: axes.Plot) -> str:
    """Draw the axis below a plot over epochs."""
    return axes.across(plot, nice_ticks(*plot.x, 8, whole=True), None, "epoch")
