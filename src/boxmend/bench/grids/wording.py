"""The texts of a table: its entries, its legend and its notes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from boxmend.bench.grids.results import Result
from boxmend.bench.grids.scales import SCALES
from boxmend.bench.grids.table_spec import GIVEN_TRUE_RATES, Row, cell_specs
from boxmend.bench.grids.tables import MENDING, Table, TableEntry, is_comparable, is_rival
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
MIXED = " *"
"""Behind the name of a row whose results are not like the others."""
NAMED = 6  # cells that a note names


@dataclass(frozen=True)
class Words:
    """The texts of one entry; a part may be empty."""

    figure: str = ""
    spread: str = ""
    seeds: str = ""
    paper: str = ""
    is_best: bool = False

    def plain(self) -> str:
        """Give all parts in one line, as a terminal shows them."""
        return " ".join(part for part in (self.figure, self.spread, self.seeds, self.paper) if part)


def figure_words(square: TableEntry) -> Words:
    """Tell a figure: mean, deviation, number of seeds, and what was published."""
    paper = "" if square.paper is None else f"[{_as_published(square.paper)}]"
    if square.ours is None:
        return Words("failed" if square.failed else "", paper=paper)
    ours = square.ours
    spread = "" if ours.deviation is None else f"± {format_percent(ours.deviation)}"
    failed = f", {len(square.failed)} failed" if square.failed else ""
    seeds = f"({len(ours.seeds)}{failed})"
    return Words(format_percent(ours.mean), spread, seeds, paper, square.is_best)


def gain_words(square: TableEntry, compare: str) -> Words:
    """Tell what a square wins back, or its difference to baseline."""
    as_text = _format_signed if compare == "difference" else _whole
    paper = "" if square.paper_gain is None else f"[{_whole(square.paper_gain)}]"
    if square.gain is None:
        return Words(paper=paper)
    if square.gain.value is None:
        return Words(DASH, paper=paper)
    error = square.gain.error
    spread = "" if error is None else f"± {as_text(error).lstrip('+')}"
    return Words(as_text(square.gain.value), spread, f"({len(square.gain.seeds)})", paper)


def format_percent(fraction: float) -> str:
    """Give a fraction in percent with one decimal."""
    return f"{100 * fraction:.1f}"


def row_title(table: Table, number: int) -> str:
    """Give the name of a row, marked where its results are not like the others."""
    cells = set(_all_cells(table.squares[number]))
    others = {
        cell
        for difference in table.differences
        for group in list(difference.cells.values())[1:]
        for cell in group
    }
    return table.layout.rows[number].name + (MIXED if cells & others else "")


def column_note(table: Table) -> str:
    """Tell what the columns are."""
    columns = table.layout.columns
    kinds = {(one.labels or "", one.boxes or "") for one in columns}
    words = ["Columns: noise of labels and boxes in %"]
    if any(labels.startswith("pair") for labels, _ in kinds):
        words.append("pair: each wrong label is that of the next class")
    if any(boxes.startswith("gaussian") for _, boxes in kinds):
        words.append("gaussian: standard deviation in % of the side")
    if any(boxes.startswith("jitter") for _, boxes in kinds):
        words.append("OA-MIL: centre and size shifted by at most this share")
    if any(one.presence for one in columns):
        words.append("missing: annotations removed; spurious: annotations added in the background")
    return "; ".join(words) + "."


def legend(table: Table) -> list[str]:
    """Explain how to read a table."""
    metrics = dict.fromkeys(
        table.metric_of(row, column)
        for row in table.layout.rows
        for column in table.layout.columns
        if row.figure is None
    )
    names = ", ".join(f"{METRICS.get(one, 'score')} ({one})" for one in metrics)
    figures = names or "shares of annotations in the last epoch"
    lines = [
        f"Figures: {figures}, in %: mean ± sample standard deviation over seeds (number of seeds). "
        "Empty: not run."
    ]
    if any(square.is_best for line in table.squares for square in line):
        lines.append("Bold: the best of a column, with ties; clean is the reference.")
    if table.layout.compare != "none":
        lines.append(
            "± of shares and differences is their standard error by paired seeds; "
            f"{DASH}: not defined, noise cost less than a point or no seed is common."
        )
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
    return lines


def origin(table: Table) -> str:
    """Return the scale, hardware and versions of the results; empty without results."""
    if not table.results:
        return ""
    cells = len({one.cell for one in table.results})
    hardware = _several({one.hardware for one in table.results})
    versions = _several({_versions(one) for one in table.results})
    trainings = _several({_training(one) for one in table.results if not one.variant})
    number = f"{cells} of {_count_planned_cells(table)} cells"
    toys = " Drawn images show that methods work, not how well." if _is_toys(table) else ""
    return f"Scale {table.scale}, {number}; {trainings}; {hardware}; {versions}.{toys}"


def _count_planned_cells(table: Table) -> int:
    """Return the number of cells of the table for the seeds of the results."""
    seeds = {one.seed for one in table.results}
    asked_for = {
        (one.method, one.labels, one.boxes, one.presence, tuple(sorted(one.variant.items())))
        for one in cell_specs(table.layout)
    }
    return len(asked_for) * len(seeds)


def _is_toys(table: Table) -> bool:
    return table.scale in SCALES and SCALES[table.scale].is_embedded


def notes(table: Table) -> list[str]:
    """Return the notes below a table: failed cells, missing comparisons and mixed results."""
    records = table.published
    found = list(records.notes) if records else []
    if records and not is_comparable(table.metric, records.metric) and records.metric != MENDING:
        found.append(f"The published figures are {records.metric}, so they are left out here.")
    found += [*_failures(table), *_without(table), *_alone(table), *_on_seeds(table)]
    found += [f"Mixed (*): {one.describe()}." for one in table.differences]
    return found


def _failures(table: Table) -> Iterator[str]:
    failed = [
        f"{one.cell} ({display_text(one.error.strip().partition(chr(10))[0], 80)})"
        for one in table.results
        if one.error is not None
    ]
    if failed:
        yield f"Failed: {_list_cells(failed)}."


def _without(table: Table) -> Iterator[str]:
    cells = dict.fromkeys(cell for line in table.squares for one in line for cell in one.without)
    if cells:
        yield f"Done, but without the figure shown: {_list_cells(list(cells))}."


def _alone(table: Table) -> Iterator[str]:
    """Yield notes about figures that have nothing to be compared with."""
    sides = ["baseline", "clean"] if table.layout.compare == "share" else ["baseline"]
    rows = {row.name: line for row, line in table.lines()}
    if table.layout.compare == "none" or not all(side in rows for side in sides):
        return
    others = [line for row, line in table.lines() if is_rival(row) and row.name != "baseline"]
    for number, column in enumerate(table.layout.columns):
        missing = [
            side
            for side in sides
            if rows[side][number].ours is None and table.layout.is_run(_row(table, side), column)
        ]
        if missing and any(line[number].ours for line in others):
            yield f"Not compared at {column.title}: {' and '.join(missing)} not run yet."


def _row(table: Table, name: str) -> Row:
    return next(row for row in table.layout.rows if row.name == name)


def _on_seeds(table: Table) -> Iterator[str]:
    """Yield a note about comparisons whose sides have different seeds."""
    rows = [
        row.name
        for row, line in table.lines()
        if any(one.gain is not None and one.gain.left_out for one in line)
    ]
    if rows:
        yield (
            "Compared over the common seeds only (their number is in parentheses): "
            f"{'; '.join(rows)}."
        )


def _list_cells(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def _all_cells(squares: Sequence[TableEntry]) -> Iterator[str]:
    for square in squares:
        yield from square.cells


def _versions(one: Result) -> str:
    return ", ".join(
        display_text(f"{name} {version}") for name, version in sorted(one.versions.items())
    )


def _training(one: Result) -> str:
    settings = one.settings
    epochs, batch = settings.get("epochs"), settings.get("batch_size")
    detector, size = settings.get("detector"), settings.get("image_size")
    return display_text(f"{detector}, images at {size}, {epochs} epochs, batch size {batch}")


def _several(texts: set[str]) -> str:
    return " | ".join(display_text(one) for one in sorted(texts)) or "unknown"


def _as_published(fraction: float) -> str:
    """Return a percentage with one decimal, or with two if the second is not 0."""
    text = f"{100 * fraction:.2f}"
    return text[:-1] if text.endswith("0") else text


def _whole(fraction: float) -> str:
    return re.sub(r"^-0$", "0", f"{100 * fraction:.0f}")


def _format_signed(fraction: float) -> str:
    return re.sub(r"^[+-]0\.0$", "0.0", f"{100 * fraction:+.1f}")
