"""The changed method: posteriors with memory in place of judgements, votes in place of averages.

Beyond the paper. Per annotation, p is the detector's distribution over the foreground classes at
b*, averaged over visits; q(c) ~ p(c)^tau T[c, y] is what is trained on, T and tau are estimated
once a pass; edges are put where box and vote let them be expected under the estimated box noise.
"""

from collections.abc import Hashable, Mapping
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

INITIAL_RAW_SHARE = 1.0  # before the first estimate boxes stay as they are
MIN_PRESCREENED = 500  # annotations: with fewer, a prescreen may say anything
MOST_BYTES = 2**31  # of features that are brought to the device


class Mend(EstimatingMethod):
    """The changed method; it remembers evidence for every annotation of the dataset."""

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
        # Changed in place: a captured step has addresses.
        self._state: dict[str, Tensor] = {
            "queue": equations.empty_queue(settings.queue_length, device),
            "keep": torch.full((), INITIAL_RAW_SHARE, device=device),
            "alpha": torch.zeros((), device=device),
            "noise": torch.zeros((), device=device),
            "vote_error": torch.zeros((), device=device),
            "held": torch.zeros((), device=device),
            "border": torch.zeros(1 + NUM_BINS, dtype=torch.float64, device=device),
        }
        self._beta: float | None = None
        self._set_box_repair(INITIAL_RAW_SHARE)

    @property
    def wants_prescreen(self) -> bool:
        """Whether labels are to be mended, and there are enough of them for a prescreen."""
        is_wanted = self.mends_labels and self.settings.prescreen_weight > 0
        return is_wanted and self.estimator.num_annotations >= MIN_PRESCREENED

    def prescreen(self, described: BoxFeatures) -> Mapping[str, Any]:
        """Judge the labels before the first step, by what the backbone makes of their boxes."""
        settings, labels = self.settings, described.labels
        if len(labels) < MIN_PRESCREENED:
            return {}
        belief = Belief(self.rates.label, settings.full_matrix, settings.initial_label_noise)
        features = described.features
        if features.nbytes <= MOST_BYTES:
            features = features.to(self._state["keep"].device)
        seen = equations.prescreen_labels(
            features, labels, described.folds, self.estimator.num_labels, belief
        )
        return self.estimator.prescreen(described.rows, labels, seen)

    def losses(self, context: StepContext) -> tuple[Outcome, Losses]:
        """Compute the losses of Faster R-CNN on the mended batch."""
        return faster_rcnn_losses(self, context)

    @torch.no_grad()
    def refine(
        self,
        annotations: BatchAnnotations,
        proposals: Proposals,
        scorer: BoxScorer,
        progress: TrainingProgress,
    ) -> Outcome:
        """Gather evidence about a batch and, after warm-up, mend it."""
        annotations = neutralise_padding(annotations)
        if not (self.mends_labels or self._needs_proposals):
            return unchanged_outcome(annotations)
        matches = self._matches(annotations, proposals, progress.is_warm_up)
        scores = self._scores(matches, scorer)
        evidence = self.estimator.store(annotations, scores[0].probabilities)  # p
        posteriors, judged = self._judge_labels(evidence, annotations)
        boxes = self._boxes(annotations, matches, scores, posteriors)
        num_candidates = matches.is_candidate.sum(-1)
        if progress.is_warm_up:
            metrics = share_metrics(annotations, num_candidates=num_candidates)
            counted = torch.where(annotations.is_box, num_candidates, 0)
            outcome = unchanged_outcome(annotations, judged.loss)
            outcome = outcome._replace(num_candidates=counted, metrics=metrics)
            outcome = outcome._replace(
                roi=outcome.roi._replace(soft=self._warm_up_targets(annotations))
            )
            return self._with_box_targets(outcome, annotations, INITIAL_RAW_SHARE)
        refined = judged._replace(
            boxes=boxes, num_candidates=num_candidates, matched=matches.matched
        )
        roles = self._roles(refined.verdict, annotations)
        outcome = merge_outcome(annotations, refined, roles, self._soft(posteriors))
        outcome = self._with_box_targets(outcome, annotations, self._state["keep"])
        return self._ignore_missing(outcome, annotations, matches, scores[1])

    def phase(self, progress: TrainingProgress) -> Hashable:
        """Tell warm-up from what follows."""
        return progress.is_warm_up

    @torch.no_grad()
    def class_targets(
        self, logits: Tensor, rois: RoiSample, roi: Targets, progress: TrainingProgress
    ) -> Tensor | None:
        """Correct the loss of warm-up: r(c) = s(c) T[c, y] / sum_c s(c) T[c, y].

        Cross-entropy against r has the gradient of -log sum_c s(c) T[c, y]; s is the current
        prediction, and background has no part in r. RoIs of no object are background. After a
        prescreen nothing needs correcting: warm-up is trained on what that says.
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
        nothing = functional.pad(background, (0, objects.shape[-1]))
        return torch.where(is_object, equations.soft_targets(objects), nothing)

    def end_epoch(self, epoch: int, *, is_warm_up: bool) -> Mapping[str, Any]:
        """Estimate the noise anew, and from it the shares of raw box and p*."""
        found = super().end_epoch(epoch, is_warm_up=is_warm_up)
        keep = float(self._state["keep"])
        held = 0.0
        if keep < 1:
            held = equations.border_hold_share(self._state["border"], found["box_noise"])
        self._state["held"].fill_(held)
        tau = float(self.estimator.state["tau"])
        lost = int(self.estimator.state["lost"].sum())
        return {**found, "tau": tau, "keep": keep, "lost_classes": lost, "held_at_border": held}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a state made for as many annotations and classes."""
        super().load_state_dict(state)
        self._set_box_repair(float(state["keep"]))  # from which all others follow

    def _own_state(self) -> dict[str, Any]:
        """Return the queue and how boxes are mended."""
        return {name: tensor.clone() for name, tensor in self._state.items()}

    def _load_own_state(self, state: Mapping[str, Any]) -> None:
        """Take up a queue of the same length, and what is counted at the border."""
        if len(state["queue"]) != len(self._state["queue"]):
            was, now = len(state["queue"]), len(self._state["queue"])
            raise UsageError(f"the state has a queue of {was} losses, the settings one of {now}")
        for name in ("queue", "border", "held"):
            self._state[name].copy_(state[name])

    def _apply_estimates(self, estimator: NoiseEstimator) -> None:
        """Choose how boxes are mended by the estimated box noise."""
        if self.rates.box is None:
            settings = self.settings
            self._set_box_repair(
                equations.raw_box_share(
                    estimator.box, settings.raw_box_min_share, settings.disable_above
                )
            )

    def _set_box_repair(self, estimated: float) -> None:
        """Choose how boxes are mended: by the settings, a known box noise, or the estimate.

        Annotated edges are off by the whole noise, also by what is learnt by heart of it.
        """
        found = self.estimator.figures()["box_noise"]
        keep, alpha = self.settings.raw_box_share, self.settings.alpha
        if keep is None:
            known = self.rates.box
            keep = estimated if known is None else estimation.raw_box_share_at(known)
        if alpha is None:
            alpha = 0.0 if keep == 1 else equations.alpha_from_rate(found)
        noise = found if keep < 1 else 0.0
        error = self.estimator.box.error or BOX_NOISE.typical_error_sides
        values = {"keep": keep, "alpha": alpha, "noise": noise, "vote_error": error}
        for name, value in values.items():
            self._state[name].fill_(value)
        self._beta = self.settings.box_beta if keep < 1 else None  # None: the detector's own

    def _with_box_targets(
        self, outcome: Outcome, annotations: BatchAnnotations, keep: Tensor | float
    ) -> Outcome:
        """Regress to where noisy edges are in the mean, also where the border cut them off."""
        if not self.mends_boxes:
            return outcome
        roi = outcome.roi._replace(beta=self._beta)
        if self.settings.extend_past_border:
            outside = keep * self._state["noise"] / 2
            box_targets = equations.extend_past_border(
                roi.boxes, annotations.boxes, annotations.sizes, outside
            )
            roi = roi._replace(
                box_targets=torch.where(annotations.is_box[..., None], box_targets, roi.boxes)
            )
        return outcome._replace(roi=roi)

    @property
    def _needs_proposals(self) -> bool:
        """Whether anything is asked of the proposals: boxes, or objects that nobody annotated."""
        return self.mends_boxes or self.settings.missing_min_score is not None

    def _ignore_missing(
        self,
        outcome: Outcome,
        annotations: BatchAnnotations,
        matches: votes.Matches,
        scores: SecondStageOutput,
    ) -> Outcome:
        """Leave objects out that nobody annotated, where that is asked for."""
        if self.settings.missing_min_score is None:
            return outcome
        found = missing.find_missing_objects(
            annotations, matches, scores, self.settings.missing_min_score
        )
        share = found.is_object.sum() / annotations.is_box.sum().clamp(min=1)
        return outcome._replace(
            rpn=missing.ignore_objects(outcome.rpn, found),
            roi=missing.ignore_objects(outcome.roi, found),
            metrics={**outcome.metrics, "missing": share},
        )

    @property
    def _corrects_warm_up(self) -> bool:
        return self.mends_labels and self.settings.correct_warm_up_loss

    def _warm_up_targets(self, annotations: BatchAnnotations) -> Tensor | None:
        """Return the targets of warm-up after a prescreen: q(c) ~ p(c) T[c, y] by that alone."""
        prior = self.estimator.prior_for(annotations)
        if prior is None or not self._corrects_warm_up:
            return None
        first = equations.posterior(prior, annotations.labels, self.estimator.state["transition"])
        label_floors = self.estimator.label_floors(annotations.labels)
        return equations.soft_targets(
            equations.raise_to_floor(first, annotations.labels, label_floors)
        )

    def _matches(
        self, annotations: BatchAnnotations, proposals: Proposals, is_warm_up: bool
    ) -> votes.Matches:
        """Centre matching as published (Eq. 15 to 19); in warm-up b* is b."""
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

    def _scores(
        self, matches: votes.Matches, scorer: BoxScorer
    ) -> tuple[SecondStageOutput, SecondStageOutput]:
        """Score b* and, where anything is asked of them, the proposals, in one call."""
        count = matches.matched.shape[1]
        if not self._needs_proposals:
            return votes.split_scores(scorer(matches.matched), count)
        return votes.split_scores(
            scorer(torch.cat([matches.matched, matches.proposals], dim=1)), count
        )

    def _judge_labels(self, evidence: Tensor, annotations: BatchAnnotations) -> judgements.Judged:
        """Judge the labels; in the published order, judged first and pushed after."""
        state, seen = self._state, self.estimator.state
        if not self.mends_labels:
            return judgements.keep_labels(evidence, annotations)
        if self.settings.judgement == "posterior":
            label_floors = self.estimator.label_floors(annotations.labels)
            return judgements.judge_by_posterior(
                evidence, annotations, seen["transition"], seen["tau"], label_floors
            )
        acceptance = equations.acceptance_from_rate(self.estimator.rate)
        limit = equations.threshold(state["queue"], acceptance)
        judged = judgements.judge_by_queue(evidence, annotations, limit)
        pushed = self.exchange.all_gather(judged[1].loss, annotations.is_box)
        state["queue"].copy_(equations.push(state["queue"], *pushed))
        return judged

    def _boxes(
        self,
        annotations: BatchAnnotations,
        matches: votes.Matches,
        scores: tuple[SecondStageOutput, SecondStageOutput],
        posteriors: Tensor,
    ) -> Tensor:
        """Final boxes [B, A, 4]; what the box noise is estimated from is counted along the way."""
        if not self.mends_boxes:
            return annotations.boxes
        settings, keep = self.settings, self._state["keep"]
        heard = votes.gather_voters(annotations, matches, scores, posteriors, settings.vote_min_iou)
        self.estimator.count_agreement(annotations, heard)
        if settings.boxes == "average":
            return votes.average_boxes(annotations, matches, heard, keep)
        if settings.boxes == "vote" or settings.raw_box_share is not None:
            return votes.vote_boxes(annotations, heard, keep, settings.cluster_min_iou)
        state = self._state
        at_border = equations.count_at_border(
            annotations.boxes, annotations.sizes, annotations.is_box
        )
        state["border"] += self.exchange.all_sum(at_border)
        edges = votes.EdgeNoise(state["noise"], state["vote_error"], state["held"])
        return votes.estimate_boxes(annotations, heard, edges, keep, settings.cluster_min_iou)

    @property
    def _is_soft(self) -> bool:
        """Whether posteriors are trained on: unsure annotations then take part like all others."""
        settings = self.settings
        return self.mends_labels and settings.soft_labels and settings.judgement == "posterior"

    def _soft(self, posteriors: Tensor) -> Tensor | None:
        return equations.soft_targets(posteriors) if self._is_soft else None

    def _roles(self, verdict: Tensor, annotations: BatchAnnotations) -> Roles:
        """Everything trains everything, but for unsure annotations where labels are hard."""
        if self._is_soft or not self.mends_labels:
            return Roles(
                annotations.is_box, annotations.is_box, torch.zeros_like(annotations.is_box)
            )
        return equations.training_roles(verdict, annotations.is_box, self.settings.discarded)
