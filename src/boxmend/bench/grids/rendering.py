"""A table as Markdown for people, CSV and JSON for programs, and HTML for a browser."""

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
from boxmend.bench.grids.tables import Table, TableEntry
from boxmend.bench.grids.wording import (
    GAINS,
    Words,
    figure_words,
    gain_words,
    legend,
    notes,
    origin,
    row_title,
)
from boxmend.data.files.json_text import encode_json

_MARKDOWN = str.maketrans(
    {sign: f"\\{sign}" for sign in "\\`*_|#~[]"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
CSV_COLUMNS = (
    *("table", "scale", "row", "column", "labels", "boxes", "presence", "metric"),
    *("mean", "deviation", "seeds", "failed", "best", "published"),
    *("compared", "gain", "gain_error", "gain_seeds", "published_gain", "cells"),
)


def markdown(table: Table) -> str:
    """Give the table, its comparison, its legend and its notes as Markdown."""
    parts = [f"### {_escape_markdown(table.layout.title)}", _markdown_table(table, figure_words)]
    if has_gains(table):
        compare = table.layout.compare
        parts += [f"#### {_escape_markdown(GAINS[compare])}"]
        parts += [_markdown_table(table, lambda one: gain_words(one, compare), gains=True)]
    parts.append(_markdown_list(_explain_table(table)))
    remarks = notes(table)
    if remarks:
        parts.append(f"Notes:\n\n{_markdown_list(remarks)}")
    return "\n\n".join(parts) + "\n"


def csv_bytes(table: Table) -> bytes:
    """Give one line for each square as CSV in UTF-8: fractions, and nothing where none is known.

    A text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row, line in table.lines():
        for column, square in zip(table.layout.columns, line, strict=True):
            entry = _flat(table, row, column, square)
            writer.writerow([_csv_cell(entry[name]) for name in CSV_COLUMNS])
    return file.getvalue().encode("utf-8", "backslashreplace")


def plain(table: Table) -> dict[str, Any]:
    """Give the table as JSON has it: fractions, None where none is known."""
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
                "name": one.name,
                "title": one.title,
                "labels": one.labels,
                "boxes": one.boxes,
                "presence": one.presence,
            }
            for one in table.layout.columns
        ],
        "rows": [
            {
                "name": row.name,
                "method": row.method,
                "variant": dict(row.variant),
                "is_reference": row.is_clean,
                "squares": {
                    column.name: _plain_square(table, row, column, square)
                    for column, square in zip(table.layout.columns, line, strict=True)
                },
            }
            for row, line in table.lines()
        ],
        "legend": legend(table),
        "notes": notes(table),
        "differences": [
            {
                "where": one.where,
                "cells": {value: list(cells) for value, cells in one.cells.items()},
            }
            for one in table.differences
        ],
    }


def json_bytes(table: Table) -> bytes:
    """Give what `plain` gives as a file."""
    return encode_json(plain(table), indent=2) + b"\n"


def html(table: Table) -> bytes:
    """Give the table as a page that needs no other file, for light and dark screens."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style = _read_packaged_file("table.css")
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    parts = [("Figures, in %", *_words(table, figure_words))]
    if has_gains(table):
        compare = table.layout.compare
        parts.append((GAINS[compare], *_words(table, lambda one: gain_words(one, compare), True)))
    text = environment.from_string(_read_packaged_file("table.html.j2")).render(
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'",
        style=_mark_as_safe(style),
        table=table,
        parts=parts,
        legend=_explain_table(table),
        notes=notes(table),
        version=__version__,
    )
    return text.encode("utf-8", "replace")


def _explain_table(table: Table) -> list[str]:
    """Return the legend, the columns left out, and the origin of the figures."""
    kept, _ = _words(table, figure_words)
    gone = [one.title for one in table.layout.columns if one not in kept]
    left_out = f"Left out, since there is no figure yet: {'; '.join(gone)}." if gone else ""
    return [line for line in (*legend(table), left_out, origin(table)) if line]


def has_gains(table: Table) -> bool:
    """Return whether there is anything to compare."""
    return any(
        one.gain is not None or one.paper_gain is not None for line in table.squares for one in line
    )


def _words(
    table: Table, words: Callable[[TableEntry], Words], gains: bool = False
) -> tuple[list[Column], list[tuple[str, Row, list[Words]]]]:
    """Return the columns with content, and the titles and entries of the rows.

    With `gains` only rows that have a gain are included.
    """
    found = []
    for number, (row, line) in enumerate(table.lines()):
        entries = [words(entry) for entry in line]
        if not gains or any(entry.plain() for entry in entries):
            found.append((row_title(table, number), row, entries))
    columns = table.layout.columns
    kept = [n for n in range(len(columns)) if any(line[n].plain() for _, _, line in found)]
    kept = kept or list(range(len(columns)))
    rows = [(title, row, [line[n] for n in kept]) for title, row, line in found]
    return [columns[n] for n in kept], rows


def _markdown_table(table: Table, words: Callable[[TableEntry], Words], gains: bool = False) -> str:
    columns, rows = _words(table, words, gains)
    lines = [["", *(_escape_markdown(one.title) for one in columns)]]
    for title, _, squares in rows:
        lines.append([_escape_markdown(title), *(_markdown_square(one) for one in squares)])
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


def _markdown_square(words: Words) -> str:
    figure = f"**{words.figure}**" if words.is_best else words.figure
    parts = (figure, words.spread, words.seeds, words.paper)
    return " ".join(part for part in parts if part)


def _flat(table: Table, row: Row, column: Column, square: TableEntry) -> dict[str, Any]:
    ours, gain = square.ours, square.gain or Gain(None, None, (), ())
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
        "failed": len(square.failed),
        "best": square.is_best,
        "published": square.paper,
        "compared": table.layout.compare,
        "gain": gain.value,
        "gain_error": gain.error,
        "gain_seeds": gain.seeds,
        "published_gain": square.paper_gain,
        "cells": square.cells,
    }


def _plain_square(table: Table, row: Row, column: Column, square: TableEntry) -> dict[str, Any]:
    entry = _flat(table, row, column, square)
    for name in ("table", "scale", "row", "column", "labels", "boxes", "compared"):
        del entry[name]
    return entry | {
        "seeds": list(entry["seeds"]),
        "gain_seeds": list(entry["gain_seeds"]),
        "cells": list(square.cells),
        "failed": list(square.failed),
    }


def _csv_cell(value: Any) -> str:
    if isinstance(value, tuple):
        value = " ".join(map(str, value))
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else f"{value:.6g}"


def _escape_markdown(text: str) -> str:
    """Escape the characters that have a meaning in Markdown or HTML."""
    return text.translate(_MARKDOWN)


def _mark_as_safe(text: str) -> Any:
    """Return boxmend's own text marked as safe, so that it is not escaped."""
    from markupsafe import Markup

    return Markup(text)


@cache
def _read_packaged_file(name: str) -> str:
    return (files("boxmend.bench.grids") / name).read_text(encoding="utf-8")
