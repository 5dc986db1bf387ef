"""Select annotations for review: those that a run changed, or the most doubtful ones."""

import numpy as np

from boxmend.data.types import Floats, Rows
from boxmend.errors import DataError, UsageError
from boxmend.runs.opening import OpenRun


def suspicions(opened: OpenRun) -> Floats:
    """Return the suspicion [n] of each annotation, from 0 to 1.

    It is the larger of the doubt in the label, 1 - exp(-loss), and the move of the box, 1 - IoU.
    It is NaN for annotations that were never visited, or neither judged nor moved, and for crowds
    and difficult objects.
    """
    doubts, distances = opened.settlement.doubts, 1.0 - opened.settlement.iou
    suspicion: Floats = np.fmax(doubts, distances)  # ignores the doubt of unjudged labels
    is_known = np.isfinite(doubts) | opened.settlement.is_moved
    suspicion[~(is_known & opened.settlement.is_visited) | opened.dataset.is_ignored] = np.nan
    return suspicion


def select_changed(opened: OpenRun) -> Rows:
    """Return the rows of all annotations that are relabelled, moved or unsure, in order.

    Raises a DataError if there are none.
    """
    rows: Rows = np.flatnonzero(opened.settlement.is_changed & ~opened.dataset.is_ignored)
    if not len(rows):
        _rows_with_suspicion(opened, suspicions(opened))
        raise DataError(
            f"{opened.run.path}: the run changed no annotation, so there is nothing to export; use "
            "--most N for the most doubtful annotations"
        )
    return rows


def select_most_doubtful(opened: OpenRun, most: int) -> Rows:
    """Return the rows of at most `most` annotations with the highest suspicion, highest first.

    Equal ones are in the order of the dataset. Raises a DataError if no annotation has a
    suspicion, for example after a method that neither judges labels nor moves boxes.
    """
    if most < 1:
        raise UsageError(f"--most is {most}; expected at least 1")
    suspicion = suspicions(opened)
    known = _rows_with_suspicion(opened, suspicion)
    order = np.argsort(-suspicion[known], kind="stable")
    rows: Rows = known[order[:most]]
    return rows


def _rows_with_suspicion(opened: OpenRun, suspicion: Floats) -> Rows:
    """Return the rows with a suspicion; raise a DataError if there are none."""
    known: Rows = np.flatnonzero(~np.isnan(suspicion))
    if not len(known):
        raise DataError(
            f"{opened.run.path}: the run judged no label and moved no box, so no annotation is "
            "doubtful; train with another method, such as mend"
        )
    return known
