"""What the noise is, estimated once a pass; everything here may wait for the device."""

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from boxmend.methods.equations import (
    NoiseModel,
    fit_noise_model,
    fit_rate_and_temperature,
    fit_temperature,
    posterior,
    rate_interval,
    symmetric_transition,
)

LEARNT = 0.12  # of the errors are learnt by heart before they are measured: .05 to .17 of them
MOST_LEARNT = 0.2  # in runs with known noise; see docs/method.md
LOST_BELOW = 0.5
LEAST_SLOPE = 0.1  # eigenvalue of T: so much noise that labels tell next to nothing
FEW_ANNOTATIONS = 10
KEEP_AT = ((0.0, 1.0), (0.2, 0.5), (0.4, 0.375))  # box noise, share of the raw box


def fit_label_noise(
    evidence: Tensor, labels: Tensor, previous: float, *, full: bool = True
) -> NoiseModel:
    """Fit the rate, tau and, with `full`, the matrix to p [n, C] and labels [n] on the CPU."""
    if full:
        return fit_noise_model(evidence, labels, previous)
    rate, tau = fit_rate_and_temperature(evidence, labels, previous)
    return NoiseModel(rate, tau, symmetric_transition(rate, evidence.shape[1]), is_full=False)


class Estimate(NamedTuple):
    """A rate as measured, with the bounds that chance leaves."""

    rate: float
    low: float
    high: float

    def figures(self, name: str, *, is_learnt: bool = True) -> dict[str, float]:
        """Figures for the log: what is learnt by heart made up for, and the bounds widened by it.

        What a detector has learnt by heart it does not see as an error any more. Who has not
        learnt from what is measured tells it as it is.
        """
        if not is_learnt:
            return {name: self.rate, f"{name}_low": self.low, f"{name}_high": self.high}
        most = 1 - LEARNT
        return {
            name: min(self.rate / most, 1.0),
            f"{name}_low": self.low,
            f"{name}_high": min(self.high / (1 - MOST_LEARNT), 1.0),
        }


def find_confusions(
    evidence: Tensor, labels: Tensor, transition: Tensor, tau: float, least: float = 0.05
) -> list[tuple[int, int, float, float]]:
    """List what annotations of a class truly are: (label, true class, share, number).

    Takes p [n, C] and labels [n]. The share of a label's annotations that are of another class is
    the mean of its posterior; pairs below the share `least` are left out, the largest number is
    first.
    """
    posteriors = posterior(evidence, labels, transition.to(evidence.dtype), tau)  # [n, C]
    num_labels = evidence.shape[1]
    numbers = torch.zeros(num_labels, num_labels).index_add_(0, labels, posteriors.float())
    totals = torch.bincount(labels, minlength=num_labels).clamp(min=1)
    shares = (numbers / totals[:, None]).fill_diagonal_(0)
    pairs = [
        (int(row), int(column), float(shares[row, column]), float(numbers[row, column]))
        for row, column in (shares >= least).nonzero().tolist()
    ]
    return sorted(pairs, key=lambda pair: -pair[3])


def find_lost_classes(posteriors: Tensor, labels: Tensor, transition: Tensor) -> Tensor:
    """Mark the classes that the detector has lost to others; [C].

    Takes q [n, C], labels [n] and T [C, C]. Classes of shares t are annotated as t T, so the
    shares of the labels tell t. A class of which q finds less than half of that was not
    mislabelled: a detector that takes all arrows for crosses relabels them, learns from it, and
    never finds back. For the same reason T must not be fitted to what that detector says.
    """
    n, num_labels = posteriors.shape
    transition = transition.double()
    if not n or torch.linalg.eigvals(transition).real.min() < LEAST_SLOPE:
        return torch.zeros(num_labels, dtype=torch.bool)
    told = torch.bincount(labels, minlength=num_labels).double() / n
    implied: Tensor = torch.linalg.solve(transition.T, told)
    found = posteriors.mean(0)
    return (found < LOST_BELOW * implied) & (implied * n >= FEW_ANNOTATIONS)


def rate_bounds(evidence: Tensor, labels: Tensor, model: NoiseModel) -> tuple[float, float]:
    """Find the bounds of a model's rate; around a full matrix they are as wide as without it."""
    if not model.is_full:
        return rate_interval(evidence, labels, model.rate, model.tau)
    rate, tau = fit_rate_and_temperature(evidence, labels, model.rate)
    low, high = rate_interval(evidence, labels, rate, tau)
    return max(model.rate + low - rate, 0.0), min(model.rate + high - rate, 1.0)


def keep_higher_rate(
    model: NoiseModel, evidence: Tensor, labels: Tensor, known: NoiseModel
) -> NoiseModel:
    """Take a new model, but no lower rate than before: then the known one with a new tau.

    What the detector has learnt by heart looks right to it, so later estimates can only be too
    low: the noise of a dataset does not fade while one trains on it.
    """
    if model.rate >= known.rate:
        return model
    return known._replace(tau=fit_temperature(evidence, labels, known.transition))


def raw_box_share_at(box_rate: float) -> float:
    """Choose the share of the raw box for a known box noise: 1 at 0, 0.5 at 0.2, 0.375 from 0.4.

    Between them it is a straight line. A trial found 0.35 and 0.5 alike at 0.4.
    """
    for (low, at_low), (high, at_high) in pairwise(KEEP_AT):
        if box_rate <= high:
            return at_low + (at_high - at_low) * (box_rate - low) / (high - low)
    return KEEP_AT[-1][1]


def visited_evidence(memory: Tensor, visits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Copy what has been seen to the CPU: evidence [n, C] and labels [n]; the last row is none."""
    is_seen = (visits > 0).cpu()
    is_seen[-1] = False
    return memory.cpu()[is_seen], labels.cpu()[is_seen].to(torch.int64)
