"""Repaired boxes from a vote of regressed proposals, for annotations of uncertain class."""

from typing import NamedTuple

import torch
from torch import Tensor

from boxmend.detector import SecondStageOutput
from boxmend.detector.boxes import clipped_boxes, sides_of_edges
from boxmend.methods import equations
from boxmend.methods.protocol import BatchAnnotations

SIDES_PER_SHIFT = 6  # edges are shifted by a sixth of their side to measure the pull


class Matches(NamedTuple):
    """The matched boxes of annotations and the proposals of their images."""

    matched: Tensor  # b*, [B, A, 4]
    proposals: Tensor  # P_h, [B, P, 4], inert where there is none
    is_proposal: Tensor  # [B, P]
    places: Tensor  # [B, A, K] indices of the candidates in P_h
    is_candidate: Tensor  # [B, A, K]


class Voters(NamedTuple):
    """Boxes regressed for one class of each annotation; the last is the regression of b*."""

    boxes: Tensor  # [B, A, P + 1, 4]
    weights: Tensor  # [B, A, P + 1]
    scores: Tensor  # [B, A, P + 1] expected under the posterior
    is_voter: Tensor  # [B, A, P + 1]


def split_scores(
    scores: SecondStageOutput, count: int
) -> tuple[SecondStageOutput, SecondStageOutput]:
    """Split the scores of [B, A + P] boxes after the first `count`."""
    return (
        SecondStageOutput(*(part[:, :count] for part in scores)),
        SecondStageOutput(*(part[:, count:] for part in scores)),
    )


def gather_voters(
    annotations: BatchAnnotations,
    matches: Matches,
    scores: tuple[SecondStageOutput, SecondStageOutput],
    posteriors: Tensor,
    min_iou: float,
) -> Voters:
    """Regress the proposals and b* for the class of highest q, and compute their weights.

    Takes the scores of b* (K = A) and of the proposals (K = P) and q [B, A, C]. The weight of a
    voter is its score sum_c q(c) s(c) times the root of its IoU with b, or 0 if that IoU is not
    above `min_iou`.
    """
    own, others = scores
    labels = posteriors.argmax(-1)  # [B, A]
    by_class = others.boxes.float().transpose(1, 2)  # [B, C, P, 4]
    regressed = by_class.take_along_dim(labels[..., None, None], dim=1)  # [B, A, P, 4]
    own_boxes = equations.boxes_of_class(own.boxes.float(), labels)[:, :, None]  # [B, A, 1, 4]
    boxes = torch.cat([regressed, own_boxes], dim=2)
    proposal_scores = equations.expected_scores(posteriors, others.probabilities)  # [B, A, P]
    own_scores = (posteriors * own.probabilities[..., 1:].float()).sum(-1, keepdim=True)
    voter_scores = torch.cat([proposal_scores, own_scores], dim=2)
    is_voter = torch.cat(
        [
            annotations.is_box[..., None] & matches.is_proposal[:, None],
            annotations.is_box[..., None],
        ],
        dim=2,
    )
    weights = equations.vote_weights(annotations.boxes, boxes, voter_scores, min_iou)
    return Voters(boxes, torch.where(is_voter, weights, 0), voter_scores, is_voter)


def vote_boxes(
    annotations: BatchAnnotations, votes: Voters, keep: Tensor, cluster_min_iou: float
) -> Tensor:
    """Blend b with the vote and clip it to the image; b where there is no vote or `keep` is 1.

    `keep` is a scalar, the weight of b. Returns [B, A, 4].
    """
    blend = equations.voted_boxes(
        annotations.boxes, votes.boxes, votes.weights, votes.is_voter, keep, cluster_min_iou
    )
    return _where_repaired(annotations, (votes.weights > 0).any(-1), keep, blend)


class EdgeNoise(NamedTuple):
    """The model of edge errors; scalars."""

    noise: Tensor  # N, see `methods.equations.expected_boxes`
    error: Tensor  # standard deviation of a vote's error
    hold_share: Tensor  # see `methods.equations.hold_at_border`
    is_gaussian: bool | Tensor = False


