"""Adjust the probabilities of fixes to the verdicts of people.

Each kind of fix has a curve from the log odds of the table to adjusted log odds. Verdicts move the
curve where they were given. The order in which people review must not bias the rest:

- The curve is mainly local. One unit of log odds away from a verdict, the local part has fallen to
  1/e, so verdicts on the surest fixes say little about doubtful ones.
- To raise the curve, a verdict counts by the share of its group that is still unjudged. A group is
  a pattern (kind and labels before and after) in a range of probabilities. A group that people have
  judged completely does not resemble the rest. To lower the curve, every verdict counts in full.
- A small share of verdicts are slips, so a few surprising ones do not move a sure table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from boxmend.auditing.fixes.table import KINDS, Fixes
from boxmend.auditing.fixes.verdicts import ACCEPT, REJECT, Verdict
from boxmend.data.types import Floats, Mask, Rows


@dataclass(frozen=True)
class AdjustmentConstants:
    """How verdicts change the probabilities of a table."""

    min_probability: float = 1e-4  # verdicts are fitted this far from 0 and 1
    common_deviation: float = 0.5  # prior for the error of all probabilities of a kind, in log odds
    local_deviation: float = 0.7  # prior for the error of similar probabilities, in log odds
    reach_log_odds: float = 1.0  # from a verdict to where its local influence is 1/e
    node_spacing_log_odds: float = 0.5  # of the curve
    max_node_log_odds: float = 10.0
    slip_share: float = 0.025  # of the verdicts that say the opposite of what is true
    group_log_odds: float = 1.0  # width of the ranges of probability
    min_pattern_fixes: int = 20  # smaller patterns of a kind are one group
    max_newton_steps: int = 50
    max_step_log_odds: float = 1.0  # a full step far from the maximum may overshoot


ADJUSTMENT = AdjustmentConstants()
MIN_VARIANCE = 1e-12  # of an answer; avoids a division by zero


def adjust_probabilities(fixes: Fixes, latest: Mapping[str, Verdict]) -> Floats:
    """Return the probability [f] that each fix is right, given the table and the verdicts.

    It is 1 for accepted and 0 for rejected fixes. Verdicts adjust the other fixes of the same kind,
    except verdicts on whole patterns: the fixes that people left open there are no random ones.
    """
    answers = [latest.get(fix) for fix in fixes.ids]
    is_judged = np.array([verdict is not None for verdict in answers], np.bool_)
    is_evidence = np.array(
        [verdict is not None and verdict.mode != "pattern" for verdict in answers], np.bool_
    )
    is_right = np.array(
        [verdict is not None and is_plain_accept(verdict) for verdict in answers], np.bool_
    )
    log_odds = _to_log_odds(fixes.p_fix)
    weights = _open_shares(fixes, log_odds, is_judged)
    p_fix = fixes.p_fix.copy()
    for kind in KINDS:
        is_kind = fixes.kinds == kind
        rows = np.flatnonzero(is_kind & is_evidence)
        if len(rows):
            curve = _fit_cautious_curve(log_odds[rows], is_right[rows], weights[rows])
            p_fix[is_kind] = _to_probabilities(np.interp(log_odds[is_kind], NODES, curve))
    p_fix[has_answer(answers, ACCEPT)] = 1.0
    p_fix[has_answer(answers, REJECT)] = 0.0
    return p_fix


def has_answer(answers: list[Verdict | None], answer: str) -> Mask:
    """Mark the fixes whose verdict is this answer."""
    return np.array(
        [verdict is not None and verdict.answer == answer for verdict in answers], np.bool_
    )


def is_plain_accept(verdict: Verdict) -> bool:
    """Return whether a verdict says that the fix is right as proposed."""
    return verdict.answer == ACCEPT and verdict.is_plain


def _open_shares(fixes: Fixes, log_odds: Floats, is_judged: Mask) -> Floats:
    """Return the share [f] of each fix's group that is still unjudged."""
    columns = np.stack([fixes.kinds, fixes.old_labels, fixes.new_labels], axis=1)
    patterns, members, sizes = np.unique(columns, axis=0, return_inverse=True, return_counts=True)
    members = members.reshape(-1)
    is_small = sizes[members] < ADJUSTMENT.min_pattern_fixes
    pattern = np.where(is_small, len(patterns) + fixes.kinds.astype(np.int64), members)
    range_of_fix = np.floor(log_odds / ADJUSTMENT.group_log_odds).astype(np.int64)
    groups = np.stack([pattern, range_of_fix], axis=1)
    _, group, group_sizes = np.unique(groups, axis=0, return_inverse=True, return_counts=True)
    group = group.reshape(-1)
    num_open = np.bincount(group[~is_judged], minlength=len(group_sizes))
    shares: Floats = (num_open / group_sizes)[group]
    return shares


