"""Collect the results of a table: read the files and select the results."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from boxmend.bench.grids.comparability import filter_results, find_differences, refuse_differences
from boxmend.bench.grids.previous_results import result_files
from boxmend.bench.grids.results import Result, effective_results, read_all
from boxmend.bench.grids.scales import SCALES, fit_layout
from boxmend.bench.grids.table_spec import TableLayout
from boxmend.bench.grids.tables import Table, make_table, select_results
from boxmend.errors import BoxmendError, DataError, UsageError
from boxmend.web.text import display_text

FOLDER = Path("bench")
"""The default folder of grids, with a folder per scale."""


@dataclass(frozen=True)
class TableRequest:
    """Which results a table uses, and how it shows them."""

    paths: tuple[Path, ...] = ()
    """Files of results, or folders with them; by default all under `bench`."""
    scale: str | None = None
    conditions: tuple[str, ...] = ()
    """PLACE=VALUE, as `filter_results` takes them."""
    metric: str | None = None
    is_mixed: bool = False
    """Show results together that differ in more than what the table compares."""


def collect_table(layout: TableLayout, choice: TableRequest) -> tuple[Table, list[str]]:
    """Make a table of the results of one scale; return it with warnings about the files.

    Raises a DataError if there are no results, or if they are not comparable, and a UsageError if
    there are several scales.
    """
    read = read_all(_files(layout, choice))
    scale = choice.scale or _only_scale(layout, read.results)
    if scale in SCALES:
        layout = fit_layout(SCALES[scale], layout)
    of_scale = [one for one in read.results if one.scale == scale]
    used = select_results(layout, effective_results(filter_results(of_scale, choice.conditions)))
    if not used:
        raise _none(layout, scale, read.results)
    found = find_differences(used)
    if not choice.is_mixed:
        refuse_differences(found)
    return make_table(layout, used, choice.metric, tuple(found)), read.warnings


def _files(layout: TableLayout, choice: TableRequest) -> list[Path]:
    """Return the files to read, each once, in the given order."""
    usual = FOLDER / choice.scale if choice.scale else FOLDER
    found = result_files(choice.paths or ([usual] if usual.is_dir() else []))
    if not found:
        places = ", ".join(map(str, choice.paths or (FOLDER,)))
        raise DataError(f"there are no results under {places}; {_make(layout, choice.scale)}")
    return found


def _only_scale(layout: TableLayout, results: Sequence[Result]) -> str:
    """Return the only scale of the results, or the only one with results for the table."""
    every = sorted({one.scale for one in results})
    fitting = sorted({one.scale for one in select_results(layout, results)})
    if len(fitting) > 1:
        raise UsageError(
            f"there are results of several scales: give --scale {' or '.join(fitting)}"
        )
    if not every:
        raise DataError(f"the files hold no results; {_make(layout, None)}")
    return fitting[0] if fitting else every[0]


def _none(layout: TableLayout, scale: str, results: Sequence[Result]) -> BoxmendError:
    """Return the error for a table without results."""
    having = sorted({one.scale for one in results})
    if scale not in having and scale not in SCALES:
        known = ", ".join(dict.fromkeys((*having, *SCALES)))
        return UsageError(f"there is no scale {display_text(scale)!r}; there are {known}")
    there = f"there are some of scale {', '.join(having)}"
    if scale in having:
        number = sum(result.scale == scale for result in results)
        there = f"the {number:,} results belong to other tables"
    none = f"there are no results for {layout.name} at scale {scale}; {there}"
    return DataError(f"{none}; {_make(layout, scale)}")


def _make(layout: TableLayout, scale: str | None) -> str:
    return f"run `boxmend bench run {layout.name} --scale {scale or 'smoke'}`"
