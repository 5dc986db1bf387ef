"""Who confuses two classes: the annotator or the detector.

For an ordered pair, annotated y and seen as c, two things explain a contradiction. The annotator
gives objects of class c the label y at some rate T(c, y), however clearly the detector sees c. Or
the object is of class y and the detector is wrong, which gets rarer the more confident it is: with
o the evidence for c and s that for y, at the rate

    K(y, c) (1 - o)^a (s + e)^b ..

where a, b and the rest are common to all pairs and fitted where the detector hesitates, and K is a
factor of the pair. So confident contradictions speak for wrong labels, hesitant ones for a detector
that confuses the pair, and wrong labels that concentrate in a pair are evidence for that pair.
All is fitted by expectation maximisation; rates T of pairs have a common distribution over a grid
that is estimated, too, so uniform noise and noise in a few pairs are both found.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from boxmend.auditing.evidence import NONE, Evidence, Objects
from boxmend.data.types import Floats, Mask, Rows


@dataclass(frozen=True)
class ConfusionConstants:
    """Cells of evidence, and how the model is fitted."""

    other_edges: tuple[float, ...] = (0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)  # fmt: skip
    own_edges: tuple[float, ...] = (0, 0.002, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # fmt: skip
    min_seen: float = 0.002  # evidence below it counts as none
    other_offset: float = 0.02  # added to 1 - o before its logarithm
    own_offset: float = 0.005  # added to s likewise
    hesitant_below: float = 0.8  # evidence o up to which the rates of the detector are fitted
    num_groups: int = 8  # of pairs, by how often their classes are seen together
    min_rate: float = 1e-6
    max_rate: float = 0.6  # more of a class is not mislabelled in one way
    num_rates: int = 32
    imagined_errors: float = 1.0  # of the detector in a pair, as many as expected
    num_rounds: int = 60
    rounds_per_slope: int = 4
    slope_steps: int = 6
    tail_slope: float = (
        0.45  # by which the slope of the detector's rate beyond `tail_from` is unsure
    )
    tail_from: float = 1.0  # -log(1 - o)


CONFUSIONS = ConfusionConstants()
PRIOR_SLOPES = np.array([0.0, 1.7, 0.9, 0.3, -0.3, 0.1, 0.0])
PRIOR_PRECISIONS = np.array([1e-3, 4.0, 4.0, 1.0, 1.0, 1.0, 4.0])


@dataclass(frozen=True, eq=False)
class PairTable:
    """Contradictions by ordered pair and cell; pairs without one are pooled by their group."""

    num_labels: int
    keys: Rows  # [p] annotated * num_labels + seen, ascending, of pairs with a contradiction
    groups: Rows  # [p]
    all_groups: Rows  # [C * C] of every ordered pair
    exposures: Floats  # [p, cells] objects seen as c, in the cell of their evidence for c and y
    counts: Floats  # [p, cells] of those, annotated y
    pooled: Floats  # [groups, cells] the exposures of all other pairs
    num_pooled: Floats  # [groups] how many pairs those are
    agreement: Floats  # [bins of o] share of objects whose annotation agrees
    class_counts: Floats  # [C] annotations
    likeness: Floats  # [C, C] log share of objects of one class with evidence for the other
    group_likeness: Floats  # [groups]


@dataclass(frozen=True, eq=False)
class ConfusionModel:
    """The fitted rates."""

    rates: Floats  # [C, C] T by annotated and by true class
    factors: Floats  # [C, C] K by annotated and by seen class
    slopes: Floats  # [7]
    tail: float  # change of the slope in the tail
    agreement: Floats  # [bins of o] probability that an object seen as c is of class c
    likeness: Floats  # [C, C], centred
    rate: float  # of wrong labels


def midpoints(edges: tuple[float, ...]) -> Floats:
    """Return the middle of each bin; that of the first bin of s is no evidence at all."""
    ends = np.array(edges)
    return (ends[1:] + ends[:-1]) / 2


def tabulate(objects: Objects, evidence: Evidence, p_real: Floats) -> PairTable:
    """Count contradictions and their exposures by pair and cell."""
    num_labels = objects.num_labels
    num_own = len(CONFUSIONS.own_edges) - 1
    num_cells = (len(CONFUSIONS.other_edges) - 1) * num_own
    every = np.arange(len(objects))
    values, top = evidence.best_other(every, np.full(len(every), NONE))
    seen_for = np.clip(values - evidence.rest, 0.0, 1.0)
    is_seen = (top != NONE) & (seen_for > 0)
    bins = _bin(CONFUSIONS.other_edges, seen_for)
    base = np.zeros((num_labels, num_cells))  # exposures where nothing is seen of y
    np.add.at(base, (top[is_seen], bins[is_seen] * num_own), 1.0)
    rows, labels = np.divmod(evidence.keys, num_labels)
    is_second = is_seen[rows] & (labels != top[rows])
    rows, labels, own = rows[is_second], labels[is_second], evidence.values[is_second]
    cells = bins[rows] * num_own + _bin(CONFUSIONS.own_edges, own)
    entries = labels * num_labels + top[rows]

    is_contradicted = is_seen & (top != objects.labels)
    wrong = np.flatnonzero(is_contradicted)
    own_values = np.clip(evidence.of(wrong, objects.labels[wrong]) - evidence.rest[wrong], 0, 1)
    keys, pairs = np.unique(objects.labels[wrong] * num_labels + top[wrong], return_inverse=True)
    counts = np.zeros((len(keys), num_cells))
    places = bins[wrong] * num_own + _bin(CONFUSIONS.own_edges, own_values)
    np.add.at(counts, (pairs, places), p_real[wrong])
    exposures = base[keys % num_labels]
    at = np.minimum(np.searchsorted(keys, entries), max(len(keys) - 1, 0))
    is_kept = keys[at] == entries if len(keys) else np.zeros(len(entries), np.bool_)
    np.add.at(exposures, (at[is_kept], cells[is_kept]), 1.0)
    np.add.at(exposures, (at[is_kept], (cells - cells % num_own)[is_kept]), -1.0)
    likeness = _class_likeness(entries[own > CONFUSIONS.min_seen], top[is_seen], num_labels)
    groups, limits = _group_pairs(likeness)
    pooled, num_pooled = _pool(base, (entries, cells), groups, (keys, num_own))
    is_right = is_seen & (top == objects.labels)
    number = len(CONFUSIONS.other_edges) - 1
    agreed = np.bincount(bins[is_right], minlength=number) + 0.5
    total = np.bincount(bins[is_seen], minlength=number) + 1.0
    return PairTable(
        num_labels=num_labels,
        keys=keys,
        groups=groups.ravel()[keys],
        all_groups=groups.ravel(),
        exposures=exposures,
        counts=counts,
        pooled=pooled,
        num_pooled=num_pooled,
        agreement=np.minimum(np.maximum.accumulate(agreed / total), 1.0),
        class_counts=np.bincount(objects.labels, minlength=num_labels).astype(np.float64),
        likeness=likeness,
        group_likeness=limits,
    )


def _bin(edges: tuple[float, ...], values: Floats) -> Rows:
    places = np.searchsorted(np.array(edges), values, side="right") - 1
    found: Rows = np.clip(places, 0, len(edges) - 2)
    return found


def _class_likeness(entries: Rows, top: Rows, num_labels: int) -> Floats:
    """Return [C, C] the centred log share of objects seen as one class with evidence for another.

    It is the mean of both directions, and tells which classes look alike without any annotation.
    """
    shared = np.bincount(entries, minlength=num_labels**2).reshape(num_labels, num_labels) + 0.5
    shares = shared / (1.0 + np.bincount(top, minlength=num_labels))[None, :]
    found: Floats = np.log((shares + shares.T) / 2)
    is_pair = ~np.eye(num_labels, dtype=np.bool_)
    return found - float(found[is_pair].mean()) if is_pair.any() else found * 0.0


def _group_pairs(likeness: Floats) -> tuple[Rows, Floats]:
    """Return the group [C, C] of each pair, and the mean likeness [groups] of each group."""
    number = CONFUSIONS.num_groups
    is_pair = ~np.eye(len(likeness), dtype=np.bool_)
    values = likeness[is_pair]
    limits = np.quantile(values, np.arange(1, number) / number)
    groups: Rows = np.searchsorted(limits, likeness, side="right")
    sums = np.bincount(groups[is_pair], values, number)
    means: Floats = sums / np.maximum(np.bincount(groups[is_pair], minlength=number), 1)
    return groups, means


def _pool(
    base: Floats, entries: tuple[Rows, Rows], groups: Rows, tracked: tuple[Rows, int]
) -> tuple[Floats, Floats]:
    """Return the exposures [groups, cells] of pairs that are not tracked, and their number."""
    (keys, cells), (kept, num_own), num_labels = entries, tracked, len(base)
    is_pooled = ~np.eye(num_labels, dtype=np.bool_).ravel()
    is_pooled[kept] = False
    pairs = np.flatnonzero(is_pooled)
    weights = np.zeros((CONFUSIONS.num_groups, num_labels))  # pairs by group and seen class
    np.add.at(weights, (groups.ravel()[pairs], pairs % num_labels), 1.0)
    pooled = weights @ base
    is_free = is_pooled[keys]
    of_group = groups.ravel()[keys[is_free]]
    np.add.at(pooled, (of_group, cells[is_free]), 1.0)
    np.add.at(pooled, (of_group, (cells - cells % num_own)[is_free]), -1.0)
    return pooled, weights.sum(axis=1)


def describe_evidence(other: Floats, own: Floats) -> Floats:
    """Return [.., 4] a constant, log(1 - o), log s, and -1 where nothing is seen of the label."""
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


def _features(other: Floats, own: Floats, likeness: Floats) -> Floats:
    """Return [.., 7] the same with the likeness of the pair: y unseen, y seen, and times log(1 - o).

    Pairs that look alike are also confused by a detector that is confident.
    """
    plain = describe_evidence(other, own)
    unseen = plain[..., 3] * likeness
    extra = np.stack([unseen, likeness + unseen, plain[..., 1] * likeness], axis=-1)
    return np.concatenate([plain, extra], axis=-1)


def log_hazard(
    model: ConfusionModel, other: Floats, own: Floats, pairs: tuple[Rows, Rows]
) -> Floats:
    """Return the log rate at which the detector sees c (o) and not y (s) in objects of y.

    `pairs` are y and c.
    """
    features = _features(other, own, model.likeness[pairs])
    depth = np.maximum(-features[..., 1] - CONFUSIONS.tail_from, 0.0)
    found: Floats = np.log(model.factors[pairs]) + features @ model.slopes - model.tail * depth
    return found


def log_odds_of_wrong(
    model: ConfusionModel, labels: Rows, others: Rows, evidence: tuple[Floats, Floats]
) -> Floats:
    """Return the log odds [n] that objects with these labels are of the classes `others`.

    `evidence` is that for the other classes and for the labels; `others` may be NONE.
    """
    other, own = evidence
    seen = np.maximum(others, 0)
    middle = midpoints(CONFUSIONS.other_edges)
    rates = np.maximum(model.rates, CONFUSIONS.min_rate)
    # Half the logarithm of the pair's own rate: estimates of single pairs are uncertain.
    mean = float(np.exp(np.log(rates[~np.eye(len(rates), dtype=np.bool_)]).mean()))
    mean = max(float(model.rates.sum()) / max(rates.size - len(rates), 1), mean)
    log_rates = (np.log(rates[labels, seen]) + np.log(mean)) / 2

    def log_agreement(values: Floats) -> Floats:
        found: Floats = np.log(np.maximum(np.interp(values, middle, model.agreement), 0.05))
        return found

    contradicted = log_agreement(other) - log_hazard(model, other, own, (labels, seen))
    agreed = log_hazard(model, own, other, (seen, labels)) - log_agreement(own)
    found = log_rates + np.where(other > own, contradicted, agreed)
    alone = describe_evidence(own, np.zeros(len(own))) @ model.slopes[:4] - log_agreement(own)
    of_class = np.log(np.maximum(model.rates.sum(axis=1)[labels], CONFUSIONS.min_rate))
    lone: Floats = of_class + np.where(own > 0, alone, 0.0)
    return np.where(others == NONE, lone, found)


@dataclass(frozen=True, eq=False)
class _Cells:
    """What does not change from round to round of a fit."""

    features: Floats  # [groups * cells, 7]
    depths: Floats  # [groups * cells] beyond the start of the tail
    is_hesitant: Mask  # [groups * cells]
    other_bins: Rows  # [cells]
    pairs: Rows  # [k] of the cells with contradictions
    cells: Rows  # [k]
    counts: Floats  # [k]

    @property
    def num_cells(self) -> int:
        return len(self.other_bins)


def _prepare(table: PairTable) -> _Cells:
    other, own = midpoints(CONFUSIONS.other_edges), midpoints(CONFUSIONS.own_edges)
    own[0] = 0.0
    num_groups = len(table.group_likeness)
    grid = np.repeat(other, len(own)), np.tile(own, len(other))
    features = np.concatenate(
        [_features(*grid, np.full(len(grid[0]), one)) for one in table.group_likeness]
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
    """Fit the model; `tail` changes how fast the detector's errors get rarer where it is sure."""
    fixed = _prepare(table)
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
            counts = np.bincount(
                table.groups[fixed.pairs] * fixed.num_cells + fixed.cells,
                by_detector,
                num_groups * fixed.num_cells,
            )
            slopes = _estimate_slopes(fixed, counts, exposures.ravel(), (slopes, tail))
        factors = (imagined + np.bincount(fixed.pairs, by_detector, num_pairs)) / (
            imagined + expected
        )
        rate = float((rates * table.class_counts[true]).sum() / max(table.class_counts.sum(), 1.0))
    found = _assemble(table, (rates, unseen_rate), (factors, pooled_factors))
    return replace(found, slopes=slopes, tail=tail)


