"""Estimating label noise from evidence: how often, and as what, the annotators err.

The model: the true class of annotation i has the distribution pi_i(c) ~ p_i(c)^tau, renormalised,
and class c is annotated as y with probability T[c, y]. So a label has the likelihood
sum_c pi_i(c) T[c, y_i], which is maximised over T and tau. To be called once a pass, not in every
step; everything is in double precision and the same on every call.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from boxmend.methods.equations.evidence import TINY

MOST_RATE = 0.95
TAU_RANGE = (0.1, 10.0)
INTERVAL_DROP = 1.92  # half of the 95 % quantile of chi squared with one degree of freedom
MOST_ROWS = 50_000  # more add time, not precision: the rate is then known to 0.002


class NoiseModel(NamedTuple):
    """An estimate of the label noise."""

    rate: float  # of labels that are wrong
    tau: float
    transition: Tensor  # [C, C]
    is_full: bool  # whether T was estimated entry by entry, and is not just symmetric


def symmetric_transition(
    rate: float, num_labels: int, device: torch.device | str | None = None
) -> Tensor:
    """Make T of symmetric noise: 1 - R on the diagonal and R / (C - 1) elsewhere. Returns [C, C].

    A single class cannot be mistaken for another.
    """
    if num_labels == 1:
        return torch.ones(1, 1, device=device)
    matrix = torch.full((num_labels, num_labels), rate / (num_labels - 1), device=device)
    return matrix.fill_diagonal_(1 - rate)


def log_likelihood(probabilities: Tensor, labels: Tensor, transition: Tensor, tau: float) -> Tensor:
    """Sum log sum_c pi_i(c) T[c, y_i] over annotations, with pi_i ~ p_i^tau renormalised.

    Takes p [n, C], labels [n] and T [C, C]. Returns a scalar in double precision.
    """
    return _log_likelihood(_logs(probabilities), labels, transition.double(), tau)


def fit_rate_and_temperature(
    probabilities: Tensor, labels: Tensor, previous: float = 0.3, strength: float = 4.0
) -> tuple[float, float]:
    """Find R and tau of symmetric noise by maximum likelihood. Returns (rate, tau).

    Takes p [n, C] and labels [n]. R is sought in 0 .. 0.95 and tau in 0.1 .. 10. With few
    annotations a weak prior decides: `strength` imagined annotations of which the share
    `previous` was wrong, and tau near 1; from hundreds on neither is felt.
    """
    num_labels = probabilities.shape[1]
    if num_labels < 2:
        return 0.0, 1.0
    probabilities, labels = _sample(probabilities, labels)
    logs = _logs(probabilities)

    def profile(log_tau: float) -> tuple[float, float]:
        """The best penalised likelihood at this tau, and the rate that gives it."""
        right = (math.exp(log_tau) * logs).softmax(-1).gather(1, labels[:, None])[:, 0]
        rate = _best_rate(right, num_labels, previous, strength)
        chance = right * (1 - rate) + (1 - right) * rate / (num_labels - 1)
        value = float(chance.clamp(min=TINY).log().sum()) + _log_prior(log_tau)
        wrong, correct = max(rate, TINY), 1 - rate
        value += strength * (previous * math.log(wrong) + (1 - previous) * math.log(correct))
        return value, rate

    log_tau = _maximum(lambda place: profile(place)[0], *map(math.log, TAU_RANGE))
    return profile(log_tau)[1], math.exp(log_tau)


def fit_temperature(probabilities: Tensor, labels: Tensor, transition: Tensor) -> float:
    """Find tau alone, for a known T [C, C], by maximum likelihood of labels [n] under p [n, C].

    As everywhere tau has a weak prior: its logarithm is about 0, give or take 1.
    """
    rows, given = _sample(probabilities, labels)

    def value(log_tau: float) -> float:
        return float(log_likelihood(rows, given, transition, math.exp(log_tau))) + _log_prior(
            log_tau
        )

    low, high = map(math.log, TAU_RANGE)
    center, reach = (low + high) / 2, (high - low) / 2
    for _ in range(4):  # 9 places each time, in a range a quarter as wide: to a hundredth
        places = [center + reach * number / 4 for number in range(-4, 5)]
        center = max((p for p in places if low - 1e-9 <= p <= high + 1e-9), key=value)
        reach /= 4
    return math.exp(center)


def rate_interval(
    probabilities: Tensor, labels: Tensor, rate: float, tau: float
) -> tuple[float, float]:
    """Find the rates that the labels do not speak against, around the likeliest (rate, tau).

    Takes p [n, C] and labels [n]. A rate belongs to the interval where the log-likelihood, with the
    best tau for that rate, is at most 1.92 below the highest: 95 % for many annotations. The bounds
    are within 0 .. 0.95 and hold `rate`.
    """
    num_labels = probabilities.shape[1]
    if num_labels < 2 or not len(labels):
        return 0.0, MOST_RATE if num_labels > 1 else 0.0
    probabilities, labels = _sample(probabilities, labels)
    logs = _logs(probabilities)
    taus = [tau * 1.05**step for step in range(-8, 9)]  # a third less to a half more
    rights = torch.stack(
        [(one * logs).softmax(-1).gather(1, labels[:, None])[:, 0] for one in taus]
    )  # [taus, n]

    def fit(rate: float) -> float:
        chances = rights * (1 - rate) + (1 - rights) * rate / (num_labels - 1)
        return float(chances.clamp(min=TINY).log().sum(1).max())

    lowest = max(fit(rate), fit(0.0)) - INTERVAL_DROP
    return _bound(fit, lowest, rate, 0.0), _bound(fit, lowest, rate, MOST_RATE)


def fit_transition(
    probabilities: Tensor,
    labels: Tensor,
    prior: Tensor,
    tau: float = 1.0,
    strength: float = 10.0,
    rounds: int = 100,
) -> Tensor:
    """Find a full transition matrix by expectation-maximisation.

    Takes p [n, C], labels [n] and a prior matrix [C, C], to which each row is smoothed as if
    `strength` more annotations of its class were spread like it; for symmetric noise as the prior
    pass `symmetric_transition`. Returns T [C, C], each row adding up to 1.
    """
    probabilities, labels = _sample(probabilities, labels)
    classes = (tau * _logs(probabilities)).softmax(-1)  # pi, [n, C]
    base = strength * prior.double()
    matrix = prior.double().clamp(min=1e-6)  # what starts at 0 would stay there
    for _ in range(rounds):
        joint = classes * matrix.T[labels]  # pi_i(c) T[c, y_i]
        owners = joint / joint.sum(1, keepdim=True).clamp(min=TINY)  # q_i(c)
        counts = torch.zeros_like(matrix).index_add_(0, labels, owners).T  # [c, y]
        matrix = counts + base
        matrix = matrix / matrix.sum(1, keepdim=True).clamp(min=TINY)
    return matrix.to(prior.dtype)


def fit_noise_model(probabilities: Tensor, labels: Tensor, previous: float = 0.3) -> NoiseModel:
    """Find R and tau, and the full matrix where there is evidence for it.

    Takes p [n, C] and labels [n]. The full matrix has C (C - 1) free entries in the place of
    one rate; it is taken where the gain in log-likelihood pays for them by Schwarz's criterion,
    (C (C - 1) - 1) / 2 * log n. Its tau is fitted along with it.
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
    shares = (full_tau * _logs(probabilities)).softmax(-1).mean(0)  # how frequent each class is
    wrong = 1 - float((shares * matrix.diagonal()).sum())
    return NoiseModel(wrong, full_tau, matrix, is_full=True)


