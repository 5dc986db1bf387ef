"""Judge labels: the probability that each is wrong, and which label is right.

`confusions` estimates how often annotators give objects of each class each other label. Wrong
labels are then planted at these rates. The evidence of planted errors, compared with that of the
annotations, gives the probability that a label is wrong. See `calibration`.
"""

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.calibration import Share, fit_error_curve, fit_mean_curve, make_sample
from boxmend.auditing.confusion_tables import CONFUSIONS, PairTable, tabulate_contradictions
from boxmend.auditing.confusions import ConfusionModel, fit_confusions, log_odds_of_wrong
from boxmend.auditing.evidence import NONE, Evidence, Objects
from boxmend.auditing.likeness import blend_log_odds, keep_order
from boxmend.data.types import Floats, Rows


@dataclass(frozen=True)
class LabelConstants:
    """Constants of the judgement of labels by planted errors."""

    num_rounds: int = 2  # the second plants few errors into labels that the first found wrong
    max_copies: int = 8  # of each annotation, for planted errors
    max_planted: int = 200_000  # labels; more add time, not precision
    model_error: float = 0.15  # relative error of an estimated rate
    min_trust: float = 0.1  # in the rates of planted wrong labels
    alike_background_rate: float = 0.007  # of look-alikes that a confident detector confuses
    spread_excess: float = 0.33  # relative excess of rates between other classes, times the rate
    alike_excess: float = 0.3  # of rates between look-alikes
    model_weight: float = 0.5  # of the confusion model, beside the counts, in log odds
    noise_background_rate: float = 0.03  # of confused look-alikes, per squared box noise
    max_odds_factor: float = 1.3  # by which blending may raise the odds, to keep their sum
    alike_likeness: float = 1.5  # of classes that look alike; see `confusions`
    background_rate: float = 0.0003  # of right labels that a confident detector contradicts
    min_rate: float = 0.005  # below it, errors of the detector look like wrong labels
    weak_min_seen: float = 0.05  # evidence of an object for any class, for a weak detector


LABELS = LabelConstants()


@dataclass(frozen=True, eq=False)
class LabelOpinion:
    """The judgement of labels, row by row, given that the annotation is of an object."""

    p_wrong: Floats  # [n] probability that the label is wrong
    labels: Rows  # [n] the best other label, or NONE
    p_fix: Floats  # [n] probability that the best other label is right
    rate: Share  # of wrong labels


