"""The noise estimator: evidence of every visit, and estimates of the noise once an epoch."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from boxmend.detector import Proposals
from boxmend.errors import UsageError
from boxmend.methods import equations, estimation, votes
from boxmend.methods.equations import BoxNoise, NoiseModel, PrescreenResult
from boxmend.methods.equations.box_noise import NUM_BINS
from boxmend.methods.protocol import SINGLE_PROCESS, BatchAnnotations, BoxScorer, Exchange, Method
from boxmend.methods.rates import Rates, check_rates
from boxmend.runs.settings import MendSettings

UNKNOWN_BOUNDS = (0.0, 1.0)
NEGLIGIBLE_RATE = 0.02  # an estimate below it counts as no noise
FIRST_LOST_PASS = 1  # after the first pass no class is found for certain
FIRM_PASS = 2  # from the third pass on the detector knows enough for estimates that last
WIDE_BOUNDS = 0.1  # of the rate by the prescreen: with wider ones it says too little
MOST_DOUBT = 0.6  # of the wrong labels may be left by a prescreen that counts


class NoiseEstimator:
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
        exchange: Exchange = SINGLE_PROCESS,
    ):
        self.settings = settings
        self.exchange = exchange
        self.rates = check_rates(rates)
        self.rate = settings.initial_label_noise if rates.label is None else rates.label
        self.box = BoxNoise(0.0 if rates.box is None else rates.box, 0.0)
        self.num_annotations, self.num_labels = num_annotations, num_labels
        self.prior: Tensor | None = None
        """Probabilities by the prescreen, if there was one; a row for each row of the memory."""
        # The last row takes the padding. All is changed in place: a captured step has addresses.
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

    def known_rates(self) -> Rates:
        """Give the rates as told, else as estimated, next to none as none; unknown before that."""
        found, known = self.figures(), self.rates._asdict()
        for name, rate in known.items():
            if rate is None and self.is_estimated(name):
                estimate = found[f"{name}_noise"]
                known[name] = estimate if estimate >= NEGLIGIBLE_RATE else 0.0
        return Rates(**known)

    def prescreen(self, rows: Tensor, labels: Tensor, seen: PrescreenResult) -> dict[str, float]:
        """Take over the prescreen of the annotations `rows` [n] with labels [n], if it says enough.

        Its probabilities are out-of-fold, so they cannot memorise a label: the noise that it found
        stays, and only tau is fitted anew. Returns the figures, or nothing if it says too little.
        """
        model, chances = seen.model, seen.probabilities.cpu()
        low, high = estimation.rate_bounds(chances, labels.cpu(), model._replace(tau=1.0))
        found = equations.posterior(chances, labels.cpu(), model.transition.cpu())  # [n, C]
        doubt = 1 - float(found.amax(-1).mean())  # errors to expect after mending by this alone
        is_enough = doubt <= MOST_DOUBT * model.rate or model.rate < NEGLIGIBLE_RATE
        if high - low > WIDE_BOUNDS or not is_enough:
            return {}
        state = self.state
        self.prior = torch.full_like(state["memory"], 1 / self.num_labels)
        self.prior[rows.to(self.prior.device)] = chances.to(self.prior)
        if self.rates.label is None:
            self.rate = model.rate
            state["label_bounds"].copy_(torch.tensor([low, high]))
        state["transition"].copy_(model.transition)
        state["lost"].copy_(
            estimation.find_lost_classes(found, labels.cpu(), model.transition.cpu())
        )
        return self.figures()

    def prior_for(self, annotations: BatchAnnotations) -> Tensor | None:
        """Return the prescreen's probabilities for the annotations of a batch, [B, A, C]."""
        return None if self.prior is None else self.prior[self._places(annotations)]

    def store(self, annotations: BatchAnnotations, probabilities: Tensor) -> Tensor:
        """Put s [B, A, 1 + C] of a visit into the memory. Returns the batch's p, [B, A, C]."""
        state = self.state
        if self.settings.foreground_only:
            evidence = equations.foreground_probabilities(probabilities)
        else:
            evidence = probabilities[..., 1:].float()
        is_seen, rows = (
            self._is_seen(annotations).reshape(-1),
            self._places(annotations).reshape(-1),
        )
        mean, visits = equations.update_memory(
            state["memory"][rows],
            state["visits"][rows],
            evidence.flatten(0, 1),
            is_seen,
            self.settings.memory_min_weight,
        )
        labels = torch.where(is_seen, annotations.labels.reshape(-1), 0)
        rows, *seen = self.exchange.all_gather(rows, mean, visits, labels)
        for name, values in zip(("memory", "visits", "labels"), seen, strict=True):
            state[name].index_copy_(0, rows, values)
        mean, prior = mean.view_as(evidence), self.prior_for(annotations)
        return mean if prior is None else self._weighed(mean, prior)

    def count_agreement(self, annotations: BatchAnnotations, heard: votes.Voters) -> None:
        """Count how annotated boxes and the vote agree, where the box noise is not told."""
        if self.rates.box is None:
            settings = self.settings
            found = votes.measure_agreement(
                annotations,
                heard,
                settings.vote_min_iou,
                settings.cluster_min_iou,
                settings.residual_min_score,
            )
            sums = self.exchange.all_sum(torch.cat(found))  # [NUM_BINS + 2]
            self.state["residuals"] += sums[:NUM_BINS]
            self.state["pull"] += sums[NUM_BINS:]

    def observe(
        self, annotations: BatchAnnotations, proposals: Proposals, scorer: BoxScorer
    ) -> None:
        """Do both for a method that does neither, with one more call of the heads."""
        settings = self.settings
        top, _, is_top = equations.top_proposals(*proposals[:3], settings.num_proposals)
        nobody = torch.zeros_like(annotations.labels[..., None])
        matches = votes.Matches(annotations.boxes, top, is_top, nobody, nobody.bool())
        count = annotations.boxes.shape[1]
        scores = votes.split_scores(scorer(torch.cat([annotations.boxes, top], dim=1)), count)
        evidence = self.store(annotations, scores[0].probabilities)
        heard = votes.gather_voters(annotations, matches, scores, evidence, settings.vote_min_iou)
        self.count_agreement(annotations, heard)

    def end_epoch(self, epoch: int, is_warm_up: bool) -> None:
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

    def label_floors(self, labels: Tensor) -> Tensor:
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
                estimate = estimation.Estimate(rate, *self.state[f"{name}_bounds"].tolist())
                is_learnt = name != "label" or self.prior is None
                figures |= estimate.figures(f"{name}_noise", is_learnt=is_learnt)
            else:
                figures[f"{name}_noise"] = rate
        return figures

    def report(self) -> dict[str, Any]:
        """Tell the noise that was found, and which labels stand for which others."""
        state, found = self.state, dict[str, Any](self.figures())
        if self.rates.label != 0:
            found["confusions"] = estimation.find_confusions(
                *self._seen(), state["transition"].cpu(), float(state["tau"])
            )
        return found

    def state_dict(self) -> dict[str, Any]:
        """Give memory, counts and estimates."""
        tensors = {name: tensor.clone() for name, tensor in self.state.items()}
        looked = {} if self.prior is None else {"prior": self.prior.clone()}
        numbers = {"rate": self.rate, "box_noise": self.box.noise, "error": self.box.error}
        return {**tensors, **looked, **numbers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a state made for as many annotations and classes."""
        if "prior" in state and self.prior is None:
            self.prior = torch.empty_like(self.state["memory"])
        looked = {} if self.prior is None else {"prior": self.prior}
        for name, tensor in (self.state | looked).items():
            if state[name].shape != tensor.shape:
                was, now = list(state[name].shape), list(tensor.shape)
                raise UsageError(f"{name} of the state has shape {was}, this dataset needs {now}")
        for name, tensor in (self.state | looked).items():
            tensor.copy_(state[name])
        self.rate = float(state["rate"])
        self.box = BoxNoise(float(state["box_noise"]), float(state["error"]))

    def _estimate_labels(self, epoch: int, is_firm: bool) -> None:
        state, settings = self.state, self.settings
        evidence, labels = self._seen()
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
        found = equations.posterior(evidence, labels, model.transition, float(state["tau"]))
        noise = model.transition
        if self.prior is None:  # it may be the detector's own, which explains all that it lost
            noise = equations.symmetric_transition(model.rate, self.num_labels)
        lost = estimation.find_lost_classes(found, labels, noise)
        is_early = epoch < FIRST_LOST_PASS and self.prior is None
        state["lost"].copy_(lost & (not is_early))

    def _seen(self) -> tuple[Tensor, Tensor]:
        """The evidence [n, C] about all that was visited, with its labels [n], on the CPU."""
        state, evidence = self.state, self.state["memory"]
        if self.prior is not None:
            evidence = self._weighed(evidence, self.prior)
        return estimation.visited_evidence(evidence, state["visits"], state["labels"])

    def _weighed(self, evidence: Tensor, prior: Tensor) -> Tensor:
        return equations.combine_evidence(evidence, prior, self.settings.prescreen_weight)

    @staticmethod
    def _is_seen(annotations: BatchAnnotations) -> Tensor:
        return annotations.is_box & (annotations.rows >= 0)

    def _places(self, annotations: BatchAnnotations) -> Tensor:
        """Rows of the memory, [B, A]; of padding the last one."""
        return torch.where(
            self._is_seen(annotations), annotations.rows.long(), len(self.state["visits"]) - 1
        )

    def _estimate_boxes(self, is_firm: bool) -> None:
        estimate = equations.fit_box_noise(self.state["residuals"], self.state["pull"].cpu())
        if is_firm and estimate.noise < self.box.noise:
            return
        self.box = estimate
        self.state["box_bounds"].copy_(torch.tensor([estimate.low, estimate.high]))


class EstimatingMethod(Method):
    """Holds what methods share that go by estimates of the noise, where nobody tells it.

    A subclass follows new estimates in `_follow`, and gives what it remembers besides by
    `_own_state` and takes it up by `_load_own_state`.
    """

    has_warm_up = True

    def __init__(self, estimator: NoiseEstimator | None, exchange: Exchange):
        """Take an estimator where a rate is to be estimated."""
        self.estimator = estimator
        self.exchange = exchange

    def observe(
        self, annotations: BatchAnnotations, proposals: Proposals, scorer: BoxScorer
    ) -> None:
        """Gather evidence about a batch, where a rate is to be estimated."""
        if self.estimator is not None:
            self.estimator.observe(annotations, proposals, scorer)

    def end_epoch(self, epoch: int, *, is_warm_up: bool) -> Mapping[str, Any]:
        """Estimate the rates that are not told, and follow them."""
        if self.estimator is None:
            return {}
        self.estimator.end_epoch(epoch, is_warm_up and self.has_warm_up)
        self._apply_estimates(self.estimator)
        return self.estimator.figures()

    def report(self) -> Mapping[str, Any]:
        """Return the estimated noise and which labels stand for which others, if estimated."""
        return {} if self.estimator is None else self.estimator.report()

    def state_dict(self) -> dict[str, Any]:
        """Return what the estimates rest on, and the method's own state."""
        watched = {} if self.estimator is None else self.estimator.state_dict()
        return {**watched, **self._own_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a state made for as many annotations and classes, and the same settings."""
        self._load_own_state(state)
        if self.estimator is not None:
            self.estimator.load_state_dict(state)
            self._apply_estimates(self.estimator)

    @abstractmethod
    def _apply_estimates(self, estimator: NoiseEstimator) -> None:
        """Set what depends on the rates by the estimates; this may wait for the device."""

    @abstractmethod
    def _own_state(self) -> dict[str, Any]:
        """Return what the method remembers besides the estimates."""

    @abstractmethod
    def _load_own_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `_own_state` returned; raise a UsageError where it does not fit."""
