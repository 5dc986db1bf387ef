"""The paper's method and its ablations by name, as Algorithm 1 has them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from boxmend import refinement
from boxmend.detector import Proposals, RoiSample, Targets
from boxmend.errors import UsageError
from boxmend.ledger import Verdict
from boxmend.methods.outcomes import Judged, merged, untouched, without_padding
from boxmend.methods.protocol import BoxScorer, Given, Moment, Outcome
from boxmend.methods.rates import check_choice, check_share
from boxmend.refinement import Constants, Refined, Steps


@dataclass(frozen=True)
class PublishedSettings:
    """The numbers of the paper, and what it leaves open read literally."""

    label_rate: float | None = None
    """Share of wrong labels, where known; 0 switches judgment and pseudo-labels off (Table 1)."""
    box_rate: float | None = None
    """Box noise, where known; 0 switches centre matching and averaging off (Table 1)."""
    acceptance: float | None = None
    """r; None: max(1 - rate, 0.5) as published, 0.6 where no rate is known."""
    alpha: float | None = None
    """Weight of p* in Eq. 19; None: the rate within 0.2 .. 0.4 as published, 0.4 if unknown."""
    gamma: float = 0.1
    """Weight of the extents in Eq. 15 (Sec. 4.1)."""
    fit_threshold: float = 0.9
    """Of Eq. 18; at 40 % box noise a third of the correct proposals passes, 0.85 admits more."""
    num_proposals: int = 100
    """P_h: how many of highest objectness are looked at (Sec. 3.2)."""
    num_candidates: int = 10
    """How many of those that fit are scored (Sec. 3.2)."""
    confidence: float = 0.5
    """Of Eq. 13: a pseudo-label counts above it."""
    queue_length: int = 128
    """N: the threshold rests on that many recent losses (Sec. 4.1)."""
    discarded: Literal["background", "ignore", "rpn_only"] = "background"
    """What becomes of discarded annotations; background is the literal reading."""
    fallback: Literal["raw", "self"] = "raw"
    """Box without candidates: b, or its mean with its own regression; the paper is silent."""
    unreliable: Literal["discard", "keep"] = "discard"
    """A noisy label without a confident pseudo-label: discarded (Eq. 13)."""
    granularity: Literal["batch", "object"] = "batch"
    """One threshold a batch; object is the literal loop of Algorithm 1, which is slow."""
    push_in_warm_up: int = 200
    """Last steps of warm-up whose losses fill the queue, so that judgment is active at once."""
    warm_up: float = 0.25
    """Share of all steps that is warm-up, as the training has it: to know which are the last."""
    record_losses: bool = False
    """Score annotations that are not judged, for the ledger's sake; one more head call a step."""

    def __post_init__(self) -> None:
        for name in ("label_rate", "box_rate", "acceptance", "alpha", "confidence", "warm_up"):
            check_share(name, getattr(self, name))
        check_choice("discarded", self.discarded, ("background", "ignore", "rpn_only"))
        if self.queue_length < 1:
            raise UsageError(f"queue_length is {self.queue_length!r}; expected 1 or more")
        if self.push_in_warm_up < 0:
            raise UsageError(f"push_in_warm_up is {self.push_in_warm_up!r}; expected 0 or more")
        self.constants(Steps())  # checks the rest

    def constants(self, steps: Steps) -> Constants:
        """Resolve the rates: r and alpha, and which steps a rate of 0 switches off."""
        if self.label_rate == 0:
            steps = replace(steps, judge=False, relabel=False)
        if self.box_rate == 0:
            steps = replace(steps, match=False, average=False)
        usual = Constants()
        acceptance, alpha = self.acceptance, self.alpha
        if acceptance is None:
            known = self.label_rate is not None
            acceptance = refinement.acceptance_from_rate(self.label_rate or 0)
            acceptance = acceptance if known else usual.acceptance
        if alpha is None:
            known = self.box_rate is not None
            alpha = refinement.alpha_from_rate(self.box_rate or 0) if known else usual.alpha
        return Constants(
            gamma=self.gamma,
            fit_threshold=self.fit_threshold,
            num_proposals=self.num_proposals,
            num_candidates=self.num_candidates,
            alpha=alpha,
            acceptance=acceptance,
            confidence=self.confidence,
            fallback=self.fallback,
            unreliable=self.unreliable,
            granularity=self.granularity,
            steps=steps,
        )


