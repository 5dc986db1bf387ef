"""The changed method: posteriors with memory in place of verdicts, votes in place of averages.

Beyond the paper. Per annotation, p is the detector's distribution over the foreground classes at
b*, averaged over visits; q(c) ~ p(c)^tau T[c, y] is what is trained on, T and tau are estimated
once a pass; boxes are blended with a vote by a share that follows from the estimated box noise.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from boxmend import refinement
from boxmend.detector import Proposals, RoiSample, Scores, Targets
from boxmend.errors import UsageError
from boxmend.methods import estimation, verdicts, votes
from boxmend.methods.outcomes import Judged, merged, shares, untouched, without_padding
from boxmend.methods.protocol import BoxScorer, Given, Moment, Outcome
from boxmend.methods.rates import Rates, check_rates
from boxmend.refinement import NoiseModel, Roles
from boxmend.refinement.box_noise import BINS
from boxmend.settings import MendSettings

UNFITTED_KEEP = 1.0  # before the first estimate boxes stay as they are
FIRM_PASS = 2  # from the third pass on the detector knows enough for estimates that last


class Mend:
    """The changed method; it remembers evidence for every annotation of the dataset."""

    def __init__(
        self,
        num_annotations: int,
        num_labels: int,
        settings: MendSettings = MendSettings(),  # noqa: B008  # frozen
        rates: Rates = Rates(),  # noqa: B008  # a tuple
        device: torch.device | str = "cpu",
    ):
        self.settings = settings
        self.rates = check_rates(rates)
        self.mends_labels = rates.label != 0
        self.mends_boxes = rates.box != 0
        self.rate = settings.first_rate if rates.label is None else rates.label
        self.box_noise = 0.0 if rates.box is None else rates.box
        self._is_warm_up = True
        # The last row takes the padding. All is changed in place: a captured step has addresses.
        self._state: dict[str, Tensor] = {
            "memory": torch.zeros(num_annotations + 1, num_labels, device=device),
            "visits": torch.zeros(num_annotations + 1, dtype=torch.int32, device=device),
            "labels": torch.zeros(num_annotations + 1, dtype=torch.int64, device=device),
            "queue": refinement.empty_queue(settings.queue_length, device),
            "residuals": torch.zeros(BINS, dtype=torch.float64, device=device),
            "pull": torch.zeros(2, dtype=torch.float64, device=device),
            "transition": refinement.symmetric_transition(self.rate, num_labels, device),
            "tau": torch.full((), settings.temperature or 1.0, device=device),
            "keep": torch.full((), UNFITTED_KEEP, device=device),
            "alpha": torch.zeros((), device=device),
        }
        self._set_shares(UNFITTED_KEEP)

    @torch.no_grad()
    def refine(
        self, given: Given, proposals: Proposals, scorer: BoxScorer, moment: Moment
    ) -> Outcome:
        """Gather evidence about a batch and, after warm-up, mend it."""
        given = without_padding(given)
        self._is_warm_up = moment.is_warm_up
        if not (self.mends_labels or self.mends_boxes):
            return untouched(given)
        matches = self._matches(given, proposals)
        scores = self._scores(matches, scorer)
        evidence = self._remembered(given, scores[0].probabilities)  # p, [B, A, C]
        opinion = self._opinion(evidence, given)
        boxes = self._boxes(given, matches, scores, opinion.posteriors)
        num_candidates = matches.is_candidate.sum(-1)
        if moment.is_warm_up:
            metrics = shares(given, num_candidates=num_candidates)
            counted = torch.where(given.is_box, num_candidates, 0)
            outcome = untouched(given, opinion.loss)
            return outcome._replace(num_candidates=counted, metrics=metrics)
        judged = Judged(
            boxes=boxes,
            labels=opinion.labels,
            verdict=opinion.verdict,
            loss=opinion.loss,
            threshold=opinion.threshold,
            confidence=opinion.posteriors.amax(-1),
            num_candidates=num_candidates,
            matched=matches.matched,
        )
        roles = self._roles(opinion.verdict, given)
        return merged(given, judged, roles, self._soft(opinion.posteriors))

    @torch.no_grad()
    def class_targets(self, logits: Tensor, rois: RoiSample, roi: Targets) -> Tensor | None:
        """Correct the loss of warm-up: r(c) = s(c) T[c, y] / sum_c s(c) T[c, y].

        Cross-entropy against r has the gradient of -log sum_c s(c) T[c, y]; s is the current
        prediction, and background has no part in r. RoIs of no object are background.
        """
        if not (self._is_warm_up and self.mends_labels and self.settings.forward_warm_up):
            return None
        is_object = rois.is_positive[..., None]
        foreground = torch.where(is_object, logits[..., 1:].float(), 0).softmax(-1)
        objects = refinement.posterior(foreground, rois.labels, self._state["transition"])
        background = torch.zeros_like(objects[..., :1]) + 1
        nothing = functional.pad(background, (0, objects.shape[-1]))
        return torch.where(is_object, refinement.soft_targets(objects), nothing)

    def end_epoch(self, epoch: int) -> Mapping[str, Any]:
        """Estimate the label noise from the memory, the box noise from the pass's residuals.

        Once the detector is trained well enough, estimates no longer fall: what it learns by
        heart looks right to it.
        """
        is_firm = epoch >= FIRM_PASS and not self._is_warm_up
        if self.mends_labels:
            self._estimate_labels(is_firm)
        if self.rates.box is None:
            self._estimate_boxes(is_firm)
        self._state["residuals"].zero_()
        self._state["pull"].zero_()
        return {
            "label_noise": self.rate,
            "tau": float(self._state["tau"]),
            "box_noise": self.box_noise,
            "keep": float(self._state["keep"]),
        }

    def state_dict(self) -> dict[str, Any]:
        """Give memory, counts and estimates."""
        tensors = {name: tensor.clone() for name, tensor in self._state.items()}
        return {**tensors, "rate": self.rate, "box_noise": self.box_noise}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a state made for as many annotations and classes."""
        for name, tensor in self._state.items():
            if state[name].shape != tensor.shape:
                was, now = list(state[name].shape), list(tensor.shape)
                raise UsageError(f"{name} of the state has shape {was}, this dataset needs {now}")
        for name, tensor in self._state.items():
            tensor.copy_(state[name])
        self.rate, self.box_noise = float(state["rate"]), float(state["box_noise"])

    def _estimate_labels(self, is_firm: bool) -> None:
        state, settings = self._state, self.settings
        evidence, labels = estimation.visited(state["memory"], state["visits"], state["labels"])
        if not len(labels):
            return
        known = NoiseModel(self.rate, float(state["tau"]), state["transition"].cpu(), False)
        if self.rates.label is None:
            model = estimation.estimated_labels(
                evidence, labels, self.rate, full=settings.full_matrix
            )
            if is_firm:
                model = estimation.at_least(model, evidence, labels, known)
        else:
            tau = estimation.fitted_tau(evidence, labels, known.transition)
            model = known._replace(tau=tau)
        self.rate = model.rate
        state["tau"].fill_(model.tau if settings.temperature is None else settings.temperature)
        state["transition"].copy_(model.transition)

    def _estimate_boxes(self, is_firm: bool) -> None:
        settings = self.settings
        estimate = refinement.fit_box_noise(self._state["residuals"], self._state["pull"].cpu())
        if is_firm and estimate.noise < self.box_noise:
            return
        self.box_noise = estimate.noise
        self._set_shares(refinement.keep_share(estimate, settings.least_keep, settings.off_above))

    def _set_shares(self, estimated: float) -> None:
        """Choose keep and alpha: from the settings, a known box noise, or the estimate."""
        keep, alpha = self.settings.keep, self.settings.alpha
        if keep is None:
            known = self.rates.box
            keep = estimated if known is None else estimation.keep_at_rate(known)
        if alpha is None:
            alpha = 0.0 if keep == 1 else refinement.alpha_from_rate(self.box_noise)
        self._state["keep"].fill_(keep)
        self._state["alpha"].fill_(alpha)

    def _matches(self, given: Given, proposals: Proposals) -> votes.Matches:
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
        if self.mends_boxes and not self._is_warm_up:
            candidates = refinement.candidate_boxes(top, places, is_candidate)
            nearest = refinement.matched_boxes(given.boxes, candidates, is_candidate, alpha=1.0)
            matched = torch.lerp(given.boxes, nearest, self._state["alpha"])  # b*
        return votes.Matches(matched, top, is_top, places, is_candidate)

    def _scores(self, matches: votes.Matches, scorer: BoxScorer) -> tuple[Scores, Scores]:
        """Score b* and, where boxes are mended, the proposals, in one call."""
        count = matches.matched.shape[1]
        if not self.mends_boxes:
            return votes.split(scorer(matches.matched), count)
        return votes.split(scorer(torch.cat([matches.matched, matches.proposals], dim=1)), count)

    def _remembered(self, given: Given, probabilities: Tensor) -> Tensor:
        """Put the evidence of a visit into the memory. Returns that of the batch, [B, A, C]."""
        state = self._state
        if self.settings.foreground:
            evidence = refinement.foreground_probabilities(probabilities)
        else:
            evidence = probabilities[..., 1:].float()
        is_seen = (given.is_box & (given.rows >= 0)).reshape(-1)
        rows = torch.where(is_seen, given.rows.reshape(-1).long(), len(state["visits"]) - 1)
        mean, visits = refinement.remember(
            state["memory"][rows],
            state["visits"][rows],
            evidence.flatten(0, 1),
            is_seen,
            self.settings.least_new,
        )
        state["memory"].index_copy_(0, rows, mean)
        state["visits"].index_copy_(0, rows, visits)
        labels = torch.where(is_seen, given.labels.reshape(-1), 0)
        state["labels"].index_copy_(0, rows, labels)
        return mean.view_as(evidence)

    def _opinion(self, evidence: Tensor, given: Given) -> verdicts.Opinion:
        """What to think of the labels; in the published order, judged first and pushed after."""
        state = self._state
        if not self.mends_labels:
            return verdicts.as_given(evidence, given)
        if self.settings.judgment == "posterior":
            return verdicts.by_posterior(evidence, given, state["transition"], state["tau"])
        acceptance = refinement.acceptance_from_rate(self.rate)
        limit = refinement.threshold(state["queue"], acceptance)
        opinion = verdicts.by_queue(evidence, given, limit)
        state["queue"].copy_(refinement.push(state["queue"], opinion.loss, given.is_box))
        return opinion

    def _boxes(
        self,
        given: Given,
        matches: votes.Matches,
        scores: tuple[Scores, Scores],
        posteriors: Tensor,
    ) -> Tensor:
        """Final boxes [B, A, 4]; what the box noise is estimated from is counted along the way."""
        if not self.mends_boxes:
            return given.boxes
        settings, keep = self.settings, self._state["keep"]
        heard = votes.voters(given, matches, scores, posteriors, settings.near)
        if self.rates.box is None:
            found = votes.agreement(
                given, heard, settings.near, settings.alike, settings.residual_score
            )
            self._state["residuals"] += found.residuals
            self._state["pull"] += found.pull
        if settings.boxes == "average":
            return votes.averaged(given, matches, heard, keep)
        return votes.voted(given, heard, keep, settings.alike)

    @property
    def _is_soft(self) -> bool:
        """Whether posteriors are trained on: unsure annotations then take part like all others."""
        settings = self.settings
        return self.mends_labels and settings.soft_labels and settings.judgment == "posterior"

    def _soft(self, posteriors: Tensor) -> Tensor | None:
        return refinement.soft_targets(posteriors) if self._is_soft else None

    def _roles(self, verdict: Tensor, given: Given) -> Roles:
        """Everything trains everything, but for unsure annotations where labels are hard."""
        if self._is_soft or not self.mends_labels:
            return Roles(given.is_box, given.is_box, torch.zeros_like(given.is_box))
        return refinement.training_roles(verdict, given.is_box, self.settings.discarded)
