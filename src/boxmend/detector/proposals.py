"""Proposals: the best distinct boxes in the output of the region proposal network."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from boxmend.detector.boxes import clip, is_large
from boxmend.detector.coding import decode
from boxmend.detector.nms import suppress

MIN_PROPOSAL_SIDE_PIXELS = 1e-3  # smaller boxes are dropped before suppression


class RpnOutput(NamedTuple):
    """The output of the region proposal network for every anchor, level after level."""

    objectness: Tensor  # [B, N] logits
    deltas: Tensor  # [B, N, 4] relative to the anchors
    anchors: Tensor  # [N, 4]
    level_sizes: tuple[int, ...]  # anchors of each level, summing to N


class Proposals(NamedTuple):
    """The best distinct boxes of each image in descending order of objectness, padded."""

    boxes: Tensor  # [B, P, 4], inside the image; zero in padding
    objectness: Tensor  # [B, P] probabilities; zero in padding
    is_proposal: Tensor  # [B, P]
    is_inexact: Tensor  # [B] too few rounds for the exact result of suppression


@torch.no_grad()
def propose(
    raw: RpnOutput,
    sizes: Tensor,
    *,
    pre_nms: int,
    post_nms: int,
    overlap: float = 0.7,
    rounds: int = 20,
) -> Proposals:
    """Decode, clip and suppress the best `pre_nms` anchors of each level, and take the best P.

    `sizes` [B, 2] holds (height, width) of each image. Suppression works within each level. P is
    `post_nms`, or less if the levels have fewer anchors together. There is no gradient.
    """
    logits, boxes = _best_of_each_level(raw, pre_nms)  # [B, L, n], [B, L, n, 4]
    boxes = clip(boxes, sizes)
    is_box = is_large(boxes, MIN_PROPOSAL_SIDE_PIXELS)  # [B, L, n]; padding has no extent
    keep, is_inexact = suppress(
        boxes.flatten(0, 1), is_box.flatten(0, 1), overlap=overlap, rounds=rounds
    )
    scores = torch.where(keep.view_as(logits), logits.sigmoid(), -1).flatten(1)  # [B, L * n]
    # Stable: equal scores keep the order of levels and ranks.
    places = min(post_nms, sum(min(pre_nms, size) for size in raw.level_sizes))
    best, order = scores.sort(dim=1, descending=True, stable=True)
    best, order = best[:, :places], order[:, :places]  # [B, P]
    is_proposal = best >= 0
    chosen = boxes.flatten(1, 2).take_along_dim(order[..., None], dim=1)  # [B, P, 4]
    return Proposals(
        boxes=torch.where(is_proposal[..., None], chosen, 0),
        objectness=best.clamp(min=0),
        is_proposal=is_proposal,
        is_inexact=is_inexact.view(logits.shape[:2]).any(-1),
    )


def _best_of_each_level(raw: RpnOutput, pre_nms: int) -> tuple[Tensor, Tensor]:
    """Return logits and decoded boxes of the levels' best anchors, [B, L, n], zero-padded."""
    places = [min(pre_nms, size) for size in raw.level_sizes]
    logits, boxes = [], []
    start = 0
    for size, number in zip(raw.level_sizes, places, strict=True):
        best, index = raw.objectness[:, start : start + size].topk(number, dim=1)
        index = index + start  # [B, number]
        deltas = raw.deltas.take_along_dim(index[..., None], dim=1)
        padding = max(places) - number
        logits.append(F.pad(best, (0, padding)))
        boxes.append(F.pad(decode(deltas, raw.anchors[index]), (0, 0, 0, padding)))
        start += size
    return torch.stack(logits, dim=1), torch.stack(boxes, dim=1)
