"""Estimate how often the annotator and the detector confuse two classes.

If an object is annotated as y and detected as c, one of the two is wrong:

- The annotator gives objects of class c the label y at the rate T(y, c), independent of the
  detector's confidence.
- The detector takes an object of class y for c. This is rarer the more confident it is: with the
  evidence o for c and s for y, the rate is K(y, c) (1 - o)^a (s + e)^b ..., where K is a factor of
  the pair. The exponents are common to all pairs, and fitted where the detector is not confident.

So confident contradictions are evidence of wrong labels, and hesitant ones are evidence that the
detector confuses the pair. Expectation maximisation fits all parameters. The rates T of all pairs
have a common distribution over a grid, which is estimated as well, so that the model fits both
uniform noise and noise in a few pairs.
"""

from dataclasses import dataclass, replace

import numpy as np

from boxmend.auditing.confusion_tables import CONFUSIONS, PairTable, compute_midpoints
from boxmend.auditing.evidence import NONE
from boxmend.data.types import Floats, Mask, Rows

PRIOR_SLOPES = np.array([0.0, 1.7, 0.9, 0.3, -0.3, 0.1, 0.0])
PRIOR_PRECISIONS = np.array([1e-3, 4.0, 4.0, 1.0, 1.0, 1.0, 4.0])


@dataclass(frozen=True, eq=False)
class ConfusionModel:
    """Fitted rates at which annotator and detector confuse classes."""

    rates: Floats  # [C, C] T, by annotated and true class
    factors: Floats  # [C, C] K, by annotated and seen class
    slopes: Floats  # [7] of the features of the detector's log rate
    tail: float  # change of the slope in the tail
    agreement: Floats  # [bins of o] probability that an object seen as c is of class c
    likeness: Floats  # [C, C] of classes, centred
    excess: Floats  # [C] objects of each class for each annotation of it
    rate: float  # of wrong labels


def describe_evidence(other: Floats, own: Floats) -> Floats:
    """Return features [..., 4]: 1, log(1 - o), log s, and -1 where there is no evidence for y."""
    other, own = np.clip(other, 0, 1), np.clip(own, 0, 1)
    unseen = np.log(1 - other + CONFUSIONS.other_offset)
    return np.stack(
        [
            np.ones_like(unseen),
            unseen,
            np.log(own + CONFUSIONS.own_offset),
            -(own < CONFUSIONS.min_seen).astype(np.float64),
        ],
        axis=-1,
    )


def _describe_pairs(other: Floats, own: Floats, likeness: Floats) -> Floats:
    """Return features [..., 7]: those of the evidence, and three products with the likeness.

    A confident detector, too, confuses pairs that look alike.
    """
    plain = describe_evidence(other, own)
    unseen = plain[..., 3] * likeness
    extra = np.stack([unseen, likeness + unseen, plain[..., 1] * likeness], axis=-1)
    return np.concatenate([plain, extra], axis=-1)


def log_hazard(
    model: ConfusionModel, other: Floats, own: Floats, pairs: tuple[Rows, Rows]
) -> Floats:
    """Return the log rate at which the detector takes objects of class y for class c.

    `other` is the evidence for c, `own` that for y; `pairs` are y and c.
    """
    features = _describe_pairs(other, own, model.likeness[pairs])
    depth = np.maximum(-features[..., 1] - CONFUSIONS.tail_from, 0.0)
    log_rates: Floats = np.log(model.factors[pairs]) + features @ model.slopes - model.tail * depth
    return log_rates


def log_odds_of_wrong(
    model: ConfusionModel, labels: Rows, others: Rows, evidence: tuple[Floats, Floats]
) -> Floats:
    """Return the log odds [n] that objects with these labels are of the classes `others`.

    `evidence` is for the other classes and for the labels; `others` may be NONE.
    """
    other, own = evidence
    seen = np.maximum(others, 0)
    middle = compute_midpoints(CONFUSIONS.other_edges)
    rates = np.maximum(model.rates, CONFUSIONS.min_rate)
    # Rates of single pairs are uncertain, so their mean with the rate of all pairs is used.
    mean = float(np.exp(np.log(rates[~np.eye(len(rates), dtype=np.bool_)]).mean()))
    mean = max(float(model.rates.sum()) / max(rates.size - len(rates), 1), mean)
    log_rates = (np.log(rates[labels, seen]) + np.log(mean)) / 2

    def log_agreement(values: Floats) -> Floats:
        logs: Floats = np.log(np.maximum(np.interp(values, middle, model.agreement), 0.05))
        return logs

    contradicted = log_agreement(other) - log_hazard(model, other, own, (labels, seen))
    agreed = log_hazard(model, own, other, (seen, labels)) - log_agreement(own)
    with_other = log_rates + np.where(other > own, contradicted, agreed)
    alone = describe_evidence(own, np.zeros(len(own))) @ model.slopes[:4] - log_agreement(own)
    of_class = np.log(np.maximum(model.rates.sum(axis=1)[labels], CONFUSIONS.min_rate))
    without_other: Floats = of_class + np.where(own > 0, alone, 0.0)
    return np.where(others == NONE, without_other, with_other)


