"""Pseudo-labels (Eq. 12 and 13), box averaging (Eq. 14), and the parts that annotations train."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from boxmend.methods.equations.ranking import best
from boxmend.runs.judgement import Judgement

Discarded = Literal["background", "ignore", "rpn_only"]


class Roles(NamedTuple):
    """The parts of the detector that each annotation trains; masks [B, A]."""

    rpn: Tensor  # objects for the RPN
    head: Tensor  # objects for the classification and regression heads
    ignored: Tensor  # regions that are neither object nor background for the heads


def pseudo_labels(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Return the most probable foreground class, y* = argmax_c s(c | b*) (Eq. 12).

    Takes probabilities s [..., 1 + C], background first. Returns the labels [...] and s(y* | b*)
    [...], which are not renormalised over the foreground.
    """
    confidence, labels = probabilities[..., 1:].max(dim=-1)
    return labels, confidence


def is_confident(confidence: Tensor, threshold: float = 0.5) -> Tensor:
    """Mark the pseudo-labels to accept: s(y* | b*) > T_refine, strictly (Eq. 13)."""
    return confidence > threshold


def boxes_of_class(regressed: Tensor, labels: Tensor) -> Tensor:
    """Select the regressed box of one class from the output of H_r (Eq. 10).

    Takes class-specific boxes [..., C, 4] and labels [...] within 0 .. C - 1; leading axes
    broadcast. Returns [..., 4].
    """
    labels = labels + torch.zeros_like(regressed[..., 0, 0], dtype=labels.dtype)  # broadcast
    regressed = regressed.expand(*labels.shape, *regressed.shape[-2:])
    index = labels[..., None, None].expand(*labels.shape, 1, 4)
    return regressed.gather(-2, index)[..., 0, :]


def averaged_boxes(
    matched: Tensor,
    regressed: Tensor,
    scores: Tensor,
    is_candidate: Tensor,
    own: Tensor | None = None,
) -> Tensor:
    """Average b* with the two best candidates: b_m* = (b* + b1* + b2*) / 3 (Eq. 14).

    Takes matched boxes b* [B, A, 4], the candidates' regressions for the final label [B, A, K, 4],
    the scores of the final label at the un-regressed candidates [B, A, K] and is_candidate
    [B, A, K]. With one candidate the mean is over two boxes; without candidates the result is b*
    or, given its own regression `own` [B, A, 4], the mean of b* and that. Returns [B, A, 4].
    """
    places, is_best = best(scores, is_candidate, count=2)  # [B, A, 2]
    chosen = regressed.gather(-2, places[..., None].expand(*places.shape, 4))  # b1*, b2*
    chosen = torch.where(is_best[..., None], chosen, 0)
    total = matched + chosen.sum(-2)
    mean = total / (1 + is_best.sum(-1, keepdim=True))
    if own is None:
        return mean
    return torch.where(is_best[..., :1], mean, (matched + own) / 2)


def training_roles(judgements: Tensor, is_box: Tensor, discarded: Discarded) -> Roles:
    """Choose the parts of the detector that DISCARDED annotations train.

    Takes judgements and is_box [B, A]. "background" drops them everywhere, which turns their
    regions into background (the literal reading of the paper). "ignore" keeps them as objects for
    the RPN, and the heads ignore their regions. "rpn_only" keeps them for the RPN, and their
    regions are background for the heads.
    """
    is_discarded = is_box & (judgements == Judgement.DISCARDED)
    head = is_box & ~is_discarded
    rpn = head if discarded == "background" else is_box
    ignored = is_discarded if discarded == "ignore" else torch.zeros_like(is_box)
    return Roles(rpn, head, ignored)
