"""The tables of the audit suite, from made-up cells."""

from typing import Any

import numpy as np
import pytest

from boxmend.bench.audit.suite_cell import _count_precise, name_finders
from boxmend.bench.audit.suite_tables import ReliabilityPoint, make_tables


def cell(seed: int = 0, **changes: Any) -> dict[str, Any]:
    """A cell of one kind of error."""
    empty = {"number": 0, "expected": 0.0, "right": 0.0}
    return {
        "regime": "pair-3",
        "seed": seed,
        "errors": {"wrong label": 10},
        "ranking": [
            {"kind": "wrong label", "finder": "boxmend", "ap": 0.5},
            {"kind": "wrong label", "finder": "short rules", "ap": 0.4},
        ],
        "images": [],
        "promise": {"0.9": {"in all": {"fixes": 0, "right": 0}}},
        "calibration": {"wrong label": [empty, empty]},
        "yield": {"k": 0, "taken": 0, "right": 0},
        "rates": {"wrong label": {"true": 0.03, "estimate": 0.03, "low": 0.02, "high": 0.04}},
        "called_wrong": 0.0,
    } | changes


def make_scores(ours: float, theirs: float | None) -> list[dict[str, Any]]:
    rows = [("boxmend", ours), ("short rules", theirs)]
    return [{"kind": "wrong label", "finder": name, "ap": ap} for name, ap in rows]


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [(0.52, 0.5, "best"), (0.505, 0.5, "tie"), (0.495, 0.5, "tie"), (0.48, 0.5, "behind")],
)
def test_a_hundredth_is_a_tie_with_the_best_other_finder(
    ours: float, theirs: float, verdict: str
) -> None:
    (row,) = make_tables([cell(ranking=make_scores(ours, theirs))]).ranking
    assert row.verdict == verdict


def test_average_precisions_are_means_over_seeds_and_unknown_kinds_stay_empty() -> None:
    cells = [cell(0), cell(1, ranking=make_scores(0.7, None), errors={"wrong label": 20})]
    (row,) = make_tables(cells).ranking
    assert list(row.ap) == list(name_finders())
    assert row.ap["boxmend"] == pytest.approx(0.6)
    assert row.ap["short rules"] == pytest.approx(0.4)
    assert row.ap["hotcoco label_errors"] is None
    assert row.errors == 15
    assert make_tables([cell(errors={"wrong label": 0})]).ranking == []


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        # Wilson's interval of 84 in 100 ends at 0.899, that of 85 at 0.907.
        (((50, 42), (50, 42)), "broken"),
        (((50, 42), (50, 43)), "held"),
        (((24, 5), (25, 5)), "too few"),
        (((25, 5), (25, 5)), "broken"),
    ],
)
def test_a_promise_is_held_where_the_pooled_interval_reaches_it(
    counts: tuple[tuple[int, int], ...], verdict: str
) -> None:
    cells = [
        cell(seed, promise={"0.9": {"in all": {"fixes": fixes, "right": right}}})
        for seed, (fixes, right) in enumerate(counts)
    ]
    (row,) = make_tables(cells).promise
    assert row.verdict == verdict
    assert row.fixes == sum(fixes for fixes, _ in counts)


def test_the_calibration_error_is_that_of_the_pooled_bins() -> None:
    first = [
        {"number": 100, "expected": 20.0, "right": 10.0},
        {"number": 50, "expected": 40.0, "right": 45.0},
    ]
    second = [
        {"number": 0, "expected": 0.0, "right": 0.0},
        {"number": 100, "expected": 80.0, "right": 79.0},
    ]
    cells = [
        cell(seed, calibration={"wrong label": bins}) for seed, bins in enumerate((first, second))
    ]
    (row,) = make_tables(cells).calibration
    assert (row.fixes, row.expected) == (250, 140 / 250)
    assert row.error == pytest.approx((10 + 4) / 250)  # -5 and +1 in one bin cancel
    assert row.verdict == "broken"
    assert make_tables([cells[1]]).calibration[0].verdict == "too few"
    assert make_tables([cell()]).calibration == []


@pytest.mark.parametrize(
    ("k", "taken", "verdict"),
    [(60, 36, "held"), (60, 35, "broken"), (49, 49, "too few")],
)
def test_at_least_six_tenths_of_the_yield_are_taken(k: int, taken: int, verdict: str) -> None:
    cells = [cell(seed, **{"yield": {"k": k, "taken": taken, "right": 1}}) for seed in (0, 1)]
    (row,) = make_tables(cells).yields
    assert (row.k, row.taken, row.right, row.verdict) == (2 * k, 2 * taken, 2, verdict)


def test_intervals_are_counted_by_seed() -> None:
    rates = {"true": 0.03, "estimate": 0.05, "low": 0.05, "high": 0.05}
    (row,) = make_tables([cell(0), cell(1, rates={"wrong label": rates})]).rates
    assert (row.inside, row.seeds, row.zero_width) == (1, 2, 1)
    assert row.estimate == pytest.approx(0.04)
    below = {"true": 0.03, "estimate": 0.01, "low": 0.0, "high": 0.02}
    assert make_tables([cell(rates={"wrong label": below})]).rates[0].inside == 0


def test_the_yield_is_the_most_fixes_that_are_precise_enough() -> None:
    p_fix = np.linspace(1, 0, 60)
    is_right = np.ones(60, np.bool_)
    is_right[[1, 39, 41]] = False
    # 39 of 41 are 0.951, 39 of 42 too few; 57 of 60 are exactly 0.95.
    assert _count_precise(p_fix, is_right) == 60
    assert _count_precise(p_fix[:50], is_right[:50]) == 41
    assert _count_precise(p_fix[::-1][:50], ~is_right[:50]) == 0
    assert _count_precise(np.zeros(0), np.zeros(0, np.bool_)) == 0


def test_reliability_pools_the_bins_of_all_regimes_and_leaves_out_sparse_ones() -> None:
    def bins(low: tuple[int, float, float], high: tuple[int, float, float]) -> dict[str, Any]:
        names = ("number", "expected", "right")
        parts = [dict(zip(names, part, strict=True)) for part in (low, high)]
        return {"wrong label": parts}

    cells = [
        cell(0, calibration=bins((30, 3.0, 1.0), (40, 36.0, 30.0))),
        cell(0, regime="clean", calibration=bins((19, 2.0, 0.0), (40, 35.0, 38.0))),
    ]
    # The first bin has 49 fixes, less than 50. The second has 80, of which 71 are expected.
    (point,) = make_tables(cells).reliability["wrong label"]
    assert point == ReliabilityPoint(80, 71 / 80, 68 / 80)
