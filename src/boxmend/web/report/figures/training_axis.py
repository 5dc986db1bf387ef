"""The axis of epochs, with warm-up shaded, that figures over training share."""

import numpy as np

from boxmend.runs.history import History
from boxmend.web.charts import axes, marks
from boxmend.web.charts.sheet import SMALL
from boxmend.web.charts.ticks import nice_ticks


def steps_per_epoch(history: History) -> float:
    """How many steps an epoch has, of a history that is not empty."""
    return float(history.steps.max() + 1) / history.num_epochs


def warm_up_end(history: History) -> float:
    """When warm-up ends, in epochs; 0 where there is none."""
    steps = history.steps[history.is_warm_up]
    return float(steps.max() + 1) / steps_per_epoch(history) if len(steps) else 0.0


def shaded_warm_up(plot: axes.Plot, until: float) -> str:
    """Shade a plot from its left to where warm-up ends, and say so where there is room."""
    end = float(np.clip(until, *plot.x))
    width = plot.at_x(end) - plot.left
    if width <= 0:
        return ""
    shade = marks.bar((plot.left, plot.top), (width, plot.height), "shade", opacity=0.13)
    if width < 60:
        return shade
    at = (plot.left + 6, plot.bottom - 7)  # at the top, lines of the grid would cross it
    return shade + marks.text(at, "warm-up", "muted", size=SMALL)


def epoch_axis(plot: axes.Plot, title: str = "epoch") -> str:
    """The axis below a plot whose numbers across are epochs."""
    return axes.across(plot, nice_ticks(*plot.x, 8, whole=True), None, title)
