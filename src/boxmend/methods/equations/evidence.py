"""Evidence for the true class of an annotation, and the posterior under a model of label noise.

Beyond the paper: the judgment looks at the foreground classes alone (with background inside, a
high loss says "badly placed box" rather than "wrong label"), remembers what earlier visits saw,
and weighs the classes instead of passing a hard verdict. p are foreground probabilities [..., C];
T is a transition matrix [C, C], where T[c, y] is the probability that class c is annotated as y.
"""

import torch
from torch import Tensor

from boxmend.runs.judgement import Judgement

TINY = torch.finfo(torch.float32).tiny  # the smallest normal number stands in for zero


def foreground_probabilities(probabilities: Tensor) -> Tensor:
    """Renormalise over the foreground: p(c) = s(c) / (1 - s(background)).

    Takes probabilities [..., 1 + C], background first. Returns [..., C]; where the foreground
    has nothing left, or the row is padding that holds NaN, all classes are alike.
    """
    foreground = probabilities[..., 1:].float()
    total = foreground.sum(-1, keepdim=True)
    return torch.where(total > TINY, foreground / total, 1 / foreground.shape[-1])


def update_memory(
    old: Tensor, visits: Tensor, new: Tensor, is_new: Tensor, least: float = 0.5
) -> tuple[Tensor, Tensor]:
    """Average evidence over visits; the new weighs max(1 / (visits + 1), least).

    Takes old and new [n, C], visits [n] before this one, and is_new [n], false for rows that
    were not seen now. Returns the mean [n, C] and the number of visits [n]. `least` above 0 lets
    old visits fade, as the detector that made them has. What `old` holds before the first visit
    does not matter.
    """
    weight = (1 / (visits + 1)).clamp(min=least)[:, None]
    mean = torch.where(visits[:, None] > 0, old + weight * (new - old), new)
    return torch.where(is_new[:, None], mean, old), visits + is_new.to(visits.dtype)


def combine_evidence(probabilities: Tensor, others: Tensor, weight: float) -> Tensor:
    """Add other evidence: p(c) o(c)^weight, with the sum that p had.

    Takes p and o [..., C], as of two witnesses; a weight below 1 allows for what both get wrong
    alike. Where they leave no class in common, p stays.
    """
    joint = probabilities * others.clamp(min=TINY) ** weight
    total, kept = probabilities.sum(-1, keepdim=True), joint.sum(-1, keepdim=True)
    return torch.where(kept > TINY, joint * (total / kept.clamp(min=TINY)), probabilities)


def posterior(
    probabilities: Tensor, labels: Tensor, transition: Tensor, tau: float | Tensor = 1.0
) -> Tensor:
    """Weigh the true classes of annotations: q(c) proportional to p(c)^tau * T[c, y].

    Takes p [..., C], labels [...] (for padding anything), T [C, C] and tau, the exponent that
    corrects over-confident (below 1) or timid (above 1) evidence. Returns q [..., C]. Computed by
    logarithms, so p = 0 is harmless; of a label that T calls impossible nothing follows, and q is
    p^tau renormalised.
    """
    columns = labels.clamp(0, transition.shape[1] - 1)
    noise = transition.log().T[columns]  # log T[c, y], [..., C]
    evidence = tau * probabilities.clamp(min=TINY).log()
    is_possible = (noise > -torch.inf).any(-1, keepdim=True)
    return torch.where(is_possible, evidence + noise, evidence).softmax(-1)


def raise_to_floor(posteriors: Tensor, labels: Tensor, label_floors: Tensor) -> Tensor:
    """Raise q(y) to a floor where it is lower, and shrink the other classes alike.

    Takes q [..., C], labels [...] and floors [...] from 0 to 1. Returns [..., C].
    """
    column = labels[..., None]
    right = posteriors.gather(-1, column)  # [..., 1]
    raised = torch.maximum(right, label_floors[..., None].to(right.dtype))
    others = posteriors * (1 - raised) / (1 - right).clamp(min=TINY)
    return torch.where(raised > right, others.scatter(-1, column, raised), posteriors)


def posterior_judgements(posteriors: Tensor, labels: Tensor, is_box: Tensor) -> Tensor:
    """Read verdicts off posteriors: q(y) >= 0.5 kept, else another q(c) > 0.5 relabelled.

    The rest is DISCARDED, which here means unsure: trained on softly and listed as such. Takes
    q [..., C], labels [...] and is_box [...]. Returns [...], DISCARDED for padding.
    """
    given = torch.where(is_box, labels, 0)[..., None]
    is_kept = posteriors.gather(-1, given)[..., 0] >= 0.5
    is_other = posteriors.amax(-1) > 0.5
    unsure = torch.where(is_other, int(Judgement.RELABELLED), int(Judgement.DISCARDED))
    verdicts = torch.where(is_kept, int(Judgement.KEPT), unsure)
    return torch.where(is_box, verdicts, int(Judgement.DISCARDED))
