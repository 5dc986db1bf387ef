"""Figures as files: the drawing as SVG and the numbers behind it as CSV."""

import csv
import io
import math
from collections.abc import Iterable
from pathlib import Path

from boxmend.data.files.atomic import open_atomic, wrap_os_errors
from boxmend.web.charts import standalone
from boxmend.web.report.record import Figure

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # of texts that spreadsheets compute


def write_figures(figures: Iterable[Figure], out: Path) -> list[Path]:
    """Write OUT/NAME.svg and OUT/NAME.csv of every figure; return the paths.

    Create the folder if it is missing. Each file is complete or absent, and replaces an older one.
    Raise an OutputError if one cannot be written.
    """
    with wrap_os_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    written = []
    for figure in figures:
        contents = {
            f"{figure.name}.svg": standalone(figure.svg).encode("utf-8"),
            f"{figure.name}.csv": figure_csv(figure),
        }
        for name, content in contents.items():
            with open_atomic(out / name) as file:
                file.write(content)
            written.append(out / name)
    return written


def figure_csv(figure: Figure) -> bytes:
    """Return the numbers of a figure as CSV in UTF-8; unknown numbers are empty.

    A text that a spreadsheet would read as a formula gets an apostrophe before it.
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(figure.columns)
    writer.writerows([_cell(value) for value in row] for row in figure.rows)
    return file.getvalue().encode("utf-8", "backslashreplace")


def _cell(value: str | int | float | None) -> str:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA_STARTS) else value
    if value is None or not math.isfinite(value):
        return ""
    return str(value) if isinstance(value, int) else f"{value:.6g}"
