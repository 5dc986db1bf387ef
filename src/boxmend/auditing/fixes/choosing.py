"""Which fixes to take: as many as a wanted precision allows, and what people say before all.

The probabilities of a table are set anew from the verdicts, kind by kind: on the scale of log odds
they are shifted and stretched as far as the verdicts speak for it.
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

KIND_OF_WORD = {
    "labels": Kind.WRONG_LABEL,
    "boxes": Kind.BAD_BOX,
    "missing": Kind.MISSING,
    "spurious": Kind.SPURIOUS,
    "duplicates": Kind.DUPLICATE,
}
PRECISION = 0.95  # what is wanted where nobody says otherwise
ALL = "all"  # of `measured_precision`: all kinds together


@dataclass(frozen=True)
class AdjustmentConstants:
    """How verdicts change the probabilities of a table."""

    min_probability: float = 1e-4  # nothing is nearer to impossible or certain, verdicts aside
    shift_deviation: float = 1.0  # of the log odds of a table before any verdict: about e-fold
    slope_deviation: float = 0.2  # a larger one would let one wrong click override the table
    min_slope: float = 0.1  # more probable stays more probable, whatever a few verdicts say
    max_newton_steps: int = 50
    interval_deviations: float = 1.959964  # standard deviations on either side of a 95 % interval


ADJUSTMENT = AdjustmentConstants()


@dataclass(frozen=True, eq=False)
class ChosenFixes:
    """Which fixes to take, and what is to be expected of them."""

    rows: Rows  # [t] of the table, in its order
    p_fix: Floats  # [f] of all fixes of the table, as `adjusted`
    expected_precision: float | None  # of those taken; None where there are none
    num_accepted: int  # of those taken, by people
    num_left: int  # for review: neither taken nor judged by anybody, and still of use


class MeasuredPrecision(NamedTuple):
    """How many fixes of a random sample people found right, and the 95 % interval of the share."""

    right: int
    number: int
    low: float
    high: float


def adjusted(fixes: Fixes, latest: Mapping[str, Verdict]) -> Floats:
    """[f] The probability that each fix is right, by the table and by the verdicts of people.

    1 for what they accepted, 0 for what they rejected. The others of a kind follow these, except
    what was accepted as a whole pattern, which says nothing about other fixes.
    """
    answers = [latest.get(one) for one in fixes.ids]
    log_odds = _log_odds(fixes.p_fix)
    p_fix = fixes.p_fix.copy()
    is_told = np.array([one is not None and one.mode != "pattern" for one in answers], np.bool_)
    is_right = np.array([one is not None and _is_right(one) for one in answers], np.bool_)
    for kind in KINDS:
        is_kind = fixes.kinds == kind
        told = is_kind & is_told
        if told.any():
            shift, slope = _fitted(log_odds[told], is_right[told])
            p_fix[is_kind] = _probabilities(shift + slope * log_odds[is_kind])
    p_fix[_answered(answers, ACCEPT)] = 1.0
    p_fix[_answered(answers, REJECT)] = 0.0
    return p_fix


def measured_precision(fixes: Fixes, verdicts: Sequence[Verdict]) -> dict[str, MeasuredPrecision]:
    """By the words of each kind, and by ALL: how many of the fixes met in sample mode were right.

    What counts is the last answer about each of them. Right is what was accepted as proposed.
    """
    known = {one: int(kind) for one, kind in zip(fixes.ids, fixes.kinds.tolist(), strict=True)}
    sampled = latest_verdicts([one for one in verdicts if one.mode == "sample"])
    last = latest_verdicts(verdicts)
    answers = [
        (known[fix], _is_right(last[fix])) for fix in sampled if fix in known and fix in last
    ]
    found = {ALL: wilson(sum(is_right for _, is_right in answers), len(answers))}
    for kind in KINDS:
        of_kind = [is_right for one, is_right in answers if one == kind]
        if of_kind:
            found[kind.words] = wilson(sum(of_kind), len(of_kind))
    return found


def wilson(right: int, number: int) -> MeasuredPrecision:
    """A share with Wilson's interval at 95 %; from 0 to 1 where there is nothing."""
    if number == 0:
        return MeasuredPrecision(0, 0, 0.0, 1.0)
    z = ADJUSTMENT.interval_deviations
    share, weight = right / number, z**2 / number
    centre = (share + weight / 2) / (1 + weight)
    half = z * np.sqrt(share * (1 - share) / number + weight / (4 * number)) / (1 + weight)
    return MeasuredPrecision(
        right, number, float(max(centre - half, 0)), float(min(centre + half, 1))
    )


def choose(
    fixes: Fixes,
    latest: Mapping[str, Verdict],
    precision: float | None,
    only: Sequence[str] = tuple(KIND_OF_WORD),
) -> ChosenFixes:
    """Take what people accepted and, of what nobody judged, as much as is precise enough.

    That is the largest set whose mean probability reaches `precision`: what people accepted does
    not make up for others. None takes nothing but what they accepted. An annotation is removed, or
    changed, whichever is more probable, or was accepted last; and never removed as the double of
    one that goes, too.
    """
    is_wanted = np.isin(fixes.kinds, _kinds(only))
    check_precision(precision)
    p_fix = adjusted(fixes, latest)
    answers = [latest.get(one) for one in fixes.ids]
    is_accepted, is_rejected = _answered(answers, ACCEPT), _answered(answers, REJECT)
    is_edited = np.array([one is not None and not one.is_plain for one in answers], np.bool_)
    is_removal = np.isin(fixes.kinds, (Kind.SPURIOUS, Kind.DUPLICATE)) & ~is_edited
    is_candidate = is_wanted & ~is_rejected
    weights = _weights(fixes, p_fix, latest)
    is_candidate &= ~_outdone(fixes, weights, is_candidate, is_removal)

    order = np.lexsort((ranks(fixes.ids), -p_fix, ~is_accepted))
    order = order[is_candidate[order]]
    order = order[~_idle_removals(fixes, order, is_removal)]
    is_open = ~is_accepted[order]
    taken = order[~is_open]
    if precision is not None:
        open_ones = order[is_open]
        means = np.cumsum(p_fix[open_ones]) / np.arange(1, len(open_ones) + 1)
        taken = np.concatenate([taken, open_ones[means >= precision - 1e-12]])
    taken = np.sort(taken)
    is_left = is_wanted & ~is_accepted & ~is_rejected
    is_left[taken] = False
    is_left &= ~np.isin(fixes.rows, fixes.rows[taken[is_removal[taken]]])  # of no use any more
    return ChosenFixes(
        rows=taken,
        p_fix=p_fix,
        expected_precision=float(p_fix[taken].mean()) if len(taken) else None,
        num_accepted=int(is_accepted[taken].sum()),
        num_left=int(is_left.sum()),
    )


