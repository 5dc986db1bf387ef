"""Choose fixes to apply: those that people accepted, and as many as the required precision allows.

Verdicts adjust the probabilities of the other fixes of the same kind, by a shift and a slope of
their log odds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from boxmend.auditing.fixes.table import KINDS, Fixes, Kind
from boxmend.auditing.fixes.verdicts import ACCEPT, REJECT, Verdict, latest_verdicts
from boxmend.data.types import Floats, Mask, Rows
from boxmend.errors import UsageError

KINDS_BY_OPTION = {
    "labels": Kind.WRONG_LABEL,
    "boxes": Kind.BAD_BOX,
    "missing": Kind.MISSING,
    "spurious": Kind.SPURIOUS,
    "duplicates": Kind.DUPLICATE,
}
DEFAULT_PRECISION = 0.95
MIN_LIKELY_PROBABILITY = 0.5  # from this probability on, a fix is more likely right than not
YIELD_PRECISIONS = (0.95, 0.9, 0.8, 0.7)
ALL = "all"  # key of `measure_precision` for all kinds together


@dataclass(frozen=True)
class AdjustmentConstants:
    """Constants of how verdicts adjust probabilities, and of the choice."""

    min_probability: float = 1e-4  # of a fix without a verdict; at most 1 minus this
    shift_deviation: float = 1.0  # prior of the error of a table, in log odds
    slope_deviation: float = 0.2  # prior; a larger one lets one wrong click override the table
    min_slope: float = 0.1  # above 0, so that a few verdicts cannot reverse the order of fixes
    max_doubt_factor: float = 4.0  # of the doubt of a chosen fix to the mean doubt allowed
    max_newton_steps: int = 50
    interval_deviations: float = 1.959964  # standard deviations on either side of a 95% interval


ADJUSTMENT = AdjustmentConstants()


@dataclass(frozen=True, eq=False)
class ChosenFixes:
    """The fixes to apply, and their expected precision."""

    rows: Rows  # [t] of the table, ascending
    p_fix: Floats  # [f] of all fixes of the table, from `adjust_probabilities`
    expected_precision: float | None  # of the chosen fixes; None if there are none
    num_left: int  # for review: without a verdict, not chosen, and of an annotation that stays
    num_likely: int  # of these, with a probability of at least 0.5


class MeasuredPrecision(NamedTuple):
    """The number of fixes of a random sample that people judged right, and a 95% interval."""

    right: int
    number: int
    low: float
    high: float


def adjust_probabilities(fixes: Fixes, latest: Mapping[str, Verdict]) -> Floats:
    """Return the probability [f] that each fix is right, given the table and the verdicts.

    It is 1 for accepted and 0 for rejected fixes. Verdicts adjust the other fixes of the same kind,
    except verdicts on whole patterns, which are no evidence about other fixes.
    """
    answers = [latest.get(fix) for fix in fixes.ids]
    log_odds = _to_log_odds(fixes.p_fix)
    p_fix = fixes.p_fix.copy()
    is_informative = np.array(
        [verdict is not None and verdict.mode != "pattern" for verdict in answers], np.bool_
    )
    is_right = np.array(
        [verdict is not None and _is_right(verdict) for verdict in answers], np.bool_
    )
    for kind in KINDS:
        is_kind = fixes.kinds == kind
        is_evidence = is_kind & is_informative
        if is_evidence.any():
            shift, slope = _fit_log_odds(log_odds[is_evidence], is_right[is_evidence])
            p_fix[is_kind] = _to_probabilities(shift + slope * log_odds[is_kind])
    p_fix[_mark_answered(answers, ACCEPT)] = 1.0
    p_fix[_mark_answered(answers, REJECT)] = 0.0
    return p_fix


def measure_precision(fixes: Fixes, verdicts: Sequence[Verdict]) -> dict[str, MeasuredPrecision]:
    """Return by kind, and for ALL, how many of the fixes with a verdict in sample mode are right.

    The last answer to each fix counts. A fix is right if a person accepted it as proposed.
    """
    kind_of = {fix: int(kind) for fix, kind in zip(fixes.ids, fixes.kinds.tolist(), strict=True)}
    sampled = latest_verdicts([verdict for verdict in verdicts if verdict.mode == "sample"])
    last = latest_verdicts(verdicts)
    answers = [
        (kind_of[fix], _is_right(last[fix])) for fix in sampled if fix in kind_of and fix in last
    ]
    measured = {ALL: wilson_interval(sum(is_right for _, is_right in answers), len(answers))}
    for kind in KINDS:
        of_kind = [is_right for fix, is_right in answers if fix == kind]
        if of_kind:
            measured[kind.words] = wilson_interval(sum(of_kind), len(of_kind))
    return measured


def wilson_interval(right: int, number: int) -> MeasuredPrecision:
    """Return a share with Wilson's 95% interval; without cases it is 0 to 1."""
    if number == 0:
        return MeasuredPrecision(0, 0, 0.0, 1.0)
    z = ADJUSTMENT.interval_deviations
    share, weight = right / number, z**2 / number
    centre = (share + weight / 2) / (1 + weight)
    half = z * np.sqrt(share * (1 - share) / number + weight / (4 * number)) / (1 + weight)
    return MeasuredPrecision(
        right, number, float(max(centre - half, 0)), float(min(centre + half, 1))
    )