def _fit_cautious_curve(log_odds: Floats, is_right: Mask, weights: Floats) -> Floats:
    """Return the lower one of two curves: with weights, and with every verdict in full."""
    curve: Floats = np.minimum(
        _fit_curve(log_odds, is_right, weights),
        _fit_curve(log_odds, is_right, np.ones_like(weights)),
    )
    return curve


def _fit_curve(log_odds: Floats, is_right: Mask, weights: Floats) -> Floats:
    """Return the most probable adjusted log odds at the NODES, which never fall.

    Shifts from the table have a normal distribution around 0 with PRIOR_PRECISION. Each verdict
    informs about the node next to it. Newton's method uses the expected curvature.
    """
    shifts = np.zeros(len(NODES))
    for slip_share in (0.0, ADJUSTMENT.slip_share):  # the first has one maximum: a good start
        shifts = _find_shifts(log_odds, is_right, weights, (shifts, slip_share))
    curve: Floats = np.maximum.accumulate(NODES + shifts)  # keeps the order of the fixes
    return curve


def _find_shifts(
    log_odds: Floats, is_right: Mask, weights: Floats, start: tuple[Floats, float]
) -> Floats:
    """Return the most probable shifts at the NODES, from shifts nearby and a share of slips."""
    shifts, slip_share = start[0].copy(), start[1]
    places = (log_odds - NODES[0]) / ADJUSTMENT.node_spacing_log_odds
    node: Rows = np.rint(places).astype(np.int64)
    for _ in range(ADJUSTMENT.max_newton_steps):
        gradient, curvature = _differentiate(log_odds + shifts[node], is_right, slip_share)
        step = np.linalg.solve(
            PRIOR_PRECISION + np.diag(_sum_by_node(node, weights * curvature)),
            _sum_by_node(node, weights * gradient) - PRIOR_PRECISION @ shifts,
        )
        shifts += np.clip(step, -ADJUSTMENT.max_step_log_odds, ADJUSTMENT.max_step_log_odds)
        if np.abs(step).max() < 1e-9:
            break
    return shifts


def _differentiate(log_odds: Floats, is_right: Mask, slip_share: float) -> tuple[Floats, Floats]:
    """Return gradient and expected curvature of the log likelihood of verdicts with slips."""
    p = _to_probabilities(log_odds)
    rise = (1 - 2 * slip_share) * p * (1 - p)
    p_accept = slip_share + (1 - 2 * slip_share) * p
    slope = rise / np.maximum(p_accept * (1 - p_accept), MIN_VARIANCE)
    return slope * (is_right - p_accept), slope * rise


def _sum_by_node(node: Rows, values: Floats) -> Floats:
    sums: Floats = np.bincount(node, values, minlength=len(NODES)).astype(np.float64)
    return sums


def _make_nodes() -> Floats:
    limit, spacing = ADJUSTMENT.max_node_log_odds, ADJUSTMENT.node_spacing_log_odds
    nodes: Floats = np.arange(-limit, limit + spacing / 2, spacing)
    return nodes


def _compute_prior_precision(nodes: Floats) -> Floats:
    """Return the inverse covariance of the shifts at the nodes: a common and a local part."""
    distances = np.abs(nodes[:, None] - nodes[None, :])
    local = ADJUSTMENT.local_deviation**2 * np.exp(-distances / ADJUSTMENT.reach_log_odds)
    covariance = ADJUSTMENT.common_deviation**2 + local
    precision: Floats = np.asarray(np.linalg.inv(covariance), np.float64)
    return precision


def _to_log_odds(p: Floats) -> Floats:
    inside = np.clip(p, ADJUSTMENT.min_probability, 1 - ADJUSTMENT.min_probability)
    log_odds: Floats = np.log(inside) - np.log1p(-inside)
    return log_odds


def _to_probabilities(log_odds: Floats) -> Floats:
    probabilities: Floats = 1 / (1 + np.exp(-log_odds))
    return probabilities


NODES = _make_nodes()
PRIOR_PRECISION = _compute_prior_precision(NODES)
