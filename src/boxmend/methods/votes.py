"""Boxes from a vote: what regressed proposals say about annotated boxes of uncertain class."""

from typing import NamedTuple

import torch
from torch import Tensor

from boxmend import refinement
from boxmend.detector import Scores
from boxmend.methods.protocol import Given


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


def split(scores: Scores, count: int) -> tuple[Scores, Scores]:
    """Part the scores of [B, A + P] boxes after the first `count`."""
    return (
        Scores(*(part[:, :count] for part in scores)),
        Scores(*(part[:, count:] for part in scores)),
    )


def voters(
    given: Given, matches: Matches, scores: tuple[Scores, Scores], posteriors: Tensor, near: float
) -> Voters:
    """Gather the regressed proposals and b*'s own regression for the class of highest q.

    Takes the scores of b* (K = A) and of the proposals (K = P) and q [B, A, C]. A voter weighs
    its score sum_c q(c) s(c) times the root of its IoU with b, where that is above `near`.
    """
    own, others = scores
    labels = posteriors.argmax(-1)  # [B, A]
    by_class = others.boxes.float().transpose(1, 2)  # [B, C, P, 4]
    regressed = by_class.take_along_dim(labels[..., None, None], dim=1)  # [B, A, P, 4]
    itself = refinement.regressed_for(own.boxes.float(), labels)[:, :, None]  # [B, A, 1, 4]
    boxes = torch.cat([regressed, itself], dim=2)
    under = refinement.scores_under(posteriors, others.probabilities)  # [B, A, P]
    under_own = (posteriors * own.probabilities[..., 1:].float()).sum(-1, keepdim=True)
    heard = torch.cat([under, under_own], dim=2)
    is_voter = torch.cat(
        [
            given.is_box[..., None] & matches.is_proposal[:, None],
            given.is_box[..., None],
        ],
        dim=2,
    )
    weights = refinement.vote_weights(given.boxes, boxes, heard, near)
    return Voters(boxes, torch.where(is_voter, weights, 0), heard, is_voter)


def voted(given: Given, votes: Voters, keep: Tensor, alike: float) -> Tensor:
    """Blend b with the vote, clipped to the image; b itself where nobody votes or keep is 1.

    keep is a scalar. Returns [B, A, 4].
    """
    blend = refinement.voted_boxes(
        given.boxes, votes.boxes, votes.weights, votes.is_voter, keep, alike
    )
    return _where_mended(given, (votes.weights > 0).any(-1), keep, blend)


def averaged(given: Given, matches: Matches, votes: Voters, keep: Tensor) -> Tensor:
    """Take the published mean of b* and two regressions (Eq. 14) instead; b where keep is 1.

    Candidates are ranked by their score under q. Returns [B, A, 4].
    """
    places = matches.places
    regressed = votes.boxes.gather(2, places[..., None].expand(*places.shape, 4))  # [B, A, K, 4]
    scores = votes.scores.gather(2, places)  # [B, A, K]
    mean = refinement.averaged_boxes(matches.matched, regressed, scores, matches.is_candidate)
    return _where_mended(given, matches.is_candidate[..., 0], keep, mean)


def residual_counts(given: Given, votes: Voters, least_score: float, alike: float) -> Tensor:
    """Count how far annotated edges lie from the vote of the proposals alone. Returns [BINS].

    The own regression of an annotated box starts from that box, so it would agree with its errors.
    A vote counts where some weighing proposal reaches `least_score`.
    """
    is_voter = votes.is_voter.clone()
    is_voter[..., -1] = False
    predicted = refinement.voted_boxes(
        given.boxes, votes.boxes, votes.weights, is_voter, 0.0, alike
    )
    is_heard = is_voter & (votes.weights > 0) & (votes.scores >= least_score)
    residuals, is_free = refinement.edge_residuals(given.boxes, predicted, given.sizes)
    return refinement.count_residuals(residuals, is_free & is_heard.any(-1, keepdim=True))


def _where_mended(given: Given, is_mended: Tensor, keep: Tensor, boxes: Tensor) -> Tensor:
    clipped = refinement.clipped_boxes(boxes, given.is_box, given.sizes)
    return torch.where((is_mended & (keep < 1))[..., None], clipped, given.boxes)
