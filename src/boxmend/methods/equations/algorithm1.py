"""Algorithm 1: the published refinement of one batch, composed of its equations.

The order is: match (Eq. 15 to 19), score (Eq. 6 to 10), judge (Eq. 11), relabel (Eq. 12 and 13),
average (Eq. 14), push. Every batch starts from the original annotations; only the queue Q persists.
Shapes: B images, A annotations, P proposals, K candidates, C foreground classes.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from boxmend.detector.boxes import clipped_boxes, inert_boxes
from boxmend.errors import UsageError
from boxmend.methods.equations import judgment
from boxmend.methods.equations.correction import (
    averaged_boxes,
    boxes_of_class,
    is_confident,
    pseudo_labels,
)
from boxmend.methods.equations.matching import (
    candidate_boxes,
    candidate_mask,
    center_fitness,
    matched_boxes,
    top_candidates,
    top_proposals,
)
from boxmend.runs.judgement import Judgement


class PreForward(Protocol):
    """The pre-forward (Eq. 3 to 10): the heads H_c and H_r on arbitrary boxes."""

    def __call__(self, boxes: Tensor, /) -> tuple[Tensor, Tensor]:
        """Score and regress boxes [B, N, 4] on the features of the current batch.

        Returns probabilities s [B, N, 1 + C], background first, and the regression of every box
        for every foreground class [B, N, C, 4].
        """


class Annotations(NamedTuple):
    """The original annotations {Y, B}, padded."""

    boxes: Tensor  # [B, A, 4]
    labels: Tensor  # [B, A], 0 .. C - 1
    is_box: Tensor  # [B, A]


class PaddedProposals(NamedTuple):
    """The proposals P of the RPN (Eq. 2), padded, in any order."""

    boxes: Tensor  # [B, P, 4]
    objectness: Tensor  # [B, P]
    is_proposal: Tensor  # [B, P]


@dataclass(frozen=True)
class EnabledSteps:
    """The steps of the method that are on; each variant in the paper's tables is a combination."""

    match: bool = True
    """Centre matching (Eq. 15 to 19); if off, b* = b."""
    average: bool = True
    """Box averaging (Eq. 14); if off, the final box is b*."""
    judge: bool = True
    """Noise judgment; if off, all labels are clean, or all are noisy if `relabel` is on."""
    relabel: bool = True
    """Pseudo-labels for noisy labels (Eq. 12 and 13); if off, these are discarded."""


VARIANTS = {
    "baseline": EnabledSteps(match=False, average=False, judge=False, relabel=False),
    "br": EnabledSteps(judge=False, relabel=False),
    "cinj": EnabledSteps(match=False, average=False, relabel=False),
    "cm": EnabledSteps(average=False, judge=False, relabel=False),
    "lr": EnabledSteps(match=False, average=False),
    "mend-paper": EnabledSteps(),
    "pseudo": EnabledSteps(match=False, average=False, judge=False),
}


@dataclass(frozen=True)
class Constants:
    """The published constants; `alpha` and `acceptance` follow from the noise rates."""

    gamma: float = 0.1  # weight of C in Eq. 15
    fit_threshold: float = 0.9  # of Eq. 18
    num_proposals: int = 100  # in P_h
    num_candidates: int = 10  # in B_candidate
    alpha: float = 0.4  # of Eq. 19
    acceptance: float = 0.6  # r, which sets T
    confidence: float = 0.5  # T_refine of Eq. 13
    fallback: Literal["raw", "self"] = "raw"
    """The final box if no proposal fits: b, or the mean of b and its own regression."""
    unreliable: Literal["discard", "keep"] = "discard"
    """Treatment of a noisy label whose pseudo-label is not confident."""
    granularity: Literal["batch", "object"] = "batch"
    """One T for the batch, or the literal order: judge and push object by object."""
    judged_classes: judgment.JudgedClasses = "all"
    """The classes of s in Eq. 11 to 13: with background, or the foreground alone."""
    judged_box: Literal["matched", "proposal", "annotation"] = "matched"
    """The box of s in Eq. 11 to 13: b*, p* (b without candidates), or b."""
    steps: EnabledSteps = field(default_factory=EnabledSteps)

    def __post_init__(self) -> None:
        for name in ("alpha", "acceptance", "confidence"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise UsageError(f"{name} is {value!r}; expected a share from 0 to 1")
        if not self.gamma >= 0:
            raise UsageError(f"gamma is {self.gamma!r}; expected a weight from 0 on, like 0.1")
        for name in ("num_proposals", "num_candidates"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)!r}; expected 1 or more")
        for name, known in (
            ("fallback", ("raw", "self")),
            ("unreliable", ("discard", "keep")),
            ("granularity", ("batch", "object")),
            ("judged_classes", ("all", "foreground")),
            ("judged_box", ("matched", "proposal", "annotation")),
        ):
            if getattr(self, name) not in known:
                names = " or ".join(map(repr, known))
                raise UsageError(f"{name} is {getattr(self, name)!r}; expected {names}")


