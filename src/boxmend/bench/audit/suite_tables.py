"""Pool the cells of the audit suite over seeds, into the rows of its tables."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from boxmend.auditing.fixes.choosing import wilson_interval
from boxmend.bench.audit.suite_cell import name_finders
from boxmend.data.types import Floats
from boxmend.scoring.finders import OURS
from boxmend.scoring.fixes import IN_ALL

MIN_FIXES_OF_PROMISE = 50  # with fewer, the share of right fixes says little
MIN_FIXES_OF_CALIBRATION = 200
MAX_CALIBRATION_ERROR = 0.05
MIN_NUM_YIELD = 100
MIN_TAKEN_SHARE = 0.6
MAX_TIE_DIFFERENCE = 0.01  # difference of two APs
HELD, BROKEN, TOO_FEW = "held", "broken", "too few"

Cell = Mapping[str, Any]


@dataclass(frozen=True)
class RankingRow:
    """The AP of all finders for one kind of error in one regime, as means over the seeds."""

    kind: str
    regime: str
    errors: float
    ap: dict[str, float | None]
    """The AP by finder; None for a finder that does not know the kind."""
    verdict: str
    """"best", "tie" (within 0.01 of the best other finder) or "behind"."""


@dataclass(frozen=True)
class PromiseRow:
    """The fixes taken for a precision in one regime, all seeds together."""

    regime: str
    precision: float
    fixes: int
    right: int
    low: float
    """The lower end of the 95 % Wilson interval of the share that is right."""
    high: float
    verdict: str
    """"held" if the interval reaches the precision, "broken" if not, "too few" below 50 fixes."""


@dataclass(frozen=True)
class CalibrationRow:
    """The calibration error of the fixes of one kind in one regime, all seeds together."""

    regime: str
    kind: str
    fixes: float
    expected: float
    right: float
    error: float
    verdict: str


@dataclass(frozen=True)
class YieldRow:
    """The fixes that are taken at 0.95, and that could be taken, as sums over the seeds."""

    regime: str
    k: int
    """The largest number of top-ranked fixes of which 95 % are right."""
    taken: int
    right: int
    verdict: str


@dataclass(frozen=True)
class RateRow:
    """The true and estimated rates of one kind of error in one regime, as means over the seeds."""

    regime: str
    kind: str
    true: float
    estimate: float
    low: float
    high: float
    inside: int
    """The number of seeds whose interval holds the true rate."""
    seeds: int
    zero_width: int
    """The number of seeds whose interval has no width."""


@dataclass(frozen=True)
class ImageRow:
    """The AP of rankings of images that have an error of one kind, as means over the seeds."""

    kind: str
    regime: str
    images: float
    ap: dict[str, float | None]


@dataclass(frozen=True)
class ReliabilityPoint:
    """The fixes of one kind in one bin of their probability, all regimes and seeds together."""

    fixes: float
    expected: float
    """The mean probability that the fix is right."""
    right: float
    """The share that is right."""


@dataclass(frozen=True)
class SuiteTables:
    """All tables of the suite."""

    ranking: list[RankingRow]
    promise: list[PromiseRow]
    calibration: list[CalibrationRow]
    yields: list[YieldRow]
    rates: list[RateRow]
    images: list[ImageRow]
    reliability: dict[str, list[ReliabilityPoint]]
    """By kind of fix, in ascending order of the probability."""
    clean: list[dict[str, float]]
    """For each seed of the regime "clean": the share called wrong and the fixes taken at 0.9."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def make_tables(cells: Sequence[Cell]) -> SuiteTables:
    """Pool cells over their seeds."""
    by_regime: dict[str, list[Cell]] = {}
    for cell in cells:
        by_regime.setdefault(cell["regime"], []).append(cell)
    regimes = list(by_regime.items())
    return SuiteTables(
        ranking=_pool_rankings(regimes),
        promise=[row for name, seeds in regimes for row in _pool_promises(name, seeds)],
        calibration=[row for name, seeds in regimes for row in _pool_calibration(name, seeds)],
        yields=[_pool_yields(name, seeds) for name, seeds in regimes],
        rates=[row for name, seeds in regimes for row in _pool_rates(name, seeds)],
        images=_pool_images(regimes),
        reliability=_pool_reliability(cells),
        clean=[
            {
                "seed": cell["seed"],
                "called_wrong": cell["called_wrong"],
                "fixes_at_0.9": cell["promise"]["0.9"][IN_ALL]["fixes"],
            }
            for cell in by_regime.get("clean", [])
        ],
    )


def _pool_rankings(regimes: Sequence[tuple[str, list[Cell]]]) -> list[RankingRow]:
    rows = []
    for kind in _name_kinds(regimes):
        for name, cells in regimes:
            errors = [cell["errors"][kind] or 0 for cell in cells]
            if not any(errors):
                continue
            ap = {finder: _mean_ap(cells, kind, finder) for finder in name_finders()}
            rows.append(RankingRow(kind, name, float(np.mean(errors)), ap, _judge_ranking(ap)))
    return rows


