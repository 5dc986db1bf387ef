"""Build a table with our figures over seeds, the published figures, and the recovered shares."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from boxmend.bench.grids.comparability import ResultDifference
from boxmend.bench.grids.published_tables import PublishedTable, get_published
from boxmend.bench.grids.results import Result
from boxmend.bench.grids.statistics import (
    Gain,
    SeedSummary,
    mean_difference,
    recovered_share,
    summarize_seeds,
)
from boxmend.bench.grids.table_spec import CellSpec, Column, Row, TableLayout, cell_spec
from boxmend.errors import DataError, UsageError

BASELINE = "baseline"
MENDING = "mending"
DIGITS = 3  # of a fraction: figures are shown in percent with one decimal

Key = tuple[str, tuple[str | None, ...], str]
"""Method, noise of labels, boxes and presence, and variant: they identify the results of an entry.
"""


@dataclass(frozen=True)
class TableEntry:
    """One entry; its fields are empty if nothing was run or published."""

    ours: SeedSummary | None = None
    values: dict[int, float] = field(default_factory=dict)
    """Our figure by seed."""
    cells: tuple[str, ...] = ()
    """The cells of `ours`."""
    failed: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    """Cells that are done and lack the figure."""
    paper: float | None = None
    is_best: bool = False
    gain: Gain | None = None
    paper_gain: float | None = None


@dataclass(frozen=True)
class Table:
    """All entries of a layout, row by row."""

    layout: TableLayout
    scale: str
    metric: str
    squares: tuple[tuple[TableEntry, ...], ...]
    published: PublishedTable | None
    results: tuple[Result, ...]
    """The results that the table uses."""
    differences: tuple[ResultDifference, ...] = ()
    """Differences between the results, if --mixed allows them."""

    def lines(self) -> Iterable[tuple[Row, tuple[TableEntry, ...]]]:
        """Return the rows with their entries."""
        return zip(self.layout.rows, self.squares, strict=True)

    def metric_of(self, row: Row, column: Column) -> str:
        """Return the metric of an entry."""
        return row.figure or column.metric or self.metric


def select_results(layout: TableLayout, results: Iterable[Result]) -> list[Result]:
    """Return the results that belong to an entry of the layout."""
    keys = {
        _key_of_spec(spec)
        for row in layout.rows
        for column in layout.columns
        if layout.is_run(row, column)
        for spec in (cell_spec(row, column),)
    }
    return [one for one in results if _key_of(one) in keys]


def make_table(
    layout: TableLayout,
    results: Sequence[Result],
    metric: str | None = None,
    differences: tuple[ResultDifference, ...] = (),
) -> Table:
    """Build the table of a layout from results of one scale, one per cell.

    `differences` are those that `comparability` lists. Raises a UsageError if no result has the
    requested metric.
    """
    used = select_results(layout, results)
    shown = metric or layout.metric
    if metric is not None:
        _ensure_metric(metric, layout, used)
    records = get_published(layout.records or layout.name)
    found: dict[Key, list[Result]] = {}
    for one in used:
        here = found.setdefault(_key_of(one), [])
        _ensure_once(one, here)
        here.append(one)
    squares = [
        [_square(layout, row, column, found, shown, records) for column in layout.columns]
        for row in layout.rows
    ]
    _mark_best(layout, squares)
    _compare(layout, squares)
    scale = used[0].scale if used else ""
    made = tuple(tuple(line) for line in squares)
    return Table(layout, scale, shown, made, records, tuple(used), differences)


def get_figure(result: Result, place: str) -> float | None:
    """Return a score by its name, or a share by its dotted place; None if there is none."""
    if "." not in place:
        return result.scores.get(place)
    value: Any = {"mending": result.mending, "estimates": result.estimates}
    for name in place.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= 1 else None


def is_comparable(metric: str, other: str) -> bool:
    """Return whether two metrics are comparable: the same one, or two rules of AP50."""
    both = (metric, other)
    is_mending = other == MENDING and metric.startswith(MENDING)
    return metric == other or is_mending or all("ap50" in one for one in both)


def _square(
    layout: TableLayout,
    row: Row,
    column: Column,
    found: dict[Key, list[Result]],
    metric: str,
    records: PublishedTable | None,
) -> TableEntry:
    place = row.figure or column.metric or metric
    is_alike = records is not None and is_comparable(place, column.metric or records.metric)
    paper = records.fraction(row.name, column.name) if records and is_alike else None
    if not layout.is_run(row, column):
        return TableEntry(paper=paper)
    spec = cell_spec(row, column)
    here = found.get(_key_of_spec(spec), [])
    done = [one for one in here if one.error is None]
    values = {one.seed: value for one in done if (value := get_figure(one, place)) is not None}
    return TableEntry(
        ours=summarize_seeds(values),
        values=values,
        cells=tuple(one.cell for one in done if one.seed in values),
        failed=tuple(one.cell for one in here if one.error is not None),
        without=tuple(one.cell for one in done if one.seed not in values),
        paper=paper,
    )


def _mark_best(layout: TableLayout, squares: list[list[TableEntry]]) -> None:
    """Mark the best rounded figure of each column, if it has more than one."""
    rows = [number for number, row in enumerate(layout.rows) if is_rival(row)]
    for column in range(len(layout.columns)):
        means = {
            number: round(ours.mean, DIGITS)
            for number in rows
            if (ours := squares[number][column].ours) is not None
        }
        for number, mean in means.items():
            is_best = len(means) > 1 and mean == max(means.values())
            squares[number][column] = replace(squares[number][column], is_best=is_best)


def is_rival(row: Row) -> bool:
    """Return whether a row competes: not the reference, mending figures and published records."""
    return not row.is_clean and row.figure is None and row.method is not None


def _compare(layout: TableLayout, squares: list[list[TableEntry]]) -> None:
    """Add the recovered share, or the difference to baseline, to the entries of each rival."""
    names = {row.name: number for number, row in enumerate(layout.rows)}
    if layout.compare == "none" or BASELINE not in names:
        return
    for number, row in enumerate(layout.rows):
        if row.is_clean or row.figure is not None or row.name == BASELINE:
            continue
        for place in range(len(layout.columns)):
            own, base = squares[number][place], squares[names[BASELINE]][place]
            if layout.compare == "difference":
                gain = mean_difference(own.values, base.values)
                squares[number][place] = replace(own, gain=gain if own.ours and base.ours else None)
                continue
            clean = squares[names["clean"]][place]
            gain = recovered_share(own.values, base.values, clean.values)
            papers = (own.paper, base.paper, clean.paper)
            squares[number][place] = replace(
                own,
                gain=gain if own.ours and base.ours and clean.ours else None,
                paper_gain=None if row.is_apart else _published_gain(*papers),
            )


def _published_gain(
    method: float | None, baseline: float | None, clean: float | None
) -> float | None:
    if method is None or baseline is None or clean is None:
        return None
    return recovered_share({0: method}, {0: baseline}, {0: clean}).value


def _ensure_metric(metric: str, layout: TableLayout, results: Sequence[Result]) -> None:
    """Refuse a metric that nothing in the table would show."""
    is_fixed = all(row.figure for row in layout.rows) or all(one.metric for one in layout.columns)
    if is_fixed:
        raise UsageError(f"--metric {metric}: {layout.name} shows its own figures; leave it out")
    known = sorted({name for one in results for name in one.scores})
    if known and metric not in known:
        raise UsageError(f"--metric {metric}: no result has it; there are {', '.join(known)}")


def _ensure_once(one: Result, others: Sequence[Result]) -> None:
    for other in others:
        if one.seed == other.seed:
            raise DataError(
                f"{other.cell} and {one.cell} are the same cell by another name: {one.method} with "
                f"labels {one.noise.labels}, boxes {one.noise.boxes}, presence "
                f"{one.noise.presence}, seed {one.seed}; choose by --where, like --where "
                f"cell={one.cell}, or remove one from the results"
            )


def _key_of(one: Result) -> Key:
    noise = one.noise
    return _key(one.method, (noise.labels, noise.boxes, noise.presence), one.variant)


def _key_of_spec(spec: CellSpec) -> Key:
    return _key(spec.method, (spec.labels, spec.boxes, spec.presence), spec.variant)


def _key(method: str, noises: tuple[str | None, ...], variant: Mapping[str, Any]) -> Key:
    told = sorted((name, _plain(value)) for name, value in variant.items())
    return method, tuple(_canonical(one) for one in noises), repr(told)


def _plain(value: Any) -> str:
    """Return a setting as text; 1 and 1.0 give the same text."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:g}" if is_number and abs(value) < 2**53 else repr(value)


def _canonical(noise: str | None) -> str | None:
    """Return the noise with a normalised rate; None for a rate of 0."""
    kind, _, rate = (noise or ":0").partition(":")
    return f"{kind}:{float(rate):g}" if float(rate) else None
