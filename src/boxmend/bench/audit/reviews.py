"""Simulated reviews: people judge some fixes in some order; is the rest as precise as stated?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from boxmend.auditing.fixes.choosing import MIN_LIKELY_PROBABILITY, choose_fixes
from boxmend.auditing.fixes.sampling import mix_in_checks
from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.auditing.fixes.verdicts import ACCEPT, REJECT, Verdict
from boxmend.data.types import Floats, Mask, Rows

MEASURED_PRECISIONS = (0.95, 0.9, 0.8)
ALL_LIKELY = "P(right) >= 0.5"  # all unjudged fixes that are more likely right than not


@dataclass(frozen=True, eq=False)
class ReviewedTable:
    """A table of fixes and the answers of somebody who makes no mistake."""

    fixes: Fixes
    is_right: Mask  # [f]
    p_right: Floats  # [f] the probability that `is_right` was drawn with, or 0 and 1


class Rest(NamedTuple):
    """Unjudged fixes: their number, and how many are right as stated and in truth."""

    number: int
    stated: float
    right: float

    def add(self, other: "Rest") -> "Rest":
        """Return both together."""
        return Rest(
            self.number + other.number, self.stated + other.stated, self.right + other.right
        )


class Distortion(NamedTuple):
    """How true log odds differ from those of the table, by kind."""

    shifts: Mapping[Kind, float]
    slope: float = 1.0


DISTORTIONS = {
    "calibrated": Distortion({}),
    "too sure": Distortion(dict.fromkeys(Kind, -0.7)),
    "not sure enough": Distortion(dict.fromkeys(Kind, 0.7)),
    "kinds differ": Distortion(
        {Kind.WRONG_LABEL: -0.7, Kind.BAD_BOX: 0.7, Kind.MISSING: 0.7, Kind.SPURIOUS: -0.7}
    ),
    "slope 0.7": Distortion({}, 0.7),
    "slope 1.4": Distortion({}, 1.4),
}


def distort(fixes: Fixes, distortion: Distortion, draws: np.random.Generator) -> ReviewedTable:
    """Draw which fixes are right, with probabilities that differ from those of the table."""
    shifts = np.array([distortion.shifts.get(kind, 0.0) for kind in Kind])[fixes.kinds]
    p = np.clip(fixes.p_fix, 1e-6, 1 - 1e-6)
    log_odds = shifts + distortion.slope * (np.log(p) - np.log1p(-p))
    p_right = 1 / (1 + np.exp(-log_odds))
    return ReviewedTable(fixes, draws.random(len(fixes)) < p_right, p_right)


def order_from_top(fixes: Fixes, draws: np.random.Generator) -> Rows:
    """Order fixes by the probability that the annotation is wrong."""
    return np.argsort(-fixes.p_wrong, kind="stable")


def order_by_sureness(fixes: Fixes, draws: np.random.Generator) -> Rows:
    """Order fixes by the probability that the fix is right."""
    return np.argsort(-fixes.p_fix, kind="stable")


def order_as_queue(fixes: Fixes, draws: np.random.Generator) -> Rows:
    """Order fixes like the queue of the page: from the top, with random checks."""
    likely = np.flatnonzero(fixes.p_fix >= MIN_LIKELY_PROBABILITY)
    return mix_in_checks(order_from_top(fixes, draws), draws.permutation(likely))


def order_at_random(fixes: Fixes, draws: np.random.Generator) -> Rows:
    """Order fixes at random."""
    return draws.permutation(len(fixes))


def order_by_pattern(fixes: Fixes, draws: np.random.Generator) -> Rows:
    """Order fixes by pattern, the surest pattern first, and within it the surest fix first."""
    columns = np.stack([fixes.kinds, fixes.old_labels, fixes.new_labels], axis=1)
    _, pattern = np.unique(columns, axis=0, return_inverse=True)
    pattern = pattern.reshape(-1)
    means = np.bincount(pattern, fixes.p_fix) / np.bincount(pattern)
    return np.lexsort((-fixes.p_fix, pattern, -means[pattern]))


ORDERS: dict[str, Callable[[Fixes, np.random.Generator], Rows]] = {
    "queue": order_as_queue,
    "from the top": order_from_top,
    "surest first": order_by_sureness,
    "at random": order_at_random,
    "by pattern": order_by_pattern,
}


def judge_rows(
    table: ReviewedTable, rows: Rows, slip_share: float, draws: np.random.Generator
) -> dict[str, Verdict]:
    """Return verdicts on some fixes; the reviewer says the opposite with probability slip_share."""
    says_right = table.is_right[rows] ^ (draws.random(len(rows)) < slip_share)
    ids = [table.fixes.ids[row] for row in rows.tolist()]
    return {
        fix: Verdict(fix, ACCEPT if is_right else REJECT)
        for fix, is_right in zip(ids, says_right.tolist(), strict=True)
    }


def measure_rest(table: ReviewedTable, latest: Mapping[str, Verdict]) -> dict[str, Rest]:
    """Compare stated and true precision of unjudged fixes that several precisions take."""
    is_open = np.array([fix not in latest for fix in table.fixes.ids], np.bool_)
    precisions = {}
    for precision in MEASURED_PRECISIONS:
        chosen = choose_fixes(table.fixes, latest, precision)
        rows = chosen.rows[is_open[chosen.rows]]
        precisions[f"{precision:g}"] = _count_rest(table, chosen.p_fix, rows)
    rows = np.flatnonzero(is_open & (chosen.p_fix >= MIN_LIKELY_PROBABILITY))
    return precisions | {ALL_LIKELY: _count_rest(table, chosen.p_fix, rows)}


def simulate_review(
    table: ReviewedTable, order: str, numbers: Sequence[int], slip_share: float, seed: int
) -> dict[int, dict[str, Rest]]:
    """Return, for several numbers of verdicts, what is stated about the rest and what is true."""
    draws = np.random.default_rng(seed)
    rows = ORDERS[order](table.fixes, draws)
    verdicts = judge_rows(table, rows, slip_share, draws)
    ids = [table.fixes.ids[row] for row in rows.tolist()]
    return {
        number: measure_rest(table, {fix: verdicts[fix] for fix in ids[:number]})
        for number in numbers
    }


def _count_rest(table: ReviewedTable, p_fix: Floats, rows: Rows) -> Rest:
    return Rest(len(rows), float(p_fix[rows].sum()), float(table.p_right[rows].sum()))
