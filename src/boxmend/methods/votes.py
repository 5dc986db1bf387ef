"""Boxes from a vote: what regressed proposals say about annotated boxes of uncertain class."""

from typing import NamedTuple

import torch
from torch import Tensor

from boxmend.detector import SecondStageOutput
from boxmend.detector.boxes import clipped_boxes, sides_of_edges
from boxmend.methods import equations
from boxmend.methods.protocol import BatchAnnotations


class Matches(NamedTuple):
    """Annotated boxes and the proposals they are compared with."""

    matched: Tensor  # b*, [B, A, 4]
    proposals: Tensor  # P_h, [B, P, 4], inert where there is none
    is_proposal: Tensor  # [B, P]
    places: Tensor  # [B, A, K] of the candidates among the P
    is_candidate: Tensor  # [B, A, K]


class Voters(NamedTuple):
    """Regressions for one class of each annotation; the last voter is b*'s own."""

    boxes: Tensor  # [B, A, P + 1, 4]
    weights: Tensor  # [B, A, P + 1]
    scores: Tensor  # [B, A, P + 1] under the posterior
    is_voter: Tensor  # [B, A, P + 1]


def split_scores(
    scores: SecondStageOutput, count: int
) -> tuple[SecondStageOutput, SecondStageOutput]:
    """Part the scores of [B, A + P] boxes after the first `count`."""
    return (
        SecondStageOutput(*(part[:, :count] for part in scores)),
        SecondStageOutput(*(part[:, count:] for part in scores)),
    )


def gather_voters(
    annotations: BatchAnnotations,
    matches: Matches,
    scores: tuple[SecondStageOutput, SecondStageOutput],
    posteriors: Tensor,
    near: float,
) -> Voters:
    """Gather the regressed proposals and b*'s own regression for the class of highest q.

    Takes the scores of b* (K = A) and of the proposals (K = P) and q [B, A, C]. A voter weighs
    its score sum_c q(c) s(c) times the root of its IoU with b, where that is above `near`.
    """
    own, others = scores
    labels = posteriors.argmax(-1)  # [B, A]
    by_class = others.boxes.float().transpose(1, 2)  # [B, C, P, 4]
    regressed = by_class.take_along_dim(labels[..., None, None], dim=1)  # [B, A, P, 4]
    itself = equations.boxes_of_class(own.boxes.float(), labels)[:, :, None]  # [B, A, 1, 4]
    boxes = torch.cat([regressed, itself], dim=2)
    under = equations.expected_scores(posteriors, others.probabilities)  # [B, A, P]
    under_own = (posteriors * own.probabilities[..., 1:].float()).sum(-1, keepdim=True)
    heard = torch.cat([under, under_own], dim=2)
    is_voter = torch.cat(
        [
            annotations.is_box[..., None] & matches.is_proposal[:, None],
            annotations.is_box[..., None],
        ],
        dim=2,
    )
    weights = equations.vote_weights(annotations.boxes, boxes, heard, near)
    return Voters(boxes, torch.where(is_voter, weights, 0), heard, is_voter)


def vote_boxes(annotations: BatchAnnotations, votes: Voters, keep: Tensor, alike: float) -> Tensor:
    """Blend b with the vote, clipped to the image; b itself where nobody votes or keep is 1.

    keep is a scalar. Returns [B, A, 4].
    """
    blend = equations.voted_boxes(
        annotations.boxes, votes.boxes, votes.weights, votes.is_voter, keep, alike
    )
    return _where_mended(annotations, (votes.weights > 0).any(-1), keep, blend)


class EdgeNoise(NamedTuple):
    """What edges are expected by; scalars."""

    noise: Tensor  # N, see `methods.equations.expected_boxes`
    error: Tensor  # of a vote
    held: Tensor  # see `methods.equations.held_at_border`


