"""Watching the noise: what every visit shows of it, kept for the estimates made once a pass."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from boxmend import refinement
from boxmend.detector import Proposals
from boxmend.errors import UsageError
from boxmend.methods import estimation, votes
from boxmend.methods.protocol import BoxScorer, Exchange, Given
from boxmend.methods.rates import Rates, check_rates
from boxmend.refinement import BoxNoise, NoiseModel
from boxmend.refinement.box_noise import BINS
from boxmend.settings import MendSettings

UNKNOWN_BOUNDS = (0.0, 1.0)
NEXT_TO_NONE = 0.02  # an estimate below it counts as no noise
FIRST_LOST_PASS = 1  # after the first pass no class is found for certain
FIRM_PASS = 2  # from the third pass on the detector knows enough for estimates that last


class NoiseWatch:
    """Evidence about every annotation, and the noise that follows from it.

    `rate` and `box` are as measured, or as told; `figures` makes up for what is learnt by heart.
    """

    def __init__(
        self,
        num_annotations: int,
        num_labels: int,
        settings: MendSettings,
        rates: Rates,
        device: torch.device | str = "cpu",
    ):
        self.settings = settings
        self.rates = check_rates(rates)
        self.rate = settings.first_rate if rates.label is None else rates.label
        self.box = BoxNoise(0.0 if rates.box is None else rates.box, 0.0)
        # The last row takes the padding. All is changed in place: a captured step has addresses.
        self.state: dict[str, Tensor] = {
            "memory": torch.zeros(num_annotations + 1, num_labels, device=device),
            "visits": torch.zeros(num_annotations + 1, dtype=torch.int32, device=device),
            "labels": torch.zeros(num_annotations + 1, dtype=torch.int64, device=device),
            "residuals": torch.zeros(BINS, dtype=torch.float64, device=device),
            "pull": torch.zeros(2, dtype=torch.float64, device=device),
            "transition": refinement.symmetric_transition(self.rate, num_labels, device),
            "tau": torch.full((), settings.temperature or 1.0, device=device),
            "lost": torch.zeros(num_labels, dtype=torch.bool, device=device),
            "label_bounds": torch.tensor(UNKNOWN_BOUNDS, dtype=torch.float64, device=device),
            "box_bounds": torch.tensor(UNKNOWN_BOUNDS, dtype=torch.float64, device=device),
        }

    def known_rates(self) -> Rates:
        """Give the rates as told, else as estimated, next to none as none; unknown before that."""
        found, known = self.figures(), self.rates._asdict()
        for name, rate in known.items():
            if rate is None and self.is_estimated(name):
                estimate = found[f"{name}_noise"]
                known[name] = estimate if estimate >= NEXT_TO_NONE else 0.0
        return Rates(**known)

    def remember(self, given: Given, probabilities: Tensor, exchange: Exchange) -> Tensor:
        """Put s [B, A, 1 + C] of a visit into the memory. Returns the batch's p, [B, A, C]."""
        state = self.state
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
        labels = torch.where(is_seen, given.labels.reshape(-1), 0)
        rows, *seen = exchange.gathered(rows, mean, visits, labels)
        for name, values in zip(("memory", "visits", "labels"), seen, strict=True):
            state[name].index_copy_(0, rows, values)
        return mean.view_as(evidence)

    def compare(self, given: Given, heard: votes.Voters, exchange: Exchange) -> None:
        """Count how annotated boxes and the vote agree, where the box noise is not told."""
        if self.rates.box is None:
            settings = self.settings
            found = votes.agreement(
                given, heard, settings.near, settings.alike, settings.residual_score
            )
            sums = exchange.total(torch.cat(found))  # [BINS + 2]
            self.state["residuals"] += sums[:BINS]
            self.state["pull"] += sums[BINS:]

    def observe(
        self, given: Given, proposals: Proposals, scorer: BoxScorer, exchange: Exchange
    ) -> None:
        """Do both for a method that does neither, with one more call of the heads."""
        settings = self.settings
        top, _, is_top = refinement.top_proposals(*proposals[:3], settings.num_proposals)
        nobody = torch.zeros_like(given.labels[..., None])
        matches = votes.Matches(given.boxes, top, is_top, nobody, nobody.bool())
        count = given.boxes.shape[1]
        scores = votes.split(scorer(torch.cat([given.boxes, top], dim=1)), count)
        evidence = self.remember(given, scores[0].probabilities, exchange)
        heard = votes.voters(given, matches, scores, evidence, settings.near)
        self.compare(given, heard, exchange)

    def end_pass(self, epoch: int, is_warm_up: bool) -> None:
        """Estimate anew what is not told.

        Once the detector is trained well enough, estimates no longer fall: what it learns by
        heart looks right to it.
        """
        is_firm = epoch >= FIRM_PASS and not is_warm_up
        if self.rates.label != 0:
            self._estimate_labels(epoch, is_firm)
        if self.rates.box is None:
            self._estimate_boxes(is_firm)
        self.state["residuals"].zero_()
        self.state["pull"].zero_()

    def floors(self, labels: Tensor) -> Tensor:
        """Tell how far labels [...] are to be believed at least: of a lost class, 1 - its noise."""
        share = torch.where(self.state["lost"], self.state["transition"].diagonal(), 0)  # [C]
        return share[labels]

    def is_estimated(self, name: str) -> bool:
        """Say whether the noise of "label" or "box" was measured, and not told or believed."""
        return tuple(self.state[f"{name}_bounds"].tolist()) != UNKNOWN_BOUNDS

    def figures(self) -> dict[str, float]:
        """Tell the noise as told, or as found with its bounds."""
        figures: dict[str, float] = {}
        for name, rate in (("label", self.rate), ("box", self.box.noise)):
            if self.is_estimated(name):
                low, high = self.state[f"{name}_bounds"].tolist()
                figures |= estimation.Estimate(rate, low, high).told(f"{name}_noise")
            else:
                figures[f"{name}_noise"] = rate
        return figures

    def report(self) -> dict[str, Any]:
        """Tell the noise that was found, and which labels stand for which others."""
        state, found = self.state, dict[str, Any](self.figures())
        if self.rates.label != 0:
            seen = estimation.visited(state["memory"], state["visits"], state["labels"])
            found["confusions"] = estimation.confusions(
                *seen, state["transition"].cpu(), float(state["tau"])
            )
        return found

    def state_dict(self) -> dict[str, Any]:
        """Give memory, counts and estimates."""
        tensors = {name: tensor.clone() for name, tensor in self.state.items()}
        return {**tensors, "rate": self.rate, "box_noise": self.box.noise, "error": self.box.error}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a state made for as many annotations and classes."""
        for name, tensor in self.state.items():
            if state[name].shape != tensor.shape:
                was, now = list(state[name].shape), list(tensor.shape)
                raise UsageError(f"{name} of the state has shape {was}, this dataset needs {now}")
        for name, tensor in self.state.items():
            tensor.copy_(state[name])
        self.rate = float(state["rate"])
        self.box = BoxNoise(float(state["box_noise"]), float(state["error"]))

    def _estimate_labels(self, epoch: int, is_firm: bool) -> None:
        state, settings = self.state, self.settings
        evidence, labels = estimation.visited(state["memory"], state["visits"], state["labels"])
        if not len(labels):
            return
        known = NoiseModel(self.rate, float(state["tau"]), state["transition"].cpu(), False)
        if self.rates.label is None:
            model = estimation.estimated_labels(
                evidence, labels, self.rate, full=settings.full_matrix
            )
            if not is_firm or model.rate >= self.rate:
                bounds = estimation.bounds(evidence, labels, model)
                state["label_bounds"].copy_(torch.tensor(bounds))
            if is_firm:
                model = estimation.at_least(model, evidence, labels, known)
        else:
            tau = estimation.fitted_tau(evidence, labels, known.transition)
            model = known._replace(tau=tau)
        self.rate = model.rate
        state["tau"].fill_(model.tau if settings.temperature is None else settings.temperature)
        state["transition"].copy_(model.transition)
        found = refinement.posterior(evidence, labels, model.transition, float(state["tau"]))
        lost = estimation.lost_classes(found, labels, model.rate)
        state["lost"].copy_(lost & (epoch >= FIRST_LOST_PASS))

    def _estimate_boxes(self, is_firm: bool) -> None:
        estimate = refinement.fit_box_noise(self.state["residuals"], self.state["pull"].cpu())
        if is_firm and estimate.noise < self.box.noise:
            return
        self.box = estimate
        self.state["box_bounds"].copy_(torch.tensor([estimate.low, estimate.high]))
