"""Detections: the best distinct scored boxes of each class."""

from typing import NamedTuple

import torch
from torch import Tensor

from boxmend.detector.boxes import is_large
from boxmend.detector.nms import suppress

MIN_DETECTION_SIDE_PIXELS = 1e-2


class SecondStageOutput(NamedTuple):
    """The output of the second stage for boxes [B, K, 4]."""

    logits: Tensor  # [B, K, 1 + C], background first
    probabilities: Tensor  # [B, K, 1 + C], their softmax
    boxes: Tensor  # [B, K, C, 4], regressed for each class and clipped to the image


class PaddedDetections(NamedTuple):
    """The best detections of each image in descending order of score, padded."""

    boxes: Tensor  # [B, D, 4]; zero in padding
    scores: Tensor  # [B, D]; zero in padding
    labels: Tensor  # [B, D], 0..C-1; zero in padding
    is_detection: Tensor  # [B, D]
    is_inexact: Tensor  # [B] too few rounds or candidates for the exact result of suppression


@torch.no_grad()
def select(
    scores: SecondStageOutput,
    is_proposal: Tensor,
    *,
    score_threshold: float,
    overlap: float,
    max_detections: int,
    nms_limits: tuple[int, int] = (2000, 20),
) -> PaddedDetections:
    """Keep boxes with a score above the threshold, suppress within classes, and take the best.

    `is_proposal` [B, K] marks the real rows. `nms_limits` are the number of boxes, best scores
    first, that enter suppression, and its number of rounds. Unless an image is marked
    `is_inexact`, the result equals that of suppressing all boxes.
    """
    candidates, rounds = nms_limits
    number_of_classes = scores.boxes.shape[2]
    score = scores.probabilities[..., 1:]  # [B, K, C]
    is_box = is_large(scores.boxes, MIN_DETECTION_SIDE_PIXELS) & is_proposal[..., None]
    score = torch.where(is_box & (score > score_threshold), score, -1).flatten(1)  # [B, K * C]
    # Stable: equal scores keep the order of proposals and classes.
    best, order = score.sort(dim=1, descending=True, stable=True)
    best, order = best[:, :candidates], order[:, :candidates]  # [B, n]
    boxes = scores.boxes.flatten(1, 2).take_along_dim(order[..., None], dim=1)  # [B, n, 4]
    labels = order % number_of_classes
    keep, is_inexact = suppress(boxes, best >= 0, overlap=overlap, groups=labels, rounds=rounds)
    is_cut = ((score >= 0).sum(1) > candidates) & (keep.sum(1) < max_detections)
    kept, place = torch.where(keep, best, -1).sort(dim=1, descending=True, stable=True)
    kept, place = kept[:, :max_detections], place[:, :max_detections]  # [B, D]
    is_detection = kept >= 0
    return PaddedDetections(
        boxes=torch.where(
            is_detection[..., None], boxes.take_along_dim(place[..., None], dim=1), 0
        ),
        scores=kept.clamp(min=0),
        labels=torch.where(is_detection, labels.gather(1, place), 0),
        is_detection=is_detection,
        is_inexact=is_inexact | is_cut,
    )
