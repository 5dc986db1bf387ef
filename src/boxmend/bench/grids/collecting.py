"""Collect the results of a table: read the files and select the results."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from boxmend.bench.grids.comparability import filter_results, find_differences, refuse_differences
from boxmend.bench.grids.previous_results import result_files
from boxmend.bench.grids.results import Result, effective_results, read_all_results
from boxmend.bench.grids.scales import SCALES, fit_layout
from boxmend.bench.grids.table_spec import TableLayout
from boxmend.bench.grids.tables import GridTable, make_table, select_results
from boxmend.errors import BoxmendError, DataError, UsageError
from boxmend.web.text import display_text

DEFAULT_FOLDER = Path("bench")
"""The default folder of grids, with a folder per scale."""


@dataclass(frozen=True)
class TableRequest:
    """The results that a table uses, and the metric that it shows."""

    paths: tuple[Path, ...] = ()
    """Files of results, or folders with such files; by default all under `bench`."""
    scale: str | None = None
    conditions: tuple[str, ...] = ()
    """PLACE=VALUE, as `filter_results` takes them."""
    metric: str | None = None
    is_mixed: bool = False
    """Whether results may differ in more than what the table compares."""


def collect_table(layout: TableLayout, choice: TableRequest) -> tuple[GridTable, list[str]]:
    """Make a table of the results of one scale; return it with warnings about the files.

    Raises a DataError if there are no results, or if they are not comparable, and a UsageError if
    there are several scales.
    """
    read = read_all_results(_find_files(layout, choice))
    scale = choice.scale or _find_scale(layout, read.results)
    if scale in SCALES:
        layout = fit_layout(SCALES[scale], layout)
    results = [result for result in read.results if result.scale == scale]
    selected = select_results(layout, effective_results(filter_results(results, choice.conditions)))
    if not selected:
        raise _make_empty_error(layout, scale, read.results)
    differences = find_differences(selected)
    if not choice.is_mixed:
        refuse_differences(differences)
    return make_table(layout, selected, choice.metric, tuple(differences)), read.warnings


def _find_files(layout: TableLayout, choice: TableRequest) -> list[Path]:
    """Return the files to read, each once, in the given order."""
    default = DEFAULT_FOLDER / choice.scale if choice.scale else DEFAULT_FOLDER
    paths = result_files(choice.paths or ([default] if default.is_dir() else []))
    if not paths:
        places = ", ".join(map(str, choice.paths or (DEFAULT_FOLDER,)))
        raise DataError(
            f"there are no results under {places}; {_suggest_run(layout, choice.scale)}"
        )
    return paths


def _find_scale(layout: TableLayout, results: Sequence[Result]) -> str:
    """Return the only scale of the results, or the only one with results for the table."""
    scales = sorted({result.scale for result in results})
    fitting = sorted({result.scale for result in select_results(layout, results)})
    if len(fitting) > 1:
        raise UsageError(
            f"there are results of several scales: give --scale {' or '.join(fitting)}"
        )
    if not scales:
        raise DataError(f"the files hold no results; {_suggest_run(layout, None)}")
    return fitting[0] if fitting else scales[0]


def _make_empty_error(layout: TableLayout, scale: str, results: Sequence[Result]) -> BoxmendError:
    """Return the error for a table without results."""
    scales = sorted({result.scale for result in results})
    if scale not in scales and scale not in SCALES:
        known = ", ".join(dict.fromkeys((*scales, *SCALES)))
        return UsageError(f"there is no scale {display_text(scale)!r}; there are {known}")
    found_instead = f"there are some of scale {', '.join(scales)}"
    if scale in scales:
        number = sum(result.scale == scale for result in results)
        found_instead = f"the {number:,} results belong to other tables"
    message = f"there are no results for {layout.name} at scale {scale}; {found_instead}"
    return DataError(f"{message}; {_suggest_run(layout, scale)}")


def _suggest_run(layout: TableLayout, scale: str | None) -> str:
    return f"run `boxmend bench run {layout.name} --scale {scale or 'smoke'}`"
