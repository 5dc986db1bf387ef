"""Figures as files: the drawing as SVG and the numbers behind it as CSV."""

import csv
import io
import math
from collections.abc import Iterable
from pathlib import Path

from boxmend.data.files.atomic import open_atomic, wrap_os_errors
from boxmend.web.charts import standalone
from boxmend.web.report.record import Figure

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what makes a spreadsheet compute a text


def write_figures(figures: Iterable[Figure], out: Path) -> list[Path]:
    """Write OUT/NAME.svg and OUT/NAME.csv of every figure; returns the paths.

    The folder is made where it is missing. Each file is there whole or not at all and replaces
    what has its name; an OutputError says why one could not be written.
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
    """The numbers of a figure as CSV in UTF-8; what is not known is empty.

    A text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(figure.columns)
    writer.writerows([_written(value) for value in row] for row in figure.rows)
    return file.getvalue().encode("utf-8", "backslashreplace")


def _written(value: str | int | float | None) -> str:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    if value is None or not math.isfinite(value):
        return ""
    return str(value) if isinstance(value, int) else f"{value:.6g}"