class Published:
    """One variant of the published method; its state is the queue of losses."""

    def __init__(
        self, variant: str, settings: PublishedSettings, device: torch.device | str = "cpu"
    ):
        if variant not in refinement.VARIANTS:
            known = ", ".join(sorted(refinement.VARIANTS))
            raise UsageError(f"unknown variant {variant!r}; known: {known}")
        self.settings = settings
        self.constants = settings.constants(refinement.VARIANTS[variant])
        self.queue = refinement.empty_queue(settings.queue_length, device)  # [N]

    @torch.no_grad()
    def refine(
        self, given: Given, proposals: Proposals, scorer: BoxScorer, moment: Moment
    ) -> Outcome:
        """Apply Algorithm 1 to a batch; in warm-up leave it as it is."""
        given, steps = without_padding(given), self.constants.steps
        if moment.is_warm_up or steps == refinement.VARIANTS["baseline"]:
            return untouched(given, self._losses_as_given(given, scorer, moment))
        refined = refinement.refine_as_published(
            refinement.Annotations(given.boxes, given.labels, given.is_box),
            refinement.Proposals(*proposals[:3]),
            given.sizes,
            _adapted(scorer),
            self.queue,
            self.constants,
        )
        self.queue.copy_(refined.queue)  # in place: its address is part of a captured step
        roles = refinement.training_roles(refined.verdict, given.is_box, self.settings.discarded)
        outcome = merged(given, _judged(refined, steps), roles)
        if steps.judge:
            outcome.metrics["threshold"] = refined.threshold.reshape(-1)[-1]
        return outcome

    def class_targets(self, logits: Tensor, rois: RoiSample, roi: Targets) -> Tensor | None:
        """Leave the targets to `roi`: the published method knows hard labels only."""
        return None

    def end_epoch(self, epoch: int) -> Mapping[str, Any]:
        """Estimate nothing."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Give the queue."""
        return {"queue": self.queue.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a queue of the same length."""
        if state["queue"].shape != self.queue.shape:
            was, now = len(state["queue"]), len(self.queue)
            raise UsageError(f"the state has a queue of {was} losses, the settings one of {now}")
        self.queue.copy_(state["queue"])

    def _losses_as_given(self, given: Given, scorer: BoxScorer, moment: Moment) -> Tensor | None:
        """L(b, y) [B, A] where somebody asks for it, and the queue filled at the end of warm-up."""
        first = self.settings.warm_up * moment.num_steps - self.settings.push_in_warm_up
        is_last = self.settings.push_in_warm_up > 0 and moment.step >= first
        pushes = self.constants.steps.judge and is_last
        if not (pushes or self.settings.record_losses):
            return None
        probabilities = scorer(given.boxes).probabilities
        losses = refinement.label_losses(probabilities, given.labels, given.is_box)
        if pushes:
            self.queue.copy_(refinement.push(self.queue, losses, given.is_box))
        return losses


def _judged(refined: Refined, steps: Steps) -> Judged:
    """Name the parts; where labels are not looked at, nothing is judged."""
    is_judging = steps.judge or steps.relabel
    unjudged = torch.full_like(refined.verdict, int(Verdict.UNJUDGED))
    return Judged(
        boxes=refined.boxes,
        labels=refined.labels,
        verdict=refined.verdict if is_judging else unjudged,
        loss=refined.loss,
        threshold=refined.threshold,
        confidence=refined.confidence,
        num_candidates=refined.num_candidates,
        matched=refined.matched,
    )


def _adapted(scorer: BoxScorer) -> refinement.BoxScorer:
    def score(boxes: Tensor, /) -> tuple[Tensor, Tensor]:
        scores = scorer(boxes)
        return scores.probabilities, scores.boxes

    return score