def _name_kinds(regimes: Sequence[tuple[str, list[Cell]]]) -> list[str]:
    return list(dict.fromkeys(kind for _, cells in regimes for kind in cells[0]["errors"]))


def _mean_ap(cells: Sequence[Cell], kind: str, finder: str) -> float | None:
    values = [
        row["ap"]
        for cell in cells
        for row in cell["ranking"]
        if row["kind"] == kind and row["finder"] == finder and row["ap"] is not None
    ]
    return float(np.mean(values)) if values else None


def _judge_ranking(ap: Mapping[str, float | None]) -> str:
    ours = ap[OURS] or 0.0
    others = [value for name, value in ap.items() if name != OURS and value is not None]
    best = max(others, default=0.0)
    if ours > best + MAX_TIE_DIFFERENCE:
        return "best"
    return "tie" if ours >= best - MAX_TIE_DIFFERENCE else "behind"


def _pool_promises(name: str, cells: Sequence[Cell]) -> list[PromiseRow]:
    rows = []
    for precision in cells[0]["promise"]:
        counts_of_cells = [cell["promise"][precision][IN_ALL] for cell in cells]
        fixes = sum(counts["fixes"] for counts in counts_of_cells)
        right = sum(counts["right"] for counts in counts_of_cells)
        share = wilson_interval(right, fixes)
        verdict = HELD if share.high >= float(precision) else BROKEN
        if fixes < MIN_FIXES_OF_PROMISE:
            verdict = TOO_FEW
        row = PromiseRow(name, float(precision), fixes, right, share.low, share.high, verdict)
        rows.append(row)
    return rows


def _pool_reliability(cells: Sequence[Cell]) -> dict[str, list[ReliabilityPoint]]:
    points = {}
    for kind in dict.fromkeys(kind for cell in cells for kind in cell["calibration"]):
        bins = _sum_bins(cells, kind)
        points[kind] = [
            ReliabilityPoint(number, expected / number, right / number)
            for number, expected, right in bins.tolist()
            if number >= MIN_FIXES_OF_PROMISE
        ]
    return points


def _sum_bins(cells: Sequence[Cell], kind: str) -> Floats:
    """Return the sums [bins, 3] over cells: fixes, expected right ones and right ones."""
    sums: Floats = np.array(
        [
            [[part["number"], part["expected"], part["right"]] for part in bins]
            for cell in cells
            if (bins := cell["calibration"].get(kind)) is not None
        ]
    ).sum(axis=0)
    return sums


def _pool_calibration(name: str, cells: Sequence[Cell]) -> list[CalibrationRow]:
    rows = []
    for kind in cells[0]["calibration"]:
        table = _sum_bins(cells, kind)
        number, expected, right = table.sum(axis=0).tolist()
        if not number:
            continue
        error = float(np.abs(table[:, 1] - table[:, 2]).sum() / number)
        verdict = HELD if error <= MAX_CALIBRATION_ERROR else BROKEN
        if number < MIN_FIXES_OF_CALIBRATION:
            verdict = TOO_FEW
        rows.append(
            CalibrationRow(name, kind, number, expected / number, right / number, error, verdict)
        )
    return rows


def _pool_yields(name: str, cells: Sequence[Cell]) -> YieldRow:
    k, num_taken, right = (
        sum(cell["yield"][column] for cell in cells) for column in ("k", "taken", "right")
    )
    verdict = HELD if num_taken >= MIN_TAKEN_SHARE * k else BROKEN
    return YieldRow(name, k, num_taken, right, verdict if k >= MIN_NUM_YIELD else TOO_FEW)


def _pool_rates(name: str, cells: Sequence[Cell]) -> list[RateRow]:
    rows = []
    for kind in cells[0]["rates"]:
        rates = [cell["rates"][kind] for cell in cells]
        columns = {
            column: float(np.mean([rate[column] for rate in rates]))
            for column in ("true", "estimate", "low", "high")
        }
        rows.append(
            RateRow(
                regime=name,
                kind=kind,
                **columns,
                inside=sum(rate["low"] <= rate["true"] <= rate["high"] for rate in rates),
                seeds=len(rates),
                zero_width=sum(rate["low"] == rate["high"] for rate in rates),
            )
        )
    return rows


def _pool_images(regimes: Sequence[tuple[str, list[Cell]]]) -> list[ImageRow]:
    rows = []
    kinds = dict.fromkeys(row["kind"] for _, cells in regimes for row in cells[0]["images"])
    for kind in kinds:
        for name, cells in regimes:
            with_kind = [row for cell in cells for row in cell["images"] if row["kind"] == kind]
            images = float(np.mean([row["images"] for row in with_kind]))
            if not images:
                continue
            ap: dict[str, float | None] = {}
            for finder in dict.fromkeys(row["finder"] for row in with_kind):
                values = [row["ap"] for row in with_kind if row["finder"] == finder]
                known = [value for value in values if value is not None]
                ap[finder] = float(np.mean(known)) if known else None
            rows.append(ImageRow(kind, name, images, ap))
    return rows
