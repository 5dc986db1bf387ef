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
from boxmend.methods import equations as refinement
from boxmend.methods import estimation, judgements, missing, votes
from boxmend.methods.equations import Belief, Roles
from boxmend.methods.equations.box_noise import BINS
from boxmend.methods.noise_estimator import EstimatingMethod, NoiseEstimator
from boxmend.methods.outcomes import merged, shares, untouched, without_padding
from boxmend.methods.protocol import (
    ALONE,
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
from boxmend.methods.steps import ordinary_losses
from boxmend.runs.settings import MendSettings

UNFITTED_KEEP = 1.0  # before the first estimate boxes stay as they are
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
        exchange: Exchange = ALONE,
    ):
        sizes = (num_annotations, num_labels)
        super().__init__(NoiseEstimator(*sizes, settings, rates, device, exchange), exchange)
        self.settings = settings
        self.rates = rates
        self.mends_labels = rates.label != 0
        self.mends_boxes = rates.box != 0
        # Changed in place: a captured step has addresses.
        self._state: dict[str, Tensor] = {
            "queue": refinement.empty_queue(settings.queue_length, device),
            "keep": torch.full((), UNFITTED_KEEP, device=device),
            "alpha": torch.zeros((), device=device),
            "noise": torch.zeros((), device=device),
            "vote_error": torch.zeros((), device=device),
            "held": torch.zeros((), device=device),
            "border": torch.zeros(1 + BINS, dtype=torch.float64, device=device),
        }
        self._beta: float | None = None
        self._set_shares(UNFITTED_KEEP)

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
        seen = refinement.prescreen_labels(
            features, labels, described.folds, self.estimator.num_labels, belief
        )
        return self.estimator.prescreen(described.rows, labels, seen)

    def losses(self, work: StepContext) -> tuple[Outcome, Losses]:
        """Compute the losses of Faster R-CNN on the mended batch."""
        return ordinary_losses(self, work)

    @torch.no_grad()
    def refine(
        self,
        given: BatchAnnotations,
        proposals: Proposals,
        scorer: BoxScorer,
        moment: TrainingProgress,
    ) -> Outcome:
        """Gather evidence about a batch and, after warm-up, mend it."""
        given = without_padding(given)
        self._was_warm_up = moment.is_warm_up
        if not (self.mends_labels or self._needs_proposals):
            return untouched(given)
        matches = self._matches(given, proposals, moment.is_warm_up)
        scores = self._scores(matches, scorer)
        evidence = self.estimator.remember(given, scores[0].probabilities)  # p
        posteriors, judged = self._judged(evidence, given)
        boxes = self._boxes(given, matches, scores, posteriors)
        num_candidates = matches.is_candidate.sum(-1)
        if moment.is_warm_up:
            metrics = shares(given, num_candidates=num_candidates)
            counted = torch.where(given.is_box, num_candidates, 0)
            outcome = untouched(given, judged.loss)
            outcome = outcome._replace(num_candidates=counted, metrics=metrics)
            outcome = outcome._replace(roi=outcome.roi._replace(soft=self._first_soft(given)))
            return self._for_noisy_boxes(outcome, given, UNFITTED_KEEP)
        refined = judged._replace(
            boxes=boxes, num_candidates=num_candidates, matched=matches.matched
        )
        roles = self._roles(refined.verdict, given)
        outcome = merged(given, refined, roles, self._soft(posteriors))
        outcome = self._for_noisy_boxes(outcome, given, self._state["keep"])
        return self._without_missing(outcome, given, matches, scores[1])

    def phase(self, moment: TrainingProgress) -> Hashable:
        """Tell warm-up from what follows."""
        return moment.is_warm_up

    @torch.no_grad()
    def class_targets(
        self, logits: Tensor, rois: RoiSample, roi: Targets, moment: TrainingProgress
    ) -> Tensor | None:
        """Correct the loss of warm-up: r(c) = s(c) T[c, y] / sum_c s(c) T[c, y].

        Cross-entropy against r has the gradient of -log sum_c s(c) T[c, y]; s is the current
        prediction, and background has no part in r. RoIs of no object are background. After a
        prescreen nothing needs correcting: warm-up is trained on what that says.
        """
        is_corrected = moment.is_warm_up and self._corrects_warm_up
        if not is_corrected or self.estimator.prior is not None:
            return None
        is_object = rois.is_positive[..., None]
        foreground = torch.where(is_object, logits[..., 1:].float(), 0).softmax(-1)
        objects = refinement.posterior(foreground, rois.labels, self.estimator.state["transition"])
        objects = refinement.raised_to(objects, rois.labels, self.estimator.floors(rois.labels))
        background = torch.zeros_like(objects[..., :1]) + 1
        nothing = functional.pad(background, (0, objects.shape[-1]))
        return torch.where(is_object, refinement.soft_targets(objects), nothing)

    def end_epoch(self, epoch: int) -> Mapping[str, Any]:
        """Estimate the noise anew, and from it the shares of raw box and p*."""
        found, keep = super().end_epoch(epoch), float(self._state["keep"])
        held = 0.0
        if keep < 1:
            held = refinement.share_held(self._state["border"], found["box_noise"])
        self._state["held"].fill_(held)
        tau = float(self.estimator.state["tau"])
        lost = int(self.estimator.state["lost"].sum())
        return {**found, "tau": tau, "keep": keep, "lost_classes": lost, "held_at_border": held}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a state made for as many annotations and classes."""
        super().load_state_dict(state)
        self._set_shares(float(state["keep"]))  # from which all others follow

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

    def _follow(self, estimator: NoiseEstimator) -> None:
        """Choose how boxes are mended by the estimated box noise."""
        if self.rates.box is None:
            settings = self.settings
            self._set_shares(
                refinement.keep_share(
                    estimator.box, settings.raw_box_min_share, settings.disable_above
                )
            )

    def _set_shares(self, estimated: float) -> None:
        """Choose how boxes are mended: by the settings, a known box noise, or the estimate.

        Annotated edges are off by the whole noise, also by what is learnt by heart of it.
        """
        found = self.estimator.figures()["box_noise"]
        keep, alpha = self.settings.raw_box_share, self.settings.alpha
        if keep is None:
            known = self.rates.box
            keep = estimated if known is None else estimation.keep_at_rate(known)
        if alpha is None:
            alpha = 0.0 if keep == 1 else refinement.alpha_from_rate(found)
        noise = found if keep < 1 else 0.0
        error = self.estimator.box.error or refinement.TYPICAL_ERROR
        values = {"keep": keep, "alpha": alpha, "noise": noise, "vote_error": error}
        for name, value in values.items():
            self._state[name].fill_(value)
        self._beta = self.settings.box_beta if keep < 1 else None  # None: the detector's own

    def _for_noisy_boxes(
        self, outcome: Outcome, given: BatchAnnotations, keep: Tensor | float
    ) -> Outcome:
        """Regress to where noisy edges are in the mean, also where the border cut them off."""
        if not self.mends_boxes:
            return outcome
        roi = outcome.roi._replace(beta=self._beta)
        if self.settings.extend_past_border:
            outside = keep * self._state["noise"] / 2
            aims = refinement.uncut_boxes(roi.boxes, given.boxes, given.sizes, outside)
            roi = roi._replace(aims=torch.where(given.is_box[..., None], aims, roi.boxes))
        return outcome._replace(roi=roi)

    @property
    def _needs_proposals(self) -> bool:
        """Whether anything is asked of the proposals: boxes, or objects that nobody annotated."""
        return self.mends_boxes or self.settings.missing_min_score is not None

    def _without_missing(
        self,
        outcome: Outcome,
        given: BatchAnnotations,
        matches: votes.Matches,
        scores: SecondStageOutput,
    ) -> Outcome:
        """Leave objects out that nobody annotated, where that is asked for."""
        if self.settings.missing_min_score is None:
            return outcome
        found = missing.missing_objects(given, matches, scores, self.settings.missing_min_score)
        share = found.is_object.sum() / given.is_box.sum().clamp(min=1)
        return outcome._replace(
            rpn=missing.left_out(outcome.rpn, found),
            roi=missing.left_out(outcome.roi, found),
            metrics={**outcome.metrics, "missing": share},
        )

    @property
    def _corrects_warm_up(self) -> bool:
        return self.mends_labels and self.settings.correct_warm_up_loss

    def _first_soft(self, given: BatchAnnotations) -> Tensor | None:
        """Return the targets of warm-up after a prescreen: q(c) ~ p(c) T[c, y] by that alone."""
        prior = self.estimator.prior_of(given)
        if prior is None or not self._corrects_warm_up:
            return None
        first = refinement.posterior(prior, given.labels, self.estimator.state["transition"])
        floors = self.estimator.floors(given.labels)
        return refinement.soft_targets(refinement.raised_to(first, given.labels, floors))

    def _matches(
        self, given: BatchAnnotations, proposals: Proposals, is_warm_up: bool
    ) -> votes.Matches:
        """Centre matching as published (Eq. 15 to 19); in warm-up b* is b."""
        settings = self.settings
        top, objectness, is_top = refinement.top_proposals(*proposals[:3], settings.num_proposals)
        fitness = refinement.center_fitness(given.boxes, top, settings.gamma)  # [B, A, P]
        is_fitting = refinement.candidate_mask(
            fitness, given.is_box, is_top, settings.fit_threshold
        )
        places, is_candidate = refinement.top_candidates(
            is_fitting, objectness, settings.num_candidates
        )
        matched = given.boxes
        if self.mends_boxes and not is_warm_up:
            candidates = refinement.candidate_boxes(top, places, is_candidate)
            nearest = refinement.matched_boxes(given.boxes, candidates, is_candidate, alpha=1.0)
            matched = torch.lerp(given.boxes, nearest, self._state["alpha"])  # b*
        return votes.Matches(matched, top, is_top, places, is_candidate)

    def _scores(
        self, matches: votes.Matches, scorer: BoxScorer
    ) -> tuple[SecondStageOutput, SecondStageOutput]:
        """Score b* and, where anything is asked of them, the proposals, in one call."""
        count = matches.matched.shape[1]
        if not self._needs_proposals:
            return votes.split(scorer(matches.matched), count)
        return votes.split(scorer(torch.cat([matches.matched, matches.proposals], dim=1)), count)

    def _judged(self, evidence: Tensor, given: BatchAnnotations) -> judgements.Judged:
        """Judge the labels; in the published order, judged first and pushed after."""
        state, seen = self._state, self.estimator.state
        if not self.mends_labels:
            return judgements.as_given(evidence, given)
        if self.settings.judgement == "posterior":
            floors = self.estimator.floors(given.labels)
            return judgements.by_posterior(evidence, given, seen["transition"], seen["tau"], floors)
        acceptance = refinement.acceptance_from_rate(self.estimator.rate)
        limit = refinement.threshold(state["queue"], acceptance)
        judged = judgements.by_queue(evidence, given, limit)
        pushed = self.exchange.gathered(judged[1].loss, given.is_box)
        state["queue"].copy_(refinement.push(state["queue"], *pushed))
        return judged

    def _boxes(
        self,
        given: BatchAnnotations,
        matches: votes.Matches,
        scores: tuple[SecondStageOutput, SecondStageOutput],
        posteriors: Tensor,
    ) -> Tensor:
        """Final boxes [B, A, 4]; what the box noise is estimated from is counted along the way."""
        if not self.mends_boxes:
            return given.boxes
        settings, keep = self.settings, self._state["keep"]
        heard = votes.voters(given, matches, scores, posteriors, settings.vote_min_iou)
        self.estimator.compare(given, heard)
        if settings.boxes == "average":
            return votes.averaged(given, matches, heard, keep)
        if settings.boxes == "vote" or settings.raw_box_share is not None:
            return votes.voted(given, heard, keep, settings.cluster_min_iou)
        state = self._state
        at_border = refinement.count_at_border(given.boxes, given.sizes, given.is_box)
        state["border"] += self.exchange.total(at_border)
        edges = votes.EdgeNoise(state["noise"], state["vote_error"], state["held"])
        return votes.expected(given, heard, edges, keep, settings.cluster_min_iou)

    @property
    def _is_soft(self) -> bool:
        """Whether posteriors are trained on: unsure annotations then take part like all others."""
        settings = self.settings
        return self.mends_labels and settings.soft_labels and settings.judgement == "posterior"

    def _soft(self, posteriors: Tensor) -> Tensor | None:
        return refinement.soft_targets(posteriors) if self._is_soft else None

    def _roles(self, verdict: Tensor, given: BatchAnnotations) -> Roles:
        """Everything trains everything, but for unsure annotations where labels are hard."""
        if self._is_soft or not self.mends_labels:
            return Roles(given.is_box, given.is_box, torch.zeros_like(given.is_box))
        return refinement.training_roles(verdict, given.is_box, self.settings.discarded)