class RefinedBatch(NamedTuple):
    """The refined annotations {Y*, B*} of a batch; padding holds arbitrary values.

    Algorithm 1 and all other methods return this. `methods.outcomes.merge_outcome` turns it into
    training targets and ledger entries.
    """

    boxes: Tensor  # [B, A, 4] final boxes b_m*; b* for discarded annotations
    labels: Tensor  # [B, A] final labels; the original y for discarded annotations
    verdict: Tensor  # [B, A] a Judgement; DISCARDED for padding
    loss: Tensor  # [B, A] L(b*, y) of the original label (Eq. 11), at the judged box
    threshold: Tensor  # T, a scalar; [B, A] if every object has its own
    confidence: Tensor  # [B, A] s(y* | b*), at the judged box
    num_candidates: Tensor  # [B, A] members of B_candidate, at most K
    matched: Tensor  # [B, A, 4] b* (Eq. 19)


@torch.no_grad()
def refine_as_published(
    annotations: Annotations,
    proposals: PaddedProposals,
    image_sizes: Tensor,
    scorer: PreForward,
    queue: Tensor,
    constants: Constants,
) -> tuple[RefinedBatch, Tensor]:
    """Refine one batch, {Y, B} -> {Y*, B*} (Algorithm 1 without the training step).

    Takes image_sizes [B, 2] as (height, width) and the queue Q [N]. Returns the refined batch and
    the queue for the next batch. A label is RELABELLED only if it changes; a pseudo-label equal to
    the original label is KEPT. Padding becomes inert boxes with label 0.
    """
    steps, is_box = constants.steps, annotations.is_box
    boxes = inert_boxes(annotations.boxes, is_box)
    labels = torch.where(is_box, annotations.labels, 0)

    chosen = _candidates(boxes, is_box, proposals, constants)
    is_candidate, matched, judged = chosen.is_candidate, boxes, None
    if steps.match:
        candidates = candidate_boxes(chosen.proposals, chosen.places, is_candidate)
        matched = matched_boxes(boxes, candidates, is_candidate, constants.alpha)  # b*
        judged = _judged_boxes(boxes, candidates, is_candidate, constants.judged_box)
    scored = _pre_forward(scorer, matched, judged, chosen if steps.average else None)

    probabilities = judgment.judged_probabilities(scored.judged, constants.judged_classes)
    losses = judgment.label_losses(probabilities, labels, is_box)
    limit, queue = _limit(losses, is_box, queue, constants)
    is_noisy = judgment.judge(losses, limit, is_box)
    pseudo, confidence = pseudo_labels(probabilities)
    is_trusted = steps.relabel & is_confident(confidence, constants.confidence)
    verdict, final = _verdicts(is_noisy, is_trusted, labels, pseudo, constants)
    verdict = torch.where(is_box, verdict, int(Judgement.DISCARDED))

    repaired = matched
    if steps.average:
        averaged = _average_boxes(matched, scored, final, is_candidate, constants.fallback)
        averaged = clipped_boxes(averaged, is_box, image_sizes)
        repaired = torch.where((verdict == Judgement.DISCARDED)[..., None], matched, averaged)
    refined = RefinedBatch(
        boxes=repaired,
        labels=final,
        verdict=verdict,
        loss=losses,
        threshold=limit,
        confidence=torch.where(is_box, confidence, 0),
        num_candidates=is_candidate.sum(-1),
        matched=matched,
    )
    return refined, queue


class _Scored(NamedTuple):
    """The output of the pre-forward for b* and its candidates."""

    judged: Tensor  # s(b*), or s of another judged box, [B, A, 1 + C]
    regressed: Tensor  # of b*, [B, A, C, 4]
    candidate_probabilities: Tensor  # S_candidate, [B, A, K, 1 + C]
    candidate_regressed: Tensor  # B_regressed, [B, A, K, C, 4]


class _Candidates(NamedTuple):
    """B_candidate of every annotation, as indices into the proposals of its image."""

    proposals: Tensor  # P_h, [B, P, 4]
    places: Tensor  # [B, A, K] indices into P_h
    is_candidate: Tensor  # [B, A, K]


