"""How a grid is shown while it runs: a panel on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from boxmend.bench.grids.running import GridProgress, RunningCell
from boxmend.cli.output import say

if TYPE_CHECKING:
    from rich.console import RenderableType

EVERY = 30.0  # seconds between lines where nobody watches

Show = Callable[[GridProgress], None]


@contextmanager
def watching(*, quiet: bool) -> Iterator[Show]:
    """Give what shows a grid's progress to who watches."""
    if quiet:
        yield lambda grid: None
    elif sys.stderr.isatty():
        with _live() as show:
            yield show
    else:
        yield _lines()


@contextmanager
def _live() -> Iterator[Show]:
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), refresh_per_second=2, transient=True) as live:
        yield lambda grid: live.update(panel(grid))


def panel(grid: GridProgress) -> "RenderableType":
    """Draw how far a grid is: a bar over all cells, and a line for each that runs."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    head = Table.grid(padding=(0, 2), expand=True)
    head.add_column(ratio=1)
    head.add_column(justify="right")
    over = grid.done + grid.failed + grid.stopped
    head.add_row(ProgressBar(total=max(grid.total, 1), completed=over), Text(summary(grid)))
    body = Table.grid(padding=(0, 2))
    for one in grid.running:
        body.add_row(Text(one.name, style="bold"), Text(progress(one)))
    for name in grid.elsewhere:
        body.add_row(Text(name, style="bold"), Text("run by another process"))
    return Panel(Group(head, body), title="boxmend bench run", title_align="left")


def summary(grid: GridProgress) -> str:
    """Say how many cells are where, and how long it will take."""
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
        parts.append("the time to start others is over")
    if grid.is_stopping and grid.running:
        parts.append("saving before they leave (asked again, they are killed)")
    return ", ".join(parts)


def progress(one: RunningCell) -> str:
    """Say how far a cell is."""
    if one.epoch is None:
        return f"starting, {clock(one.seconds)}"
    speed = "" if one.images_per_second is None else f", {one.images_per_second:,.0f} images/s"
    return f"pass {one.epoch} of {one.epochs}{speed}, {clock(one.seconds)}"


def clock(seconds: float) -> str:
    """Write a time as 1:02:03, or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _lines() -> Show:
    """Say something whenever a cell is over, and now and then besides."""
    last, told = time.monotonic(), (-1, False)

    def show(grid: GridProgress) -> None:
        nonlocal last, told
        over = grid.done + grid.failed + grid.stopped, grid.is_stopping
        if over != told or time.monotonic() - last >= EVERY:
            last, told = time.monotonic(), over
            running = "; ".join(f"{one.name}: {progress(one)}" for one in grid.running)
            say(summary(grid) + (f" ({running})" if running else ""))

    return show
