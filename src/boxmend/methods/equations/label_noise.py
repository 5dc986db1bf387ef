"""Maximum-likelihood estimation of label noise: the rate R, the temperature tau and the matrix T.

Model: the true class of annotation i has the distribution pi_i(c) ~ p_i(c)^tau, renormalised, and
class c is annotated as y with probability T[c, y]. The likelihood of a label is then sum_c pi_i(c)
T[c, y_i], which is maximised over T and tau. The functions compute in double precision, are
deterministic, and are meant to be called once an epoch, not in every step.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from boxmend.data.label_noise_model import LABEL_NOISE_MODEL as SHARED
from boxmend.methods.equations.evidence import TINY


@dataclass(frozen=True)
class LabelNoiseConstants:
    """Ranges, priors and limits of the fits."""

    max_rate: float = SHARED.max_rate
    tau_range: tuple[float, float] = SHARED.tau_range
    prior_rate: float = 0.3  # of the pseudo-annotations
    prior_annotations: float = SHARED.prior_annotations
    prior_annotations_per_class: float = SHARED.prior_annotations_per_class
    em_rounds: int = 100  # of expectation and maximisation
    num_alternations: int = SHARED.num_alternations
    em_rounds_per_alternation: int = SHARED.em_rounds_per_alternation
    min_entry: float = SHARED.min_entry
    interval_drop: float = SHARED.interval_drop
    max_annotations: int = 50_000  # enough to determine the rate to 0.002


LABEL_NOISE = LabelNoiseConstants()


class NoiseModel(NamedTuple):
    """An estimate of the label noise."""

    rate: float  # R, the share of wrong labels
    tau: float
    transition: Tensor  # T, [C, C]
    is_full: bool  # T was estimated entry by entry; otherwise it is symmetric


def symmetric_transition(
    rate: float, num_labels: int, device: torch.device | str | None = None
) -> Tensor:
    """Return T of symmetric noise, [C, C]: 1 - R on the diagonal and R / (C - 1) elsewhere.

    With a single class T is 1.
    """
    if num_labels == 1:
        return torch.ones(1, 1, device=device)
    matrix = torch.full((num_labels, num_labels), rate / (num_labels - 1), device=device)
    return matrix.fill_diagonal_(1 - rate)


def log_likelihood(probabilities: Tensor, labels: Tensor, transition: Tensor, tau: float) -> Tensor:
    """Return the log-likelihood: the sum over annotations of log sum_c pi_i(c) T[c, y_i].

    Takes p [n, C], labels [n] and T [C, C]. Returns a scalar in double precision.
    """
    return _log_likelihood(_logs(probabilities), labels, transition.double(), tau)


def fit_rate_and_temperature(
    probabilities: Tensor,
    labels: Tensor,
    previous: float = LABEL_NOISE.prior_rate,
    strength: float = LABEL_NOISE.prior_annotations,
) -> tuple[float, float]:
    """Fit R and tau of symmetric noise by maximum likelihood. Returns (R, tau).

    Takes p [n, C] and labels [n]. The search covers R in 0 .. 0.95 and tau in 0.1 .. 10. A weak
    prior decides where annotations are few: `strength` pseudo-annotations of which the share
    `previous` is wrong, and tau near 1. From hundreds of annotations on it has no effect.
    """
    num_labels = probabilities.shape[1]
    if num_labels < 2:
        return 0.0, 1.0
    probabilities, labels = _sample(probabilities, labels)
    logs = _logs(probabilities)

    def profile(log_tau: float) -> tuple[float, float]:
        """Return the highest penalised likelihood at this tau, and its rate."""
        right = (math.exp(log_tau) * logs).softmax(-1).gather(1, labels[:, None])[:, 0]
        rate = _best_rate(right, num_labels, previous, strength)
        likelihood = right * (1 - rate) + (1 - right) * rate / (num_labels - 1)
        value = float(likelihood.clamp(min=TINY).log().sum()) + _log_prior(log_tau)
        wrong, correct = max(rate, TINY), 1 - rate
        value += strength * (previous * math.log(wrong) + (1 - previous) * math.log(correct))
        return value, rate

    log_tau = _argmax(lambda x: profile(x)[0], *map(math.log, LABEL_NOISE.tau_range))
    return profile(log_tau)[1], math.exp(log_tau)


def fit_temperature(probabilities: Tensor, labels: Tensor, transition: Tensor) -> float:
    """Fit tau by maximum likelihood of labels [n] under p [n, C], for a known T [C, C].

    A weak prior keeps log tau near 0, within about 1.
    """
    probabilities, labels = _sample(probabilities, labels)

    def value(log_tau: float) -> float:
        likelihood = log_likelihood(probabilities, labels, transition, math.exp(log_tau))
        return float(likelihood) + _log_prior(log_tau)

    low, high = map(math.log, LABEL_NOISE.tau_range)
    center, reach = (low + high) / 2, (high - low) / 2
    for _ in range(4):  # 9 points each, in a range a quarter as wide as before: to 0.01
        points = [center + reach * number / 4 for number in range(-4, 5)]
        center = max((x for x in points if low - 1e-9 <= x <= high + 1e-9), key=value)
        reach /= 4
    return math.exp(center)


def rate_interval(
    probabilities: Tensor, labels: Tensor, rate: float, tau: float
) -> tuple[float, float]:
    """Return the 95 % profile-likelihood interval of R around the fitted rate and tau.

    Takes p [n, C] and labels [n]. The interval contains the rates whose log-likelihood, at the best
    tau for that rate, is at most 1.92 below the maximum. It lies within 0 .. 0.95 and contains
    `rate`.
    """
    num_labels, max_rate = probabilities.shape[1], LABEL_NOISE.max_rate
    if num_labels < 2 or not len(labels):
        return 0.0, max_rate if num_labels > 1 else 0.0
    probabilities, labels = _sample(probabilities, labels)
    logs = _logs(probabilities)
    taus = [tau * 1.05**step for step in range(-8, 9)]  # a third less to a half more
    rights = torch.stack(
        [(other * logs).softmax(-1).gather(1, labels[:, None])[:, 0] for other in taus]
    )  # [taus, n]

    def fit(rate: float) -> float:
        likelihoods = rights * (1 - rate) + (1 - rights) * rate / (num_labels - 1)
        return float(likelihoods.clamp(min=TINY).log().sum(1).max())

    lowest = max(fit(rate), fit(0.0)) - LABEL_NOISE.interval_drop
    return _bound(fit, lowest, rate, 0.0), _bound(fit, lowest, rate, max_rate)


def fit_transition(
    probabilities: Tensor,
    labels: Tensor,
    prior: Tensor,
    tau: float = 1.0,
    strength: float = LABEL_NOISE.prior_annotations_per_class,
    rounds: int = LABEL_NOISE.em_rounds,
) -> Tensor:
    """Fit a full transition matrix by expectation-maximisation. Returns T [C, C].

    Takes p [n, C], labels [n] and a prior matrix [C, C], which counts as `strength` annotations of
    each class; pass `symmetric_transition` for symmetric noise. Each row of T adds up to 1.
    """
    probabilities, labels = _sample(probabilities, labels)
    classes = (tau * _logs(probabilities)).softmax(-1)  # pi, [n, C]
    prior_counts = strength * prior.double()
    matrix = prior.double().clamp(min=LABEL_NOISE.min_entry)
    for _ in range(rounds):
        joint = classes * matrix.T[labels]  # pi_i(c) T[c, y_i]
        posteriors = joint / joint.sum(1, keepdim=True).clamp(min=TINY)  # q_i(c)
        counts = torch.zeros_like(matrix).index_add_(0, labels, posteriors).T  # [c, y]
        matrix = counts + prior_counts
        matrix = matrix / matrix.sum(1, keepdim=True).clamp(min=TINY)
    return matrix.to(prior.dtype)


def fit_noise_model(
    probabilities: Tensor, labels: Tensor, previous: float = LABEL_NOISE.prior_rate
) -> NoiseModel:
    """Fit R and tau, and a full matrix if the evidence supports one.

    Takes p [n, C] and labels [n]. The full matrix has C (C - 1) free entries instead of one rate.
    It is used if it raises the log-likelihood by more than the Bayesian information criterion
    demands, (C (C - 1) - 1) / 2 * log n. Its tau is fitted together with it.
    """
    num_labels = probabilities.shape[1]
    probabilities, labels = _sample(probabilities, labels)
    rate, tau = fit_rate_and_temperature(probabilities, labels, previous)
    simple = symmetric_transition(rate, num_labels, probabilities.device)
    matrix, full_tau = _fit_transition_and_temperature(probabilities, labels, simple, tau)
    simple_fit = log_likelihood(probabilities, labels, simple, tau)
    gain = float(log_likelihood(probabilities, labels, matrix, full_tau) - simple_fit)
    cost = (num_labels * (num_labels - 1) - 1) / 2 * math.log(max(len(labels), 2))
    if num_labels < 3 or gain <= cost:
        return NoiseModel(rate, tau, simple, is_full=False)
    shares = (full_tau * _logs(probabilities)).softmax(-1).mean(0)  # of the classes
    wrong = 1 - float((shares * matrix.diagonal()).sum())
    return NoiseModel(wrong, full_tau, matrix, is_full=True)


def _fit_transition_and_temperature(
    probabilities: Tensor, labels: Tensor, matrix: Tensor, tau: float
) -> tuple[Tensor, float]:
    """Fit the matrix and tau in turn."""
    prior, logs = matrix, _logs(probabilities)

    def value(log_tau: float) -> float:
        fit = _log_likelihood(logs, labels, matrix.double(), math.exp(log_tau))
        return float(fit) + _log_prior(log_tau)

    rounds = LABEL_NOISE.em_rounds_per_alternation
    for _ in range(LABEL_NOISE.num_alternations):
        matrix = fit_transition(probabilities, labels, prior, tau, rounds=rounds)
        tau = math.exp(_argmax(value, *map(math.log, LABEL_NOISE.tau_range)))
    return matrix, tau


def _log_likelihood(logs: Tensor, labels: Tensor, transition: Tensor, tau: float) -> Tensor:
    likelihoods = ((tau * logs).softmax(-1) * transition.T[labels]).sum(-1)
    return likelihoods.clamp(min=TINY).log().sum()


def _log_prior(log_tau: float) -> float:
    """Return the log density of the prior of tau: near 1, within a factor of about e."""
    return -(log_tau**2) / 2


def _logs(probabilities: Tensor) -> Tensor:
    return probabilities.double().clamp(min=TINY).log()


def _sample(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return at most `max_annotations` rows, evenly spaced, without gradient."""
    step = -(-len(labels) // LABEL_NOISE.max_annotations) or 1
    return probabilities.detach()[::step], labels[::step]


def _best_rate(right: Tensor, num_labels: int, previous: float, strength: float) -> float:
    """Return the R that maximises sum log(a (1 - R) + (1 - a) R / (C - 1)) plus the prior.

    `right` holds a, the probability of each label. The sum is concave in R, so its derivative has
    at most one root; bisection finds it.
    """
    other = (1 - right) / (num_labels - 1)
    slope = other - right
    low, high = 0.0, LABEL_NOISE.max_rate
    for _ in range(26):  # to 1e-8
        rate = (low + high) / 2
        likelihood = (right + slope * rate).clamp(min=TINY)
        rise = float((slope / likelihood).sum())
        rise += strength * (previous / rate - (1 - previous) / (1 - rate))
        low, high = (rate, high) if rise > 0 else (low, rate)
    return (low + high) / 2


def _bound(fit: Callable[[float], float], lowest: float, inside: float, end: float) -> float:
    """Return the rate between `inside` and `end` at which the fit drops to `lowest`, or the end."""
    if fit(end) >= lowest:
        return end
    for _ in range(20):
        middle = (inside + end) / 2
        inside, end = (middle, end) if fit(middle) >= lowest else (inside, middle)
    return (inside + end) / 2


def _argmax(value: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function is highest: the best of 17 points, refined by golden sections."""
    step = (high - low) / 16
    points = [low + step * number for number in range(17)]
    values = [value(point) for point in points]
    center = points[values.index(max(values))]
    left, right = max(low, center - step), min(high, center + step)
    golden = (math.sqrt(5) - 1) / 2
    first, second = right - golden * (right - left), left + golden * (right - left)
    at_first, at_second = value(first), value(second)
    for _ in range(14):  # each shrinks the range by 0.618: to a thousandth
        if at_first >= at_second:
            right, second, at_second = second, first, at_first
            first = right - golden * (right - left)
            at_first = value(first)
        else:
            left, first, at_first = first, second, at_second
            second = left + golden * (right - left)
            at_second = value(second)
    return (left + right) / 2