def _estimate_rates(
    table: PairTable, fixed: _Cells, seen: Floats, detector: Floats, common: tuple[Floats, Floats]
) -> tuple[Floats, float, Floats]:
    """Return rates [p] of tracked pairs, that of a pooled pair, and their distribution."""
    grid, prior = common
    fit = np.zeros((len(table.keys), len(grid)))
    mixed = grid[None, :] * seen[fixed.cells][:, None] + detector[:, None]
    np.add.at(fit, fixed.pairs, fixed.counts[:, None] * np.log(mixed))
    fit -= (table.exposures @ seen)[:, None] * grid
    pooled = -(table.pooled @ seen / np.maximum(table.num_pooled, 1.0))[:, None] * grid
    for _ in range(3):
        tracked, rest = _normalise(fit + np.log(prior)), _normalise(pooled + np.log(prior))
        weights = tracked.sum(axis=0) + table.num_pooled @ rest + 0.02
        prior = weights / weights.sum()
    unseen = float(table.num_pooled @ (rest @ grid) / max(float(table.num_pooled.sum()), 1.0))
    return tracked @ grid, unseen, prior


def _normalise(logs: Floats) -> Floats:
    chances = np.exp(logs - logs.max(axis=1, keepdims=True))
    found: Floats = chances / chances.sum(axis=1, keepdims=True)
    return found


