"""Tables of docs/results.md with results of a grid; tools/results_page.py assembles the page."""

import math
from collections.abc import Callable, Sequence

from boxmend.bench.grids.tables import Table, TableEntry
from boxmend.bench.grids.wording import DASH, format_percent
from results_sections import Lines, markdown_table


def format_table(
    table: Table,
    lines: Lines,
    format_entry: Callable[[TableEntry], str],
    *,
    is_share: bool = False,
) -> str:
    """Return a table as Markdown; each row names its lines, shares also those they rest on."""
    rows = []
    for row, entries in table.lines():
        texts = [format_entry(entry) for entry in entries]
        if is_share and not any(texts):
            continue
        cells = [cell for entry in entries for cell in entry.cells]
        if is_share:
            cells = _share_cells(table, entries)
        rows.append([f"`{row.name}`", *texts, lines.format_places(cells)])
    if not rows:
        return "Nothing to compare yet."
    titles = [column.title for column in table.layout.columns]
    return markdown_table(["", *titles, "lines"], rows)


def _share_cells(table: Table, entries: Sequence[TableEntry]) -> list[str]:
    """List the cells behind the shares of a row: its own, and those of baseline and clean."""
    references = [other for row, other in table.lines() if row.name in ("baseline", "clean")]
    return [
        cell
        for number, entry in enumerate(entries)
        if entry.gain is not None
        for source in (entry, *(reference[number] for reference in references))
        for cell in source.cells
        if int(cell.rpartition("-")[2]) in entry.gain.seeds
    ]


def format_figure(entry: TableEntry) -> str:
    """Return mean and standard error (number of seeds) [published figure]."""
    paper = "" if entry.paper is None else f"[{100 * entry.paper:.1f}]"
    if entry.ours is None:
        return paper
    ours = entry.ours
    text = format_percent(ours.mean)
    text = f"**{text}**" if entry.is_best else text
    num_seeds = len(ours.seeds)
    if ours.deviation is not None:
        text += f" ± {format_percent(ours.deviation / math.sqrt(num_seeds))}"
    return f"{text} ({num_seeds}) {paper}".rstrip()


def format_share(entry: TableEntry) -> str:
    """Return the recovered share with its standard error, and the published share."""
    paper = "" if entry.paper_gain is None else f"[{100 * entry.paper_gain:.0f}]"
    if entry.gain is None or not entry.gain.seeds:
        return paper
    if entry.gain.value is None:
        return f"{DASH} {paper}".rstrip()
    error = "" if entry.gain.error is None else f" ± {format_percent(entry.gain.error)}"
    share = f"{format_percent(entry.gain.value)}{error}"
    return f"{share} ({len(entry.gain.seeds)}) {paper}".rstrip()