def ranks(ids: Sequence[str]) -> Rows:
    """[f] The place of each id among all in the order of texts, by which ties are broken."""
    found = np.empty(len(ids), np.int64)
    found[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids))
    return found


def check_precision(precision: float | None) -> None:
    """Raise a UsageError for a precision that is no share."""
    is_number = isinstance(precision, int | float) and not isinstance(precision, bool)
    if precision is not None and not (is_number and 0 <= precision <= 1):
        raise UsageError(f"precision is {precision!r}; expected a number from 0 to 1, like 0.95")


def _kinds(only: Sequence[str]) -> list[Kind]:
    unknown = [word for word in only if word not in KIND_OF_WORD]
    if unknown or not only:
        said = repr(unknown[0]) if unknown else "empty"
        raise UsageError(f"only is {said}; expected some of {', '.join(KIND_OF_WORD)}")
    return [KIND_OF_WORD[word] for word in only]


def _weights(fixes: Fixes, p_fix: Floats, latest: Mapping[str, Verdict]) -> Floats:
    """[f] By which a fix wins against others: by its probability, or as it was accepted later."""
    accepted = [fix for fix, one in latest.items() if one.answer == ACCEPT]
    place_of = {fix: float(place) for place, fix in enumerate(accepted, 2)}  # beyond probabilities
    told = [place_of.get(one, np.nan) for one in fixes.ids]
    weights: Floats = np.where(np.isnan(told), p_fix, told)
    return weights


def _outdone(fixes: Fixes, weights: Floats, is_candidate: Mask, is_removal: Mask) -> Mask:
    """[f] Fixes of an annotation that something else is rather done with.

    A removal wins against changes if it weighs more than each of them.
    """
    is_known = is_candidate & (fixes.kinds != Kind.MISSING)
    size = int(fixes.rows.max(initial=-1)) + 1
    best_change, best_removal = np.full(size, -1.0), np.full(size, -1.0)
    for best, of in ((best_change, is_known & ~is_removal), (best_removal, is_known & is_removal)):
        np.maximum.at(best, fixes.rows[of], weights[of])
    outdone = np.zeros(len(fixes), np.bool_)
    rows = fixes.rows[is_known]
    is_removed = best_removal[rows] > best_change[rows]
    outdone[is_known] = np.where(is_removal[is_known], ~is_removed, is_removed)
    return outdone


def _idle_removals(fixes: Fixes, order: Rows, is_removal: Mask) -> Mask:
    """[o] Removals, in this order, of annotations that stay for a double, or go anyway."""
    idle, kept, removed = np.zeros(len(order), np.bool_), set[int](), set[int]()
    for k in np.flatnonzero(is_removal[order]).tolist():
        row, stays = int(fixes.rows[order[k]]), int(fixes.kept_rows[order[k]])
        if row in kept or row in removed or stays in removed:
            idle[k] = True
            continue
        removed.add(row)
        if stays >= 0:
            kept.add(stays)
    return idle


def _answered(answers: Sequence[Verdict | None], answer: str) -> Mask:
    return np.array([one is not None and one.answer == answer for one in answers], np.bool_)


def _is_right(verdict: Verdict) -> bool:
    return verdict.answer == ACCEPT and verdict.is_plain


def _log_odds(p: Floats) -> Floats:
    inside = np.clip(p, ADJUSTMENT.min_probability, 1 - ADJUSTMENT.min_probability)
    log_odds: Floats = np.log(inside) - np.log1p(-inside)
    return log_odds


def _probabilities(log_odds: Floats) -> Floats:
    probabilities: Floats = 1 / (1 + np.exp(-log_odds))
    return probabilities


def _fitted(log_odds: Floats, is_right: Mask) -> tuple[float, float]:
    """Shift and slope of log odds that are most probable after these answers, by Newton's method.

    Before them both have normal distributions, around 0 and 1. The sum has one maximum.
    """
    design = np.stack([np.ones(len(log_odds)), log_odds], axis=1)  # [n, 2]
    before = np.array([0.0, 1.0])
    precisions = np.array([ADJUSTMENT.shift_deviation, ADJUSTMENT.slope_deviation]) ** -2.0
    found = before.copy()
    for _ in range(ADJUSTMENT.max_newton_steps):
        p = _probabilities(design @ found)
        gradient = design.T @ (is_right - p) - precisions * (found - before)
        curvature = (design.T * (p * (1 - p))) @ design + np.diag(precisions)
        step = np.linalg.solve(curvature, gradient)
        found += np.clip(step, -1, 1)  # far from the maximum a whole step may lead away from it
        if np.abs(step).max() < 1e-9:
            break
    return float(found[0]), max(float(found[1]), ADJUSTMENT.min_slope)