def estimate_boxes(
    annotations: BatchAnnotations,
    votes: Voters,
    edges: EdgeNoise,
    keep: Tensor,
    cluster_min_iou: float,
) -> Tensor:
    """Move each edge to its posterior mean given b and the vote. Returns [B, A, 4]."""
    vote = equations.voted_boxes(
        annotations.boxes, votes.boxes, votes.weights, votes.is_voter, 0.0, cluster_min_iou
    )
    boxes = equations.expected_boxes(
        annotations.boxes, vote, edges.noise, edges.error, edges.is_gaussian
    )
    boxes = equations.hold_at_border(boxes, annotations.boxes, annotations.sizes, edges.hold_share)
    return _where_repaired(annotations, (votes.weights > 0).any(-1), keep, boxes)


def average_boxes(
    annotations: BatchAnnotations, matches: Matches, votes: Voters, keep: Tensor
) -> Tensor:
    """Compute the published mean of b* and two regressions (Eq. 14); b where `keep` is 1.

    The candidates are ranked by their expected score under q. Returns [B, A, 4].
    """
    places = matches.places
    regressed = votes.boxes.gather(2, places[..., None].expand(*places.shape, 4))  # [B, A, K, 4]
    scores = votes.scores.gather(2, places)  # [B, A, K]
    mean = equations.averaged_boxes(matches.matched, regressed, scores, matches.is_candidate)
    return _where_repaired(annotations, matches.is_candidate[..., 0], keep, mean)


class Agreement(NamedTuple):
    """The agreement of annotated boxes with the vote of the proposals; sums over a batch."""

    residuals: Tensor  # [NUM_BINS], see `methods.equations.count_residuals`
    pull: Tensor  # [2], see `methods.equations.pull_sums`


def measure_agreement(
    annotations: BatchAnnotations,
    votes: Voters,
    min_iou: float,
    cluster_min_iou: float,
    min_score: float,
) -> Agreement:
    """Count the residuals and the pull from which the box noise is estimated.

    The regression of b* starts from the annotated box and would agree with its errors, so it does
    not vote here. A vote counts if a proposal with weight reaches the score `min_score`. Shifting
    the annotated boxes by a sixth of their sides, in a direction given by their rows, shows how far
    the vote follows them.
    """
    is_voter = votes.is_voter.clone()
    is_voter[..., -1] = False
    predicted, has_vote = _vote(
        annotations.boxes, votes, is_voter, min_iou, cluster_min_iou, min_score
    )
    residuals, is_free = equations.edge_residuals(annotations.boxes, predicted, annotations.sizes)
    counts = equations.count_residuals(residuals, is_free & has_vote)
    shifts = _shifts(annotations)
    moved, still_has_vote = _vote(
        annotations.boxes + shifts, votes, is_voter, min_iou, cluster_min_iou, min_score
    )
    pull = equations.pull_sums(shifts, moved - predicted, has_vote & still_has_vote)
    return Agreement(counts, pull)


def _vote(
    boxes: Tensor,
    votes: Voters,
    is_voter: Tensor,
    min_iou: float,
    cluster_min_iou: float,
    min_score: float,
) -> tuple[Tensor, Tensor]:
    """Return the voted boxes [B, A, 4], and whether a voter reaches `min_score`, [B, A, 1]."""
    weights = equations.vote_weights(boxes, votes.boxes, votes.scores, min_iou)
    weights = torch.where(is_voter, weights, 0)
    predicted = equations.voted_boxes(boxes, votes.boxes, weights, is_voter, 0.0, cluster_min_iou)
    return predicted, ((weights > 0) & (votes.scores >= min_score)).any(-1, keepdim=True)


def _shifts(annotations: BatchAnnotations) -> Tensor:
    """Return a sixth of the side for each edge, with a sign from the bits of the row; [B, A, 4]."""
    bits = torch.stack([annotations.rows >> bit & 1 for bit in range(4)], dim=-1)  # [B, A, 4]
    return (2 * bits - 1) * sides_of_edges(annotations.boxes) / SIDES_PER_SHIFT


def _where_repaired(
    annotations: BatchAnnotations, is_repaired: Tensor, keep: Tensor, boxes: Tensor
) -> Tensor:
    clipped = clipped_boxes(boxes, annotations.is_box, annotations.sizes)
    return torch.where((is_repaired & (keep < 1))[..., None], clipped, annotations.boxes)
