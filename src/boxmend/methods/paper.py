"""The published method (Algorithm 1) and its ablations."""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from boxmend.detector import Proposals, RoiSample, SecondStageOutput, Targets
from boxmend.errors import UsageError
from boxmend.methods import equations
from boxmend.methods.equations import Constants, EnabledSteps
from boxmend.methods.noise_estimator import EstimatingMethod, NoiseEstimator
from boxmend.methods.outcomes import merge_outcome, neutralise_padding, unchanged_outcome
from boxmend.methods.protocol import (
    SINGLE_PROCESS,
    BatchAnnotations,
    BoxScorer,
    Exchange,
    Losses,
    Outcome,
    StepContext,
    TrainingProgress,
)
from boxmend.methods.rates import Rates, check_rates
from boxmend.methods.steps import faster_rcnn_losses
from boxmend.runs.judgement import Judgement
from boxmend.runs.settings import PublishedSettings


def resolve_constants(settings: PublishedSettings, rates: Rates, steps: EnabledSteps) -> Constants:
    """Resolve r and alpha by the rates; a rate of 0 disables that half (Table 1)."""
    if rates.label == 0:
        steps = replace(steps, judge=False, relabel=False)
    if rates.box == 0:
        steps = replace(steps, match=False, average=False)
    acceptance, alpha, defaults = settings.acceptance, settings.alpha, Constants()
    if acceptance is None:
        is_known = rates.label is not None
        acceptance = equations.acceptance_from_rate(rates.label or 0)
        acceptance = acceptance if is_known else defaults.acceptance
    if alpha is None:
        is_known = rates.box is not None
        alpha = equations.alpha_from_rate(rates.box or 0) if is_known else defaults.alpha
    return Constants(
        gamma=settings.gamma,
        fit_threshold=settings.fit_threshold,
        num_proposals=settings.num_proposals,
        num_candidates=settings.num_candidates,
        alpha=alpha,
        acceptance=acceptance,
        confidence=settings.confidence,
        fallback=settings.fallback,
        unreliable=settings.unreliable,
        granularity=settings.granularity,
        judged_classes=settings.judged_classes,
        judged_box=settings.judged_box,
        steps=steps,
    )


