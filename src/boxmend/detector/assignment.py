"""Assignment of anchors and proposals to annotations or to background."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from boxmend.detector.boxes import pairwise_iou


class Targets(NamedTuple):
    """The padded training targets of a batch."""

    boxes: Tensor  # [B, A, 4]
    labels: Tensor  # [B, A], 0 .. C - 1
    is_box: Tensor  # [B, A], true for real rows
    is_ignored: Tensor  # [B, A], regions that are neither object nor background
    soft: Tensor | None = None  # [B, A, 1 + C] class targets instead of the labels
    weights: Tensor | None = None  # [B, A] of the classification loss of an annotation's RoIs
    box_targets: Tensor | None = None  # [B, A, 4] regression targets of the second stage
    beta: float | None = None  # of the second stage's box loss, if not the detector's own

    @property
    def is_real(self) -> Tensor:
        """The mask of the annotations to train on, [B, A]."""
        return self.is_box & ~self.is_ignored

    @property
    def regression_targets(self) -> Tensor:
        """The regression targets of the second stage, [B, A, 4]: `box_targets`, or the boxes."""
        return self.boxes if self.box_targets is None else self.box_targets


class Assignment(NamedTuple):
    """The annotation of each candidate box, and whether the candidate is positive or negative."""

    matched: Tensor  # [B, N] row of the annotation of highest overlap; arbitrary if not positive
    is_positive: Tensor  # [B, N]
    is_negative: Tensor  # [B, N]; undecided, ignored and padding candidates are neither


def assign(
    candidates: Tensor,
    targets: Targets,
    *,
    thresholds: tuple[float, float],
    low_quality: float | None = None,
    ignore_from: float = 0.5,
    is_candidate: Tensor | None = None,
) -> Assignment:
    """Match candidates [B or 1, N, 4] with annotations by overlap.

    A candidate is positive if its highest IoU with a real annotation reaches `thresholds[1]`,
    negative if it is below `thresholds[0]`, otherwise undecided. If `low_quality` is set, the
    candidates with the highest IoU for an annotation (including ties) are positive too, provided
    that it is above zero and at least `low_quality`. A candidate whose IoU with an ignored
    annotation is at least `ignore_from` is never negative.
    """
    boxes, is_real, is_ignored = _at_least_one_row(targets)
    overlaps = pairwise_iou(boxes, candidates)  # [B, A, N]
    if is_candidate is not None:
        overlaps = torch.where(is_candidate[:, None], overlaps, -1)
    real = torch.where(is_real[..., None], overlaps, -1).nan_to_num(nan=-1)  # [B, A, N]
    best, matched = real.max(dim=1)  # [B, N]
    is_positive = best >= thresholds[1]
    if low_quality is not None:
        is_positive = is_positive | _is_best_of_any(real, low_quality)
    ignored = torch.where(is_ignored[..., None], overlaps, -1)
    is_near_ignored = (ignored >= ignore_from).any(dim=1)  # [B, N]
    is_negative = (best < thresholds[0]) & ~is_positive & ~is_near_ignored
    if is_candidate is not None:
        is_positive, is_negative = is_positive & is_candidate, is_negative & is_candidate
    return Assignment(matched, is_positive, is_negative)


def _is_best_of_any(overlaps: Tensor, at_least: float) -> Tensor:
    highest = overlaps.amax(dim=2, keepdim=True)  # [B, A, 1]
    counts = (highest > 0) & (highest >= at_least)
    return (counts & (overlaps == highest)).any(dim=1)  # [B, N]


def _at_least_one_row(targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
    """Return boxes, is_real and is_ignored, with one padding row if there are no rows."""
    boxes, is_real, is_ignored = targets.boxes, targets.is_real, targets.is_box & targets.is_ignored
    if boxes.shape[1] == 0:
        return F.pad(boxes, (0, 0, 0, 1)), F.pad(is_real, (0, 1)), F.pad(is_ignored, (0, 1))
    return boxes, is_real, is_ignored
