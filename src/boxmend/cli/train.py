"""`boxmend train`: a detector from annotations nobody vouches for."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from boxmend.cli.options import Data, Json
from boxmend.cli.output import print_json, print_table, say
from boxmend.errors import ExitStatus, UsageError
from boxmend.settings import TrainSettings

app = App(name="train", help_format="markdown")


@app.default
def train(
    *data: Data,
    out: Annotated[Path, Parameter(help="Folder of the run; new, or unfinished with --resume.")],
    val: Annotated[list[str], Parameter(help="Dataset to score the final weights on.")] = [],  # noqa: B006  # cyclopts reads the default, nothing changes it
    resume: Annotated[bool, Parameter(help="Go on with an unfinished run.", negative="")] = False,
    settings: Annotated[TrainSettings | None, Parameter(name="*")] = None,
    json: Json = False,
) -> int:
    """Train a detector on a noisy dataset; the ledger says what became of every annotation.

    Leaves in the run's folder: settings.json, run.json, metrics.jsonl, ledger/ and, at the end,
    model.safetensors. Ctrl-C and SIGTERM save and leave at once; --resume goes on.
    """
    try:
        from boxmend.training import train as run_training  # imports torch, which takes its time
    except ModuleNotFoundError as error:
        raise UsageError(
            f"training needs {error.name}, which is not installed: pip install 'boxmend[train]'"
        ) from error

    with _display(quiet=json) as show:
        run = run_training(data, out, settings or TrainSettings(), val=val, resume=resume, log=show)
    summary = run.summary()
    if json:
        print_json({"run": str(run.path), **summary})
        return ExitStatus.FINE
    rows = [(name, value) for name, value in summary.items() if not isinstance(value, dict)]
    rows += [(name, value) for name, value in summary.get("val", {}).items()]
    print_table(("what", "is"), rows)
    say(f"the run is {run.path}")
    return ExitStatus.FINE


@contextmanager
def _display(quiet: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Show the lines of the log: in place on a terminal, one after another elsewhere."""
    if quiet:
        yield lambda line: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(stderr=True), refresh_per_second=4) as live:

            def show(line: dict[str, Any]) -> None:
                if "note" in line:
                    live.console.print(line["note"], markup=False)
                else:
                    live.update(Text(_told(line)))

            yield show
    else:
        yield lambda line: say(str(line.get("note") or _told(line)))


def _told(line: dict[str, Any]) -> str:
    """A line of the log in words: where, how good, how fast, how long."""
    parts = [f"epoch {line.get('epoch', 0) + 1}, step {line.get('step', 0):,}"]
    clocks = ("epoch", "step", "images_per_second", "seconds_left", "epoch_ends")
    for name, value in line.items():
        if name not in clocks and isinstance(value, int | float):
            parts.append(f"{name.replace('_', ' ')} {value:.4g}")
    if "images_per_second" in line:
        parts.append(f"{line['images_per_second']:.0f} images/s")
        minutes, seconds = divmod(round(line["seconds_left"]), 60)
        parts.append(f"{minutes}:{seconds:02d} left")
    return " · ".join(parts)
