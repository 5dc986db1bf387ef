"""Which annotations people should look at: those that a run changed, or those it doubts most."""

import numpy as np

from boxmend.data.types import Floats, Rows
from boxmend.errors import DataError, UsageError
from boxmend.runs.opening import OpenRun


def suspicions(opened: OpenRun) -> Floats:
    """[n] How much speaks against an annotation, in 0..1, by its label or its box.

    The larger of two: the doubt in the label, 1 - exp(-loss), and how far the box moved, 1 - IoU.
    NaN where nothing is known: never visited, a crowd or difficult object, or neither judged nor
    moved.
    """
    doubts, distances = opened.settlement.doubts, 1.0 - opened.settlement.iou
    found: Floats = np.fmax(doubts, distances)  # a label that was not judged has no say
    is_known = np.isfinite(doubts) | opened.settlement.is_moved
    found[~(is_known & opened.settlement.is_visited) | opened.dataset.is_ignored] = np.nan
    return found


def changed(opened: OpenRun) -> Rows:
    """Rows of all annotations that are relabelled, moved or unsure, in the order of the dataset.

    A DataError where there are none; `most_doubtful` has a remedy only where labels were judged.
    """
    rows: Rows = np.flatnonzero(opened.settlement.is_changed & ~opened.dataset.is_ignored)
    if not len(rows):
        _known(opened, suspicions(opened))
        raise DataError(
            f"{opened.run.path}: the run changed no annotation, so there is nothing to hand over; "
            "--most N gives those that it doubts most"
        )
    return rows


def most_doubtful(opened: OpenRun, most: int) -> Rows:
    """Rows of the annotations of highest suspicion, at most so many, the highest first.

    Of equal ones the first in the dataset goes first. A DataError where the run has no suspicion
    of any, as with a method that judges nothing.
    """
    if most < 1:
        raise UsageError(f"--most is {most}; expected at least 1")
    found = suspicions(opened)
    known = _known(opened, found)
    order = np.argsort(-found[known], kind="stable")
    rows: Rows = known[order[:most]]
    return rows


def _known(opened: OpenRun, found: Floats) -> Rows:
    """Rows with a suspicion; a DataError where there are none."""
    known: Rows = np.flatnonzero(~np.isnan(found))
    if not len(known):
        raise DataError(
            f"{opened.run.path}: the run judged no label and moved no box, so none is more "
            "doubtful than another; train with a method that mends"
        )
    return known