def estimate_boxes(
    annotations: BatchAnnotations, votes: Voters, edges: EdgeNoise, keep: Tensor, alike: float
) -> Tensor:
    """Put each edge where b and the vote let it be expected, as `voted` does otherwise.

    Returns [B, A, 4].
    """
    vote = equations.voted_boxes(
        annotations.boxes, votes.boxes, votes.weights, votes.is_voter, 0.0, alike
    )
    boxes = equations.expected_boxes(annotations.boxes, vote, edges.noise, edges.error)
    boxes = equations.hold_at_border(boxes, annotations.boxes, annotations.sizes, edges.held)
    return _where_mended(annotations, (votes.weights > 0).any(-1), keep, boxes)


def average_boxes(
    annotations: BatchAnnotations, matches: Matches, votes: Voters, keep: Tensor
) -> Tensor:
    """Take the published mean of b* and two regressions (Eq. 14) instead; b where keep is 1.

    Candidates are ranked by their score under q. Returns [B, A, 4].
    """
    places = matches.places
    regressed = votes.boxes.gather(2, places[..., None].expand(*places.shape, 4))  # [B, A, K, 4]
    scores = votes.scores.gather(2, places)  # [B, A, K]
    mean = equations.averaged_boxes(matches.matched, regressed, scores, matches.is_candidate)
    return _where_mended(annotations, matches.is_candidate[..., 0], keep, mean)


class Agreement(NamedTuple):
    """How annotated boxes and the vote of the proposals alone agree; sums over a batch."""

    residuals: Tensor  # [NUM_BINS]
    pull: Tensor  # [2], see `methods.equations.pull_sums`


def measure_agreement(
    annotations: BatchAnnotations, votes: Voters, near: float, alike: float, least: float
) -> Agreement:
    """Measure what the box noise is estimated from.

    The own regression of an annotated box starts from that box, so it would agree with its errors
    and has no vote here. A vote counts where some weighing proposal reaches the score `least`.
    Moving the annotated boxes by a sixth of their sides, a way that their rows decide, shows how
    far the vote follows them.
    """
    is_voter = votes.is_voter.clone()
    is_voter[..., -1] = False
    predicted, is_heard = _vote(annotations.boxes, votes, is_voter, near, alike, least)
    residuals, is_free = equations.edge_residuals(annotations.boxes, predicted, annotations.sizes)
    counts = equations.count_residuals(residuals, is_free & is_heard)
    shifts = _shifts(annotations)
    moved, is_heard_still = _vote(annotations.boxes + shifts, votes, is_voter, near, alike, least)
    pull = equations.pull_sums(shifts, moved - predicted, is_heard & is_heard_still)
    return Agreement(counts, pull)


def _vote(
    boxes: Tensor, votes: Voters, is_voter: Tensor, near: float, alike: float, least: float
) -> tuple[Tensor, Tensor]:
    """What the voters say about boxes [B, A, 4], and whether one is sure enough, [B, A, 1]."""
    weights = equations.vote_weights(boxes, votes.boxes, votes.scores, near)
    weights = torch.where(is_voter, weights, 0)
    predicted = equations.voted_boxes(boxes, votes.boxes, weights, is_voter, 0.0, alike)
    return predicted, ((weights > 0) & (votes.scores >= least)).any(-1, keepdim=True)


def _shifts(annotations: BatchAnnotations) -> Tensor:
    """A sixth of the side for each edge, its direction a bit of the annotation's row; [B, A, 4]."""
    bits = torch.stack([annotations.rows >> bit & 1 for bit in range(4)], dim=-1)  # [B, A, 4]
    return (2 * bits - 1) * sides_of_edges(annotations.boxes) / 6


def _where_mended(
    annotations: BatchAnnotations, is_mended: Tensor, keep: Tensor, boxes: Tensor
) -> Tensor:
    clipped = clipped_boxes(boxes, annotations.is_box, annotations.sizes)
    return torch.where((is_mended & (keep < 1))[..., None], clipped, annotations.boxes)