class PaperMethod(EstimatingMethod):
    """One variant of the published method; its state is the queue Q of losses."""

    def __init__(
        self,
        variant: str,
        settings: PublishedSettings,
        rates: Rates = Rates(),  # noqa: B008  # a tuple
        device: torch.device | str = "cpu",
        estimator: NoiseEstimator | None = None,
        exchange: Exchange = SINGLE_PROCESS,
    ):
        super().__init__(estimator, exchange)
        if variant not in equations.VARIANTS:
            known = ", ".join(sorted(equations.VARIANTS))
            raise UsageError(f"unknown variant {variant!r}; known: {known}")
        self.settings = settings
        self.rates = check_rates(rates)
        self.steps = equations.VARIANTS[variant]
        self.constants = resolve_constants(settings, rates, self.steps)
        self.queue = equations.empty_queue(settings.queue_length, device)  # [N]

    def losses(self, context: StepContext) -> tuple[Outcome, Losses]:
        """Compute the losses of Faster R-CNN on the refined annotations."""
        return faster_rcnn_losses(self, context)

    @torch.no_grad()
    def refine(
        self,
        annotations: BatchAnnotations,
        proposals: Proposals,
        scorer: BoxScorer,
        progress: TrainingProgress,
    ) -> Outcome:
        """Apply Algorithm 1 to a batch; in warm-up return the original annotations."""
        annotations, steps = neutralise_padding(annotations), self.constants.steps
        is_idle = progress.is_warm_up or steps == equations.VARIANTS["baseline"]
        heads = (
            _SharedScores(scorer, annotations.boxes)
            if not is_idle and self._shares_scores
            else None
        )
        if heads is None:
            self.observe(annotations, proposals, scorer)
        if is_idle:
            return unchanged_outcome(
                annotations, self._measure_raw_losses(annotations, scorer, progress)
            )
        refined, queue = equations.refine_as_published(
            equations.Annotations(annotations.boxes, annotations.labels, annotations.is_box),
            equations.PaddedProposals(*proposals[:3]),
            annotations.sizes,
            _as_pre_forward(scorer if heads is None else heads.for_regions),
            self.queue,
            self.constants,
        )
        if heads is not None:
            self.observe(annotations, proposals, heads.for_estimator)
        if steps.judge and self.constants.granularity == "batch":  # T was read before
            self._push(refined.loss, annotations.is_box)
        else:
            self.queue.copy_(queue)
        roles = equations.training_roles(
            refined.verdict, annotations.is_box, self.settings.discarded
        )
        if not (steps.judge or steps.relabel):  # labels are not judged
            unjudged = torch.full_like(refined.verdict, int(Judgement.UNJUDGED))
            refined = refined._replace(verdict=unjudged)
        outcome = merge_outcome(annotations, refined, roles)
        if steps.judge:
            outcome.metrics["threshold"] = refined.threshold.reshape(-1)[-1]
        return outcome

    def phase(self, progress: TrainingProgress) -> Hashable:
        """Return the key of warm-up, of its last steps, which fill the queue, or of later steps."""
        return progress.is_warm_up, self._fills_queue(progress)

    def class_targets(
        self, logits: Tensor, rois: RoiSample, roi: Targets, progress: TrainingProgress
    ) -> Tensor | None:
        """Return None: the published method has hard labels, which are in `roi`."""
        return None

    def _own_state(self) -> dict[str, Any]:
        """Return the queue."""
        return {"queue": self.queue.clone()}

    def _load_own_state(self, state: Mapping[str, Any]) -> None:
        """Load a queue of the same length."""
        if state["queue"].shape != self.queue.shape:
            was, now = len(state["queue"]), len(self.queue)
            raise UsageError(
                f"the saved state has a queue of {was} losses, but published.queue_length is "
                f"{now}; use the settings of the saved state"
            )
        self.queue.copy_(state["queue"])

    def _apply_estimates(self, estimator: NoiseEstimator) -> None:
        """Set r and alpha by the estimates; a negligible rate disables that half, as 0 does.

        Before the first estimate the defaults apply.
        """
        self.constants = resolve_constants(self.settings, estimator.known_rates(), self.steps)

    @property
    def _shares_scores(self) -> bool:
        """Whether the estimator and Algorithm 1 need the scores of the same proposals."""
        constants = self.constants
        if self.estimator is None or not constants.steps.average:
            return False
        return self.estimator.settings.num_proposals == constants.num_proposals

    def _measure_raw_losses(
        self, annotations: BatchAnnotations, scorer: BoxScorer, progress: TrainingProgress
    ) -> Tensor | None:
        """Return L(b, y) [B, A] in warm-up if it is needed, and push it at the end of warm-up."""
        pushes = self._fills_queue(progress)
        if not (pushes or self.settings.record_losses):
            return None
        probabilities = equations.judged_probabilities(
            scorer(annotations.boxes).probabilities, self.settings.judged_classes
        )
        losses = equations.label_losses(probabilities, annotations.labels, annotations.is_box)
        if pushes:
            self._push(losses, annotations.is_box)
        return losses

    def _fills_queue(self, progress: TrainingProgress) -> bool:
        is_last = 0 < progress.warm_up_steps_left <= self.settings.queue_warm_up_steps
        return self.constants.steps.judge and is_last

    def _push(self, losses: Tensor, is_loss: Tensor) -> None:
        """Push the losses [B, A], in place, because a captured step holds the queue's address."""
        self.queue.copy_(equations.push(self.queue, *self.exchange.all_gather(losses, is_loss)))


def needs_estimates(variant: str, rates: Rates) -> bool:
    """Return whether a variant depends on a rate that is unknown."""
    steps = equations.VARIANTS[variant]
    needs_label = (steps.judge or steps.relabel) and rates.label is None
    return needs_label or ((steps.match or steps.average) and rates.box is None)


class _SharedScores:
    """One call of the heads that serves both Algorithm 1 and the estimator.

    Algorithm 1 scores b*, perhaps another judged box, and P_h at the end; b is scored in the same
    call. The estimator then needs b and the same P_h.
    """

    def __init__(self, scorer: BoxScorer, boxes: Tensor):
        self._scorer = scorer
        self._boxes = boxes

    def for_regions(self, regions: Tensor, /) -> SecondStageOutput:
        count = self._boxes.shape[1]
        self._scores = self._scorer(torch.cat([self._boxes, regions], dim=1))  # b, b*, P_h
        return SecondStageOutput(*(part[:, count:] for part in self._scores))

    def for_estimator(self, regions: Tensor, /) -> SecondStageOutput:
        count = self._boxes.shape[1]
        first = self._scores[0].shape[1] - (regions.shape[1] - count)  # place of P_h
        parts = [torch.cat([part[:, :count], part[:, first:]], 1) for part in self._scores]
        return SecondStageOutput(*parts)


def _as_pre_forward(scorer: BoxScorer) -> equations.PreForward:
    def score(boxes: Tensor, /) -> tuple[Tensor, Tensor]:
        scores = scorer(boxes)
        return scores.probabilities, scores.boxes

    return score
