"""Repair boxes: clip them to their image and drop those without area."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from boxmend.data.boxes import clip_boxes
from boxmend.data.checks.annotations import OUTSIDE_TOLERANCE_PIXELS, find_faults
from boxmend.data.checks.places import (
    annotation_id,
    box_text,
    file_of_annotation,
    image_name,
)
from boxmend.data.dataset import Dataset
from boxmend.data.findings import Finding
from boxmend.data.types import Mask


@dataclass(frozen=True)
class Repair:
    """The repair of one annotation, with its old and new box, or an entry that was left out."""

    annotation_id: int | str | None  # None for an image or a line of a list
    file: str
    action: str  # "clipped", "dropped" or "left out"
    message: str
    image: str | None = None


def repair(dataset: Dataset) -> tuple[Dataset, list[Repair]]:
    """Clip boxes that extend beyond their image and drop those without area.

    Return a new dataset, without the findings about dropped annotations, and the repairs in the
    order of the annotations. Crowd and difficult annotations are repaired, too. Duplicates, unknown
    labels and boxes in images of unknown size stay, because the right repair is unknown.
    """
    faults = find_faults(dataset)
    boxes = _clip_outside(dataset, faults.outside)
    reasons = {
        "it is not finite": faults.not_finite,
        "its right or lower side comes first": faults.flipped,
        "it has no area": faults.empty,
        "it lies outside its image": _lost_by_clipping(dataset.boxes, boxes),
    }
    is_dropped = np.logical_or.reduce(list(reasons.values()))
    repairs, image_rows = [], dataset.image_rows.tolist()
    for row in np.flatnonzero(is_dropped | faults.outside).tolist():
        old = box_text(dataset.boxes[row])
        if is_dropped[row]:
            reason = next(text for text, mask in reasons.items() if mask[row])
            action, message = "dropped", f"box {old} dropped: {reason}"
        else:
            action, message = "clipped", f"box {old} clipped to {box_text(boxes[row])}"
        file, name = file_of_annotation(dataset, row), image_name(dataset, image_rows[row])
        repairs.append(Repair(annotation_id(dataset, row), file, action, message, name))
    findings = _keep_valid_findings(dataset, is_dropped)
    return replace(dataset, boxes=boxes, findings=findings).take(~is_dropped), repairs


def _clip_outside(dataset: Dataset, is_outside: Mask) -> NDArray[np.float64]:
    boxes = dataset.boxes.copy()
    sizes = dataset.images.sizes[dataset.image_rows[is_outside]]  # [k, 2], known
    boxes[is_outside] = clip_boxes(boxes[is_outside], sizes)
    return boxes


def _lost_by_clipping(old: NDArray[np.float64], new: NDArray[np.float64]) -> Mask:
    """Mark boxes whose width or height after clipping is a rounding error."""
    with np.errstate(over="ignore", invalid="ignore"):  # such boxes are dropped anyway
        before, after = old[:, 2:] - old[:, :2], new[:, 2:] - new[:, :2]  # [n, 2]
    is_lost = (after < before) & (after < OUTSIDE_TOLERANCE_PIXELS)
    return is_lost[:, 0] | is_lost[:, 1]


def _keep_valid_findings(dataset: Dataset, is_dropped: Mask) -> tuple[Finding, ...]:
    """Return the reader's findings without those about dropped annotations."""
    if not dataset.findings or not is_dropped.any():
        return dataset.findings
    dropped = set(dataset.annotation_ids[is_dropped].tolist())
    dropped_everywhere = dropped - set(
        dataset.annotation_ids[~is_dropped].tolist()
    )  # ids may repeat
    return tuple(
        finding
        for finding in dataset.findings
        if finding.annotation_id
        not in (dropped if finding.kind == "box-not-finite" else dropped_everywhere)
    )
