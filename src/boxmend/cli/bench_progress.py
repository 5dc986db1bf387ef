"""How a grid is shown while it runs: a panel on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from boxmend.bench.grids.running import Glance, RunningCell
from boxmend.cli.output import say

if TYPE_CHECKING:
    from rich.console import RenderableType

EVERY = 30.0  # seconds between lines where nobody watches

Show = Callable[[Glance], None]


@contextmanager
def watching(*, quiet: bool) -> Iterator[Show]:
    """Give what shows a grid's progress to who watches."""
    if quiet:
        yield lambda glance: None
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
        yield lambda glance: live.update(panel(glance))


def panel(glance: Glance) -> "RenderableType":
    """Draw how far a grid is: a bar over all cells, and a line for each that runs."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    head = Table.grid(padding=(0, 2), expand=True)
    head.add_column(ratio=1)
    head.add_column(justify="right")
    over = glance.done + glance.failed + glance.stopped
    head.add_row(ProgressBar(total=max(glance.total, 1), completed=over), Text(summary(glance)))
    body = Table.grid(padding=(0, 2))
    for one in glance.running:
        body.add_row(Text(one.name, style="bold"), Text(progress(one)))
    for name in glance.elsewhere:
        body.add_row(Text(name, style="bold"), Text("run by another process"))
    return Panel(Group(head, body), title="boxmend bench run", title_align="left")


def summary(glance: Glance) -> str:
    """Say how many cells are where, and how long it will take."""
    parts = [f"{glance.done} of {glance.total} done"]
    numbers = {
        "failed": glance.failed,
        "stopped": glance.stopped,
        "running": len(glance.running),
        "running elsewhere": len(glance.elsewhere),
        "left": glance.left,
    }
    parts += [f"{number} {word}" for word, number in numbers.items() if number]
    if glance.seconds_left is not None and round(glance.seconds_left):
        parts.append(f"about {clock(glance.seconds_left)} to go")
    if glance.is_closing and not glance.is_stopping:
        parts.append("the time to start others is over")
    if glance.is_stopping and glance.running:
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

    def show(glance: Glance) -> None:
        nonlocal last, told
        over = glance.done + glance.failed + glance.stopped, glance.is_stopping
        if over != told or time.monotonic() - last >= EVERY:
            last, told = time.monotonic(), over
            running = "; ".join(f"{one.name}: {progress(one)}" for one in glance.running)
            say(summary(glance) + (f" ({running})" if running else ""))

    return show
