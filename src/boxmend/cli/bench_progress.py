"""The progress of a grid: a panel on a terminal, a line every half minute elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from boxmend.bench.grids.running import GridProgress, RunningCell
from boxmend.cli.output import say

if TYPE_CHECKING:
    from rich.console import RenderableType

LINE_INTERVAL_SECONDS = 30.0

Show = Callable[[GridProgress], None]


@contextmanager
def progress_display(*, quiet: bool) -> Iterator[Show]:
    """Yield a function that shows the progress of a grid; with `quiet` it shows nothing."""
    if quiet:
        yield lambda grid: None
    elif sys.stderr.isatty():
        with _live_panel() as show:
            yield show
    else:
        yield _line_printer()


@contextmanager
def _live_panel() -> Iterator[Show]:
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), refresh_per_second=2, transient=True) as live:
        yield lambda grid: live.update(panel(grid))


def panel(grid: GridProgress) -> "RenderableType":
    """Draw the progress of a grid: a bar over all cells, and a line per running cell."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    head = Table.grid(padding=(0, 2), expand=True)
    head.add_column(ratio=1)
    head.add_column(justify="right")
    ended = grid.done + grid.failed + grid.stopped
    head.add_row(ProgressBar(total=max(grid.total, 1), completed=ended), Text(summary(grid)))
    body = Table.grid(padding=(0, 2))
    for cell in grid.running:
        body.add_row(Text(cell.name, style="bold"), Text(progress(cell)))
    for name in grid.elsewhere:
        body.add_row(Text(name, style="bold"), Text("run by another process"))
    return Panel(Group(head, body), title="boxmend bench run", title_align="left")


def summary(grid: GridProgress) -> str:
    """Return how many cells are in which state, and the time left."""
    parts = [f"{grid.done} of {grid.total} done"]
    numbers = {
        "failed": grid.failed,
        "stopped": grid.stopped,
        "running": len(grid.running),
        "running elsewhere": len(grid.elsewhere),
        "left": grid.left,
    }
    parts += [f"{number} {word}" for word, number in numbers.items() if number]
    if grid.seconds_left is not None and round(grid.seconds_left):
        parts.append(f"about {clock(grid.seconds_left)} to go")
    if grid.is_closing and not grid.is_stopping:
        parts.append("starting no more cells because of --stop-after")
    if grid.is_stopping and grid.running:
        parts.append("saving checkpoints (Ctrl-C again kills the cells)")
    return ", ".join(parts)


def progress(cell: RunningCell) -> str:
    """Return the epoch, speed and running time of a cell."""
    if cell.epoch is None:
        return f"starting, {clock(cell.seconds)}"
    speed = "" if cell.images_per_second is None else f", {cell.images_per_second:,.0f} images/s"
    return f"epoch {cell.epoch} of {cell.epochs}{speed}, {clock(cell.seconds)}"


def clock(seconds: float) -> str:
    """Format a time as 1:02:03, or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _line_printer() -> Show:
    """Return a function that prints a line when a cell ends, and every half minute."""
    last, printed_state = time.monotonic(), (-1, False)

    def show(grid: GridProgress) -> None:
        nonlocal last, printed_state
        state = grid.done + grid.failed + grid.stopped, grid.is_stopping
        if state != printed_state or time.monotonic() - last >= LINE_INTERVAL_SECONDS:
            last, printed_state = time.monotonic(), state
            running = "; ".join(f"{cell.name}: {progress(cell)}" for cell in grid.running)
            say(summary(grid) + (f" ({running})" if running else ""))

    return show
