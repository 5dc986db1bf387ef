"""Estimates of the noise, made once an epoch; the functions here may wait for the device."""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from boxmend.data.label_noise_model import LABEL_NOISE_MODEL as SHARED
from boxmend.methods.equations import (
    NoiseModel,
    fit_noise_model,
    fit_rate_and_temperature,
    fit_temperature,
    posterior,
    rate_interval,
    symmetric_transition,
)


@dataclass(frozen=True)
class EstimationConstants:
    """Corrections and limits of the estimates."""

    # Share of the errors that the detector memorises before they are measured: 0.05 to 0.17 in
    # runs with known noise; see docs/method.md.
    memorised_share: float = 0.12
    max_memorised_share: float = 0.2
    lost_class_max_share: float = SHARED.lost_class_max_share
    min_eigenvalue: float = SHARED.min_eigenvalue
    min_class_annotations: int = SHARED.min_class_annotations
    min_confusion_share: float = 0.05  # of a label's annotations; rarer confusions are not listed
    # Weight of the annotated box by box noise, interpolated linearly.
    raw_share_by_noise: tuple[tuple[float, float], ...] = ((0.0, 1.0), (0.2, 0.5), (0.4, 0.375))


ESTIMATION = EstimationConstants()


def fit_label_noise(
    evidence: Tensor, labels: Tensor, previous: float, *, full: bool = True
) -> NoiseModel:
    """Fit the rate, tau and, if `full`, a full matrix to p [n, C] and labels [n] on the CPU."""
    if full:
        return fit_noise_model(evidence, labels, previous)
    rate, tau = fit_rate_and_temperature(evidence, labels, previous)
    return NoiseModel(rate, tau, symmetric_transition(rate, evidence.shape[1]), is_full=False)


class Estimate(NamedTuple):
    """A measured rate with its confidence interval."""

    rate: float
    low: float
    high: float

    def figures(self, name: str, *, is_memorised: bool = True) -> dict[str, float]:
        """Return the rate and its interval for the log, corrected for memorisation.

        A detector no longer sees the errors that it has memorised. The rate is raised accordingly
        and the interval widened, unless the estimate comes from predictions that are out-of-fold.
        """
        if not is_memorised:
            return {name: self.rate, f"{name}_low": self.low, f"{name}_high": self.high}
        return {
            name: min(self.rate / (1 - ESTIMATION.memorised_share), 1.0),
            f"{name}_low": self.low,
            f"{name}_high": min(self.high / (1 - ESTIMATION.max_memorised_share), 1.0),
        }


def find_confusions(
    evidence: Tensor,
    labels: Tensor,
    transition: Tensor,
    tau: float,
    min_share: float = ESTIMATION.min_confusion_share,
) -> list[tuple[int, int, float, float]]:
    """List the confused classes as (label, true class, share, number), largest number first.

    Takes p [n, C] and labels [n]. The share of a label's annotations that belong to another class
    is the mean posterior of that class; pairs with a share below `min_share` are left out.
    """
    posteriors = posterior(evidence, labels, transition.to(evidence.dtype), tau)  # [n, C]
    num_labels = evidence.shape[1]
    numbers = torch.zeros(num_labels, num_labels).index_add_(0, labels, posteriors.float())
    totals = torch.bincount(labels, minlength=num_labels).clamp(min=1)
    shares = (numbers / totals[:, None]).fill_diagonal_(0)
    pairs = [
        (int(row), int(column), float(shares[row, column]), float(numbers[row, column]))
        for row, column in (shares >= min_share).nonzero().tolist()
    ]
    return sorted(pairs, key=lambda pair: -pair[3])


def find_lost_classes(posteriors: Tensor, labels: Tensor, transition: Tensor) -> Tensor:
    """Mark the classes that the detector has lost to others; [C].

    Takes q [n, C], labels [n] and T [C, C]. True class shares t give label shares t T, so the label
    shares imply t. A class of which q finds less than half of that is not mislabelled but lost: a
    detector that takes all arrows for crosses relabels them, trains on the result and never
    recovers. For the same reason T must not be fitted to the predictions of that detector.
    """
    n, num_labels = posteriors.shape
    transition = transition.double()
    if not n or torch.linalg.eigvals(transition).real.min() < ESTIMATION.min_eigenvalue:
        return torch.zeros(num_labels, dtype=torch.bool)
    label_shares = torch.bincount(labels, minlength=num_labels).double() / n
    implied: Tensor = torch.linalg.solve(transition.T, label_shares)
    is_rare = posteriors.mean(0) < ESTIMATION.lost_class_max_share * implied
    return is_rare & (implied * n >= ESTIMATION.min_class_annotations)


def rate_bounds(evidence: Tensor, labels: Tensor, model: NoiseModel) -> tuple[float, float]:
    """Return the interval of a model's rate; a full matrix has the width of symmetric noise."""
    if not model.is_full:
        return rate_interval(evidence, labels, model.rate, model.tau)
    rate, tau = fit_rate_and_temperature(evidence, labels, model.rate)
    low, high = rate_interval(evidence, labels, rate, tau)
    return max(model.rate + low - rate, 0.0), min(model.rate + high - rate, 1.0)


def keep_higher_rate(
    model: NoiseModel, evidence: Tensor, labels: Tensor, known: NoiseModel
) -> NoiseModel:
    """Return the new model, or the known one with a new tau if the new rate is lower.

    The noise of a dataset does not change during training. The detector memorises more and more
    errors, so later estimates can only be too low.
    """
    if model.rate >= known.rate:
        return model
    return known._replace(tau=fit_temperature(evidence, labels, known.transition))


def raw_box_share_at(box_rate: float) -> float:
    """Return the weight of the annotated box for a known box noise.

    It is 1 at 0, 0.5 at 0.2 and 0.375 from 0.4 on, with straight lines between. At 0.4 a trial
    found 0.35 and 0.5 equally good.
    """
    points = ESTIMATION.raw_share_by_noise
    for (low, at_low), (high, at_high) in pairwise(points):
        if box_rate <= high:
            return at_low + (at_high - at_low) * (box_rate - low) / (high - low)
    return points[-1][1]


def visited_evidence(memory: Tensor, visits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return evidence [n, C] and labels [n] of all visited annotations, on the CPU.

    The last row of the memory belongs to padding and does not count.
    """
    is_visited = (visits > 0).cpu()
    is_visited[-1] = False
    return memory.cpu()[is_visited], labels.cpu()[is_visited].to(torch.int64)
