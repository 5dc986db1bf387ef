"""Simulate reviews of an audit: are unjudged fixes as precise as stated, in every order?

    python tools/review_orders.py DATA --predictions FILE [--regimes company-mix,...] [--seeds 5]

Adds noise to DATA, audits it with the predictions, and lets simulated people judge the fixes: from
the top, at random, by pattern, and in the queue of the review page; without mistakes, and with 5 %.
It does the same for tables whose probabilities are right, or off by a known shift or slope. The
table has the stated minus the true precision of unjudged fixes, seeds of a regime pooled: the mean
over regimes and numbers of verdicts, without and with mistakes. Cases with fewer than 60 fixes are
left out.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from boxmend.auditing.audit import AuditSettings, audit
from boxmend.auditing.predictions import read_predictions
from boxmend.bench.audit import as_detections
from boxmend.bench.audit.regimes import choose_regimes, make_regimes
from boxmend.bench.audit.reviews import (
    ALL_LIKELY,
    DISTORTIONS,
    MEASURED_PRECISIONS,
    ORDERS,
    Rest,
    ReviewedTable,
    distort,
    measure_rest,
    simulate_review,
)
from boxmend.data.formats import load
from boxmend.data.noise import disturb
from boxmend.scoring.fixes import mark_counted_fixes, mark_right_fixes
from boxmend.scoring.truth_of_noise import truth_of_noise

REGIMES = "company-mix,look-alikes-3,symmetric-10"
AS_AUDITED = "as audited"
NO_REVIEW = "none"
MIN_FIXES = 60  # in a case
COLUMNS = (*(f"{precision:g}" for precision in MEASURED_PRECISIONS), ALL_LIKELY)

Key = tuple[str, str, float, str, int]  # table, order, share of slips, regime, verdicts


def main() -> None:
    """Simulate and print the table, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--predictions", type=Path, action="append", required=True)
    parser.add_argument("--regimes", default=REGIMES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--verdicts", default="200,500,1000")
    parser.add_argument("--slips", default="0,0.05")
    options = parser.parse_args()
    numbers = [int(number) for number in options.verdicts.split(",")]
    slips = [float(share) for share in options.slips.split(",")]
    pooled: dict[Key, dict[str, Rest]] = {}
    for regime, seed, table in make_tables(options):
        for name, variant in make_variants(table, seed):
            for key, rests in review_table(name, variant, regime, (numbers, slips, seed)):
                pooled[key] = add_rests(pooled.get(key), rests)
    print_table(pooled)


def make_tables(options: argparse.Namespace) -> Iterator[tuple[str, int, ReviewedTable]]:
    """Yield an audit for each regime and seed, with the fixes whose truth is known."""
    dataset = load(*options.data)
    predictions = read_predictions(options.predictions, dataset)
    regimes = choose_regimes(make_regimes(dataset.label_names), options.regimes.split(","))
    for regime in regimes:
        for seed in range(options.seeds):
            noisy = disturb(dataset, regime.with_seed(seed), as_detections(predictions))
            truth = truth_of_noise(dataset, noisy)
            fixes = audit(noisy.dataset, predictions, AuditSettings(probe=0)).fixes
            is_right = mark_right_fixes(noisy.dataset, fixes, truth)
            is_counted = mark_counted_fixes(noisy.dataset, fixes, truth, is_right)
            is_right = is_right[is_counted]
            yield (
                regime.name,
                seed,
                ReviewedTable(fixes.take(is_counted), is_right, is_right.astype(np.float64)),
            )


def make_variants(table: ReviewedTable, seed: int) -> Iterator[tuple[str, ReviewedTable]]:
    """Yield the table as audited, and with drawn truths that distort its probabilities."""
    yield AS_AUDITED, table
    for name, distortion in DISTORTIONS.items():
        yield name, distort(table.fixes, distortion, np.random.default_rng(seed))


def review_table(
    name: str,
    table: ReviewedTable,
    regime: str,
    plan: tuple[Sequence[int], Sequence[float], int],
) -> Iterator[tuple[Key, dict[str, Rest]]]:
    """Yield the rests of all reviews of a table, and of no review."""
    numbers, slips, seed = plan
    yield (name, NO_REVIEW, 0.0, regime, 0), measure_rest(table, {})
    for order in ORDERS:
        for share in slips:
            for number, rests in simulate_review(table, order, numbers, share, seed).items():
                yield (name, order, share, regime, number), rests


def add_rests(before: dict[str, Rest] | None, rests: dict[str, Rest]) -> dict[str, Rest]:
    """Add up rests, to pool seeds."""
    if before is None:
        return rests
    return {column: before[column].add(rest) for column, rest in rests.items()}


def print_table(pooled: dict[Key, dict[str, Rest]]) -> None:
    """Print the mean errors for each table and order, those of several reviewers in one cell."""
    print("| table | review | " + " | ".join(COLUMNS) + " |")
    print("|---|---|" + "---|" * len(COLUMNS))
    for row in dict.fromkeys(key[:2] for key in pooled):
        slips = dict.fromkeys(key[2] for key in pooled if key[:2] == row)
        cells = []
        for column in COLUMNS:
            errors = [
                average_errors(rests[column] for key, rests in pooled.items() if key[:3] == slot)
                for slot in ((*row, share) for share in slips)
            ]
            cells.append(" / ".join(errors))
        print(f"| {row[0]} | {row[1]} | " + " | ".join(cells) + " |")


def average_errors(rests: Iterable[Rest]) -> str:
    """Return the mean error of the stated precisions of cases with enough fixes."""
    errors = [(r.stated - r.right) / r.number for r in rests if r.number >= MIN_FIXES]
    return f"{np.mean(errors):+.3f}" if errors else "-"


if __name__ == "__main__":
    main()