def choose_fixes(
    fixes: Fixes,
    latest: Mapping[str, Verdict],
    precision: float | None,
    only: Sequence[str] = tuple(KINDS_BY_OPTION),
) -> ChosenFixes:
    """Choose the accepted fixes and, of the unjudged ones, as many as are precise enough.

    Of the fixes without a verdict, the largest set whose mean probability reaches `precision` is
    chosen; None chooses accepted fixes only. If a removal and changes of one annotation conflict,
    the more probable one is chosen, or the one accepted last. An annotation is never removed as the
    duplicate of an annotation that is removed itself.
    """
    is_wanted = np.isin(fixes.kinds, _parse_kinds(only))
    check_precision(precision)
    p_fix = adjust_probabilities(fixes, latest)
    answers = [latest.get(fix) for fix in fixes.ids]
    is_accepted, is_rejected = _mark_answered(answers, ACCEPT), _mark_answered(answers, REJECT)
    is_edited = np.array(
        [verdict is not None and not verdict.is_plain for verdict in answers], np.bool_
    )
    is_removal = np.isin(fixes.kinds, (Kind.SPURIOUS, Kind.DUPLICATE)) & ~is_edited
    is_candidate = is_wanted & ~is_rejected
    weights = _weigh_conflicts(fixes, p_fix, latest)
    is_candidate &= ~_mark_conflicting(fixes, weights, is_candidate, is_removal)

    order = np.lexsort((rank_ids(fixes.ids), -p_fix, ~is_accepted))
    order = order[is_candidate[order]]
    order = order[~_mark_redundant_removals(fixes, order, is_removal)]
    is_open = ~is_accepted[order]
    chosen_rows = order[~is_open]
    if precision is not None:
        open_ones = order[is_open]
        means = np.cumsum(p_fix[open_ones]) / np.arange(1, len(open_ones) + 1)
        is_precise = means >= precision - 1e-12
        is_precise &= p_fix[open_ones] >= 1 - ADJUSTMENT.max_doubt_factor * (1 - precision) - 1e-12
        chosen_rows = np.concatenate([chosen_rows, open_ones[is_precise]])
    chosen_rows = np.sort(chosen_rows)
    is_open_for_review = is_wanted & ~is_accepted & ~is_rejected
    is_open_for_review[chosen_rows] = False
    # If an annotation is removed, its other fixes need no verdict.
    is_open_for_review &= ~np.isin(fixes.rows, fixes.rows[chosen_rows[is_removal[chosen_rows]]])
    return ChosenFixes(
        rows=chosen_rows,
        p_fix=p_fix,
        expected_precision=float(p_fix[chosen_rows].mean()) if len(chosen_rows) else None,
        num_left=int(is_open_for_review.sum()),
        num_likely=int((is_open_for_review & (p_fix >= MIN_LIKELY_PROBABILITY)).sum()),
    )


def count_yields(
    fixes: Fixes, latest: Mapping[str, Verdict], only: Sequence[str] = tuple(KINDS_BY_OPTION)
) -> dict[float, dict[str, int]]:
    """Return how many fixes of each kind are chosen at several precisions."""
    yields = {}
    for precision in YIELD_PRECISIONS:
        kinds = fixes.kinds[choose_fixes(fixes, latest, precision, only).rows]
        yields[precision] = {kind.words: int((kinds == kind).sum()) for kind in KINDS}
    return yields


def rank_ids(ids: Sequence[str]) -> Rows:
    """Return the rank [f] of each id in alphabetical order, to break ties."""
    ranks = np.empty(len(ids), np.int64)
    ranks[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids))
    return ranks


def check_precision(precision: float | None) -> None:
    """Raise a UsageError for a precision outside 0 to 1."""
    is_number = isinstance(precision, int | float) and not isinstance(precision, bool)
    if precision is not None and not (is_number and 0 <= precision <= 1):
        raise UsageError(f"precision is {precision!r}; expected a number from 0 to 1, like 0.95")


