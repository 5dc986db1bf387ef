"""Render a table as Markdown for people, CSV and JSON for programs, and HTML for a browser."""

import base64
import csv
import io
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from boxmend import __version__
from boxmend.bench.grids.statistics import Gain
from boxmend.bench.grids.table_spec import Column, Row
from boxmend.bench.grids.tables import GridTable, TableEntry
from boxmend.bench.grids.wording import (
    GAINS,
    EntryTexts,
    describe_origin,
    figure_texts,
    gain_texts,
    make_legend,
    make_notes,
    row_title,
)
from boxmend.data.files.json_text import encode_json

_MARKDOWN_ESCAPES = str.maketrans(
    {sign: f"\\{sign}" for sign in "\\`*_|#~[]"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
)
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
CSV_COLUMNS = (
    *("table", "scale", "row", "column", "labels", "boxes", "presence", "metric"),
    *("mean", "deviation", "seeds", "failed", "best", "published"),
    *("compared", "gain", "gain_error", "gain_seeds", "published_gain", "cells"),
)


def render_markdown(table: GridTable) -> str:
    """Return the table, its comparison, its legend and its notes as Markdown."""
    parts = [f"### {_escape_markdown(table.layout.title)}", _markdown_table(table, figure_texts)]
    if has_gains(table):
        compare = table.layout.compare
        parts += [f"#### {_escape_markdown(GAINS[compare])}"]
        parts += [_markdown_table(table, lambda entry: gain_texts(entry, compare), gains=True)]
    parts.append(_markdown_list(_explain_table(table)))
    remarks = make_notes(table)
    if remarks:
        parts.append(f"Notes:\n\n{_markdown_list(remarks)}")
    return "\n\n".join(parts) + "\n"


def render_csv(table: GridTable) -> bytes:
    """Return one line per entry as CSV in UTF-8; figures are fractions, and empty if unknown.

    A text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row, line in table.lines():
        for column, entry in zip(table.layout.columns, line, strict=True):
            fields = _to_fields(table, row, column, entry)
            writer.writerow([_csv_cell(fields[name]) for name in CSV_COLUMNS])
    return file.getvalue().encode("utf-8", "backslashreplace")


def to_plain(table: GridTable) -> dict[str, Any]:
    """Return the table as values for JSON; figures are fractions, and None if unknown."""
    return {
        "table": table.layout.name,
        "title": table.layout.title,
        "scale": table.scale,
        "metric": table.metric,
        "compared": table.layout.compare,
        "published_source": table.published.source if table.published else None,
        "published_metric": table.published.metric if table.published else None,
        "columns": [
            {
                "name": column.name,
                "title": column.title,
                "labels": column.labels,
                "boxes": column.boxes,
                "presence": column.presence,
            }
            for column in table.layout.columns
        ],
        "rows": [
            {
                "name": row.name,
                "method": row.method,
                "variant": dict(row.variant),
                "is_reference": row.is_clean,
                "references": list(row.references),
                "entries": {
                    column.name: _to_plain_entry(table, row, column, entry)
                    for column, entry in zip(table.layout.columns, line, strict=True)
                },
            }
            for row, line in table.lines()
        ],
        "legend": make_legend(table),
        "notes": make_notes(table),
        "differences": [
            {
                "where": difference.where,
                "cells": {value: list(cells) for value, cells in difference.cells.items()},
            }
            for difference in table.differences
        ],
    }


def render_json(table: GridTable) -> bytes:
    """Return the content of a JSON file with the values of `to_plain`."""
    return encode_json(to_plain(table), indent=2) + b"\n"


def render_html(table: GridTable) -> bytes:
    """Return the table as an HTML page that needs no other file, for light and dark screens."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style = _read_packaged_file("table.css")
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    parts = [("Figures, in %", *_collect_texts(table, figure_texts))]
    if has_gains(table):
        compare = table.layout.compare
        parts.append(
            (GAINS[compare], *_collect_texts(table, lambda entry: gain_texts(entry, compare), True))
        )
    text = environment.from_string(_read_packaged_file("table.html.j2")).render(
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'",
        style=_mark_as_safe(style),
        table=table,
        parts=parts,
        legend=_explain_table(table),
        notes=make_notes(table),
        version=__version__,
    )
    return text.encode("utf-8", "replace")


def _explain_table(table: GridTable) -> list[str]:
    """Return the legend, the columns left out, and the origin of the figures."""
    kept, _ = _collect_texts(table, figure_texts)
    empty = [column.title for column in table.layout.columns if column not in kept]
    left_out = f"Left out, since there is no figure yet: {'; '.join(empty)}." if empty else ""
    return [line for line in (*make_legend(table), left_out, describe_origin(table)) if line]


def has_gains(table: GridTable) -> bool:
    """Return whether an entry has a recovered share or a difference."""
    return any(
        entry.gain is not None or entry.paper_gain is not None
        for line in table.entries
        for entry in line
    )


def _collect_texts(
    table: GridTable, to_texts: Callable[[TableEntry], EntryTexts], gains: bool = False
) -> tuple[list[Column], list[tuple[str, Row, list[EntryTexts]]]]:
    """Return the columns with content, and the titles and entries of the rows.

    With `gains` only rows that have a gain are included, otherwise only rows that show figures.
    """
    known = []
    for number, (row, line) in enumerate(table.lines()):
        if row.is_share_only and not gains:
            continue
        texts = [to_texts(entry) for entry in line]
        if not gains or any(entry.to_line() for entry in texts):
            known.append((row_title(table, number), row, texts))
    columns = table.layout.columns
    kept = [n for n in range(len(columns)) if any(line[n].to_line() for _, _, line in known)]
    kept = kept or list(range(len(columns)))
    rows = [(title, row, [line[n] for n in kept]) for title, row, line in known]
    return [columns[n] for n in kept], rows


def _markdown_table(
    table: GridTable, to_texts: Callable[[TableEntry], EntryTexts], gains: bool = False
) -> str:
    columns, rows = _collect_texts(table, to_texts, gains)
    lines = [["", *(_escape_markdown(column.title) for column in columns)]]
    for title, _, entries in rows:
        lines.append([_escape_markdown(title), *(_markdown_entry(texts) for texts in entries)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    head, *body = [_pad_line(line, widths) for line in lines]
    rule = "|".join(
        ["", f":{'-' * (widths[0] + 1)}", *(f"{'-' * (w + 1)}:" for w in widths[1:]), ""]
    )
    return "\n".join([head, rule, *body])


def _markdown_list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_escape_markdown(line)}" for line in lines)


def _pad_line(line: Sequence[str], widths: Sequence[int]) -> str:
    first = line[0].ljust(widths[0])
    rest = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
    return f"| {' | '.join([first, *rest])} |"


def _markdown_entry(texts: EntryTexts) -> str:
    figure = f"**{texts.figure}**" if texts.is_best else texts.figure
    parts = (figure, texts.spread, texts.seeds, texts.paper)
    return " ".join(part for part in parts if part)


def _to_fields(table: GridTable, row: Row, column: Column, entry: TableEntry) -> dict[str, Any]:
    ours, gain = entry.ours, entry.gain or Gain(None, None, (), ())
    is_noisy = not row.is_clean
    return {
        "table": table.layout.name,
        "scale": table.scale,
        "row": row.name,
        "column": column.name,
        "labels": column.labels if is_noisy else None,
        "boxes": column.boxes if is_noisy else None,
        "presence": column.presence if is_noisy else None,
        "metric": table.metric_of(row, column),
        "mean": ours.mean if ours else None,
        "deviation": ours.deviation if ours else None,
        "seeds": ours.seeds if ours else (),
        "failed": len(entry.failed),
        "best": entry.is_best,
        "published": entry.paper,
        "compared": table.layout.compare,
        "gain": gain.value,
        "gain_error": gain.error,
        "gain_seeds": gain.seeds,
        "published_gain": entry.paper_gain,
        "cells": entry.cells,
    }


def _to_plain_entry(
    table: GridTable, row: Row, column: Column, entry: TableEntry
) -> dict[str, Any]:
    fields = _to_fields(table, row, column, entry)
    for name in ("table", "scale", "row", "column", "labels", "boxes", "compared"):
        del fields[name]
    return fields | {
        "seeds": list(fields["seeds"]),
        "gain_seeds": list(fields["gain_seeds"]),
        "cells": list(entry.cells),
        "failed": list(entry.failed),
    }


def _csv_cell(value: Any) -> str:
    if isinstance(value, tuple):
        value = " ".join(map(str, value))
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA_STARTS) else value
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else f"{value:.6g}"


def _escape_markdown(text: str) -> str:
    """Escape the characters that have a meaning in Markdown or HTML."""
    return text.translate(_MARKDOWN_ESCAPES)


def _mark_as_safe(text: str) -> Any:
    """Return boxmend's own text marked as safe, so that it is not escaped."""
    from markupsafe import Markup

    return Markup(text)


@cache
def _read_packaged_file(name: str) -> str:
    return (files("boxmend.bench.grids") / name).read_text(encoding="utf-8")
