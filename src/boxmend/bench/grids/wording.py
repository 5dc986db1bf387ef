"""The texts of a table: its entries, its legend and its notes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from boxmend.bench.grids.results import Result
from boxmend.bench.grids.scales import SCALES
from boxmend.bench.grids.table_spec import (
    GIVEN_TRUE_RATES,
    PLAIN_REFERENCES,
    References,
    Row,
    cell_specs,
)
from boxmend.bench.grids.tables import MENDING, GridTable, TableEntry, is_comparable, is_rival
from boxmend.web.text import display_text

METRICS = {
    "voc_ap50_area": "AP50 by the area under the curve",
    "voc_ap50_11point": "AP50 by 11 points",
    "coco_ap": "COCO's AP, over IoU 0.5 to 0.95",
    "coco_ap50": "COCO's AP50",
    "coco_ap75": "COCO's AP75",
    MENDING: "the same figures",
}
GAINS = {
    "share": "Share of the lost accuracy recovered, in %: (method - baseline) / (clean - baseline)",
    "difference": "Difference to baseline, in points of the figures above",
}
DASH = "\N{EN DASH}"
MIXED_MARK = " *"
"""The mark of a row whose results differ from the others."""
MAX_NAMED_CELLS = 6  # in a note


@dataclass(frozen=True)
class EntryTexts:
    """The texts of one entry; a part may be empty."""

    figure: str = ""
    spread: str = ""
    seeds: str = ""
    paper: str = ""
    is_best: bool = False

    def to_line(self) -> str:
        """Return all parts on one line."""
        return " ".join(part for part in (self.figure, self.spread, self.seeds, self.paper) if part)


def figure_texts(entry: TableEntry) -> EntryTexts:
    """Return the texts of a figure: mean, deviation, number of seeds, and published figure."""
    paper = "" if entry.paper is None else f"[{_format_published(entry.paper)}]"
    if entry.ours is None:
        return EntryTexts("failed" if entry.failed else "", paper=paper)
    ours = entry.ours
    spread = "" if ours.deviation is None else f"± {format_percent(ours.deviation)}"
    failed = f", {len(entry.failed)} failed" if entry.failed else ""
    seeds = f"({len(ours.seeds)}{failed})"
    return EntryTexts(format_percent(ours.mean), spread, seeds, paper, entry.is_best)


def gain_texts(entry: TableEntry, compare: str) -> EntryTexts:
    """Return the texts of a recovered share, or of a difference to baseline."""
    as_text = _format_signed if compare == "difference" else _format_whole
    paper = "" if entry.paper_gain is None else f"[{_format_whole(entry.paper_gain)}]"
    if entry.gain is None:
        return EntryTexts(paper=paper)
    if entry.gain.value is None:
        return EntryTexts(DASH, paper=paper)
    error = entry.gain.error
    spread = "" if error is None else f"± {as_text(error).lstrip('+')}"
    return EntryTexts(as_text(entry.gain.value), spread, f"({len(entry.gain.seeds)})", paper)


def format_percent(fraction: float) -> str:
    """Format a fraction in percent with one decimal."""
    return f"{100 * fraction:.1f}"


def row_title(table: GridTable, number: int) -> str:
    """Return the name of a row, with a mark if its results differ from the others."""
    cells = set(_list_entry_cells(table.entries[number]))
    others = {
        cell
        for difference in table.differences
        for group in list(difference.cells.values())[1:]
        for cell in group
    }
    return table.layout.rows[number].name + (MIXED_MARK if cells & others else "")


def column_note(table: GridTable) -> str:
    """Return the explanation of the columns."""
    columns = table.layout.columns
    kinds = {(column.labels or "", column.boxes or "") for column in columns}
    words = ["Columns: noise of labels and boxes in %"]
    if any(labels.startswith("pair") for labels, _ in kinds):
        words.append("pair: each wrong label is that of the next class")
    if any(boxes.startswith("gaussian") for _, boxes in kinds):
        words.append("gaussian: standard deviation in % of the side")
    if any(boxes.startswith("jitter") for _, boxes in kinds):
        words.append("OA-MIL: centre and size shifted by at most this share")
    kinds_of_presence = {(column.presence or "").partition(":")[0] for column in columns}
    if kinds_of_presence & {"missing", "spurious"}:
        words.append("missing: annotations removed; spurious: annotations added in the background")
    if "una" in kinds_of_presence:
        words.append(
            "UNA: this share of the annotations is missing, as many have another label, as many "
            "have a redrawn box, and as many are invented"
        )
    return "; ".join(words) + "."


def make_legend(table: GridTable) -> list[str]:
    """Return the lines that explain how to read a table."""
    metrics = dict.fromkeys(
        table.metric_of(row, column)
        for row in table.layout.rows
        for column in table.layout.columns
        if row.figure is None
    )
    metric_names = ", ".join(f"{METRICS.get(metric, 'score')} ({metric})" for metric in metrics)
    figures = metric_names or "shares of annotations in the last epoch"
    lines = [
        f"Figures: {figures}, in %: mean ± sample standard deviation over seeds (number of seeds). "
        "Empty: not run."
    ]
    if any(entry.is_best for line in table.entries for entry in line):
        lines.append("Bold: the best of a column, with ties; clean is the reference.")
    if table.layout.compare != "none":
        lines.append(
            "± of shares and differences is their standard error by paired seeds; "
            f"{DASH}: not defined, noise cost less than a point or no seed is common."
        )
    lines += _explain_references(table)
    lines.append(column_note(table))
    methods = dict.fromkeys(
        row.method for row in table.layout.rows if row.method in GIVEN_TRUE_RATES
    )
    if methods:
        lines.append(f"Given the true noise rates: {', '.join(map(str, methods))}; others are not.")
    if table.published is not None:
        records = table.published
        rule = "" if records.metric == MENDING else f" {METRICS[records.metric]},"
        lines.append(f"In brackets: as published, {records.source};{rule} {records.data}.")
    return [*lines, *_explain_mixed_versions(table)]


def _explain_mixed_versions(table: GridTable) -> Iterator[str]:
    """Yield a line that names the rows with a mean over results of different versions."""
    codes = {result.cell: result.code for result in table.results if result.error is None}
    rows = [
        row.name
        for row, line in table.lines()
        if any(len({codes[cell] for cell in entry.cells}) > 1 for entry in line)
    ]
    if rows:
        yield (
            "Rows with a mean over results of different versions of boxmend (code): "
            f"{'; '.join(rows)}."
        )


def _explain_references(table: GridTable) -> Iterator[str]:
    """Yield a line for each pair of references other than `baseline` and `clean`."""
    rows: dict[References, list[str]] = {}
    for row in table.layout.rows:
        if row.references != PLAIN_REFERENCES:
            rows.setdefault(row.references, []).append(row.name)
    for (baseline, clean), names in rows.items():
        yield f'References "{baseline}" and "{clean}": {"; ".join(names)}.'


def describe_origin(table: GridTable) -> str:
    """Describe the scale, hardware and versions of the results; empty without results."""
    if not table.results:
        return ""
    cells = len({result.cell for result in table.results})
    hardware = _join_texts({result.hardware for result in table.results})
    versions = _join_texts({_describe_versions(result) for result in table.results})
    trainings = _join_texts(
        {_describe_training(result) for result in table.results if not result.variant}
    )
    number = f"{cells} of {_count_planned_cells(table)} cells"
    toys = " Drawn images show that methods work, not how well." if _is_toys(table) else ""
    return f"Scale {table.scale}, {number}; {trainings}; {hardware}; {versions}.{toys}"


def _count_planned_cells(table: GridTable) -> int:
    """Return the number of cells of the table for the seeds of the results."""
    seeds = {result.seed for result in table.results}
    planned = {
        (spec.method, spec.labels, spec.boxes, spec.presence, tuple(sorted(spec.variant.items())))
        for spec in cell_specs(table.layout)
    }
    return len(planned) * len(seeds)


def _is_toys(table: GridTable) -> bool:
    return table.scale in SCALES and SCALES[table.scale].is_embedded


def make_notes(table: GridTable) -> list[str]:
    """Return the notes below a table: failed cells, missing comparisons and mixed results."""
    records = table.published
    lines = list(records.notes) if records else []
    if records and not is_comparable(table.metric, records.metric) and records.metric != MENDING:
        lines.append(f"The published figures are {records.metric}, so they are left out here.")
    lines += [
        *_note_failures(table),
        *_note_missing_figures(table),
        *_note_missing_comparisons(table),
        *_note_left_out_seeds(table),
    ]
    lines += [f"Mixed (*): {difference.describe()}." for difference in table.differences]
    return lines


def _note_failures(table: GridTable) -> Iterator[str]:
    failed = [
        f"{result.cell} ({display_text(result.error.strip().partition(chr(10))[0], 80)})"
        for result in table.results
        if result.error is not None
    ]
    if failed:
        yield f"Failed: {_list_cells(failed)}."


def _note_missing_figures(table: GridTable) -> Iterator[str]:
    cells = dict.fromkeys(
        cell for line in table.entries for entry in line for cell in entry.without
    )
    if cells:
        yield f"Done, but without the figure shown: {_list_cells(list(cells))}."


def _note_missing_comparisons(table: GridTable) -> Iterator[str]:
    """Yield a note for each column that lacks the rows to compare with."""
    if table.layout.compare == "none":
        return
    lines = {row.name: line for row, line in table.lines()}
    rivals = [row for row in table.layout.rows if is_rival(row) and row.name != "baseline"]
    for number, column in enumerate(table.layout.columns):
        sides = dict.fromkeys(
            side
            for row in rivals
            if lines[row.name][number].ours is not None
            for side in _list_references(table, row)
        )
        missing = [
            side
            for side in sides
            if side in lines
            and lines[side][number].ours is None
            and table.layout.is_run(_get_row(table, side), column)
        ]
        if missing:
            yield f"Not compared at {column.title}: {' and '.join(missing)} not run yet."


def _list_references(table: GridTable, row: Row) -> tuple[str, ...]:
    """Return the names of the rows with which a row is compared."""
    return row.references if table.layout.compare == "share" else (row.references.baseline,)


def _get_row(table: GridTable, name: str) -> Row:
    return next(row for row in table.layout.rows if row.name == name)


def _note_left_out_seeds(table: GridTable) -> Iterator[str]:
    """Yield a note about comparisons whose sides have different seeds."""
    rows = [
        row.name
        for row, line in table.lines()
        if any(entry.gain is not None and entry.gain.left_out for entry in line)
    ]
    if rows:
        yield (
            "Compared over the common seeds only (their number is in parentheses): "
            f"{'; '.join(rows)}."
        )


def _list_cells(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED_CELLS} more" if len(names) > MAX_NAMED_CELLS else ""
    return f"{', '.join(names[:MAX_NAMED_CELLS])}{more}"


def _list_entry_cells(entries: Sequence[TableEntry]) -> Iterator[str]:
    for entry in entries:
        yield from entry.cells


def _describe_versions(result: Result) -> str:
    return ", ".join(
        display_text(f"{name} {version}") for name, version in sorted(result.versions.items())
    )


def _describe_training(result: Result) -> str:
    settings = result.settings
    epochs, batch = settings.get("epochs"), settings.get("batch_size")
    detector, size = settings.get("detector"), settings.get("image_size")
    return display_text(f"{detector}, images at {size}, {epochs} epochs, batch size {batch}")


def _join_texts(texts: set[str]) -> str:
    return " | ".join(display_text(text) for text in sorted(texts)) or "unknown"


def _format_published(fraction: float) -> str:
    """Return a percentage with one decimal, or with two if the second is not 0."""
    text = f"{100 * fraction:.2f}"
    return text[:-1] if text.endswith("0") else text


def _format_whole(fraction: float) -> str:
    return re.sub(r"^-0$", "0", f"{100 * fraction:.0f}")


def _format_signed(fraction: float) -> str:
    return re.sub(r"^[+-]0\.0$", "0.0", f"{100 * fraction:+.1f}")
