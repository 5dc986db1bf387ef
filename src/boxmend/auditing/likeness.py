"""How much an observed annotation looks like planted errors: a logistic regression on features.

Its log odds rise with the ratio of two densities: that of the planted errors over that of what is
observed. `calibration` turns them into probabilities, so only their order has to be right.
"""

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.calibration import Share, error_curve, sample, share_of_errors
from boxmend.data.types import Floats, Rows


@dataclass(frozen=True)
class LikenessConstants:
    """How the regression is fitted."""

    ridge: float = 3.0  # penalty on squared coefficients, in observations
    max_newton_steps: int = 25
    max_step: float = 2.0  # of a coefficient in one step
    max_feature: float = 5.0  # standard deviations at which features are cut off
    max_samples: int = 100_000  # of either side; more only cost time
    rank_share: float = 1e-3  # of a probability, to keep the order within a plateau of a curve


LIKENESS = LikenessConstants()


@dataclass(frozen=True, eq=False)
class Likeness:
    """A fitted regression with linear, quadratic and product terms."""

    means: Floats  # [k] of the features
    deviations: Floats  # [k]
    weights: Floats  # [1 + k + k (k + 1) / 2]

    def of(self, features: Floats) -> Floats:
        """Return the log odds [n] that observations with these features [n, k] are planted."""
        log_odds: Floats = _expand(features, self.means, self.deviations) @ self.weights
        return log_odds


def fit_likeness(observed: Floats, planted: Floats, weights: Floats | None = None) -> Likeness:
    """Fit a regression that separates planted [m, k] from observed features [n, k].

    Both sides count equally; `weights` [m] are those of the planted ones.
    """
    weights = np.ones(len(planted)) if weights is None else weights
    means, deviations = observed.mean(axis=0), observed.std(axis=0) + 1e-6
    first, second = _thin(len(observed)), _thin(len(planted))
    design = np.concatenate(
        [_expand(observed[first], means, deviations), _expand(planted[second], means, deviations)]
    )
    is_planted = np.arange(len(design)) >= len(first)
    shares = weights[second] * len(first) / max(float(weights[second].sum()), 1e-9)
    counts = np.concatenate([np.ones(len(first)), shares])
    penalties = np.full(design.shape[1], LIKENESS.ridge)
    penalties[0] = 1e-6
    found = np.zeros(design.shape[1])
    for _ in range(LIKENESS.max_newton_steps):
        p = 1 / (1 + np.exp(-design @ found))
        gradient = design.T @ (counts * (is_planted - p)) - penalties * found
        curvature = (design.T * (counts * p * (1 - p))) @ design + np.diag(penalties)
        step = np.linalg.solve(curvature, gradient)
        found += np.clip(step, -LIKENESS.max_step, LIKENESS.max_step)
        if np.abs(step).max() < 1e-4:
            break
    return Likeness(means, deviations, found)


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


def _expand(features: Floats, means: Floats, deviations: Floats) -> Floats:
    """Return [n, 1 + k + k (k + 1) / 2]: a constant, the features and their products."""
    limit = LIKENESS.max_feature
    scaled = np.clip((features - means) / deviations, -limit, limit)
    number = scaled.shape[1]
    columns = [np.ones(len(scaled)), *scaled.T]
    columns += [scaled[:, i] * scaled[:, j] for i in range(number) for j in range(i, number)]
    return np.stack(columns, axis=1)


def _thin(number: int) -> Rows:
    """Return rows, evenly spaced, of at most so many as are fitted."""
    count = min(number, LIKENESS.max_samples)
    return np.unique(np.linspace(0, max(number - 1, 0), count).astype(np.int64))