def _candidates(
    boxes: Tensor, is_box: Tensor, proposals: PaddedProposals, constants: Constants
) -> _Candidates:
    """Select P_h and B_candidate (Eq. 15 to 18)."""
    if not (constants.steps.match or constants.steps.average):
        no_candidate = torch.zeros_like(is_box[..., None])
        return _Candidates(boxes[:, :0], no_candidate.long(), no_candidate)
    top, objectness, is_top = top_proposals(*proposals, constants.num_proposals)  # P_h
    fitness = center_fitness(boxes, top, constants.gamma)  # [B, A, P]
    is_fitting = candidate_mask(fitness, is_box, is_top, constants.fit_threshold)
    return _Candidates(top, *top_candidates(is_fitting, objectness, constants.num_candidates))


def _judged_boxes(
    boxes: Tensor, candidates: Tensor, is_candidate: Tensor, judged_box: str
) -> Tensor | None:
    """Return the boxes whose scores judge the labels, [B, A, 4]; None for b*, which is scored."""
    if judged_box == "matched":
        return None
    if judged_box == "annotation":
        return boxes
    return torch.where(is_candidate[..., :1], candidates[..., 0, :], boxes)  # p*


def _pre_forward(
    scorer: PreForward, matched: Tensor, judged: Tensor | None, candidates: _Candidates | None
) -> _Scored:
    """Score b*, the judged box if it is another one, and the candidates in one call (Eq. 6 to 10).

    Annotations share candidates, so each proposal in P_h is scored once, not each candidate.
    """
    parts = [matched] if judged is None else [matched, judged]
    first = matched.shape[1] * (len(parts) - 1)  # place of the first judged box
    count = first + matched.shape[1]
    if candidates is not None:
        parts.append(candidates.proposals)
    probabilities, regressed = (output.float() for output in scorer(torch.cat(parts, dim=1)))
    own = probabilities[:, first:count], regressed[:, : matched.shape[1]]
    if candidates is None:
        return _Scored(*own, own[0][:, :, None], own[1][:, :, None])
    places = candidates.places.flatten(1)  # [B, A * K]
    shape = candidates.places.shape
    candidate_probabilities = probabilities[:, count:].take_along_dim(places[..., None], dim=1)
    candidate_regressed = regressed[:, count:].take_along_dim(places[..., None, None], dim=1)
    return _Scored(
        *own,
        candidate_probabilities.view(*shape, candidate_probabilities.shape[-1]),
        candidate_regressed.view(*shape, *candidate_regressed.shape[-2:]),
    )


def _limit(
    losses: Tensor, is_box: Tensor, queue: Tensor, constants: Constants
) -> tuple[Tensor, Tensor]:
    """Return T for the batch, and the queue after it."""
    if not constants.steps.judge:
        limit = -torch.inf if constants.steps.relabel else torch.inf  # all noisy, or all clean
        return losses.new_full((), limit), queue
    if constants.granularity == "object":
        return judgment.judge_one_by_one(queue, losses, is_box, constants.acceptance)
    before = judgment.threshold(queue, constants.acceptance)
    return before, judgment.push(queue, losses, is_box)


def _verdicts(
    is_noisy: Tensor, is_trusted: Tensor, labels: Tensor, pseudo: Tensor, constants: Constants
) -> tuple[Tensor, Tensor]:
    """Return judgements and final labels, both [B, A]."""
    is_replaced = is_noisy & is_trusted
    final = torch.where(is_replaced, pseudo, labels)
    keeps = constants.steps.relabel and constants.unreliable == "keep"
    unreliable = int(Judgement.KEPT if keeps else Judgement.DISCARDED)
    verdict = torch.where(is_noisy & ~is_trusted, unreliable, int(Judgement.KEPT))
    return torch.where(final != labels, int(Judgement.RELABELLED), verdict), final


def _average_boxes(
    matched: Tensor, scored: _Scored, labels: Tensor, is_candidate: Tensor, fallback: str
) -> Tensor:
    """Return b_m* for the final labels, before clipping; [B, A, 4] (Eq. 14)."""
    per_candidate = labels[..., None].expand(is_candidate.shape)  # [B, A, K]
    scores = scored.candidate_probabilities.gather(-1, per_candidate[..., None] + 1)[..., 0]
    regressed = boxes_of_class(scored.candidate_regressed, per_candidate)  # [B, A, K, 4]
    own = boxes_of_class(scored.regressed, labels) if fallback == "self" else None
    return averaged_boxes(matched, regressed, scores, is_candidate, own)
