"""Voting: a box from many regressed proposals, blended with the annotated box b.

Beyond the paper, instead of Eq. 14. Shapes: B images, A annotations, V voters, C classes.
"""

import torch
from torch import Tensor

from boxmend.detector.boxes import elementwise_iou


def expected_scores(posteriors: Tensor, probabilities: Tensor) -> Tensor:
    """Compute the expected score of regions, sum_c q(c) s(c), where the class is uncertain.

    Takes q [B, A, C] and the probabilities of regions [B, P, 1 + C], background first. Returns
    [B, A, P].
    """
    return posteriors @ probabilities[..., 1:].to(posteriors.dtype).transpose(-1, -2)


def vote_weights(boxes: Tensor, voters: Tensor, scores: Tensor, min_iou: float = 0.3) -> Tensor:
    """Compute the weights w(v) = score * IoU(v, b)^0.5 of voters v.

    A voter whose IoU with b is not above `min_iou` has weight 0. Takes boxes b [B, A, 4], voters
    [B, A, V, 4] and scores [B, A, V]. Returns [B, A, V].
    """
    overlap = elementwise_iou(voters, boxes[:, :, None])
    return torch.where(overlap > min_iou, scores * overlap.sqrt(), 0)


def voted_boxes(
    boxes: Tensor,
    voters: Tensor,
    weights: Tensor,
    is_voter: Tensor,
    keep: float | Tensor,
    cluster_min_iou: float = 0.6,
) -> Tensor:
    """Blend each box b with the vote: keep * b + (1 - keep) * weighted mean of the cluster.

    The cluster contains the voter of highest weight and the voters whose IoU with it is above
    `cluster_min_iou`. Where no voter has weight, b is unchanged.

    Takes boxes b [B, A, 4], voters [B, A, V, 4], weights [B, A, V] (see `vote_weights`), is_voter
    [B, A, V] and keep, a number or a tensor that broadcasts to [B, A]. Returns [B, A, 4].
    """
    weights = torch.where(is_voter, weights, 0)
    voters = torch.where(is_voter[..., None], voters, 0)  # 0 * NaN would be NaN
    leader = weights.argmax(-1, keepdim=True)[..., None].expand(*boxes.shape[:2], 1, 4)
    is_member = elementwise_iou(voters, voters.gather(2, leader)) > cluster_min_iou
    weights = torch.where(is_member, weights, 0)[..., None]  # [B, A, V, 1]
    total = weights.sum(2)  # [B, A, 1]
    mean = (weights * voters).sum(2) / torch.where(total > 0, total, 1)
    share = torch.zeros_like(boxes[..., 0]) + keep  # [B, A]
    blend = torch.lerp(mean, boxes, share[..., None])
    return torch.where(total > 0, blend, boxes)
