"""`boxmend train`: a detector from annotations nobody vouches for."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, ArgumentCollection, Parameter, Token

from boxmend.cli.display import display, noise_in_words
from boxmend.cli.options import Data, Json
from boxmend.cli.output import print_json, print_table, say
from boxmend.cli.panels import Panels
from boxmend.errors import ExitStatus, UsageError
from boxmend.runs.settings import TrainSettings

PANELS = {
    "Data": ("val", "image-size", "difficult", "strict"),
    "Run": (
        *("out", "resume", "settings", "keep-best", "log-to", "log-every", "checkpoint-every"),
        "json",
    ),
    "Method": ("method", "preset", "label-noise", "box-noise", "warm-up", "judging-weights"),
    "Detector": (
        *("detector", "weights", "proposals", "pre-nms", "rois", "box-loss", "rpn-low-quality"),
    ),
    "Optimisation": ("epochs", "batch-size", "precision", "cuda-graph", "seed", "optimisation.*"),
    "Settings of mend": ("mend.*",),
    "Settings of mend-paper, br, lr, cm, cinj and pseudo": ("published.*",),
    "Settings of co-teaching": ("co-teaching.*",),
    "Settings of note-rcnn": ("note-rcnn.*",),
    "Settings of ca-bbc": ("ca-bbc.*",),
    "Settings of oa-mil": ("oa-mil.*",),
    "Settings of disco": ("disco.*",),
}
VAL_HELP = "Dataset to score the final weights on; several are joined into one."


def _fill_from_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Take from the file of --settings what the command line does not say."""
    named = [one for one in arguments if one.name == "--settings" and one.tokens]
    if not named:
        return
    from boxmend.runs.settings.files import read_values

    path = named[0].tokens[-1].value
    values = read_values(Path(path))
    for argument in arguments:
        if argument.keys in values and not argument.tokens:
            value = values[argument.keys]
            argument.append(Token(keyword=argument.name, source=path, implicit_value=value))


app = App(
    name="train",
    config=_fill_from_file,
    help_format="plaintext",
    help_formatter=Panels(PANELS, is_terminal=sys.stdout.isatty()),
)


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """What is about this run, and not about what it learns."""

    out: Annotated[Path, Parameter(help="Folder of the run; new, or unfinished with --resume.")]
    resume: Annotated[bool, Parameter(help="Go on with an unfinished run.", negative="")] = False
    settings: Annotated[
        Path | None,
        Parameter(
            help="TOML or JSON file of settings, like a run's settings.json; options go before it."
        ),
    ] = None
    log_to: Annotated[
        tuple[Literal["mlflow", "tensorboard", "wandb"], ...],
        Parameter(help="Tracker that hears the log, too; may be repeated.", negative=""),
    ] = ()


@app.default
def train(
    *data: Data,
    running: RunOptions,
    val: Annotated[tuple[str, ...], Parameter(help=VAL_HELP, negative="")] = (),
    settings: Annotated[TrainSettings | None, Parameter(name="*")] = None,
    json: Json = False,
) -> int:
    """Train a detector on a noisy dataset; the ledger says what became of every annotation.

    Leaves in the run's folder: settings.json, run.json, metrics.jsonl, ledger/ and, at the end,
    model.safetensors. Ctrl-C and SIGTERM save and leave at once; --resume goes on.
    """
    try:
        from boxmend.training.processes import is_rank_zero
        from boxmend.training.trackers import follow
        from boxmend.training.train import (
            train as run_training,  # imports torch, which takes its time
        )
    except ModuleNotFoundError as error:
        raise UsageError(
            f"training needs {error.name}, which is not installed: pip install 'boxmend[train]'"
        ) from error

    settings = settings or TrainSettings()
    speaks = is_rank_zero()  # of several processes, started by torchrun, one
    track = follow(running.log_to if speaks else (), running.out)
    with display(settings.epochs, quiet=json or not speaks) as show:

        def log(line: dict[str, Any]) -> None:
            show(line)
            track(line)

        run = run_training(data, running.out, settings, val=val, resume=running.resume, log=log)
    if not speaks:
        return ExitStatus.FINE
    summary = run.summary()
    if json:
        print_json({"run": str(run.path), **summary})
        return ExitStatus.FINE
    rows = [(name, value) for name, value in summary.items() if not isinstance(value, dict)]
    rows += [(name, value) for name, value in summary.get("val", {}).items()]
    rows += list(noise_in_words(summary.get("noise", {})))
    print_table(("what", "is"), rows)
    say(f"the run is {run.path}")
    return ExitStatus.FINE
