"""Non-maximum suppression as a fixed-point iteration: no output of unknown size, no waiting.

Greedy suppression of boxes in descending order of score is the one mask that satisfies

    keep[j] = valid[j] and no i < j with keep[i] and IoU(i, j) > overlap.

Iterating the right side from keep = valid settles one more link of every suppression chain a
round: a chain of n + 1 boxes, each overlapping the next alone, is exact after n rounds.
"""

import torch
from torch import Tensor

from boxmend.detector.boxes import pairwise_iou
from boxmend.detector.gpu import kernels_for

PAIRS_PER_CHUNK = 1 << 26  # overlaps computed together: 256 MB for each intermediate result


def suppress(
    boxes: Tensor,
    is_valid: Tensor,
    *,
    overlap: float,
    groups: Tensor | None = None,
    rounds: int = 20,
) -> tuple[Tensor, Tensor]:
    """Keep the valid boxes that no kept box of higher score overlaps by more than `overlap`.

    Takes boxes [B, n, 4] in descending order of score and is_valid [B, n]; boxes of different
    `groups` [B, n] (levels, classes) never suppress each other. Returns keep [B, n] and
    unsettled [B], true where `rounds` rounds were too few for the result to be exact.
    """
    beats = _suppressors(boxes, groups, overlap)  # [B, n, n], 1 where row i may suppress column j
    keep = is_valid
    for _ in range(rounds):
        following = _one_round(keep, is_valid, beats)
        # Looking is free on the CPU only; elsewhere it would wait for the device.
        settled = boxes.device.type == "cpu" and torch.equal(following, keep)
        keep = following
        if settled:
            break
    is_inexact = (_one_round(keep, is_valid, beats) != keep).any(-1)
    return keep, is_inexact


def _one_round(keep: Tensor, is_valid: Tensor, beats: Tensor) -> Tensor:
    beaten_by = torch.bmm(keep[:, None].to(beats.dtype), beats)[:, 0]  # [B, n] kept suppressors
    return is_valid & (beaten_by == 0)


def _suppressors(boxes: Tensor, groups: Tensor | None, overlap: float) -> Tensor:
    """Write 1 where box i comes before box j, shares its group and overlaps it, else 0."""
    kernels = kernels_for(boxes)
    if kernels is not None:
        beats: Tensor = kernels.suppressors(boxes, groups, overlap, torch.bfloat16)
        return beats
    number = boxes.shape[1]
    # Sums of ones are never rounded to zero, so half the bytes serve as well.
    dtype = torch.float32 if boxes.device.type == "cpu" else torch.bfloat16
    at_once = max(1, PAIRS_PER_CHUNK // max(1, number * number))
    parts = []
    for start in range(0, boxes.shape[0], at_once):
        some = boxes[start : start + at_once]
        is_over = pairwise_iou(some, some) > overlap
        if groups is not None:
            group = groups[start : start + at_once]
            is_over = is_over & (group[:, :, None] == group[:, None])
        parts.append(is_over.triu(1).to(dtype))
    return torch.cat(parts)