def _parse_kinds(only: Sequence[str]) -> list[Kind]:
    """Return the kinds of error that these options name; raise a UsageError for others or none."""
    unknown = [option for option in only if option not in KINDS_BY_OPTION]
    if unknown or not only:
        value = repr(unknown[0]) if unknown else "empty"
        raise UsageError(f"only is {value}; expected some of {', '.join(KINDS_BY_OPTION)}")
    return [KINDS_BY_OPTION[option] for option in only]


def _weigh_conflicts(fixes: Fixes, p_fix: Floats, latest: Mapping[str, Verdict]) -> Floats:
    """Return the weights [f] of fixes in a conflict: probabilities, or more for accepted fixes."""
    accepted = [fix for fix, verdict in latest.items() if verdict.answer == ACCEPT]
    # From 2 on, which is larger than any probability.
    place_of = {fix: float(place) for place, fix in enumerate(accepted, 2)}
    accepted_at = [place_of.get(fix, np.nan) for fix in fixes.ids]
    weights: Floats = np.where(np.isnan(accepted_at), p_fix, accepted_at)
    return weights


def _mark_conflicting(fixes: Fixes, weights: Floats, is_candidate: Mask, is_removal: Mask) -> Mask:
    """Mark fixes [f] that lose against another fix of the same annotation.

    A removal wins against changes if it has a larger weight than each of them.
    """
    is_known = is_candidate & (fixes.kinds != Kind.MISSING)
    size = int(fixes.rows.max(initial=-1)) + 1
    best_change, best_removal = np.full(size, -1.0), np.full(size, -1.0)
    for best, is_of_group in (
        (best_change, is_known & ~is_removal),
        (best_removal, is_known & is_removal),
    ):
        np.maximum.at(best, fixes.rows[is_of_group], weights[is_of_group])
    is_conflicting = np.zeros(len(fixes), np.bool_)
    rows = fixes.rows[is_known]
    is_removed = best_removal[rows] > best_change[rows]
    is_conflicting[is_known] = np.where(is_removal[is_known], ~is_removed, is_removed)
    return is_conflicting


def _mark_redundant_removals(fixes: Fixes, order: Rows, is_removal: Mask) -> Mask:
    """Mark removals [o], in this order, of annotations that are kept or already removed."""
    is_redundant, kept, removed = np.zeros(len(order), np.bool_), set[int](), set[int]()
    for k in np.flatnonzero(is_removal[order]).tolist():
        row, stays = int(fixes.rows[order[k]]), int(fixes.kept_rows[order[k]])
        if row in kept or row in removed or stays in removed:
            is_redundant[k] = True
            continue
        removed.add(row)
        if stays >= 0:
            kept.add(stays)
    return is_redundant


def _mark_answered(answers: Sequence[Verdict | None], answer: str) -> Mask:
    return np.array(
        [verdict is not None and verdict.answer == answer for verdict in answers], np.bool_
    )


def _is_right(verdict: Verdict) -> bool:
    return verdict.answer == ACCEPT and verdict.is_plain


def _to_log_odds(p: Floats) -> Floats:
    inside = np.clip(p, ADJUSTMENT.min_probability, 1 - ADJUSTMENT.min_probability)
    log_odds: Floats = np.log(inside) - np.log1p(-inside)
    return log_odds


def _to_probabilities(log_odds: Floats) -> Floats:
    probabilities: Floats = 1 / (1 + np.exp(-log_odds))
    return probabilities


def _fit_log_odds(log_odds: Floats, is_right: Mask) -> tuple[float, float]:
    """Return the most probable shift and slope of log odds given these answers, by Newton's method.

    Their priors are normal distributions around 0 and 1. The posterior has one maximum.
    """
    design = np.stack([np.ones(len(log_odds)), log_odds], axis=1)  # [n, 2]
    prior = np.array([0.0, 1.0])
    precisions = np.array([ADJUSTMENT.shift_deviation, ADJUSTMENT.slope_deviation]) ** -2.0
    shift_and_slope = prior.copy()
    for _ in range(ADJUSTMENT.max_newton_steps):
        p = _to_probabilities(design @ shift_and_slope)
        gradient = design.T @ (is_right - p) - precisions * (shift_and_slope - prior)
        curvature = (design.T * (p * (1 - p))) @ design + np.diag(precisions)
        step = np.linalg.solve(curvature, gradient)
        shift_and_slope += np.clip(step, -1, 1)  # a full step far from the maximum may overshoot
        if np.abs(step).max() < 1e-9:
            break
    return float(shift_and_slope[0]), max(float(shift_and_slope[1]), ADJUSTMENT.min_slope)
