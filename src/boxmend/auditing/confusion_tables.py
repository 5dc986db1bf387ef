"""Count contradictions between annotations and detections, for `confusions`.

A detector contradicts an annotation of class y if it has most evidence for another class c. Its
cell is given by the evidence o for c and s for y. The exposures of an ordered pair (y, c) are all
objects seen as c, in the cell of their evidence for y.
"""

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.evidence import NONE, Evidence, Objects
from boxmend.data.types import Floats, Mask, Rows

TENTHS = tuple(round(0.1 * number, 1) for number in range(1, 10))


@dataclass(frozen=True)
class ConfusionConstants:
    """Constants of the cells of evidence and of the fit of the model."""

    other_edges: tuple[float, ...] = (0, 0.05, *TENTHS, 0.95, 0.98, 1.0)  # of o
    own_edges: tuple[float, ...] = (0, 0.002, 0.02, 0.05, *TENTHS, 1.0)  # of s
    min_seen: float = 0.002  # less evidence counts as 0
    other_offset: float = 0.02  # added to 1 - o before the logarithm
    own_offset: float = 0.005  # added to s before the logarithm
    hesitant_below: float = 0.8  # evidence o up to which the rates of the detector are fitted
    num_groups: int = 8  # of pairs, by how often their classes are detected together
    min_rate: float = 1e-6
    max_rate: float = 0.6  # upper limit of the objects of a class that get one wrong label
    num_rates: int = 32
    imagined_errors: float = 1.0  # prior count of the detector's errors in a pair
    num_rounds: int = 60
    rounds_per_slope: int = 4
    slope_steps: int = 6
    tail_slope: float = 0.45  # uncertainty of the slope of the detector's rate in the tail
    tail_from: float = 1.0  # value of -log(1 - o) at which the tail starts


CONFUSIONS = ConfusionConstants()


@dataclass(frozen=True, eq=False)
class PairTable:
    """Counts of contradictions by ordered pair and cell.

    Pairs without contradictions are pooled by group.
    """

    num_labels: int
    keys: Rows  # [p] annotated * num_labels + seen, ascending, of pairs with contradictions
    groups: Rows  # [p] of these pairs
    all_groups: Rows  # [C * C] groups of all ordered pairs
    exposures: Floats  # [p, cells] objects seen as c, in the cell of their evidence for c and y
    counts: Floats  # [p, cells] those of them that are annotated as y
    pooled: Floats  # [groups, cells] exposures of all other pairs
    num_pooled: Floats  # [groups] number of these other pairs
    agreement: Floats  # [bins of o] share of objects whose annotation agrees
    class_counts: Floats  # [C] annotations
    likeness: Floats  # [C, C] log share of objects of one class with evidence for the other
    group_likeness: Floats  # [groups] mean likeness


def compute_midpoints(edges: tuple[float, ...]) -> Floats:
    """Return the middle of each bin."""
    ends = np.array(edges)
    middles: Floats = (ends[1:] + ends[:-1]) / 2
    return middles


