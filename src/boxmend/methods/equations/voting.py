"""Voting: a new box from many regressed proposals, in which the raw box keeps its share.

Beyond the paper, in the place of Eq. 14. Letters: B images, A annotations, V voters, C classes.
"""

import torch
from torch import Tensor

from boxmend.detector.boxes import elementwise_iou


def expected_scores(posteriors: Tensor, probabilities: Tensor) -> Tensor:
    """Score regions for annotations whose class is not certain: sum_c q(c) s(c).

    Takes q [B, A, C] and the probabilities of regions [B, P, 1 + C], background first. Returns
    [B, A, P].
    """
    return posteriors @ probabilities[..., 1:].to(posteriors.dtype).transpose(-1, -2)


def vote_weights(boxes: Tensor, voters: Tensor, scores: Tensor, near: float = 0.3) -> Tensor:
    """Weigh voters by score and by closeness to the raw box b: score * IoU(v, b)^0.5.

    Voters whose IoU with b is not above `near` have no weight. Takes boxes [B, A, 4], voters
    [B, A, V, 4] and scores [B, A, V]. Returns [B, A, V].
    """
    closeness = elementwise_iou(voters, boxes[:, :, None])
    return torch.where(closeness > near, scores * closeness.sqrt(), 0)


def voted_boxes(
    boxes: Tensor,
    voters: Tensor,
    weights: Tensor,
    is_voter: Tensor,
    keep: float | Tensor,
    alike: float = 0.6,
) -> Tensor:
    """Blend each raw box with the vote: keep * b + (1 - keep) * weighted mean of the cluster.

    The cluster is the voter of highest weight and all whose IoU with it is above `alike`. Where
    no voter has weight, the raw box stays as it is.

    Takes boxes [B, A, 4], voters [B, A, V, 4], weights [B, A, V] (see `vote_weights`), is_voter
    [B, A, V] and keep, a number or a tensor that broadcasts to [B, A]. Returns [B, A, 4].
    """
    weights = torch.where(is_voter, weights, 0)
    voters = torch.where(is_voter[..., None], voters, 0)  # 0 times a NaN would be NaN
    leader = weights.argmax(-1, keepdim=True)[..., None].expand(*boxes.shape[:2], 1, 4)
    is_alike = elementwise_iou(voters, voters.gather(2, leader)) > alike
    weights = torch.where(is_alike, weights, 0)[..., None]  # [B, A, V, 1]
    total = weights.sum(2)  # [B, A, 1]
    mean = (weights * voters).sum(2) / torch.where(total > 0, total, 1)
    share = torch.zeros_like(boxes[..., 0]) + keep  # [B, A]
    blend = torch.lerp(mean, boxes, share[..., None])
    return torch.where(total > 0, blend, boxes)
