"""Output of the commands: results on stdout, messages on stderr, colour only on a terminal."""

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from boxmend.data.files.atomic import open_atomic
from boxmend.data.progress import Progress


def print_json(value: Any) -> None:
    """Print a result as JSON; NumPy values become numbers and lists, paths become text."""
    json.dump(value, sys.stdout, indent=2, default=_to_json, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")


def write_json(out: Path, value: Any) -> None:
    """Write a result as a JSON file; it replaces an older file, and is complete or absent."""
    with open_atomic(out) as file:
        file.write(json.dumps(value, indent=2, allow_nan=False).encode() + b"\n")
    say(f"wrote {out}")


def print_measurement(
    answer: dict[str, Any], out: Path | None, show: Callable[[dict[str, Any]], None] | None
) -> None:
    """Print the answer of a benchmark with `show`, or as JSON, and its notes; write it to `out`."""
    if out is not None:
        write_json(out, answer)
    (show or print_json)(answer)
    for note in answer["notes"]:
        say(f"note: {note}")


def _to_json(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def say(text: str) -> None:
    """Print a message to stderr."""
    print(text, file=sys.stderr)


@contextmanager
def library_notes() -> Iterator[None]:
    """Print the warnings that the library logs within this block to stderr."""

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(f"note: {record.getMessage()}")

    handler, logger = Notes(logging.WARNING), logging.getLogger("boxmend")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table to stdout: ruled and coloured on a terminal, aligned plain text elsewhere."""
    texts = [[_format_cell(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich_table(headers, texts, rows)
        return
    widths = [max(map(len, column)) for column in zip(headers, *texts, strict=True)]
    for line in (headers, *texts):
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def _print_rich_table(
    headers: Sequence[str], texts: list[list[str]], rows: Sequence[Sequence[object]]
) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, header_style="bold", pad_edge=False)
    for column, header in enumerate(headers):
        is_number = bool(rows) and all(isinstance(row[column], int | float) for row in rows)
        table.add_column(header, justify="right" if is_number else "left", overflow="fold")
    for line in texts:
        table.add_row(*(Text(cell) for cell in line))  # class names may look like markup
    Console().print(table)


def _format_cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else str(value)


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Progress]:
    """Show progress on stderr: a bar on a terminal, a line every ten seconds elsewhere."""
    if quiet:
        yield lambda done, total: None
    elif sys.stderr.isatty():
        with _progress_bar(what) as update:
            yield update
    else:
        yield _progress_lines(what)


@contextmanager
def _progress_bar(what: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _progress_lines(what: str, interval_seconds: float = 10.0) -> Progress:
    last = time.monotonic()

    def update(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= interval_seconds:
            last = time.monotonic()
            say(f"{what}: {done:,} of {total:,}")

    return update
