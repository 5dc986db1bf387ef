"""Choose fixes to apply: accepted ones, and as many others as the required precision allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from boxmend.auditing.fixes.adjusting import adjust_probabilities, has_answer, is_plain_accept
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
MIN_LIKELY_PROBABILITY = (
    0.5  # from this probability on, an annotation is more likely wrong than not
)
MAX_DOUBT_FACTOR = 4.0  # of a chosen fix, to the mean doubt that the precision allows
INTERVAL_DEVIATIONS = 1.959964  # standard deviations on either side of a 95 % interval
YIELD_PRECISIONS = (0.95, 0.9, 0.8, 0.7)
ALL = "all"  # key of `measure_precision` for all kinds together


@dataclass(frozen=True, eq=False)
class ChosenFixes:
    """The fixes to apply, and their expected precision."""

    rows: Rows  # [t] of the table, ascending
    p_fix: Floats  # [f] of all fixes of the table, from `adjust_probabilities`
    p_wrong: Floats  # [f] that the annotation has the error, adjusted as `p_fix` is
    is_left: Mask  # [f] for review: neither chosen nor judged, and of an annotation that stays
    expected_precision: float | None  # of the chosen fixes; None if there are none

    @property
    def num_left(self) -> int:
        """Return the number of fixes left for review."""
        return int(self.is_left.sum())

    @property
    def num_likely(self) -> int:
        """Return how many of them have an annotation that is more likely wrong than not."""
        return int((self.is_left & (self.p_wrong >= MIN_LIKELY_PROBABILITY)).sum())


class MeasuredPrecision(NamedTuple):
    """The number of fixes of a random sample that people judged right, and a 95% interval."""

    right: int
    number: int
    low: float
    high: float


def measure_precision(fixes: Fixes, verdicts: Sequence[Verdict]) -> dict[str, MeasuredPrecision]:
    """Return by kind, and for ALL, how many of the fixes with a verdict in sample mode are right.

    The last answer to each fix counts. A fix is right if a person accepted it as proposed.
    """
    kind_of = {fix: int(kind) for fix, kind in zip(fixes.ids, fixes.kinds.tolist(), strict=True)}
    sampled = latest_verdicts([verdict for verdict in verdicts if verdict.mode == "sample"])
    last = latest_verdicts(verdicts)
    answers = [
        (kind_of[fix], is_plain_accept(last[fix]))
        for fix in sampled
        if fix in kind_of and fix in last
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
    z = INTERVAL_DEVIATIONS
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
    is_accepted, is_rejected = has_answer(answers, ACCEPT), has_answer(answers, REJECT)
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
        is_precise &= p_fix[open_ones] >= 1 - MAX_DOUBT_FACTOR * (1 - precision) - 1e-12
        chosen_rows = np.concatenate([chosen_rows, open_ones[is_precise]])
    chosen_rows = np.sort(chosen_rows)
    is_left = is_wanted & ~is_accepted & ~is_rejected
    is_left[chosen_rows] = False
    is_left &= ~np.isin(
        fixes.rows, fixes.rows[chosen_rows[is_removal[chosen_rows]]]
    )  # useless: the annotation is removed
    return ChosenFixes(
        rows=chosen_rows,
        p_fix=p_fix,
        p_wrong=np.clip(fixes.p_wrong - fixes.p_fix + p_fix, 0, 1),
        is_left=is_left,
        expected_precision=float(p_fix[chosen_rows].mean()) if len(chosen_rows) else None,
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
