"""Repairing what can be decided: boxes are clipped to their image, those without area dropped."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from boxmend.data.boxes import clip_boxes
from boxmend.data.checks.annotations import OUTSIDE_TOLERANCE, find_faults
from boxmend.data.checks.places import annotation_id, box_text, file_of_annotation
from boxmend.data.dataset import Dataset
from boxmend.data.findings import Finding
from boxmend.data.types import Mask


@dataclass(frozen=True)
class Repair:
    """What was done to one annotation; `message` names its old and its new box."""

    annotation_id: int | str
    file: str
    action: str  # "clipped" or "dropped"
    message: str


def repair(dataset: Dataset) -> tuple[Dataset, list[Repair]]:
    """Clip boxes that reach outside their image and drop those without area; say what was done.

    Crowd and difficult annotations are no exception. What cannot be decided stays: duplicates,
    unknown labels, boxes in images of unknown size. The dataset returned is a new one and lacks
    the findings about what was dropped; the repairs come in the order of the annotations.
    """
    faults = find_faults(dataset)
    boxes = _clipped(dataset, faults.outside)
    reasons = {
        "it is not finite": faults.not_finite,
        "it ends before it begins": faults.flipped,
        "it has no area": faults.empty,
        "nothing of it lies inside its image": _is_used_up(dataset.boxes, boxes),
    }
    is_dropped = np.logical_or.reduce(list(reasons.values()))
    repairs = []
    for row in np.flatnonzero(is_dropped | faults.outside).tolist():
        old = box_text(dataset.boxes[row])
        if is_dropped[row]:
            reason = next(text for text, mask in reasons.items() if mask[row])
            action, message = "dropped", f"box {old} dropped: {reason}"
        else:
            action, message = "clipped", f"box {old} clipped to {box_text(boxes[row])}"
        file = file_of_annotation(dataset, row)
        repairs.append(Repair(annotation_id(dataset, row), file, action, message))
    findings = _still_true(dataset, is_dropped)
    return replace(dataset, boxes=boxes, findings=findings).take(~is_dropped), repairs


def _clipped(dataset: Dataset, is_outside: Mask) -> NDArray[np.float64]:
    boxes = dataset.boxes.copy()
    sizes = dataset.images.sizes[dataset.image_rows[is_outside]]  # [k, 2], known
    boxes[is_outside] = clip_boxes(boxes[is_outside], sizes)
    return boxes


def _is_used_up(old: NDArray[np.float64], new: NDArray[np.float64]) -> Mask:
    """Mark boxes of which clipping left a width or height that is nothing but rounding."""
    with np.errstate(over="ignore", invalid="ignore"):  # boxes that are dropped for that anyway
        before, after = old[:, 2:] - old[:, :2], new[:, 2:] - new[:, :2]  # [n, 2]
    is_lost = (after < before) & (after < OUTSIDE_TOLERANCE)
    return is_lost[:, 0] | is_lost[:, 1]


def _still_true(dataset: Dataset, is_dropped: Mask) -> tuple[Finding, ...]:
    """The reader's findings without those about annotations that are dropped."""
    if not dataset.findings or not is_dropped.any():
        return dataset.findings
    dropped = set(dataset.annotation_ids[is_dropped].tolist())
    gone = dropped - set(dataset.annotation_ids[~is_dropped].tolist())  # ids may be there twice
    return tuple(
        finding
        for finding in dataset.findings
        if finding.annotation_id not in (dropped if finding.kind == "box-not-finite" else gone)
    )
