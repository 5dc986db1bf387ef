"""Soft labels in the loss of Ultralytics' detection models, which takes one class per box.

The class of a box passes through augmentation and loader as a float of which the loss uses the
integer part. The fraction carries the second most probable class and the probability of the first,
so no table has to follow the boxes. Where the loss makes its targets from the classes, the targets
get both classes with their probabilities.
"""

from typing import Any

import numpy as np
from torch import Tensor

from boxmend.data.types import Rows, Singles

STEPS = 32  # of the probability of the first class
MIN_DOUBT = 0.5 / STEPS  # a smaller probability of the second class is rounded to none
MAX_CLASSES = 256  # 8 bits for each class and 5 for the probability are exact in float32


def encode(labels: Rows, soft_labels: Singles) -> Singles:
    """Return classes [n] whose fractions carry the two largest entries of soft_labels [n, C].

    The integer part is the label. It is left without a fraction if it is not the first class, if it
    is almost certain, or if there are more than MAX_CLASSES classes.
    """
    classes: Singles = labels.astype(np.float32)
    number, num_classes = soft_labels.shape
    if not 2 <= num_classes <= MAX_CLASSES or not number:
        return classes
    second = soft_labels.copy()
    second[np.arange(number), labels] = -1
    others = second.argmax(axis=1)
    first = soft_labels[np.arange(number), labels]
    rest = second[np.arange(number), others]
    share = first / np.maximum(first + rest, 1e-9)
    steps = np.rint((1 - share) * STEPS).astype(np.int64)
    is_soft = (rest <= first) & (steps > 0)
    codes = np.where(is_soft, others * STEPS + steps, 0)
    return classes + (codes / (MAX_CLASSES * STEPS)).astype(np.float32)


def decode(classes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the second class and the probability of the first of what `encode` returned."""
    codes = ((classes - classes.floor()) * (MAX_CLASSES * STEPS)).round().long()
    second = codes.div(STEPS, rounding_mode="floor")
    return second, 1 - (codes % STEPS) / STEPS


def soften_targets(criterion: Any) -> None:
    """Make the assigner of a criterion return soft class targets for encoded classes."""
    assigner = criterion.assigner
    if isinstance(assigner.get_targets, _SoftTargets):
        return
    assigner.get_targets = _SoftTargets(assigner.get_targets)


class _SoftTargets:
    """Replaces `get_targets` of Ultralytics' assigner."""

    def __init__(self, get_targets: Any):
        self._get_targets = get_targets

    def __call__(
        self, gt_labels: Tensor, gt_bboxes: Tensor, target_gt_idx: Tensor, fg_mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return labels [B, A], boxes [B, A, 4] and soft class targets [B, A, C] of the anchors."""
        labels, boxes, scores = self._get_targets(gt_labels, gt_bboxes, target_gt_idx, fg_mask)
        second, share = (part.gather(1, target_gt_idx) for part in decode(gt_labels[..., 0]))
        is_positive = (fg_mask > 0).to(share.dtype)
        soft = scores * share[..., None]
        soft.scatter_add_(2, second[..., None], ((1 - share) * is_positive)[..., None])
        return labels, boxes, soft
