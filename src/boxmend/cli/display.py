"""The progress of a training: a panel that updates in place on a terminal, lines elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from boxmend.cli.output import say
from boxmend.training.progress import PROGRESS_KEYS, Line, PanelState, format_line


@contextmanager
def display(epochs: int, *, quiet: bool) -> Iterator[Callable[[Line], None]]:
    """Yield a function that shows a line of the log; with `quiet` it shows nothing."""
    if quiet:
        yield lambda line: None
    elif sys.stderr.isatty():
        with _live_panel(epochs) as show:
            yield show
    else:
        yield _print_line


@contextmanager
def _live_panel(epochs: int) -> Iterator[Callable[[Line], None]]:
    from rich.console import Console
    from rich.live import Live

    state = PanelState(epochs)
    with Live(console=Console(stderr=True), refresh_per_second=4) as live:

        def show(line: Line) -> None:
            if "note" in line:
                live.console.print(line["note"], markup=False, highlight=False)
            elif "summary" not in line:
                live.update(state.update(line))

        yield show


def _print_line(line: Line) -> None:
    if "note" in line:
        say(line["note"])
    elif any(name not in PROGRESS_KEYS for name in line) and "step" in line:
        say(format_line(line))
