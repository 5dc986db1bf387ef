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
from boxmend.ledger import Verdict
from boxmend.methods import estimation, votes
from boxmend.methods.mend_settings import MendSettings
from boxmend.methods.outcomes import Judged, merged, shares, untouched, without_padding
from boxmend.methods.protocol import BoxScorer, Given, Moment, Outcome
from boxmend.refinement import Roles
from boxmend.refinement.box_noise import BINS
from boxmend.refinement.evidence import TINY

UNFITTED_KEEP = 1.0  # before the first estimate boxes stay as they are


class Mend:
    """The changed method; it remembers evidence for every annotation of the dataset."""

    def __init__(
        self,
        num_annotations: int,
        num_labels: int,
        settings: MendSettings,
        device: torch.device | str = "cpu",
    ):
        self.settings = settings
        self.mends_labels = settings.label_rate != 0
        self.mends_boxes = settings.box_rate != 0
        self.rate = settings.first_rate if settings.label_rate is None else settings.label_rate
        self.box_noise = 0.0 if settings.box_rate is None else settings.box_rate
        self._is_warm_up = True
        # The last row takes the padding. All is changed in place: a captured step has addresses.
        self._state: dict[str, Tensor] = {
            "memory": torch.zeros(num_annotations + 1, num_labels, device=device),
            "visits": torch.zeros(num_annotations + 1, dtype=torch.int32, device=device),
            "labels": torch.zeros(num_annotations + 1, dtype=torch.int64, device=device),
            "residuals": torch.zeros(BINS, dtype=torch.float64, device=device),
            "transition": refinement.symmetric_transition(self.rate, num_labels, device),
            "tau": torch.ones((), device=device),
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
        posteriors = self._posteriors(evidence, given)  # q, [B, A, C]
        boxes = self._boxes(given, matches, scores, posteriors)
        loss, threshold = self._losses(evidence, posteriors, given)
        num_candidates = matches.is_candidate.sum(-1)
        if moment.is_warm_up:
            metrics = shares(given, num_candidates=num_candidates)
            counted = torch.where(given.is_box, num_candidates, 0)
            return untouched(given, loss)._replace(num_candidates=counted, metrics=metrics)
        verdict, labels = self._verdicts(posteriors, given)
        judged = Judged(
            boxes=boxes,
            labels=labels,
            verdict=verdict,
            loss=loss,
            threshold=threshold,
            confidence=posteriors.amax(-1),
            num_candidates=num_candidates,
            matched=matches.matched,
        )
        return merged(given, judged, self._roles(verdict, given), self._soft(posteriors))

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
        """Estimate the label noise from the memory, the box noise from the pass's residuals."""
        state, settings = self._state, self.settings
        evidence, labels = estimation.visited(state["memory"], state["visits"], state["labels"])
        if self.mends_labels and len(labels):
            if settings.label_rate is None:
                model = estimation.estimated_labels(
                    evidence, labels, self.rate, full=settings.full_matrix
                )
            else:
                model = estimation.labels_at_rate(evidence, labels, settings.label_rate)
            self.rate = model.rate
            state["tau"].fill_(model.tau)
            state["transition"].copy_(model.transition)
        if settings.box_rate is None:
            estimate = refinement.fit_box_noise(state["residuals"])
            self.box_noise = estimate.noise
            self._set_shares(
                refinement.keep_share(estimate, settings.least_keep, settings.off_above)
            )
        state["residuals"].zero_()
        return {
            "label_rate": self.rate,
            "tau": float(state["tau"]),
            "box_noise": self.box_noise,
            "keep": float(state["keep"]),
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

    def _set_shares(self, estimated: float) -> None:
        """Choose keep and alpha: from the settings, a known box noise, or the estimate."""
        keep, alpha = self.settings.keep, self.settings.alpha
        if keep is None:
            known = self.settings.box_rate
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
        evidence = refinement.foreground_probabilities(probabilities)
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

    def _posteriors(self, evidence: Tensor, given: Given) -> Tensor:
        """q [B, A, C]; all on y where labels are left alone."""
        labels = torch.where(given.is_box, given.labels, 0)
        if not self.mends_labels:
            return functional.one_hot(labels, evidence.shape[-1]).to(evidence.dtype)
        return refinement.posterior(evidence, labels, self._state["transition"], self._state["tau"])

    def _boxes(
        self,
        given: Given,
        matches: votes.Matches,
        scores: tuple[Scores, Scores],
        posteriors: Tensor,
    ) -> Tensor:
        """Final boxes [B, A, 4]; the residuals of the vote are counted along the way."""
        if not self.mends_boxes:
            return given.boxes
        settings, keep = self.settings, self._state["keep"]
        heard = votes.voters(given, matches, scores, posteriors, settings.near)
        if settings.box_rate is None:
            self._state["residuals"] += votes.residual_counts(
                given, heard, settings.residual_score, settings.alike
            )
        if settings.boxes == "average":
            return votes.averaged(given, matches, heard, keep)
        return votes.voted(given, heard, keep, settings.alike)

    def _losses(self, evidence: Tensor, posteriors: Tensor, given: Given) -> tuple[Tensor, Tensor]:
        """-log p(y), and the loss at which q(y) would be 0.5 if the others stayed; both [B, A].

        The odds of y are p(y)^tau times what the others have, so the distance to even odds is
        log(q(y) / (1 - q(y))) / tau. Where labels are left alone, no loss is too high.
        """
        column = torch.where(given.is_box, given.labels, 0)[..., None]
        loss = -evidence.gather(-1, column)[..., 0].clamp(min=TINY).log()
        if not self.mends_labels:
            return loss, torch.full_like(loss, torch.inf)
        right = posteriors.gather(-1, column)  # [B, A, 1]
        wrong = posteriors.scatter(-1, column, 0).sum(-1).clamp(min=TINY)
        odds = right[..., 0].clamp(min=TINY).log() - wrong.log()
        return loss, loss + odds / self._state["tau"]

    def _verdicts(self, posteriors: Tensor, given: Given) -> tuple[Tensor, Tensor]:
        """Verdicts, and y where kept, else the class of highest q; both [B, A]."""
        if not self.mends_labels:
            return torch.full_like(given.labels, int(Verdict.UNJUDGED)), given.labels
        verdict = refinement.posterior_verdicts(posteriors, given.labels, given.is_box)
        is_kept = verdict == int(Verdict.KEPT)
        return verdict, torch.where(is_kept, given.labels, posteriors.argmax(-1))

    def _soft(self, posteriors: Tensor) -> Tensor | None:
        if self.mends_labels and self.settings.soft_labels:
            return refinement.soft_targets(posteriors)
        return None

    def _roles(self, verdict: Tensor, given: Given) -> Roles:
        """Everything trains everything, but for unsure annotations where labels are hard."""
        if self.settings.soft_labels or not self.mends_labels:
            return Roles(given.is_box, given.is_box, torch.zeros_like(given.is_box))
        return refinement.training_roles(verdict, given.is_box, self.settings.discarded)
