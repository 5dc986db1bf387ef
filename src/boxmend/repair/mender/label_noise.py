"""Maximum-likelihood estimation of label noise: the rate R, the exponent tau and the matrix T.

The model and the fits are those of `boxmend.methods.equations.label_noise`, in NumPy: the true
class of annotation i has the distribution pi_i(c) ~ p_i(c)^tau, and class c is annotated as y with
probability T[c, y]. A sample of the annotations suffices, since it determines the rate to 0.005.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from boxmend.data.label_noise_model import LABEL_NOISE_MODEL as SHARED
from boxmend.data.types import Floats, Rows, Singles
from boxmend.repair.mender.posteriors import TINY, softmax, take_columns


@dataclass(frozen=True)
class FitConstants:
    """Ranges, priors and limits of the fits."""

    max_rate: float = SHARED.max_rate
    tau_range: tuple[float, float] = SHARED.tau_range
    prior_annotations: float = SHARED.prior_annotations
    prior_annotations_per_class: float = SHARED.prior_annotations_per_class
    num_alternations: int = SHARED.num_alternations
    em_rounds_per_alternation: int = SHARED.em_rounds_per_alternation
    min_entry: float = SHARED.min_entry
    interval_drop: float = SHARED.interval_drop
    max_entries: int = 1_000_000  # of p [n, C] in a fit
    num_tau_points: int = 17  # of the first search, on a logarithmic scale
    confident_shares: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0)  # of the annotations of a class
    bound_deviations: float = 2.0  # standard deviations above a share that bounds the rate


FIT = FitConstants()


@dataclass(frozen=True, eq=False)
class LabelNoise:
    """An estimate of the label noise."""

    rate: float  # R, the share of wrong labels
    low: float  # bounds of R at 95 %
    high: float
    tau: float  # exponent of the evidence of detections
    transition: Floats  # T, [C, C]
    prescreen_tau: float = 0.0  # exponent of the prescreen; 0 without one


def symmetric_transition(rate: float, num_labels: int) -> Floats:
    """Return T of symmetric noise [C, C]: 1 - R on the diagonal and R / (C - 1) elsewhere."""
    if num_labels == 1:
        return np.ones((1, 1))
    matrix = np.full((num_labels, num_labels), rate / max(num_labels - 1, 1))
    np.fill_diagonal(matrix, 1 - rate)
    return matrix


def fit_label_noise(p: Singles, labels: Rows, previous: float, *, full: bool) -> LabelNoise:
    """Fit R and tau to p [n, C] and labels [n], and a full matrix if the evidence supports one.

    A full matrix has C (C - 1) free entries instead of one rate. It is used if it raises the
    log-likelihood by more than the Bayesian information criterion demands.
    """
    num_labels = p.shape[1]
    if num_labels < 2 or not len(p):
        return LabelNoise(0.0, 0.0, 1.0, 1.0, symmetric_transition(0.0, num_labels))
    logs = _logs(p)
    rate, tau = fit_rate_and_temperature(logs, labels, previous)
    low, high = bound_rate(logs, labels, rate, tau)
    simple = symmetric_transition(rate, num_labels)
    result = LabelNoise(rate, low, high, tau, simple)
    if not full or num_labels < 3:
        return result
    matrix, full_tau = _fit_full_matrix(logs, labels, simple, tau)
    gain = log_likelihood(logs, labels, matrix, full_tau)
    gain -= log_likelihood(logs, labels, simple, tau)
    cost = (num_labels * (num_labels - 1) - 1) / 2 * math.log(max(len(labels), 2))
    if gain <= cost:
        return result
    wrong = 1 - float((softmax(full_tau * logs).mean(axis=0) * matrix.diagonal()).sum())
    shift = wrong - rate
    return LabelNoise(wrong, max(low + shift, 0.0), min(high + shift, 1.0), full_tau, matrix)


def bound_by_confident(p: Singles, labels: Rows) -> float:
    """Return an upper bound of the rate: how often confident evidence contradicts the labels.

    The fit takes a weak detector's errors for label noise if it makes them with confidence. But the
    most confident opinions about each class are mostly right even then, and the label noise cannot
    exceed the share of labels that they contradict.
    """
    best, confidence = p.argmax(axis=1), p.max(axis=1)
    order = np.lexsort((-confidence, best))
    counts = np.bincount(best, minlength=p.shape[1])
    starts = np.cumsum(counts) - counts
    rank = np.arange(len(p)) - np.repeat(starts, counts)
    part = (rank + 0.5) / np.repeat(counts, counts)
    is_wrong = (best != labels)[order]
    bounds = []
    for share in FIT.confident_shares:
        chosen = is_wrong[part <= share]
        number = max(len(chosen), 1)
        wrong = (float(chosen.sum()) + 1) / (number + 1)  # never 0
        spread = math.sqrt(wrong * (1 - wrong) / number)
        bounds.append(wrong + FIT.bound_deviations * spread)
    return min(min(bounds), 1.0)


def limit_rate(noise: LabelNoise, p: Singles, labels: Rows) -> LabelNoise:
    """Return the label noise, symmetric with a lower rate if confident evidence bounds it."""
    bound = bound_by_confident(p, labels)
    if noise.rate <= bound:
        return noise
    transition = symmetric_transition(bound, p.shape[1])
    tau = fit_temperature(p, labels, transition)
    return LabelNoise(bound, min(noise.low, bound), min(noise.high, bound), tau, transition)


def fit_temperature(p: Singles, labels: Rows, transition: Floats) -> float:
    """Fit tau to p [n, C] and labels [n], for a known T."""
    logs = _logs(p)
    return _fit_tau(lambda tau: log_likelihood(logs, labels, transition, tau))


def fit_exponents(
    p: Singles, others: Singles, labels: Rows, transition: Floats
) -> tuple[float, float]:
    """Fit the exponents of two sources of evidence [n, C] to labels [n], for a known T.

    The true class has the distribution pi_i(c) ~ p_i(c)^a o_i(c)^b, so a source that says little
    about the labels gets a small exponent. The prior is weak: `others` are probabilities, for which
    b is near 1.
    """
    sources = np.stack([_logs(p), _logs(others)])  # [2, n, C]
    noise = transition.T[labels]

    def loss(exponents: Floats) -> tuple[float, Floats]:
        classes = softmax(np.tensordot(exponents, sources, 1))
        joint = classes * noise
        likelihoods = np.maximum(joint.sum(axis=1, keepdims=True), TINY)
        slopes = (sources * (joint / likelihoods - classes)).sum(axis=(1, 2))
        distance = exponents[1] - 1
        value = distance**2 / 2 - float(np.log(likelihoods).sum())
        return value, np.array([0.0, distance]) - slopes

    limits = [(0.0, FIT.tau_range[1])] * 2
    best = minimize(loss, np.array([0.5, 1.0]), jac=True, method="L-BFGS-B", bounds=limits)
    return float(best.x[0]), float(best.x[1])


def log_likelihood(logs: Floats, labels: Rows, transition: Floats, tau: float) -> float:
    """Return sum_i log sum_c pi_i(c) T[c, y_i], given log p [n, C]."""
    likelihoods = (softmax(tau * logs) * transition.T[labels]).sum(axis=1)
    return float(np.log(np.maximum(likelihoods, TINY)).sum())


def fit_rate_and_temperature(logs: Floats, labels: Rows, previous: float) -> tuple[float, float]:
    """Fit R and tau of symmetric noise; `previous` is the rate of a few pseudo-annotations."""
    num_labels = logs.shape[1]

    def right_at(tau: float) -> Floats:
        return take_columns(softmax(tau * logs), labels)

    def value(tau: float) -> float:
        right = right_at(tau)
        rate = _find_best_rate(right, num_labels, previous)
        likelihoods = right * (1 - rate) + (1 - right) * rate / (num_labels - 1)
        prior = previous * math.log(max(rate, TINY)) + (1 - previous) * math.log(1 - rate)
        fit = float(np.log(np.maximum(likelihoods, TINY)).sum())
        return fit + FIT.prior_annotations * prior

    tau = _fit_tau(value)
    return _find_best_rate(right_at(tau), num_labels, previous), tau


def bound_rate(logs: Floats, labels: Rows, rate: float, tau: float) -> tuple[float, float]:
    """Return the 95 % profile-likelihood interval of R around the fitted rate and tau."""
    num_labels = logs.shape[1]
    taus = [tau * 1.1**step for step in range(-4, 5)]  # a third less to a half more
    rights = np.stack([take_columns(softmax(other * logs), labels) for other in taus])

    def fit(rate: float) -> float:
        likelihoods = rights * (1 - rate) + (1 - rights) * rate / (num_labels - 1)
        return float(np.log(np.maximum(likelihoods, TINY)).sum(axis=1).max())

    lowest = max(fit(rate), fit(0.0)) - FIT.interval_drop
    return _find_bound(fit, lowest, rate, 0.0), _find_bound(fit, lowest, rate, FIT.max_rate)


def find_lost_classes(found: Floats, labels: Rows, transition: Floats) -> Rows:
    """Return the classes that the detector has lost to others.

    `found` [C] are the shares of the classes by the posterior, of annotations with `labels` [n].
    True class shares t give label shares t T, so the label shares imply t. A class that has less
    than half of that is not mislabelled but lost: a detector that takes all arrows for crosses
    relabels them, trains on the result and never recovers.
    """
    n, num_labels = len(labels), len(found)
    if not n or np.linalg.eigvals(transition).real.min() < LOST.min_eigenvalue:
        return np.zeros(0, np.int64)
    implied = np.linalg.solve(transition.T, np.bincount(labels, minlength=num_labels) / n)
    is_lost = (found < LOST.max_share * implied) & (implied * n >= LOST.min_annotations)
    lost: Rows = np.flatnonzero(is_lost)
    return lost


@dataclass(frozen=True)
class LostClassConstants:
    """When a class counts as lost, as in `boxmend.methods.estimation`."""

    max_share: float = SHARED.lost_class_max_share
    min_eigenvalue: float = SHARED.min_eigenvalue
    min_annotations: int = SHARED.min_class_annotations


LOST = LostClassConstants()


def sample_rows(rows: Rows, num_labels: int) -> Rows:
    """Return some of the rows, evenly spaced, so few that a fit is fast."""
    step = -(-len(rows) * num_labels // FIT.max_entries) or 1
    sample: Rows = rows[::step]
    return sample


def _logs(p: Singles) -> Floats:
    logs: Floats = np.log(np.maximum(p.astype(np.float64), TINY))
    return logs


def _find_best_rate(right: Floats, num_labels: int, previous: float) -> float:
    """Return the R that maximises sum log(a (1 - R) + (1 - a) R / (C - 1)) plus the prior.

    `right` holds a, the probability of each label. The sum is concave in R, so bisection finds the
    root of its derivative.
    """
    slope = (1 - right) / (num_labels - 1) - right
    low, high = 0.0, FIT.max_rate
    for _ in range(26):  # to 1e-8
        rate = (low + high) / 2
        rise = float((slope / np.maximum(right + slope * rate, TINY)).sum())
        rise += FIT.prior_annotations * (previous / rate - (1 - previous) / (1 - rate))
        low, high = (rate, high) if rise > 0 else (low, rate)
    return (low + high) / 2


def _fit_full_matrix(
    logs: Floats, labels: Rows, matrix: Floats, tau: float
) -> tuple[Floats, float]:
    """Fit a full matrix and tau in turn, from a symmetric matrix, which is also the prior."""
    prior = matrix
    for _ in range(FIT.num_alternations):
        matrix = fit_transition(logs, labels, prior, tau, FIT.em_rounds_per_alternation)
        tau = _fit_tau(partial(log_likelihood, logs, labels, matrix))
    return matrix, tau


def fit_transition(logs: Floats, labels: Rows, prior: Floats, tau: float, rounds: int) -> Floats:
    """Fit a full matrix [C, C] by expectation-maximisation; its rows add up to 1.

    `prior` counts as `prior_annotations_per_class` annotations of each class.
    """
    classes = softmax(tau * logs)  # pi, [n, C]
    order = np.argsort(labels, kind="stable")
    classes, ordered = classes[order], labels[order]
    present, starts = np.unique(ordered, return_index=True)
    prior_counts = FIT.prior_annotations_per_class * prior
    matrix = np.maximum(prior, FIT.min_entry)
    for _ in range(rounds):
        joint = classes * matrix.T[ordered]  # pi_i(c) T[c, y_i]
        joint /= np.maximum(joint.sum(axis=1, keepdims=True), TINY)  # q_i(c)
        counts = np.zeros_like(matrix)
        counts[present] = np.add.reduceat(joint, starts, axis=0)  # [y, c]
        matrix = counts.T + prior_counts
        matrix = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), TINY)
    return matrix


def _fit_tau(value: Callable[[float], float]) -> float:
    """Return the tau with the largest value plus a weak prior: near 1, within a factor of e."""

    def loss(log_tau: float) -> float:
        return log_tau**2 / 2 - value(math.exp(log_tau))

    low, high = map(math.log, FIT.tau_range)
    points = np.linspace(low, high, FIT.num_tau_points)
    place = int(np.argmin([loss(float(point)) for point in points]))
    bounds = points[max(place - 1, 0)], points[min(place + 1, len(points) - 1)]
    best = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-3})
    return math.exp(float(best.x))


def _find_bound(fit: Callable[[float], float], lowest: float, inside: float, end: float) -> float:
    """Return the rate between `inside` and `end` at which the fit drops to `lowest`, or the end."""
    if fit(end) >= lowest:
        return end
    for _ in range(20):
        middle = (inside + end) / 2
        inside, end = (middle, end) if fit(middle) >= lowest else (inside, middle)
    return (inside + end) / 2
