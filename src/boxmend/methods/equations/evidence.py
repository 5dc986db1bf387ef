"""Evidence p for the true class of an annotation, and its posterior q under label noise T.

Beyond the paper: p covers the foreground classes only (with background included, a high loss means
a badly placed box rather than a wrong label), p is averaged over visits, and q weighs all classes
instead of a hard decision. p is [..., C]; T[c, y] is the probability that class c is annotated as
y.
"""

import torch
from torch import Tensor

from boxmend.runs.judgement import Judgement

TINY = torch.finfo(torch.float32).tiny  # the smallest normal number stands in for zero


def foreground_probabilities(probabilities: Tensor) -> Tensor:
    """Renormalise over the foreground: p(c) = s(c) / (1 - s(background)).

    Takes probabilities s [..., 1 + C], background first. Returns [..., C], uniform where the
    foreground has no probability or the row is padding with NaN.
    """
    foreground = probabilities[..., 1:].float()
    total = foreground.sum(-1, keepdim=True)
    return torch.where(total > TINY, foreground / total, 1 / foreground.shape[-1])


def update_memory(
    old: Tensor, visits: Tensor, new: Tensor, is_new: Tensor, min_weight: float = 0.5
) -> tuple[Tensor, Tensor]:
    """Average evidence over visits: p += w (p_new - p) with w = max(1 / (visits + 1), min_weight).

    Takes old and new [n, C], the number of earlier visits [n], and is_new [n], which is false for
    rows without a new visit. Returns the mean [n, C] and the new number of visits [n]. A positive
    `min_weight` lets early visits fade, because the detector was worse then. Before the first
    visit `old` may hold anything.
    """
    weight = (1 / (visits + 1)).clamp(min=min_weight)[:, None]
    mean = torch.where(visits[:, None] > 0, old + weight * (new - old), new)
    return torch.where(is_new[:, None], mean, old), visits + is_new.to(visits.dtype)


def combine_evidence(probabilities: Tensor, others: Tensor, weight: float) -> Tensor:
    """Combine two sources of evidence: p(c) o(c)^weight, scaled to the sum of p.

    Takes p and o [..., C]. A weight below 1 allows for errors that both sources share. Where the
    two have no class in common, the result is p.
    """
    joint = probabilities * others.clamp(min=TINY) ** weight
    total, kept = probabilities.sum(-1, keepdim=True), joint.sum(-1, keepdim=True)
    return torch.where(kept > TINY, joint * (total / kept.clamp(min=TINY)), probabilities)


def posterior(
    probabilities: Tensor, labels: Tensor, transition: Tensor, tau: float | Tensor = 1.0
) -> Tensor:
    """Compute the posterior of the true class: q(c) ~ p(c)^tau T[c, y]. Returns q [..., C].

    Takes p [..., C], labels [...] (any value for padding), T [C, C] and tau, the exponent that
    corrects over-confident (below 1) or under-confident (above 1) evidence. The function works with
    logarithms, so p = 0 is allowed. For a label that T makes impossible, q is p^tau renormalised.
    """
    columns = labels.clamp(0, transition.shape[1] - 1)
    noise = transition.log().T[columns]  # log T[c, y], [..., C]
    evidence = tau * probabilities.clamp(min=TINY).log()
    is_possible = (noise > -torch.inf).any(-1, keepdim=True)
    return torch.where(is_possible, evidence + noise, evidence).softmax(-1)


def raise_to_floor(posteriors: Tensor, labels: Tensor, label_floors: Tensor) -> Tensor:
    """Raise q(y) to at least a floor and scale the other classes down in proportion.

    Takes q [..., C], labels [...] and label_floors [...] from 0 to 1. Returns [..., C].
    """
    column = labels[..., None]
    right = posteriors.gather(-1, column)  # [..., 1]
    raised = torch.maximum(right, label_floors[..., None].to(right.dtype))
    others = posteriors * (1 - raised) / (1 - right).clamp(min=TINY)
    return torch.where(raised > right, others.scatter(-1, column, raised), posteriors)


def posterior_judgements(posteriors: Tensor, labels: Tensor, is_box: Tensor) -> Tensor:
    """Judge labels by q: KEPT if q(y) >= 0.5, RELABELLED if another q(c) > 0.5, else DISCARDED.

    With soft labels a DISCARDED annotation is merely unsure and still trains. Takes q [..., C],
    labels [...] and is_box [...]. Returns [...], DISCARDED for padding.
    """
    column = torch.where(is_box, labels, 0)[..., None]
    is_kept = posteriors.gather(-1, column)[..., 0] >= 0.5
    is_other = posteriors.amax(-1) > 0.5
    unsure = torch.where(is_other, int(Judgement.RELABELLED), int(Judgement.DISCARDED))
    judgements = torch.where(is_kept, int(Judgement.KEPT), unsure)
    return torch.where(is_box, judgements, int(Judgement.DISCARDED))


def soft_targets(posteriors: Tensor) -> Tensor:
    """Prepend a background column of 0 to posteriors [..., C]. Returns [..., 1 + C]."""
    background = torch.zeros_like(posteriors[..., :1])
    return torch.cat([background, posteriors], dim=-1)
