"""The noise estimator: a memory of evidence, and estimates of the noise once an epoch."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boxmend.data.label_noise_model import LABEL_NOISE_MODEL as SHARED
from boxmend.detector import Proposals
from boxmend.errors import UsageError
from boxmend.methods import equations, estimation, votes
from boxmend.methods.equations import BoxNoise, NoiseModel, PrescreenResult
from boxmend.methods.equations.box_noise import NUM_BINS
from boxmend.methods.protocol import SINGLE_PROCESS, BatchAnnotations, BoxScorer, Exchange, Method
from boxmend.methods.rates import Rates, check_rates
from boxmend.runs.settings import MendSettings

UNKNOWN_BOUNDS = (0.0, 1.0)  # of a rate that was not measured


@dataclass(frozen=True)
class NoiseEstimatorConstants:
    """The limits from which on an estimate counts, and from which on it no longer falls."""

    negligible_rate: float = SHARED.negligible_rate
    first_lost_epoch: int = 1  # in the first epoch no class is predicted reliably
    first_firm_epoch: int = 2  # from the third epoch on estimates no longer fall
    prescreen_max_interval: float = SHARED.prescreen_max_interval
    prescreen_max_doubt: float = SHARED.prescreen_max_doubt


ESTIMATOR = NoiseEstimatorConstants()


class NoiseEstimator:
    """A memory of evidence about every annotation, and the estimates of the noise.

    `rate` and `box` are the measured or the known noise; `figures` also corrects for memorisation.
    """

    def __init__(
        self,
        num_annotations: int,
        num_labels: int,
        settings: MendSettings,
        rates: Rates,
        device: torch.device | str = "cpu",
        exchange: Exchange = SINGLE_PROCESS,
    ):
        self.settings = settings
        self.exchange = exchange
        self.rates = check_rates(rates)
        self.rate = settings.initial_label_noise if rates.label is None else rates.label
        is_gaussian = settings.box_noise_shape == "gaussian"
        self.box = BoxNoise(0.0 if rates.box is None else rates.box, 0.0, is_gaussian=is_gaussian)
        self.num_annotations, self.num_labels = num_annotations, num_labels
        self.prior: Tensor | None = None
        """Probabilities of the prescreen, if there was one; one row per row of the memory."""
        # The last row is for padding. Changes are in place, because a captured step holds
        # addresses.
        self.state: dict[str, Tensor] = {
            "memory": torch.zeros(num_annotations + 1, num_labels, device=device),
            "visits": torch.zeros(num_annotations + 1, dtype=torch.int32, device=device),
            "labels": torch.zeros(num_annotations + 1, dtype=torch.int64, device=device),
            "residuals": torch.zeros(NUM_BINS, dtype=torch.float64, device=device),
            "pull": torch.zeros(2, dtype=torch.float64, device=device),
            "transition": equations.symmetric_transition(self.rate, num_labels, device),
            "tau": torch.full((), settings.temperature or 1.0, device=device),
            "lost": torch.zeros(num_labels, dtype=torch.bool, device=device),
            "label_bounds": torch.tensor(UNKNOWN_BOUNDS, dtype=torch.float64, device=device),
            "box_bounds": torch.tensor(UNKNOWN_BOUNDS, dtype=torch.float64, device=device),
        }
        if settings.min_object_score > 0:
            self.state["objects"] = torch.zeros(num_annotations + 1, device=device)

    def known_rates(self) -> Rates:
        """Return the known rates, else the estimates, else None; a negligible estimate is 0."""
        figures, known = self.figures(), self.rates._asdict()
        for name, rate in known.items():
            if rate is None and self.is_estimated(name):
                estimate = figures[f"{name}_noise"]
                known[name] = estimate if estimate >= ESTIMATOR.negligible_rate else 0.0
        return Rates(**known)

    def prescreen(self, rows: Tensor, labels: Tensor, result: PrescreenResult) -> dict[str, float]:
        """Adopt the prescreen of the annotations `rows` [n] with labels [n], if it is informative.

        Its probabilities are out-of-fold, so they cannot memorise a label: its noise model is kept,
        and later only tau is fitted. Returns the figures, or {} if the prescreen is not adopted.
        """
        model, probabilities = result.model, result.probabilities.cpu()
        low, high = estimation.rate_bounds(probabilities, labels.cpu(), model._replace(tau=1.0))
        posteriors = equations.posterior(probabilities, labels.cpu(), model.transition.cpu())
        doubt = 1 - float(posteriors.amax(-1).mean())  # expected share of errors after relabelling
        max_doubt = ESTIMATOR.prescreen_max_doubt * model.rate
        is_informative = doubt <= max_doubt or model.rate < ESTIMATOR.negligible_rate
        if high - low > ESTIMATOR.prescreen_max_interval or not is_informative:
            return {}
        state = self.state
        self.prior = torch.full_like(state["memory"], 1 / self.num_labels)
        self.prior[rows.to(self.prior.device)] = probabilities.to(self.prior)
        if self.rates.label is None:
            self.rate = model.rate
            state["label_bounds"].copy_(torch.tensor([low, high]))
        state["transition"].copy_(model.transition)
        state["lost"].copy_(
            estimation.find_lost_classes(posteriors, labels.cpu(), model.transition.cpu())
        )
        return self.figures()

    def prior_for(self, annotations: BatchAnnotations) -> Tensor | None:
        """Return the prescreen's probabilities for the annotations of a batch, [B, A, C]."""
        return None if self.prior is None else self.prior[self._memory_rows(annotations)]

    def store(self, annotations: BatchAnnotations, probabilities: Tensor) -> Tensor:
        """Add the scores s [B, A, 1 + C] of a visit to the memory. Returns p, [B, A, C]."""
        state = self.state
        if self.settings.foreground_only:
            evidence = equations.foreground_probabilities(probabilities)
        else:
            evidence = probabilities[..., 1:].float()
        has_row = self._has_row(annotations).reshape(-1)
        rows = self._memory_rows(annotations).reshape(-1)
        mean, visits = equations.update_memory(
            state["memory"][rows],
            state["visits"][rows],
            evidence.flatten(0, 1),
            has_row,
            self.settings.memory_min_weight,
        )
        labels = torch.where(has_row, annotations.labels.reshape(-1), 0)
        columns = {"memory": mean, "visits": visits, "labels": labels}
        if "objects" in state:
            columns["objects"] = self._average_objects(rows, probabilities, has_row)
        rows, *gathered = self.exchange.all_gather(rows, *columns.values())
        for name, values in zip(columns, gathered, strict=True):
            state[name].index_copy_(0, rows, values)
        mean, prior = mean.view_as(evidence), self.prior_for(annotations)
        return mean if prior is None else self._with_prior(mean, prior)

    def _average_objects(self, rows: Tensor, probabilities: Tensor, has_row: Tensor) -> Tensor:
        """Return the remembered probability that there is an object at each row, [B * A]."""
        now = 1 - probabilities[..., :1].float().flatten(0, 1)
        mean, _ = equations.update_memory(
            self.state["objects"][rows, None],
            self.state["visits"][rows],
            now,
            has_row,
            self.settings.memory_min_weight,
        )
        return mean[:, 0]

    def count_agreement(self, annotations: BatchAnnotations, voters: votes.Voters) -> None:
        """Count the agreement of annotated boxes with the vote, unless the box noise is known."""
        if self.rates.box is None:
            settings = self.settings
            agreement = votes.measure_agreement(
                annotations,
                voters,
                settings.vote_min_iou,
                settings.cluster_min_iou,
                settings.residual_min_score,
            )
            sums = self.exchange.all_sum(torch.cat(agreement))  # [NUM_BINS + 2]
            self.state["residuals"] += sums[:NUM_BINS]
            self.state["pull"] += sums[NUM_BINS:]

    def observe(
        self, annotations: BatchAnnotations, proposals: Proposals, scorer: BoxScorer
    ) -> None:
        """Store evidence and count agreement with one more call of the heads.

        Methods that do neither themselves call this.
        """
        settings = self.settings
        top, _, is_top = equations.top_proposals(*proposals[:3], settings.num_proposals)
        no_candidate = torch.zeros_like(annotations.labels[..., None])
        matches = votes.Matches(annotations.boxes, top, is_top, no_candidate, no_candidate.bool())
        count = annotations.boxes.shape[1]
        scores = votes.split_scores(scorer(torch.cat([annotations.boxes, top], dim=1)), count)
        evidence = self.store(annotations, scores[0].probabilities)
        voters = votes.gather_voters(annotations, matches, scores, evidence, settings.vote_min_iou)
        self.count_agreement(annotations, voters)

    def end_epoch(self, epoch: int, is_warm_up: bool) -> None:
        """Update the estimates of unknown rates.

        Later estimates do not fall any more, because the detector memorises errors and then no
        longer sees them.
        """
        is_firm = epoch >= ESTIMATOR.first_firm_epoch and not is_warm_up
        if self.rates.label != 0:
            self._estimate_labels(epoch, is_firm)
        if self.rates.box is None:
            self._estimate_boxes(is_firm)
        self.state["residuals"].zero_()
        self.state["pull"].zero_()

    def label_floors(self, labels: Tensor) -> Tensor:
        """Return the lowest q(y) for labels [...]: T[y, y] for lost classes, otherwise 0."""
        floors = torch.where(self.state["lost"], self.state["transition"].diagonal(), 0)  # [C]
        return floors[labels]

    def is_estimated(self, name: str) -> bool:
        """Return whether the noise of "label" or "box" was measured."""
        return tuple(self.state[f"{name}_bounds"].tolist()) != UNKNOWN_BOUNDS

    def figures(self) -> dict[str, float]:
        """Return the known noise, or the estimates with their intervals."""
        figures: dict[str, float] = {}
        for name, rate in (("label", self.rate), ("box", self.box.noise)):
            if self.is_estimated(name):
                estimate = estimation.Estimate(rate, *self.state[f"{name}_bounds"].tolist())
                is_memorised = name != "label" or self.prior is None
                figures |= estimate.figures(f"{name}_noise", is_memorised=is_memorised)
            else:
                figures[f"{name}_noise"] = rate
        return figures

    def report(self) -> dict[str, Any]:
        """Return the noise and the confused classes."""
        state, report = self.state, dict[str, Any](self.figures())
        if self.rates.label != 0:
            report["confusions"] = estimation.find_confusions(
                *self._visits(), state["transition"].cpu(), float(state["tau"])
            )
        return report

    def state_dict(self) -> dict[str, Any]:
        """Return the memory, the counts and the estimates."""
        tensors = {name: tensor.clone() for name, tensor in self.state.items()}
        prior = {} if self.prior is None else {"prior": self.prior.clone()}
        numbers = {"rate": self.rate, "box_noise": self.box.noise, "error": self.box.error}
        return {**tensors, **prior, **numbers, "is_gaussian": self.box.is_gaussian}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state with the same numbers of annotations and classes."""
        if "prior" in state and self.prior is None:
            self.prior = torch.empty_like(self.state["memory"])
        prior = {} if self.prior is None else {"prior": self.prior}
        for name, tensor in (self.state | prior).items():
            if state[name].shape != tensor.shape:
                was, now = list(state[name].shape), list(tensor.shape)
                raise UsageError(
                    f"{name} of the saved state has shape {was}, but this dataset needs {now}; "
                    "load a state of the same dataset"
                )
        for name, tensor in (self.state | prior).items():
            tensor.copy_(state[name])
        self.rate = float(state["rate"])
        self.box = BoxNoise(
            float(state["box_noise"]),
            float(state["error"]),
            is_gaussian=bool(state.get("is_gaussian")),  # older versions saved none
        )

    def _estimate_labels(self, epoch: int, is_firm: bool) -> None:
        state, settings = self.state, self.settings
        evidence, labels = self._visits()
        if not len(labels):
            return
        known = NoiseModel(self.rate, float(state["tau"]), state["transition"].cpu(), False)
        if self.rates.label is None and self.prior is None:
            model = estimation.fit_label_noise(
                evidence, labels, self.rate, full=settings.full_matrix
            )
            if not is_firm or model.rate >= self.rate:
                bounds = estimation.rate_bounds(evidence, labels, model)
                state["label_bounds"].copy_(torch.tensor(bounds))
            if is_firm:
                model = estimation.keep_higher_rate(model, evidence, labels, known)
        else:
            tau = equations.fit_temperature(evidence, labels, known.transition)
            model = known._replace(tau=tau)
        self.rate = model.rate
        state["tau"].fill_(model.tau if settings.temperature is None else settings.temperature)
        state["transition"].copy_(model.transition)
        posteriors = equations.posterior(evidence, labels, model.transition, float(state["tau"]))
        noise = model.transition
        if self.prior is None:  # T fitted to the detector would explain the classes that it lost
            noise = equations.symmetric_transition(model.rate, self.num_labels)
        lost = estimation.find_lost_classes(posteriors, labels, noise)
        is_early = epoch < ESTIMATOR.first_lost_epoch and self.prior is None
        state["lost"].copy_(lost & (not is_early))

    def _visits(self) -> tuple[Tensor, Tensor]:
        """Return evidence [n, C] and labels [n] of all visited annotations, on the CPU.

        With `min_object_score`, those that are hardly objects are left out.
        """
        state, evidence, visits = self.state, self.state["memory"], self.state["visits"]
        if self.prior is not None:
            evidence = self._with_prior(evidence, self.prior)
        if "objects" in state:
            visits = torch.where(state["objects"] >= self.settings.min_object_score, visits, 0)
        return estimation.visited_evidence(evidence, visits, state["labels"])

    def _with_prior(self, evidence: Tensor, prior: Tensor) -> Tensor:
        return equations.combine_evidence(evidence, prior, self.settings.prescreen_weight)

    @staticmethod
    def _has_row(annotations: BatchAnnotations) -> Tensor:
        return annotations.is_box & (annotations.rows >= 0)

    def _memory_rows(self, annotations: BatchAnnotations) -> Tensor:
        """Return the rows of the memory, [B, A]; the last row for padding."""
        return torch.where(
            self._has_row(annotations), annotations.rows.long(), len(self.state["visits"]) - 1
        )

    def _estimate_boxes(self, is_firm: bool) -> None:
        estimate = equations.fit_box_noise(
            self.state["residuals"], self.state["pull"].cpu(), self.settings.box_noise_shape
        )
        if is_firm and estimate.noise < self.box.noise:
            return
        self.box = estimate
        self.state["box_bounds"].copy_(torch.tensor([estimate.low, estimate.high]))


class EstimatingMethod(Method):
    """A base for methods that estimate unknown noise rates.

    A subclass applies new estimates in `_apply_estimates`, and saves and loads the rest of its
    state in `_own_state` and `_load_own_state`.
    """

    has_warm_up = True

    def __init__(self, estimator: NoiseEstimator | None, exchange: Exchange):
        """Keep the estimator; None if no rate is estimated."""
        self.estimator = estimator
        self.exchange = exchange

    def observe(
        self, annotations: BatchAnnotations, proposals: Proposals, scorer: BoxScorer
    ) -> None:
        """Pass a batch to the estimator, if there is one."""
        if self.estimator is not None:
            self.estimator.observe(annotations, proposals, scorer)

    def end_epoch(self, epoch: int, *, is_warm_up: bool) -> Mapping[str, Any]:
        """Update the estimates and apply them."""
        if self.estimator is None:
            return {}
        self.estimator.end_epoch(epoch, is_warm_up and self.has_warm_up)
        self._apply_estimates(self.estimator)
        return self.estimator.figures()

    def report(self) -> Mapping[str, Any]:
        """Return the estimated noise and the confused classes, if a rate is estimated."""
        return {} if self.estimator is None else self.estimator.report()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the estimator and of the method."""
        estimates = {} if self.estimator is None else self.estimator.state_dict()
        return {**estimates, **self._own_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state of the same settings and the same numbers of annotations and classes."""
        self._load_own_state(state)
        if self.estimator is not None:
            self.estimator.load_state_dict(state)
            self._apply_estimates(self.estimator)

    @abstractmethod
    def _apply_estimates(self, estimator: NoiseEstimator) -> None:
        """Set everything that depends on the rates; this may wait for the device."""

    @abstractmethod
    def _own_state(self) -> dict[str, Any]:
        """Return the state of the method without the estimator's."""

    @abstractmethod
    def _load_own_state(self, state: Mapping[str, Any]) -> None:
        """Load what `_own_state` returned; raise a UsageError if it does not fit."""
