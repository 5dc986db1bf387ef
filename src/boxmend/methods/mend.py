"""The method `mend`: posteriors with memory instead of judgements, votes instead of averages.

Beyond the paper. For each annotation, p is the detector's distribution over the foreground classes
at b*, averaged over visits. The class targets are q(c) ~ p(c)^tau T[c, y]; T and tau are estimated
once an epoch. Edges move to their posterior mean, given box and vote, under the estimated box
noise.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from boxmend.detector import Proposals, RoiSample, SecondStageOutput, Targets
from boxmend.errors import UsageError
from boxmend.methods import equations, estimation, judgements, missing, votes
from boxmend.methods.equations import Belief, Roles
from boxmend.methods.equations.box_noise import BOX_NOISE, NUM_BINS
from boxmend.methods.noise_estimator import EstimatingMethod, NoiseEstimator
from boxmend.methods.outcomes import (
    merge_outcome,
    neutralise_padding,
    share_metrics,
    unchanged_outcome,
)
from boxmend.methods.protocol import (
    SINGLE_PROCESS,
    BatchAnnotations,
    BoxFeatures,
    BoxScorer,
    Exchange,
    Losses,
    Outcome,
    StepContext,
    TrainingProgress,
)
from boxmend.methods.rates import Rates
from boxmend.methods.steps import faster_rcnn_losses
from boxmend.runs.settings import MendSettings


@dataclass(frozen=True)
class MendConstants:
    """The state before the first estimate, and the limits of the prescreen."""

    initial_raw_share: float = 1.0  # weight of the annotated box: no repair
    min_prescreen_annotations: int = 500  # with fewer the result of a prescreen is arbitrary
    max_device_feature_bytes: int = 2**31  # larger features of a prescreen stay on the host


MEND = MendConstants()


class Mend(EstimatingMethod):
    """The method `mend`, with a memory of evidence for every annotation of the dataset."""

    estimator: NoiseEstimator

    def __init__(
        self,
        num_annotations: int,
        num_labels: int,
        settings: MendSettings = MendSettings(),  # noqa: B008  # frozen
        rates: Rates = Rates(),  # noqa: B008  # a tuple
        device: torch.device | str = "cpu",
        exchange: Exchange = SINGLE_PROCESS,
    ):
        sizes = (num_annotations, num_labels)
        super().__init__(NoiseEstimator(*sizes, settings, rates, device, exchange), exchange)
        self.settings = settings
        self.rates = rates
        self.mends_labels = rates.label != 0
        self.mends_boxes = rates.box != 0
        # Changes are in place, because a captured step holds addresses.
        self._state: dict[str, Tensor] = {
            "queue": equations.empty_queue(settings.queue_length, device),
            "keep": torch.full((), MEND.initial_raw_share, device=device),
            "alpha": torch.zeros((), device=device),
            "noise": torch.zeros((), device=device),
            "vote_error": torch.zeros((), device=device),
            "is_gaussian": torch.zeros((), dtype=torch.bool, device=device),
            "outside": torch.zeros((), device=device),
            "held": torch.zeros((), device=device),
            "border": torch.zeros(1 + NUM_BINS, dtype=torch.float64, device=device),
        }
        self._beta: float | None = None
        self._set_box_repair(MEND.initial_raw_share)

    @property
    def wants_prescreen(self) -> bool:
        """Whether labels are repaired and the dataset is large enough for a prescreen."""
        is_wanted = self.mends_labels and self.settings.prescreen_weight > 0
        return is_wanted and self.estimator.num_annotations >= MEND.min_prescreen_annotations

    def prescreen(self, box_features: BoxFeatures) -> Mapping[str, Any]:
        """Judge the labels before the first step, by the backbone's features of their boxes."""
        settings, labels = self.settings, box_features.labels
        if len(labels) < MEND.min_prescreen_annotations:
            return {}
        belief = Belief(self.rates.label, settings.full_matrix, settings.initial_label_noise)
        features = box_features.features
        if features.nbytes <= MEND.max_device_feature_bytes:
            features = features.to(self._state["keep"].device)
        result = equations.prescreen_labels(
            features, labels, box_features.folds, self.estimator.num_labels, belief
        )
        return self.estimator.prescreen(box_features.rows, labels, result)

    def losses(self, context: StepContext) -> tuple[Outcome, Losses]:
        """Compute the losses of Faster R-CNN on the repaired annotations."""
        return faster_rcnn_losses(self, context)

    @torch.no_grad()
    def refine(
        self,
        annotations: BatchAnnotations,
        proposals: Proposals,
        scorer: BoxScorer,
        progress: TrainingProgress,
    ) -> Outcome:
        """Store the evidence about a batch and, after warm-up, repair its annotations."""
        annotations = neutralise_padding(annotations)
        if not (self.mends_labels or self._needs_proposals):
            return unchanged_outcome(annotations)
        matches = self._match_proposals(annotations, proposals, progress.is_warm_up)
        scores = self._score_boxes(matches, scorer)
        evidence = self.estimator.store(annotations, scores[0].probabilities)  # p
        posteriors, judged = self._judge_labels(evidence, annotations)
        boxes = self._repair_boxes(annotations, matches, scores, posteriors)
        num_candidates = matches.is_candidate.sum(-1)
        if progress.is_warm_up:
            metrics = share_metrics(annotations, num_candidates=num_candidates)
            counted = torch.where(annotations.is_box, num_candidates, 0)
            outcome = unchanged_outcome(annotations, judged.loss)
            outcome = outcome._replace(num_candidates=counted, metrics=metrics)
            outcome = outcome._replace(
                roi=outcome.roi._replace(soft=self._warm_up_targets(annotations))
            )
            return self._add_box_targets(outcome, annotations, MEND.initial_raw_share)
        refined = judged._replace(
            boxes=boxes, num_candidates=num_candidates, matched=matches.matched
        )
        roles = self._choose_roles(refined.verdict, annotations)
        outcome = merge_outcome(annotations, refined, roles, self._soft_targets(posteriors))
        outcome = self._add_box_targets(outcome, annotations, self._state["keep"])
        return self._ignore_missing(outcome, annotations, matches, scores[1])

    def phase(self, progress: TrainingProgress) -> Hashable:
        """Return whether the step belongs to the warm-up."""
        return progress.is_warm_up

    @torch.no_grad()
    def class_targets(
        self, logits: Tensor, rois: RoiSample, roi: Targets, progress: TrainingProgress
    ) -> Tensor | None:
        """Return forward-corrected targets in warm-up: r(c) = s(c) T[c, y] / sum_c s(c) T[c, y].

        s is the current prediction over the foreground. Cross-entropy against r has the gradient of
        -log sum_c s(c) T[c, y]. Negative RoIs have the target background. After a prescreen the
        result is None, because warm-up then trains on the posteriors of the prescreen.
        """
        is_corrected = progress.is_warm_up and self._corrects_warm_up
        if not is_corrected or self.estimator.prior is not None:
            return None
        is_object = rois.is_positive[..., None]
        foreground = torch.where(is_object, logits[..., 1:].float(), 0).softmax(-1)
        objects = equations.posterior(foreground, rois.labels, self.estimator.state["transition"])
        objects = equations.raise_to_floor(
            objects, rois.labels, self.estimator.label_floors(rois.labels)
        )
        background = torch.zeros_like(objects[..., :1]) + 1
        negative = functional.pad(background, (0, objects.shape[-1]))
        return torch.where(is_object, equations.soft_targets(objects), negative)

    def end_epoch(self, epoch: int, *, is_warm_up: bool) -> Mapping[str, Any]:
        """Update the estimates, and from them the parameters of the box repair."""
        figures = super().end_epoch(epoch, is_warm_up=is_warm_up)
        keep = float(self._state["keep"])
        hold_share = 0.0
        if keep < 1:
            hold_share = equations.border_hold_share(self._state["border"], figures["box_noise"])
        self._state["held"].fill_(hold_share)
        tau = float(self.estimator.state["tau"])
        lost = int(self.estimator.state["lost"].sum())
        own = {"tau": tau, "keep": keep, "lost_classes": lost, "held_at_border": hold_share}
        if self.settings.box_noise_shape == "auto":
            box = self.estimator.box
            own["gaussian_box_noise"] = float(box.is_gaussian)
            own["gaussian_log_odds"] = box.gaussian_log_odds
        return {**figures, **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state with the same numbers of annotations and classes."""
        super().load_state_dict(state)
        self._set_box_repair(float(state["keep"]))  # which determines the other parameters

    def _own_state(self) -> dict[str, Any]:
        """Return the queue and the parameters of the box repair."""
        return {name: tensor.clone() for name, tensor in self._state.items()}

    def _load_own_state(self, state: Mapping[str, Any]) -> None:
        """Load a queue of the same length, and the counts at the border."""
        if len(state["queue"]) != len(self._state["queue"]):
            was, now = len(state["queue"]), len(self._state["queue"])
            raise UsageError(
                f"the saved state has a queue of {was} losses, but mend.queue_length is {now}; "
                "use the settings of the saved state"
            )
        for name in ("queue", "border", "held"):
            self._state[name].copy_(state[name])

    def _apply_estimates(self, estimator: NoiseEstimator) -> None:
        """Set the parameters of the box repair by the estimated box noise."""
        if self.rates.box is None:
            settings = self.settings
            self._set_box_repair(
                equations.raw_box_share(
                    estimator.box, settings.raw_box_min_share, settings.disable_above
                )
            )

    def _set_box_repair(self, estimated: float) -> None:
        """Set the parameters of the box repair: by the settings, the known noise or the estimate.

        `estimated` is the weight of the annotated box that the estimate implies. N includes the
        noise that the detector has memorised.
        """
        box_noise = self.estimator.figures()["box_noise"]
        keep, alpha = self.settings.raw_box_share, self.settings.alpha
        if keep is None:
            known = self.rates.box
            keep = estimated if known is None else estimation.raw_box_share_at(known)
        if alpha is None:
            alpha = 0.0 if keep == 1 else equations.alpha_from_rate(box_noise)
        noise = box_noise if keep < 1 else 0.0
        error = self.estimator.box.error or BOX_NOISE.typical_error_sides
        is_gaussian = self.estimator.box.is_gaussian
        values = {
            "keep": keep,
            "alpha": alpha,
            "noise": noise,
            "vote_error": error,
            "is_gaussian": is_gaussian,
            "outside": equations.mean_noise(noise, is_gaussian=is_gaussian),
        }
        for name, value in values.items():
            self._state[name].fill_(value)
        self._beta = self.settings.box_beta if keep < 1 else None  # None for the detector's own

    def _add_box_targets(
        self, outcome: Outcome, annotations: BatchAnnotations, keep: Tensor | float
    ) -> Outcome:
        """Set the regression targets, which extend past the border, and the beta of their loss."""
        if not self.mends_boxes:
            return outcome
        roi = outcome.roi._replace(beta=self._beta)
        if self.settings.extend_past_border:
            outside = keep * self._state["outside"]
            box_targets = equations.extend_past_border(
                roi.boxes, annotations.boxes, annotations.sizes, outside
            )
            roi = roi._replace(
                box_targets=torch.where(annotations.is_box[..., None], box_targets, roi.boxes)
            )
        return outcome._replace(roi=roi)

    @property
    def _needs_proposals(self) -> bool:
        """Whether the proposals are scored: for box repair, or to find missing annotations."""
        return self.mends_boxes or self.settings.missing_min_score is not None

    def _ignore_missing(
        self,
        outcome: Outcome,
        annotations: BatchAnnotations,
        matches: votes.Matches,
        scores: SecondStageOutput,
    ) -> Outcome:
        """Ignore objects without an annotation, if `missing_min_score` is set."""
        if self.settings.missing_min_score is None:
            return outcome
        objects = missing.find_missing_objects(
            annotations, matches, scores, self.settings.missing_min_score
        )
        share = objects.is_object.sum() / annotations.is_box.sum().clamp(min=1)
        return outcome._replace(
            rpn=missing.ignore_objects(outcome.rpn, objects),
            roi=missing.ignore_objects(outcome.roi, objects),
            metrics={**outcome.metrics, "missing": share},
        )

    @property
    def _corrects_warm_up(self) -> bool:
        return self.mends_labels and self.settings.correct_warm_up_loss

    def _warm_up_targets(self, annotations: BatchAnnotations) -> Tensor | None:
        """Return the class targets of warm-up after a prescreen: q(c) ~ p_0(c) T[c, y]."""
        prior = self.estimator.prior_for(annotations)
        if prior is None or not self._corrects_warm_up:
            return None
        labels = annotations.labels
        posteriors = equations.posterior(prior, labels, self.estimator.state["transition"])
        floors = self.estimator.label_floors(labels)
        return equations.soft_targets(equations.raise_to_floor(posteriors, labels, floors))

    def _match_proposals(
        self, annotations: BatchAnnotations, proposals: Proposals, is_warm_up: bool
    ) -> votes.Matches:
        """Match centres as published (Eq. 15 to 19); in warm-up b* is b."""
        settings = self.settings
        top, objectness, is_top = equations.top_proposals(*proposals[:3], settings.num_proposals)
        fitness = equations.center_fitness(annotations.boxes, top, settings.gamma)  # [B, A, P]
        is_fitting = equations.candidate_mask(
            fitness, annotations.is_box, is_top, settings.fit_threshold
        )
        places, is_candidate = equations.top_candidates(
            is_fitting, objectness, settings.num_candidates
        )
        matched = annotations.boxes
        if self.mends_boxes and not is_warm_up:
            candidates = equations.candidate_boxes(top, places, is_candidate)
            nearest = equations.matched_boxes(
                annotations.boxes, candidates, is_candidate, alpha=1.0
            )
            matched = torch.lerp(annotations.boxes, nearest, self._state["alpha"])  # b*
        return votes.Matches(matched, top, is_top, places, is_candidate)

    def _score_boxes(
        self, matches: votes.Matches, scorer: BoxScorer
    ) -> tuple[SecondStageOutput, SecondStageOutput]:
        """Score b* and, if needed, the proposals, in one call."""
        count = matches.matched.shape[1]
        if not self._needs_proposals:
            return votes.split_scores(scorer(matches.matched), count)
        return votes.split_scores(
            scorer(torch.cat([matches.matched, matches.proposals], dim=1)), count
        )

    def _judge_labels(self, evidence: Tensor, annotations: BatchAnnotations) -> judgements.Judged:
        """Judge the labels by posterior or, as published, by the queue, which is updated after."""
        state, estimates = self._state, self.estimator.state
        if not self.mends_labels:
            return judgements.keep_labels(evidence, annotations)
        if self.settings.judgement == "posterior":
            label_floors = self.estimator.label_floors(annotations.labels)
            return judgements.judge_by_posterior(
                evidence, annotations, estimates["transition"], estimates["tau"], label_floors
            )
        acceptance = equations.acceptance_from_rate(self.estimator.rate)
        limit = equations.threshold(state["queue"], acceptance)
        judged = judgements.judge_by_queue(evidence, annotations, limit)
        pushed = self.exchange.all_gather(judged[1].loss, annotations.is_box)
        state["queue"].copy_(equations.push(state["queue"], *pushed))
        return judged

    def _repair_boxes(
        self,
        annotations: BatchAnnotations,
        matches: votes.Matches,
        scores: tuple[SecondStageOutput, SecondStageOutput],
        posteriors: Tensor,
    ) -> Tensor:
        """Return the final boxes [B, A, 4], and count what the estimate of box noise needs."""
        if not self.mends_boxes:
            return annotations.boxes
        settings, keep = self.settings, self._state["keep"]
        voters = votes.gather_voters(
            annotations, matches, scores, posteriors, settings.vote_min_iou
        )
        self.estimator.count_agreement(annotations, voters)
        if settings.boxes == "average":
            return votes.average_boxes(annotations, matches, voters, keep)
        if settings.boxes == "vote" or settings.raw_box_share is not None:
            return votes.vote_boxes(annotations, voters, keep, settings.cluster_min_iou)
        state = self._state
        at_border = equations.count_at_border(
            annotations.boxes, annotations.sizes, annotations.is_box
        )
        state["border"] += self.exchange.all_sum(at_border)
        is_gaussian = settings.box_noise_shape != "uniform" and state["is_gaussian"]
        edges = votes.EdgeNoise(state["noise"], state["vote_error"], state["held"], is_gaussian)
        return votes.estimate_boxes(annotations, voters, edges, keep, settings.cluster_min_iou)

    @property
    def _is_soft(self) -> bool:
        """Whether the class targets are posteriors, so that DISCARDED annotations train too."""
        settings = self.settings
        return self.mends_labels and settings.soft_labels and settings.judgement == "posterior"

    def _soft_targets(self, posteriors: Tensor) -> Tensor | None:
        return equations.soft_targets(posteriors) if self._is_soft else None

    def _choose_roles(self, verdict: Tensor, annotations: BatchAnnotations) -> Roles:
        """Let all annotations train all parts, except DISCARDED ones if labels are hard."""
        if self._is_soft or not self.mends_labels:
            return Roles(
                annotations.is_box, annotations.is_box, torch.zeros_like(annotations.is_box)
            )
        return equations.training_roles(verdict, annotations.is_box, self.settings.discarded)
