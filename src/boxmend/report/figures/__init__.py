"""Figures: one function per figure, from the record of a run to a drawing and its numbers."""

from collections.abc import Callable

from boxmend.report.figures.boxes import boxes
from boxmend.report.figures.changes import changes
from boxmend.report.figures.confusion import confusion
from boxmend.report.figures.iou import iou
from boxmend.report.figures.label_ap import label_ap
from boxmend.report.figures.losses import losses
from boxmend.report.figures.threshold import threshold
from boxmend.report.figures.verdicts import verdicts
from boxmend.report.record import Figure, RunRecord

FIGURES: dict[str, Callable[[RunRecord], Figure | None]] = {
    "verdicts": verdicts,
    "changes": changes,
    "boxes": boxes,
    "confusion": confusion,
    "losses": losses,
    "threshold": threshold,
    "iou": iou,
    "label-ap": label_ap,
}
"""By name, in the order of the page; None where a figure does not apply to the run."""
