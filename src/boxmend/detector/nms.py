"""Non-maximum suppression as a fixed-point iteration, with outputs of fixed size.

Greedy suppression of boxes in descending order of score is the one mask that satisfies

    keep[j] = valid[j] and no i < j with keep[i] and IoU(i, j) > overlap.

Each iteration of the right side, from keep = valid on, makes one more link of every suppression
chain exact: a chain of n + 1 boxes, each overlapping only the next, is exact after n rounds.
"""

import torch
from torch import Tensor

from boxmend.detector.boxes import pairwise_iou
from boxmend.detector.gpu import kernels_for

PAIRS_PER_CHUNK = 1 << 26  # 256 MB for each intermediate result


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
    is_inexact [B], which is true if `rounds` were too few for the exact result.
    """
    beats = _suppressors(boxes, groups, overlap)  # [B, n, n], 1 where row i may suppress column j
    keep = is_valid
    for _ in range(rounds):
        following = _one_round(keep, is_valid, beats)
        # Only on the CPU, because elsewhere the comparison would wait for the device.
        is_stable = boxes.device.type == "cpu" and torch.equal(following, keep)
        keep = following
        if is_stable:
            break
    is_inexact = (_one_round(keep, is_valid, beats) != keep).any(-1)
    return keep, is_inexact


def _one_round(keep: Tensor, is_valid: Tensor, beats: Tensor) -> Tensor:
    beaten_by = torch.bmm(keep[:, None].to(beats.dtype), beats)[:, 0]  # [B, n] kept suppressors
    return is_valid & (beaten_by == 0)


def _suppressors(boxes: Tensor, groups: Tensor | None, overlap: float) -> Tensor:
    """Return 1 where box i precedes box j, is in its group and overlaps it, else 0; [B, n, n]."""
    kernels = kernels_for(boxes)
    if kernels is not None:
        beats: Tensor = kernels.suppressors(boxes, groups, overlap, torch.bfloat16)
        return beats
    number = boxes.shape[1]
    # Half precision is enough, because sums of ones are never rounded to zero.
    dtype = torch.float32 if boxes.device.type == "cpu" else torch.bfloat16
    images_per_chunk = max(1, PAIRS_PER_CHUNK // max(1, number * number))
    parts = []
    for start in range(0, boxes.shape[0], images_per_chunk):
        some = boxes[start : start + images_per_chunk]
        is_over = pairwise_iou(some, some) > overlap
        if groups is not None:
            group = groups[start : start + images_per_chunk]
            is_over = is_over & (group[:, :, None] == group[:, None])
        parts.append(is_over.triu(1).to(dtype))
    return torch.cat(parts)
