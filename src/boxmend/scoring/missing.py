"""Score proposed objects by the objects that are truly missing.

A proposed object is right if it has an IoU of at least 0.5 with a truly missing object of its
label. Each missing object counts once, for the most probable proposal, since a second one would add
a duplicate.
"""

from dataclasses import dataclass

import numpy as np

from boxmend.data.boxes import (
    are_at_border,
    compute_iou,
    compute_shares_inside,
    iterate_image_pairs,
)
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats, Mask, Rows
from boxmend.scoring.truth import KnownTruth, TrueObjects

FOUND_IOU = 0.5  # lowest IoU with a missing object that counts as found


@dataclass(frozen=True, eq=False)
class Proposed:
    """Objects that a finder would add to a dataset."""

    image_rows: Rows  # [c]
    labels: Rows  # [c]
    boxes: Floats  # [c, 4]
    scores: Floats  # [c] on any scale, higher is more certain

    def __len__(self) -> int:
        return len(self.labels)


def mark_right_proposals(proposed: Proposed, objects: TrueObjects) -> Mask:
    """Return a mask [c] of right proposals; with equal scores, the larger IoU counts."""
    missing = np.flatnonzero(objects.is_missing)
    ours, theirs, iou = _find_pairs(
        (proposed.image_rows, proposed.boxes), (objects.image_rows[missing], objects.boxes[missing])
    )
    is_pair = (iou >= FOUND_IOU) & (proposed.labels[ours] == objects.labels[missing][theirs])
    is_pair &= proposed.labels[ours] != UNKNOWN
    ours, theirs, iou = ours[is_pair], theirs[is_pair], iou[is_pair]
    order = np.lexsort((-iou, -proposed.scores[ours]))
    is_right = np.zeros(len(proposed), np.bool_)
    is_found = np.zeros(len(missing), np.bool_)
    for proposal, target in zip(ours[order].tolist(), theirs[order].tolist(), strict=True):
        if not is_right[proposal] and not is_found[target]:
            is_right[proposal] = is_found[target] = True
    return is_right


def mark_on_ignored(proposed: Proposed, dataset: Dataset, truth: KnownTruth | None = None) -> Mask:
    """Return a mask [c] of proposals on crowds and difficult objects, which are not scored.

    A proposal is on a difficult object if their IoU is at least 0.5, and on a crowd if at least
    half of its area lies inside. If the truth has a neutral margin, proposals in it are marked.
    """
    is_known = dataset.is_ignored & (dataset.image_rows != UNKNOWN)
    parts = [(dataset.image_rows[is_known], dataset.boxes[is_known], dataset.is_crowd[is_known])]
    if truth is not None and truth.ignored is not None:
        others = truth.ignored
        parts.append((others.image_rows, others.boxes, others.is_crowd))
    image_rows, boxes, is_crowd = (np.concatenate(column) for column in zip(*parts, strict=True))
    ours, theirs, iou = _find_pairs((proposed.image_rows, proposed.boxes), (image_rows, boxes))
    inside = compute_shares_inside(proposed.boxes[ours], boxes[theirs])
    is_on = np.where(is_crowd[theirs], inside, iou) >= FOUND_IOU
    marks = np.zeros(len(proposed), np.bool_)
    marks[ours[is_on]] = True
    if truth is not None and truth.neutral_margin_px is not None:
        sizes = dataset.images.sizes[proposed.image_rows]
        marks |= are_at_border(proposed.boxes, sizes, truth.neutral_margin_px)
    return marks


def _find_pairs(
    ours: tuple[Rows, Floats], theirs: tuple[Rows, Floats]
) -> tuple[Rows, Rows, Floats]:
    """Return the rows of boxes of either side that overlap in one image, and their IoU."""
    none = np.zeros(0, np.int64)
    parts = [(none, none, np.zeros(0))]
    for mine, other in iterate_image_pairs(ours[0], theirs[0]):
        iou = compute_iou(ours[1][mine], theirs[1][other])
        overlaps = iou > 0
        parts.append((mine[overlaps], other[overlaps], iou[overlaps]))
    mine, other, iou = (np.concatenate(column) for column in zip(*parts, strict=True))
    return mine, other, iou