def judge_labels(
    objects: Objects,
    evidence: Evidence,
    p_real: Floats,
    box_noise: float,
    random: np.random.Generator,
    *,
    is_weak: bool = False,
) -> LabelOpinion:
    """Judge labels; `p_real` [n] is the probability that an annotation is of an object.

    `box_noise` is the error of edges in shares of the side. A weak detector sees many objects with
    hardly any evidence for any class, which the model may not describe. So it is fitted with and
    without these, and the lower rate of wrong labels counts.
    """
    n, num_labels = len(objects), objects.num_labels
    if num_labels < 2 or not n:
        return LabelOpinion(np.zeros(n), np.full(n, NONE), np.zeros(n), Share(0.0, 0.0, 0.0))
    limits = (0.0, LABELS.weak_min_seen) if is_weak else (0.0,)
    tables = [tabulate_contradictions(objects, evidence, p_real, limit) for limit in limits]
    model, bounds = _fit_lowest(tables)
    rate = _estimate_rate(model.rate, bounds, n)
    rows = np.arange(n)
    seen, best = _judge_by_model(model, evidence, rows, objects.labels)
    copies = np.tile(rows, int(np.clip(LABELS.max_planted // n, 1, LABELS.max_copies)))
    labels, chances = _draw_wrong_labels(model, objects.labels[copies], random)
    suspicions, fixes = _judge_by_model(model, evidence, copies, labels)
    share = float((chances * p_real[copies]).sum() / max(p_real[copies].sum(), 1e-9))
    alike = _measure_likeness(model, labels, objects.labels[copies], chances)
    trust = _measure_trust(share, alike, box_noise)
    chances, share = chances * trust, share * trust
    observed = make_sample(seen, p_real)
    p_wrong = 1 / (1 + np.exp(-seen))
    for _ in range(LABELS.num_rounds):
        planted = make_sample(suspicions, chances * p_real[copies] * (1 - p_wrong[copies]))
        p_wrong = keep_order(fit_error_curve(observed, planted, share).at(seen), seen)
    p_wrong = _blend_with_model(p_wrong, seen + np.log(trust), share)
    planted = make_sample(suspicions, chances * p_real[copies] * (1 - p_wrong[copies]) ** 2)
    is_right = (fixes == objects.labels[copies]).astype(np.float64)
    p_right = fit_mean_curve(planted, is_right).at(seen)
    p_fix = np.where(best == NONE, 0.0, p_wrong * p_right)
    return LabelOpinion(p_wrong, best, p_fix, rate)


def _fit_lowest(tables: list[PairTable]) -> tuple[ConfusionModel, list[float]]:
    """Return the model with the lowest rate of wrong labels of several tables, and its bounds."""
    models = [fit_confusions(table) for table in tables]
    tails = (-CONFUSIONS.tail_slope, CONFUSIONS.tail_slope)
    bounds = [fit_confusions(table, tail).rate for table in tables for tail in tails]
    return min(models, key=lambda model: model.rate), bounds


def _judge_by_model(
    model: ConfusionModel, evidence: Evidence, rows: Rows, labels: Rows
) -> tuple[Floats, Rows]:
    """Return the log odds that these labels are wrong, and the best other labels."""
    others, best = evidence.best_other(rows, labels)
    rest = evidence.rest[rows]
    values = (
        np.clip(others - rest, 0.0, 1.0),
        np.clip(evidence.for_labels(rows, labels) - rest, 0.0, 1.0),
    )
    return log_odds_of_wrong(model, labels, best, values), best


def _draw_wrong_labels(
    model: ConfusionModel, true_labels: Rows, random: np.random.Generator
) -> tuple[Rows, Floats]:
    """Draw wrong labels at the estimated rates.

    Return them, and the probability that a true label is replaced by any wrong label.
    """
    floor = LABELS.background_rate / (len(model.rates) - 1)
    rates = np.maximum(model.rates - floor, CONFUSIONS.min_rate)
    np.fill_diagonal(rates, 0.0)
    totals = rates.sum(axis=0)
    bounds = np.cumsum(rates / totals, axis=0).T  # [C, C] by true class
    draws = random.random(len(true_labels))
    labels = np.empty(len(true_labels), np.int64)
    for label in np.unique(true_labels).tolist():
        is_class = true_labels == label
        drawn = np.searchsorted(bounds[label], draws[is_class], side="right")
        labels[is_class] = np.minimum(drawn, len(bounds) - 1)
    chances = (totals * model.excess)[true_labels]
    return labels, np.where(labels == true_labels, 0.0, chances)


def _blend_with_model(p: Floats, log_odds: Floats, share: float) -> Floats:
    """Return probabilities from counts, blended with the log odds of the confusion model.

    Blending lowers the sum of the probabilities. Raise all odds by one factor to restore it.
    """
    blended = blend_log_odds(p, log_odds, LABELS.model_weight)
    low, high = 1.0, LABELS.max_odds_factor
    odds = blended / (1 - blended)
    for _ in range(30):
        middle = (low + high) / 2
        raised = middle * odds / (1 + middle * odds)
        low, high = (middle, high) if raised.sum() < share * len(p) else (low, middle)
    found: Floats = low * odds / (1 + low * odds)
    return found


def _measure_likeness(
    model: ConfusionModel, labels: Rows, true_labels: Rows, chances: Floats
) -> float:
    """Return the share, from 0 to 1, of planted labels between classes that look alike."""
    likeness = model.likeness[labels, true_labels]
    is_alike = np.clip(likeness / LABELS.alike_likeness, 0.0, 1.0)
    return float((is_alike * chances).sum() / max(float(chances.sum()), 1e-12))


def _measure_trust(share: float, alike: float, box_noise: float) -> float:
    """Return the factor for the rates of planted labels.

    A confident detector confuses some objects of classes that look alike (`alike` is the share of
    such labels), at whatever rate the labels are wrong. All rates are too large in proportion to
    themselves, since the detector has learnt from wrong labels.
    """
    background = LABELS.alike_background_rate + LABELS.noise_background_rate * box_noise**2
    excess = share * (LABELS.spread_excess * (1 - alike) + LABELS.alike_excess * alike)
    return max(1 - background * alike / max(share, 1e-9) - excess, LABELS.min_trust)


def _estimate_rate(rate: float, bounds: list[float], number: int) -> Share:
    """Return the rate with bounds: of the counts, of the detector's errors and of the model."""
    spread = 1.96 * float(np.sqrt(max(rate, 1e-9) / number))
    low = min(rate, *bounds) * (1 - LABELS.model_error) - LABELS.min_rate - spread
    high = max(rate, *bounds) * (1 + LABELS.model_error / 2) + spread
    return Share(rate, max(low, 0.0), min(high, 1.0))
