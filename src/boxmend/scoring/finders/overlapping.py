"""Compute the overlaps between annotations and detections once for all finders."""

from dataclasses import dataclass

import numpy as np

from boxmend.data.boxes import compute_iou, iterate_image_pairs
from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.data.types import Floats, Mask, Rows


@dataclass(frozen=True, eq=False)
class OverlapTable:
    """All pairs of an annotation and a detection that overlap in one image."""

    annotations: Rows  # [p] rows of the annotations, ascending
    detections: Rows  # [p] rows of the detections
    iou: Floats  # [p] above 0

    def take(self, pairs: Rows | Mask) -> "OverlapTable":
        """Return some of the pairs."""
        return OverlapTable(self.annotations[pairs], self.detections[pairs], self.iou[pairs])


def find_overlaps(objects: Dataset, detections: Detections) -> OverlapTable:
    """Return the overlaps of all annotations with all detections."""
    boxes = detections.boxes.astype(np.float64)
    none = np.zeros(0, np.int64)
    parts = [(none, none, np.zeros(0))]
    for ours, theirs in iterate_image_pairs(objects.image_rows, detections.image_rows):
        iou = compute_iou(objects.boxes[ours], boxes[theirs])
        overlaps = iou > 0
        parts.append((ours[overlaps], theirs[overlaps], iou[overlaps]))
    return OverlapTable(*(np.concatenate(column) for column in zip(*parts, strict=True)))
