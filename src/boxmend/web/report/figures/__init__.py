"""Figures: one function per figure, from the record of a run to a drawing and its numbers."""

from collections.abc import Callable

from boxmend.web.report.figures.boxes import boxes
from boxmend.web.report.figures.changes import changes
from boxmend.web.report.figures.confusion import confusion
from boxmend.web.report.figures.iou import iou
from boxmend.web.report.figures.label_ap import label_ap
from boxmend.web.report.figures.losses import losses
from boxmend.web.report.figures.threshold import threshold
from boxmend.web.report.figures.verdicts import verdicts
from boxmend.web.report.record import Figure, RunRecord

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
"""The figures by name, in the order of the page; one returns None if it does not apply to a run."""
