"""Correction of labels and boxes by the detector's own output (Eq. 12 to 14)."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from boxmend.methods.equations.ranking import best
from boxmend.runs.judgement import Judgement

Discarded = Literal["background", "ignore", "rpn_only"]


class Roles(NamedTuple):
    """Which annotations train what; masks [B, A]."""

    rpn: Tensor  # objects for the RPN
    head: Tensor  # objects for the classification and regression heads
    ignored: Tensor  # regions the heads neither learn as object nor as background


def pseudo_labels(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Name the most probable foreground class: y* = argmax_c s(c | b*) (Eq. 12).

    Takes probabilities [..., 1 + C], background first. Returns the labels [...] and their
    probabilities s(y* | b*) [...], in which background still has its share.
    """
    confidence, labels = probabilities[..., 1:].max(dim=-1)
    return labels, confidence


def is_confident(confidence: Tensor, threshold: float = 0.5) -> Tensor:
    """Accept a pseudo-label where s(y* | b*) > T_refine, strictly (Eq. 13)."""
    return confidence > threshold


def boxes_of_class(regressed: Tensor, labels: Tensor) -> Tensor:
    """Pick the regression of one class.

    Takes class-specific boxes [..., C, 4] and labels [...] within 0 .. C - 1; leading axes
    broadcast. Returns [..., 4].
    """
    labels = labels + torch.zeros_like(regressed[..., 0, 0], dtype=labels.dtype)  # broadcast
    regressed = regressed.expand(*labels.shape, *regressed.shape[-2:])
    place = labels[..., None, None].expand(*labels.shape, 1, 4)
    return regressed.gather(-2, place)[..., 0, :]


def averaged_boxes(
    matched: Tensor,
    regressed: Tensor,
    scores: Tensor,
    is_candidate: Tensor,
    own: Tensor | None = None,
) -> Tensor:
    """Average b* with the regressions of the two best candidates: (b* + b1* + b2*) / 3 (Eq. 14).

    Takes matched boxes [B, A, 4], the candidates' regressions for the final label [B, A, K, 4],
    the scores of the final label at the un-regressed candidates [B, A, K] and is_candidate
    [B, A, K]. With one candidate the mean is of two, with none b* stays alone; given `own`, the
    regressions of b* itself [B, A, 4], it is then the mean of b* and that. Returns [B, A, 4].
    """
    places, is_best = best(scores, is_candidate, count=2)  # [B, A, 2]
    chosen = regressed.gather(-2, places[..., None].expand(*places.shape, 4))  # b1*, b2*
    chosen = torch.where(is_best[..., None], chosen, 0)
    total = matched + chosen.sum(-2)
    mean = total / (1 + is_best.sum(-1, keepdim=True))
    if own is None:
        return mean
    return torch.where(is_best[..., :1], mean, (matched + own) / 2)


def training_roles(verdicts: Tensor, is_box: Tensor, discarded: Discarded) -> Roles:
    """Say what discarded annotations still take part in.

    "background" drops them everywhere, which makes their regions background (the literal
    reading); "ignore" keeps them as objects of the RPN and out of the heads' sampling; "rpn_only"
    keeps them for the RPN and lets the heads see background. Takes verdicts and is_box [B, A].
    """
    is_discarded = is_box & (verdicts == Judgement.DISCARDED)
    head = is_box & ~is_discarded
    rpn = head if discarded == "background" else is_box
    ignored = is_discarded if discarded == "ignore" else torch.zeros_like(is_box)
    return Roles(rpn, head, ignored)
