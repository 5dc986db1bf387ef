"""How much an observed annotation looks like planted errors: a logistic regression on features.

Its log odds rise with the ratio of two densities: that of the planted errors over that of what is
observed. `calibration` turns them into probabilities, so only their order has to be right.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from boxmend.auditing.calibration import Share, error_curve, sample, share_of_errors
from boxmend.data.types import Floats, Mask, Rows


@dataclass(frozen=True)
class LikenessConstants:
    """How the regression is fitted."""

    ridge: float = 3.0  # penalty on squared coefficients, in observations
    max_newton_steps: int = 25
    max_halvings: int = 12  # of a step that makes the fit worse
    max_feature: float = 5.0  # standard deviations at which features are cut off
    max_samples: int = 100_000  # of either side; more only cost time
    rank_share: float = 1e-3  # of a probability, to keep the order within a plateau of a curve


LIKENESS = LikenessConstants()


@dataclass(frozen=True, eq=False)
class Likeness:
    """A fitted regression with linear and, unless it is linear, quadratic and product terms."""

    means: Floats  # [k] of the features
    deviations: Floats  # [k]
    weights: Floats  # [terms]
    is_linear: bool

    def of(self, features: Floats) -> Floats:
        """Return the log odds [n] that observations with these features [n, k] are planted."""
        log_odds: Floats = _expand(features, self) @ self.weights
        return log_odds


def fit_likeness(
    observed: Floats, planted: Floats, weights: Floats | None = None, *, is_linear: bool = False
) -> Likeness:
    """Fit a regression that separates planted [m, k] from observed features [n, k].

    Both sides count equally; `weights` [m] are those of the planted ones.
    """
    weights = np.ones(len(planted)) if weights is None else weights
    means, deviations = observed.mean(axis=0), observed.std(axis=0) + 1e-6
    scale = Likeness(means, deviations, np.zeros(0), is_linear)
    first, second = _thin(len(observed)), _thin(len(planted))
    design = np.concatenate([_expand(observed[first], scale), _expand(planted[second], scale)])
    is_planted = np.arange(len(design)) >= len(first)
    shares = weights[second] * len(first) / max(float(weights[second].sum()), 1e-9)
    counts = np.concatenate([np.ones(len(first)), shares])
    penalties = np.full(design.shape[1], LIKENESS.ridge)
    penalties[0] = 1e-6
    found = np.zeros(design.shape[1])
    loss = _loss(design, is_planted, counts, penalties, found)
    for _ in range(LIKENESS.max_newton_steps):
        p = expit(design @ found)
        gradient = design.T @ (counts * (is_planted - p)) - penalties * found
        curvature = (design.T * (counts * p * (1 - p))) @ design + np.diag(penalties)
        step = np.linalg.solve(curvature, gradient)
        for _ in range(LIKENESS.max_halvings):  # a full step may lead away from the minimum
            tried = _loss(design, is_planted, counts, penalties, found + step)
            if tried <= loss:
                break
            step /= 2
        if tried > loss - 1e-6:
            break
        found, loss = found + step, tried
    return replace(scale, weights=found)


def judge_by_scores(
    observed: Floats, planted: Floats, weights: Floats | None = None, share: Share | None = None
) -> tuple[Floats, Share]:
    """Return the probability [n] that an observation is an error, and the share of errors.

    Scores rise with suspicion; `share` is an estimate that there is already.
    """
    seen, known = sample(observed), sample(planted, weights)
    measured = share_of_errors(seen, known) if share is None else share
    p = error_curve(seen, known, measured.value if share else measured.cautious).at(observed)
    return keep_order(p, observed), measured


def keep_order(p: Floats, scores: Floats) -> Floats:
    """Return probabilities that also rise with the scores within a plateau of a curve."""
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


def _expand(features: Floats, scale: Likeness) -> Floats:
    """Return [n, terms]: a constant, the scaled features and, unless linear, their products."""
    limit = LIKENESS.max_feature
    scaled = np.clip((features - scale.means) / scale.deviations, -limit, limit)
    number = scaled.shape[1]
    columns = [np.ones(len(scaled)), *scaled.T]
    if not scale.is_linear:
        columns += [scaled[:, i] * scaled[:, j] for i in range(number) for j in range(i, number)]
    return np.stack(columns, axis=1)


def _thin(number: int) -> Rows:
    """Return rows, evenly spaced, of at most so many as are fitted."""
    count = min(number, LIKENESS.max_samples)
    return np.unique(np.linspace(0, max(number - 1, 0), count).astype(np.int64))