@dataclass(frozen=True, eq=False)
class _Cells:
    """The parts of a fit that are the same in every round."""

    features: Floats  # [groups * cells, 7]
    depths: Floats  # [groups * cells] beyond the start of the tail
    is_hesitant: Mask  # [groups * cells]
    other_bins: Rows  # [cells]
    pairs: Rows  # [k] pairs of the cells with contradictions
    cells: Rows  # [k] these cells
    counts: Floats  # [k] their contradictions

    @property
    def num_cells(self) -> int:
        return len(self.other_bins)


def _prepare_cells(table: PairTable) -> _Cells:
    other, own = compute_midpoints(CONFUSIONS.other_edges), compute_midpoints(CONFUSIONS.own_edges)
    own[0] = 0.0
    num_groups = len(table.group_likeness)
    grid = np.repeat(other, len(own)), np.tile(own, len(other))
    features = np.concatenate(
        [
            _describe_pairs(*grid, np.full(len(grid[0]), likeness))
            for likeness in table.group_likeness
        ]
    )
    pairs, cells = np.nonzero(table.counts)
    return _Cells(
        features=features,
        depths=np.maximum(-features[:, 1] - CONFUSIONS.tail_from, 0.0),
        is_hesitant=np.tile(grid[0] < CONFUSIONS.hesitant_below, num_groups),
        other_bins=np.repeat(np.arange(len(other)), len(own)),
        pairs=pairs,
        cells=cells,
        counts=table.counts[pairs, cells],
    )


def fit_confusions(table: PairTable, tail: float = 0.0) -> ConfusionModel:
    """Fit the model; `tail` is added to the slope of the detector's error rate in the tail."""
    fixed = _prepare_cells(table)
    num_pairs, num_groups = len(table.keys), len(table.group_likeness)
    grid = np.geomspace(CONFUSIONS.min_rate, CONFUSIONS.max_rate, CONFUSIONS.num_rates)
    prior = np.full(len(grid), 1 / len(grid))
    slopes, factors = PRIOR_SLOPES.copy(), np.ones(num_pairs)
    imagined = CONFUSIONS.imagined_errors
    true = table.keys % table.num_labels
    rates, rate = np.zeros(num_pairs), 0.01
    pooled_factors = np.ones(num_groups)
    for number in range(CONFUSIONS.num_rounds):
        agreement = np.minimum(table.agreement / (1 - min(rate, 0.5)), 1.0)
        hazards = np.exp(fixed.features @ slopes - tail * fixed.depths)
        by_group = hazards.reshape(num_groups, fixed.num_cells)
        seen = agreement[fixed.other_bins]
        detector = factors[fixed.pairs] * by_group[table.groups[fixed.pairs], fixed.cells]
        rates, unseen_rate, prior = _estimate_rates(table, fixed, seen, detector, (grid, prior))
        annotator = rates[fixed.pairs] * seen[fixed.cells]
        by_detector = fixed.counts * detector / (annotator + detector)
        expected = np.einsum("pc,pc->p", table.exposures, by_group[table.groups])
        if number % CONFUSIONS.rounds_per_slope == CONFUSIONS.rounds_per_slope - 1:
            per_pair = (table.pooled * by_group).sum(axis=1) / np.maximum(table.num_pooled, 1.0)
            pooled_factors = imagined / (imagined + per_pair)
            exposures = table.pooled * pooled_factors[:, None]
            np.add.at(exposures, table.groups, factors[:, None] * table.exposures)
            counts = np.zeros(exposures.shape)
            np.add.at(counts, (table.groups[fixed.pairs], fixed.cells), by_detector)
            slopes = _estimate_slopes(fixed, counts.ravel(), exposures.ravel(), (slopes, tail))
        factors = (imagined + np.bincount(fixed.pairs, by_detector, num_pairs)) / (
            imagined + expected
        )
        rate = float((rates * table.class_counts[true]).sum() / max(table.class_counts.sum(), 1.0))
    model = _assemble_model(table, (rates, unseen_rate), (factors, pooled_factors))
    return replace(model, slopes=slopes, tail=tail)


