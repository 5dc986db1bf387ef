"""Score how much observed objects look like planted errors, by a logistic regression on features.

The log odds rise with the ratio of the density of planted errors to that of observed objects.
`calibration` turns them into probabilities, so only their order matters.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from boxmend.auditing.calibration import CALIBRATION, fit_error_curve, make_sample
from boxmend.data.types import Floats, Mask, Rows


@dataclass(frozen=True)
class LikenessConstants:
    """Constants of the fit of the regression."""

    ridge: float = 3.0  # penalty on squared coefficients, in observations
    max_newton_steps: int = 25
    max_halvings: int = 12  # of a step that increases the loss
    max_feature: float = 5.0  # standard deviations from the mean, at which features are cut off
    max_samples: int = 100_000  # observed, and planted; more only add time
    max_blended: float = 0.999  # probability, of counts and of a model, before they are blended
    rank_share: float = 1e-3  # of a probability, that depends on the rank of the score


LIKENESS = LikenessConstants()


@dataclass(frozen=True, eq=False)
class Likeness:
    """A fitted regression; unless it is linear, it also has quadratic and product terms."""

    means: Floats  # [k] of the features
    deviations: Floats  # [k]
    weights: Floats  # [terms]
    is_linear: bool

    def score(self, features: Floats) -> Floats:
        """Return the log odds [n] that observations with these features [n, k] are planted."""
        log_odds: Floats = _expand_terms(features, self) @ self.weights
        return log_odds


def fit_likeness(
    observed: Floats, planted: Floats, weights: Floats | None = None, *, is_linear: bool = False
) -> Likeness:
    """Fit a regression that separates planted [m, k] from observed features [n, k].

    Both sides have the same total weight; `weights` [m] are those of the planted errors.
    """
    weights = np.ones(len(planted)) if weights is None else weights
    means, deviations = observed.mean(axis=0), observed.std(axis=0) + 1e-6
    scale = Likeness(means, deviations, np.zeros(0), is_linear)
    first, second = _select_evenly(len(observed)), _select_evenly(len(planted))
    design = np.concatenate(
        [_expand_terms(observed[first], scale), _expand_terms(planted[second], scale)]
    )
    is_planted = np.arange(len(design)) >= len(first)
    shares = weights[second] * len(first) / max(float(weights[second].sum()), 1e-9)
    counts = np.concatenate([np.ones(len(first)), shares])
    penalties = np.full(design.shape[1], LIKENESS.ridge)
    penalties[0] = 1e-6
    coefficients = np.zeros(design.shape[1])
    loss = _loss(design, is_planted, counts, penalties, coefficients)
    for _ in range(LIKENESS.max_newton_steps):
        p = expit(design @ coefficients)
        gradient = design.T @ (counts * (is_planted - p)) - penalties * coefficients
        curvature = (design.T * (counts * p * (1 - p))) @ design + np.diag(penalties)
        step = np.linalg.solve(curvature, gradient)
        for _ in range(LIKENESS.max_halvings):  # a full step may lead away from the minimum
            tried = _loss(design, is_planted, counts, penalties, coefficients + step)
            if tried <= loss:
                break
            step /= 2
        if tried > loss - 1e-6:
            break
        coefficients, loss = coefficients + step, tried
    return replace(scale, weights=coefficients)


def blend_log_odds(p: Floats, log_odds: Floats, weight: float) -> Floats:
    """Return the weighted mean, in log odds, of probabilities from counts and from a model.

    Counts are right on average but equal for whole blocks of observations. The log odds of a model
    rank the members of a block. Where the counts give 0, the result is 0.
    """
    limit = LIKENESS.max_blended
    inside = np.clip(p, 1e-12, limit)
    bounded = np.minimum(log_odds, np.log(limit / (1 - limit)))
    mean = (1 - weight) * (np.log(inside) - np.log1p(-inside)) + weight * bounded
    blended: Floats = np.where(p > 0, expit(mean), 0.0)
    return blended


def judge_by_ratios(
    log_ratios: Floats, planted: Floats, weights: Floats | None, share: float, model_weight: float
) -> Floats:
    """Return the probability [n] that an observation is an error, given the share of errors.

    The scores of a regression are log ratios of two densities, of planted errors to observations.
    """
    if share <= 0 or not len(log_ratios):
        return np.zeros(len(log_ratios))
    curve = fit_error_curve(make_sample(log_ratios), make_sample(planted, weights), share)
    p = keep_order(curve.at(log_ratios), log_ratios)
    return blend_log_odds(p, log_odds_of(log_ratios, share), model_weight)


def log_odds_of(log_ratios: Floats, share: float) -> Floats:
    """Return the log odds [n] of errors, given log ratios of densities and the share of errors."""
    ratios = np.minimum(share * np.exp(np.minimum(log_ratios, 20.0)), CALIBRATION.max_probability)
    log_odds: Floats = np.log(np.maximum(ratios, 1e-12)) - np.log1p(-ratios)
    return log_odds


def keep_order(p: Floats, scores: Floats) -> Floats:
    """Return probabilities [n] that rise with the scores even where the curve is flat."""
    if not len(p):
        return p
    tied = np.searchsorted(np.sort(scores), scores) / len(p)  # equal scores stay equal
    ordered: Floats = np.clip(p * (1 - LIKENESS.rank_share * (1 - tied)), 0.0, 1.0)
    return ordered


def _loss(
    design: Floats, is_planted: Mask, counts: Floats, penalties: Floats, weights: Floats
) -> float:
    """Return the negative log-likelihood of a regression with its penalty."""
    log_odds = design @ weights
    losses = np.logaddexp(0.0, np.where(is_planted, -log_odds, log_odds))
    return float(counts @ losses + penalties @ weights**2 / 2)


def _expand_terms(features: Floats, scale: Likeness) -> Floats:
    """Return [n, terms]: a constant, the scaled features and, unless linear, their products."""
    limit = LIKENESS.max_feature
    scaled = np.clip((features - scale.means) / scale.deviations, -limit, limit)
    number = scaled.shape[1]
    columns = [np.ones(len(scaled)), *scaled.T]
    if not scale.is_linear:
        columns += [scaled[:, i] * scaled[:, j] for i in range(number) for j in range(i, number)]
    return np.stack(columns, axis=1)


def _select_evenly(number: int) -> Rows:
    """Return evenly spaced rows, at most `LIKENESS.max_samples`."""
    count = min(number, LIKENESS.max_samples)
    return np.unique(np.linspace(0, max(number - 1, 0), count).astype(np.int64))
