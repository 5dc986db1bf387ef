"""What commands say: results on stdout, talk on stderr; plain text unless a person is looking."""

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
    """A result as JSON, with what only columns have (NumPy numbers, paths) made plain."""
    json.dump(value, sys.stdout, indent=2, default=_plain, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")


def write_json(out: Path, value: Any) -> None:
    """A result as a file of JSON, whole or not at all, in the place of one from before."""
    with open_atomic(out) as file:
        file.write(json.dumps(value, indent=2, allow_nan=False).encode() + b"\n")
    say(f"wrote {out}")


def print_measured(
    answer: dict[str, Any], out: Path | None, show: Callable[[dict[str, Any]], None] | None
) -> None:
    """What a benchmark measured: into a file if wanted, by `show` or as JSON, and its notes."""
    if out is not None:
        write_json(out, answer)
    (show or print_json)(answer)
    for note in answer["notes"]:
        say(f"note: {note}")


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def say(text: str) -> None:
    """Tell the person at the terminal something that is no result."""
    print(text, file=sys.stderr)


@contextmanager
def library_notes() -> Iterator[None]:
    """Show on stderr what the library logs as a warning while the block lasts."""

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
    """A table on stdout: ruled and coloured on a terminal, aligned plain text elsewhere."""
    texts = [[_cell(value) for value in row] for row in rows]
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
        table.add_row(*(Text(cell) for cell in line))  # never markup: class names are users' text
    Console().print(table)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else str(value)


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Progress]:
    """A bar on stderr where someone watches, now and then a line where nobody does."""
    if quiet:
        yield lambda done, total: None
    elif sys.stderr.isatty():
        with _bar(what) as update:
            yield update
    else:
        yield _lines(what)


@contextmanager
def _bar(what: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(what: str, every: float = 10.0) -> Progress:
    last = time.monotonic()

    def update(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            last = time.monotonic()
            say(f"{what}: {done:,} of {total:,}")

    return update