def _estimate_rates(
    table: PairTable, fixed: _Cells, seen: Floats, detector: Floats, common: tuple[Floats, Floats]
) -> tuple[Floats, float, Floats]:
    """Return the rates [p] of tracked pairs, the rate of a pooled pair, and their distribution."""
    grid, prior = common
    fit = np.zeros((len(table.keys), len(grid)))
    mixed = grid[None, :] * seen[fixed.cells][:, None] + detector[:, None]
    np.add.at(fit, fixed.pairs, fixed.counts[:, None] * np.log(mixed))
    fit -= (table.exposures @ seen)[:, None] * grid
    pooled = -(table.pooled @ seen / np.maximum(table.num_pooled, 1.0))[:, None] * grid
    for _ in range(3):
        tracked = _normalise_rows(fit + np.log(prior))
        rest = _normalise_rows(pooled + np.log(prior))
        weights = tracked.sum(axis=0) + table.num_pooled @ rest + 0.02
        prior = weights / weights.sum()
    unseen = float(table.num_pooled @ (rest @ grid) / max(float(table.num_pooled.sum()), 1.0))
    return tracked @ grid, unseen, prior


def _normalise_rows(logs: Floats) -> Floats:
    chances = np.exp(logs - logs.max(axis=1, keepdims=True))
    normalised: Floats = chances / chances.sum(axis=1, keepdims=True)
    return normalised


def _estimate_slopes(
    fixed: _Cells, counts: Floats, exposures: Floats, start: tuple[Floats, float]
) -> Floats:
    """Fit the slopes of the detector's rate to cells of low confidence, by Newton's method."""
    slopes, tail = start
    keep = fixed.is_hesitant
    features, depths = fixed.features[keep], fixed.depths[keep]
    for _ in range(CONFUSIONS.slope_steps):
        means = exposures[keep] * np.exp(features @ slopes - tail * depths)
        gradient = features.T @ (counts[keep] - means) - PRIOR_PRECISIONS * (slopes - PRIOR_SLOPES)
        curvature = (features.T * means) @ features + np.diag(PRIOR_PRECISIONS)
        slopes = slopes + np.clip(np.linalg.solve(curvature, gradient), -1.0, 1.0)
    return slopes


def _assemble_model(
    table: PairTable, pair_rates: tuple[Floats, float], pair_factors: tuple[Floats, Floats]
) -> ConfusionModel:
    """Return the model with matrices of all pairs; its slopes are those of the prior.

    Rates and factors are given for each tracked pair, and for pooled pairs.
    """
    num_labels = table.num_labels
    flat_rates = np.full(num_labels**2, pair_rates[1])
    flat_factors = pair_factors[1][table.all_groups]
    flat_rates[table.keys], flat_factors[table.keys] = pair_rates[0], pair_factors[0]
    rates, factors = flat_rates.reshape(num_labels, -1), flat_factors.reshape(num_labels, -1)
    np.fill_diagonal(rates, 0.0)
    true_counts = _estimate_true_counts(rates, table.class_counts)
    rate = float((rates @ true_counts).sum() / max(float(true_counts.sum()), 1.0))
    return ConfusionModel(
        rates=rates,
        factors=factors,
        slopes=PRIOR_SLOPES,
        tail=0.0,
        agreement=np.minimum(table.agreement / (1 - min(rate, 0.5)), 1.0),
        likeness=table.likeness,
        excess=true_counts / np.maximum(table.class_counts, 1.0),
        rate=rate,
    )


def _estimate_true_counts(rates: Floats, annotated: Floats) -> Floats:
    """Return how many objects of each class there are, given how many are annotated as each."""
    confusion = rates + np.diag(1 - np.minimum(rates.sum(axis=0), CONFUSIONS.max_rate))
    counts: Floats = np.maximum(np.linalg.solve(confusion, annotated), 0.0)
    return counts
