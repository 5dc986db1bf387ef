"""Contradictions between annotations and detections, counted for `confusions`.

An annotation of class y is contradicted where the detector sees another class c best. Its cell is
given by the evidence o for c and s for y. The exposures of an ordered pair are all objects that are
seen as c, in the cell of their evidence for y.
"""

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.evidence import NONE, Evidence, Objects
from boxmend.data.types import Floats, Mask, Rows

TENTHS = tuple(round(0.1 * number, 1) for number in range(1, 10))


@dataclass(frozen=True)
class ConfusionConstants:
    """Cells of evidence, and how the model is fitted."""

    other_edges: tuple[float, ...] = (0, 0.05, *TENTHS, 0.95, 0.98, 1.0)  # of o
    own_edges: tuple[float, ...] = (0, 0.002, 0.02, 0.05, *TENTHS, 1.0)  # of s
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


def midpoints(edges: tuple[float, ...]) -> Floats:
    """Return the middle of each bin; that of the first bin of s is no evidence at all."""
    ends = np.array(edges)
    middles: Floats = (ends[1:] + ends[:-1]) / 2
    return middles


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
    keys, counts = _count_contradictions(
        objects, evidence, p_real, (np.flatnonzero(is_contradicted), top, bins)
    )
    exposures = base[keys % num_labels]
    at = np.minimum(np.searchsorted(keys, entries), max(len(keys) - 1, 0))
    is_kept = keys[at] == entries if len(keys) else np.zeros(len(entries), np.bool_)
    np.add.at(exposures, (at[is_kept], cells[is_kept]), 1.0)
    np.add.at(exposures, (at[is_kept], (cells - cells % num_own)[is_kept]), -1.0)
    likeness = _class_likeness(entries[own > CONFUSIONS.min_seen], top[is_seen], num_labels)
    groups, limits = _group_pairs(likeness)
    pooled, num_pooled = _pool(base, (entries, cells), groups, (keys, num_own))
    return PairTable(
        num_labels=num_labels,
        keys=keys,
        groups=groups.ravel()[keys],
        all_groups=groups.ravel(),
        exposures=exposures,
        counts=counts,
        pooled=pooled,
        num_pooled=num_pooled,
        agreement=_agreement(bins[is_seen], (top == objects.labels)[is_seen]),
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
    values = np.clip(evidence.of(rows, labels) - evidence.rest[rows], 0, 1)
    keys, pairs = np.unique(labels * objects.num_labels + top[rows], return_inverse=True)
    counts = np.zeros((len(keys), (len(CONFUSIONS.other_edges) - 1) * num_own))
    np.add.at(
        counts, (pairs, bins[rows] * num_own + _bin(CONFUSIONS.own_edges, values)), p_real[rows]
    )
    return keys, counts


def _agreement(bins: Rows, is_right: Mask) -> Floats:
    """Return the share of objects whose annotation agrees, by bin of o; it never falls."""
    number = len(CONFUSIONS.other_edges) - 1
    agreed = np.bincount(bins[is_right], minlength=number) + 0.5
    total = np.bincount(bins, minlength=number) + 1.0
    shares: Floats = np.minimum(np.maximum.accumulate(agreed / total), 1.0)
    return shares


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