def _estimate_slopes(
    fixed: _Cells, counts: Floats, exposures: Floats, start: tuple[Floats, float]
) -> Floats:
    """Fit the slopes of the detector's rate to cells where it hesitates, by Newton's method."""
    slopes, tail = start
    keep = fixed.is_hesitant
    features, depths = fixed.features[keep], fixed.depths[keep]
    for _ in range(CONFUSIONS.slope_steps):
        means = exposures[keep] * np.exp(features @ slopes - tail * depths)
        gradient = features.T @ (counts[keep] - means) - PRIOR_PRECISIONS * (slopes - PRIOR_SLOPES)
        curvature = (features.T * means) @ features + np.diag(PRIOR_PRECISIONS)
        slopes = slopes + np.clip(np.linalg.solve(curvature, gradient), -1.0, 1.0)
    return slopes


def _assemble(
    table: PairTable, pair_rates: tuple[Floats, float], pair_factors: tuple[Floats, Floats]
) -> ConfusionModel:
    """Return the model without its slopes, with matrices of all pairs."""
    num_labels = table.num_labels
    rates = np.full(num_labels**2, pair_rates[1])
    factors = pair_factors[1][table.all_groups]
    rates[table.keys], factors[table.keys] = pair_rates[0], pair_factors[0]
    rates, factors = rates.reshape(num_labels, -1), factors.reshape(num_labels, -1)
    np.fill_diagonal(rates, 0.0)
    total = max(float(table.class_counts.sum()), 1.0)
    rate = float((rates @ table.class_counts).sum() / total)
    return ConfusionModel(
        rates=rates,
        factors=factors,
        slopes=PRIOR_SLOPES,
        tail=0.0,
        agreement=np.minimum(table.agreement / (1 - min(rate, 0.5)), 1.0),
        likeness=table.likeness,
        rate=rate,
    )
