"""Tables of docs/results.md that compare methods; tools/results_page.py assembles the page."""

import math
from collections.abc import Callable, Collection, Sequence

from boxmend.bench.grids.table_spec import Row, TableLayout
from boxmend.bench.grids.tables import GridTable, TableEntry, make_table, select_results
from boxmend.bench.grids.wording import DASH, format_percent
from results_sections import Lines, markdown_table

METRICS = {"AP50": "voc_ap50_area", "AP": "coco_ap", "AP75": "coco_ap75"}
"""The figures that are shown side by side, and their names in a line."""


def format_table(
    table: GridTable,
    lines: Lines,
    format_entry: Callable[[TableEntry, Lines], str],
    *,
    is_share: bool = False,
) -> str:
    """Return a table of figures or shares, with the lines behind each row."""
    rows = []
    for row, entries in table.lines():
        texts = [format_entry(entry, lines) for entry in entries]
        if not any(texts) if is_share else row.is_share_only:
            continue
        cells = [cell for entry in entries for cell in entry.cells]
        if is_share:
            cells = _share_cells(table, row, entries)
        rows.append([f"`{row.name}`", *texts, lines.format_places(cells)])
    if not rows:
        return "Nothing to compare yet."
    titles = [column.title for column in table.layout.columns]
    return markdown_table(["", *titles, "lines"], rows)


def _share_cells(table: GridTable, row: Row, entries: Sequence[TableEntry]) -> list[str]:
    """List the cells behind the shares of a row: its own, and those of its references."""
    references = [line for other, line in table.lines() if other.name in row.references]
    return [
        cell
        for number, entry in enumerate(entries)
        if entry.gain is not None
        for source in (entry, *(reference[number] for reference in references))
        for cell in source.cells
        if int(cell.rpartition("-")[2]) in entry.gain.seeds
    ]


def format_figure(entry: TableEntry, lines: Lines) -> str:
    """Return our figure with its standard error, and the published one."""
    paper = "" if entry.paper is None else f"[{100 * entry.paper:.1f}]"
    return f"{_format_ours(entry, lines)} {paper}".strip()


def _format_ours(entry: TableEntry, lines: Lines) -> str:
    if entry.ours is None:
        return ""
    ours = entry.ours
    text = format_percent(ours.mean)
    text = f"**{text}**" if entry.is_best else text
    num_seeds = len(ours.seeds)
    if ours.deviation is not None:
        text += f" ± {format_percent(ours.deviation / math.sqrt(num_seeds))}"
    return f"{text} ({num_seeds}{lines.mark_versions(entry.cells)})"


def format_share(entry: TableEntry, lines: Lines) -> str:
    """Return the share of the lost accuracy that we recover, and the published one."""
    paper = "" if entry.paper_gain is None else f"[{100 * entry.paper_gain:.0f}]"
    return f"{_format_our_share(entry)} {paper}".strip()


def _format_our_share(entry: TableEntry) -> str:
    if entry.gain is None or not entry.gain.seeds:
        return ""
    if entry.gain.value is None:
        return DASH
    error = "" if entry.gain.error is None else f" ± {format_percent(entry.gain.error)}"
    return f"{format_percent(entry.gain.value)}{error} ({len(entry.gain.seeds)})"


def format_metrics(layout: TableLayout, lines: Lines, without: Collection[str] = ()) -> str:
    """Return AP50, AP and AP75 of a table row by row, with the shares won back by AP50 and AP.

    Entries whose cells are all in `without` are left out, except shares by other references. Empty
    if no line has AP.
    """
    selected = select_results(layout, lines.results)
    known = {name for result in selected for name in result.scores}
    if not known.issuperset(METRICS.values()) or layout.compare != "share":
        return ""
    tables = [make_table(layout, lines.results, metric) for metric in METRICS.values()]
    rows = []
    for place, column in enumerate(layout.columns):
        for number, row in enumerate(layout.rows):
            entries = [table.entries[number][place] for table in tables]
            cells = entries[0].cells
            is_known = all(cell in without for cell in cells)
            if row.is_share_only:
                is_known = not any(_format_our_share(entry) for entry in entries)
            if not cells or row.figure or is_known:
                continue
            figures = ["" if row.is_share_only else _format_ours(entry, lines) for entry in entries]
            shares = [_format_our_share(entry) for entry in entries[:2]]
            places = lines.format_places(cells)
            rows.append([column.title, f"`{row.name}`", *figures, *shares, places])
    shares = [f"won back, {name}" for name in list(METRICS)[:2]]
    return markdown_table(["noise", "method", *METRICS, *shares, "lines"], rows) if rows else ""