def tabulate_contradictions(
    objects: Objects, evidence: Evidence, p_real: Floats, min_seen: float = 0.0
) -> PairTable:
    """Count contradictions and exposures by pair and cell; `p_real` [n] weights annotations.

    Objects with evidence in bins below `min_seen` are not counted.
    """
    num_labels = objects.num_labels
    num_own = len(CONFUSIONS.own_edges) - 1
    num_cells = (len(CONFUSIONS.other_edges) - 1) * num_own
    every = np.arange(len(objects))
    values, top = evidence.best_other(every, np.full(len(every), NONE))
    seen_for = np.clip(values - evidence.rest, 0.0, 1.0)
    is_seen = (top != NONE) & (seen_for > 0)
    bins = _find_bins(CONFUSIONS.other_edges, seen_for)
    base = np.zeros((num_labels, num_cells))  # exposures without evidence for y
    np.add.at(base, (top[is_seen], bins[is_seen] * num_own), 1.0)
    rows, labels = np.divmod(evidence.keys, num_labels)
    is_second = is_seen[rows] & (labels != top[rows])
    rows, labels, own = rows[is_second], labels[is_second], evidence.values[is_second]
    cells = bins[rows] * num_own + _find_bins(CONFUSIONS.own_edges, own)
    entries = labels * num_labels + top[rows]

    is_contradicted = is_seen & (top != objects.labels)
    keys, counts = _count_contradictions(
        objects, evidence, p_real, (np.flatnonzero(is_contradicted), top, bins)
    )
    exposures = base[keys % num_labels]
    at = np.minimum(np.searchsorted(keys, entries), max(len(keys) - 1, 0))
    is_kept = keys[at] == entries if len(keys) else np.zeros(len(entries), np.bool_)
    np.add.at(exposures, (at[is_kept], cells[is_kept]), 1.0)
    np.add.at(exposures, (at[is_kept], (cells - cells % num_own)[is_kept]), -1.0)
    likeness = _measure_class_likeness(entries[own > CONFUSIONS.min_seen], top[is_seen], num_labels)
    groups, limits = _group_pairs(likeness)
    pooled, num_pooled = _pool_exposures(base, (entries, cells), groups, (keys, num_own))
    is_fitted = np.repeat(np.array(CONFUSIONS.other_edges[:-1]) >= min_seen, num_own)
    return PairTable(
        num_labels=num_labels,
        keys=keys,
        groups=groups.ravel()[keys],
        all_groups=groups.ravel(),
        exposures=exposures * is_fitted,
        counts=counts * is_fitted,
        pooled=pooled * is_fitted,
        num_pooled=num_pooled,
        agreement=_measure_agreement(bins[is_seen], (top == objects.labels)[is_seen]),
        class_counts=np.bincount(objects.labels, minlength=num_labels).astype(np.float64),
        likeness=likeness,
        group_likeness=limits,
    )


def _count_contradictions(
    objects: Objects, evidence: Evidence, p_real: Floats, seen: tuple[Rows, Rows, Rows]
) -> tuple[Rows, Floats]:
    """Return the pairs with contradictions and their counts [p, cells].

    `seen` are the contradicted rows, and the best class of each annotation and its bin of evidence.
    """
    rows, top, bins = seen
    num_own = len(CONFUSIONS.own_edges) - 1
    labels = objects.labels[rows]
    values = np.clip(evidence.for_labels(rows, labels) - evidence.rest[rows], 0, 1)
    keys, pairs = np.unique(labels * objects.num_labels + top[rows], return_inverse=True)
    counts = np.zeros((len(keys), (len(CONFUSIONS.other_edges) - 1) * num_own))
    np.add.at(
        counts,
        (pairs, bins[rows] * num_own + _find_bins(CONFUSIONS.own_edges, values)),
        p_real[rows],
    )
    return keys, counts


def _measure_agreement(bins: Rows, is_right: Mask) -> Floats:
    """Return the share of objects whose annotation agrees, by bin of o; it never falls."""
    number = len(CONFUSIONS.other_edges) - 1
    agreed = np.bincount(bins[is_right], minlength=number) + 0.5
    total = np.bincount(bins, minlength=number) + 1.0
    shares: Floats = np.minimum(np.maximum.accumulate(agreed / total), 1.0)
    return shares


def _find_bins(edges: tuple[float, ...], values: Floats) -> Rows:
    places = np.searchsorted(np.array(edges), values, side="right") - 1
    bins: Rows = np.clip(places, 0, len(edges) - 2)
    return bins


def _measure_class_likeness(entries: Rows, top: Rows, num_labels: int) -> Floats:
    """Return the centred log share [C, C] of objects seen as one class with evidence for another.

    It is the mean of both directions, and shows which classes look alike without using annotations.
    """
    shared = np.bincount(entries, minlength=num_labels**2).reshape(num_labels, num_labels) + 0.5
    shares = shared / (1.0 + np.bincount(top, minlength=num_labels))[None, :]
    likeness: Floats = np.log((shares + shares.T) / 2)
    is_pair = ~np.eye(num_labels, dtype=np.bool_)
    return likeness - float(likeness[is_pair].mean()) if is_pair.any() else likeness * 0.0


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


def _pool_exposures(
    base: Floats, entries: tuple[Rows, Rows], groups: Rows, tracked: tuple[Rows, int]
) -> tuple[Floats, Floats]:
    """Return the exposures [groups, cells] of untracked pairs, and the number of these pairs."""
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
