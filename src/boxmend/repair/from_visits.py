"""Derive changes from the settled visits of a training."""

import numpy as np

from boxmend.data.boxes import compute_iou
from boxmend.data.dataset import Dataset
from boxmend.data.types import Floats, Mask
from boxmend.repair.changes import ApplySettings, Changes
from boxmend.runs.folder import Run
from boxmend.runs.history import SETTLING_COLUMNS, read_history
from boxmend.runs.settling import Settlement, settle


def changes_from_ledger(run: Run, dataset: Dataset, wanted: ApplySettings | None = None) -> Changes:
    """Return the changes of a training run; its visits are settled and then freed."""
    settlement = settle(dataset, read_history(run, dataset, SETTLING_COLUMNS))
    return changes_from_visits(settlement, wanted)


def changes_from_visits(settlement: Settlement, wanted: ApplySettings | None = None) -> Changes:
    """Return the changes of the wanted kinds with enough confidence.

    Without settings, these are the changes that `apply` writes without options.
    """
    dataset, settings = settlement.dataset, wanted or ApplySettings()
    is_relabelled = (settlement.labels != dataset.labels) & settings.wants("labels")
    is_relabelled &= _is_confident(settlement.label_confidences, settings.min_confidence)
    is_moved = settlement.is_moved & settings.wants("boxes")
    is_moved &= _is_confident(settlement.box_confidences, settings.min_confidence)
    is_discarded = settlement.is_unsure & (settings.discarded != "keep")
    if settings.discarded == "drop":
        is_moved &= ~is_discarded
    rows = np.flatnonzero(is_relabelled | is_moved | is_discarded)
    old = dataset.boxes[rows]
    boxes = np.where(is_moved[rows, None], settlement.boxes[rows], old)
    by_label = (is_relabelled | is_discarded)[rows]
    changes = Changes(
        rows=rows,
        image_rows=dataset.image_rows[rows],
        is_relabelled=is_relabelled[rows],
        is_moved=is_moved[rows],
        is_discarded=is_discarded[rows],
        labels=np.where(is_relabelled, settlement.labels, dataset.labels)[rows],
        boxes=boxes,
        iou=compute_iou(old, boxes),
        confidences=np.where(
            by_label, settlement.label_confidences[rows], settlement.box_confidences[rows]
        ),
        reasons=[],
        discarded=settings.discarded,
        num_judged=int((settlement.num_judged > 0).sum()),
        num_unsure=int(settlement.is_unsure.sum()),
        num_planted=len(settlement.history.planted),
    )
    changes.reasons.extend(_reasons(settlement, changes))
    return changes


def _is_confident(confidences: Floats, minimum: float) -> Mask:
    """Return a mask of confidences that reach a minimum; NaN only reaches 0."""
    is_confident: Mask = confidences >= minimum  # False for NaN
    return is_confident if minimum > 0 else np.ones(len(confidences), np.bool_)


def _reasons(settlement: Settlement, changes: Changes) -> list[str]:
    dataset, names = settlement.dataset, settlement.dataset.label_names
    action = "dropped" if changes.discarded == "drop" else "marked"
    reasons = []
    for k, row in enumerate(changes.rows.tolist()):
        old, new = names[dataset.labels[row]], names[changes.labels[k]]
        votes = settlement.votes(row)
        parts = []
        if changes.is_relabelled[k]:
            parts.append(f"label: {new} instead of {old} {votes}")
        if changes.is_discarded[k]:
            parts.append(f"{action}: unsure of {old} {votes}")
        if changes.is_moved[k]:
            number = settlement.num_moved[row]
            parts.append(f"box: mean of {number} visit{'s' if number > 1 else ''}")
        reasons.append("; ".join(parts))
    return reasons