def _fit_transition_and_temperature(
    probabilities: Tensor, labels: Tensor, matrix: Tensor, tau: float
) -> tuple[Tensor, float]:
    """Matrix and tau in turns; they settle within two or three."""
    prior, logs = matrix, _logs(probabilities)

    def value(log_tau: float) -> float:
        fit = _log_likelihood(logs, labels, matrix.double(), math.exp(log_tau))
        return float(fit) + _log_prior(log_tau)

    for _ in range(3):
        matrix = fit_transition(probabilities, labels, prior, tau, rounds=40)
        tau = math.exp(_maximum(value, *map(math.log, TAU_RANGE)))
    return matrix, tau


def _log_likelihood(logs: Tensor, labels: Tensor, transition: Tensor, tau: float) -> Tensor:
    chances = ((tau * logs).softmax(-1) * transition.T[labels]).sum(-1)
    return chances.clamp(min=TINY).log().sum()


def _log_prior(log_tau: float) -> float:
    """Tau is near 1, within a factor of e or so."""
    return -(log_tau**2) / 2


def _logs(probabilities: Tensor) -> Tensor:
    return probabilities.double().clamp(min=TINY).log()


def _sample(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """At most MOST_ROWS rows, evenly spaced, without gradient."""
    step = -(-len(labels) // MOST_ROWS) or 1
    return probabilities.detach()[::step], labels[::step]


def _best_rate(right: Tensor, num_labels: int, previous: float, strength: float) -> float:
    """The R that maximises sum log(a (1 - R) + (1 - a) R / (C - 1)) plus the prior.

    The sum is concave in R, so its slope has one root at most: halve the range towards it.
    """
    other = (1 - right) / (num_labels - 1)
    slope = other - right
    low, high = 0.0, MOST_RATE
    for _ in range(26):  # to 1e-8
        rate = (low + high) / 2
        chance = (right + slope * rate).clamp(min=TINY)
        rise = float((slope / chance).sum())
        rise += strength * (previous / rate - (1 - previous) / (1 - rate))
        low, high = (rate, high) if rise > 0 else (low, rate)
    return (low + high) / 2


def _bound(fit: Callable[[float], float], lowest: float, inside: float, end: float) -> float:
    """The rate between `inside` and `end` at which the fit falls to `lowest`; or the end."""
    if fit(end) >= lowest:
        return end
    for _ in range(20):
        middle = (inside + end) / 2
        inside, end = (middle, end) if fit(middle) >= lowest else (inside, middle)
    return (inside + end) / 2


def _maximum(value: Callable[[float], float], low: float, high: float) -> float:
    """The place of the maximum: the best of 17 places, then golden sections around it."""
    step = (high - low) / 16
    places = [low + step * number for number in range(17)]
    values = [value(place) for place in places]
    center = places[values.index(max(values))]
    left, right = max(low, center - step), min(high, center + step)
    golden = (math.sqrt(5) - 1) / 2
    first, second = right - golden * (right - left), left + golden * (right - left)
    at_first, at_second = value(first), value(second)
    for _ in range(14):  # the range shrinks by 0.618 a time, to a thousandth
        if at_first >= at_second:
            right, second, at_second = second, first, at_first
            first = right - golden * (right - left)
            at_first = value(first)
        else:
            left, first, at_first = first, second, at_second
            second = left + golden * (right - left)
            at_second = value(second)
    return (left + right) / 2
