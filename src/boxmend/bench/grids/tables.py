"""Build a table with our figures over seeds, the published figures and the recovered shares."""

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
MEAN_DIGITS = 3  # figures are shown in percent with one decimal

Key = tuple[str, tuple[str | None, ...], str]
"""The method, the noise of labels, boxes and presence, and the variant of an entry."""


@dataclass(frozen=True)
class TableEntry:
    """One entry; its fields are empty if nothing was run or published."""

    ours: SeedSummary | None = None
    values: dict[int, float] = field(default_factory=dict)
    """Our figure for each seed."""
    cells: tuple[str, ...] = ()
    """The cells of `ours`."""
    failed: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    """Finished cells whose results lack the figure."""
    paper: float | None = None
    is_best: bool = False
    gain: Gain | None = None
    paper_gain: float | None = None


@dataclass(frozen=True)
class GridTable:
    """All entries of a layout, row by row."""

    layout: TableLayout
    scale: str
    metric: str
    entries: tuple[tuple[TableEntry, ...], ...]
    published: PublishedTable | None
    results: tuple[Result, ...]
    """The results that the table uses."""
    differences: tuple[ResultDifference, ...] = ()
    """Differences between the results, if --mixed allows them."""

    def lines(self) -> Iterable[tuple[Row, tuple[TableEntry, ...]]]:
        """Return the rows with their entries."""
        return zip(self.layout.rows, self.entries, strict=True)

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
    return [result for result in results if _key_of(result) in keys]


def make_table(
    layout: TableLayout,
    results: Sequence[Result],
    metric: str | None = None,
    differences: tuple[ResultDifference, ...] = (),
) -> GridTable:
    """Build the table of a layout from results of one scale, one per cell.

    `differences` are those that `comparability` lists. Raises a UsageError if no result has the
    requested metric.
    """
    selected = select_results(layout, results)
    shown_metric = metric or layout.metric
    if metric is not None:
        _ensure_metric_exists(metric, layout, selected)
    records = get_published(layout.records or layout.name)
    results_by_key: dict[Key, list[Result]] = {}
    for result in selected:
        others = results_by_key.setdefault(_key_of(result), [])
        _ensure_unique_seed(result, others)
        others.append(result)
    entries = [
        [
            _make_entry(layout, row, column, results_by_key, shown_metric, records)
            for column in layout.columns
        ]
        for row in layout.rows
    ]
    _mark_best(layout, entries)
    _add_comparisons(layout, entries)
    scale = selected[0].scale if selected else ""
    all_entries = tuple(tuple(line) for line in entries)
    return GridTable(
        layout, scale, shown_metric, all_entries, records, tuple(selected), differences
    )


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
    return metric == other or is_mending or all("ap50" in name for name in both)


def _make_entry(
    layout: TableLayout,
    row: Row,
    column: Column,
    results_by_key: dict[Key, list[Result]],
    metric: str,
    records: PublishedTable | None,
) -> TableEntry:
    place = row.figure or column.metric or metric
    is_alike = records is not None and is_comparable(place, column.metric or records.metric)
    paper = records.fraction(row.name, column.name) if records and is_alike else None
    if not layout.is_run(row, column):
        return TableEntry(paper=paper)
    spec = cell_spec(row, column)
    cell_results = results_by_key.get(_key_of_spec(spec), [])
    done = [result for result in cell_results if result.error is None]
    values = {
        result.seed: value for result in done if (value := get_figure(result, place)) is not None
    }
    return TableEntry(
        ours=summarize_seeds(values),
        values=values,
        cells=tuple(result.cell for result in done if result.seed in values),
        failed=tuple(result.cell for result in cell_results if result.error is not None),
        without=tuple(result.cell for result in done if result.seed not in values),
        paper=paper,
    )


def _mark_best(layout: TableLayout, entries: list[list[TableEntry]]) -> None:
    """Mark the best rounded figure of each column, if it has more than one."""
    rows = [
        number for number, row in enumerate(layout.rows) if is_rival(row) and not row.is_share_only
    ]
    for column in range(len(layout.columns)):
        means = {
            number: round(ours.mean, MEAN_DIGITS)
            for number in rows
            if (ours := entries[number][column].ours) is not None
        }
        for number, mean in means.items():
            is_best = len(means) > 1 and mean == max(means.values())
            entries[number][column] = replace(entries[number][column], is_best=is_best)


def is_rival(row: Row) -> bool:
    """Return whether a row competes: not the reference, mending figures and published records."""
    return not row.is_clean and row.figure is None and row.method is not None


def _add_comparisons(layout: TableLayout, entries: list[list[TableEntry]]) -> None:
    """Add the recovered share, or the difference to baseline, to the entries of each rival.

    The references are those of its row.
    """
    names = {row.name: number for number, row in enumerate(layout.rows)}
    if layout.compare == "none" or BASELINE not in names:
        return
    for number, row in enumerate(layout.rows):
        if row.is_clean or row.figure is not None or row.name == BASELINE:
            continue
        for place in range(len(layout.columns)):
            references = row.references
            own, base = entries[number][place], entries[names[references.baseline]][place]
            if layout.compare == "difference":
                gain = mean_difference(own.values, base.values)
                entries[number][place] = replace(own, gain=gain if own.ours and base.ours else None)
                continue
            clean = entries[names[references.clean]][place]
            gain = recovered_share(own.values, base.values, clean.values)
            papers = (own.paper, base.paper, clean.paper)
            entries[number][place] = replace(
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


def _ensure_metric_exists(metric: str, layout: TableLayout, results: Sequence[Result]) -> None:
    """Raise a UsageError for a metric that no entry of the table would show."""
    is_fixed = all(row.figure for row in layout.rows) or all(
        column.metric for column in layout.columns
    )
    if is_fixed:
        raise UsageError(f"--metric {metric}: {layout.name} shows its own figures; leave it out")
    known = sorted({name for result in results for name in result.scores})
    if known and metric not in known:
        raise UsageError(f"--metric {metric}: no result has it; there are {', '.join(known)}")


def _ensure_unique_seed(result: Result, others: Sequence[Result]) -> None:
    for other in others:
        if result.seed == other.seed:
            raise DataError(
                f"{other.cell} and {result.cell} are the same cell with two names: {result.method} "
                f"with labels {result.noise.labels}, boxes {result.noise.boxes}, presence "
                f"{result.noise.presence}, seed {result.seed}; choose by --where, like --where "
                f"cell={result.cell}, or remove one from the results"
            )


def _key_of(result: Result) -> Key:
    noise = result.noise
    return _make_key(result.method, (noise.labels, noise.boxes, noise.presence), result.variant)


def _key_of_spec(spec: CellSpec) -> Key:
    return _make_key(spec.method, (spec.labels, spec.boxes, spec.presence), spec.variant)


def _make_key(method: str, noises: tuple[str | None, ...], variant: Mapping[str, Any]) -> Key:
    settings = sorted((name, _format_setting(value)) for name, value in variant.items())
    return method, tuple(_normalise_noise(noise) for noise in noises), repr(settings)


def _format_setting(value: Any) -> str:
    """Return a setting as text; 1 and 1.0 give the same text."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:g}" if is_number and abs(value) < 2**53 else repr(value)


def _normalise_noise(noise: str | None) -> str | None:
    """Return the noise with a normalised rate; None for a rate of 0."""
    kind, _, rate = (noise or ":0").partition(":")
    return f"{kind}:{float(rate):g}" if float(rate) else None
