"""`boxmend train`: train a detector on noisy annotations."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, ArgumentCollection, Parameter, Token

from boxmend.cli.display import display
from boxmend.cli.help_layout import HelpLayout
from boxmend.cli.options import Data, Json
from boxmend.cli.other_trainers import OtherTrainer, fill_defaults, train_by
from boxmend.cli.output import print_json, print_table, say
from boxmend.errors import ExitStatus, UsageError
from boxmend.runs.settings import TrainSettings
from boxmend.training.progress import describe_noise

PANELS = {
    "Data": ("val", "image-size", "difficult", "strict"),
    "Run": (
        *("out", "resume", "settings", "keep-best", "log-to", "log-every", "checkpoint-every"),
        *("trainer", "device", "prescreen", "json"),
    ),
    "Method": (
        *("method", "preset", "label-noise", "box-noise", "warm-up", "judging-weights", "probe"),
    ),
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
VAL_HELP = "Dataset to score the final weights on; repeat it to join several."


def _fill_from_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fill arguments that the command line does not give from the file of --settings.

    With --trainer, fill them by the defaults of its package.
    """
    fill_defaults(arguments)
    settings = [argument for argument in arguments if argument.name == "--settings"]
    if not settings or not settings[0].tokens:
        return
    from boxmend.runs.settings.files import read_values

    path = settings[0].tokens[-1].value
    values = read_values(Path(path))
    for argument in arguments:
        if argument.keys in values and not argument.tokens:
            value = values[argument.keys]
            argument.append(Token(keyword=argument.name, source=path, implicit_value=value))


app = App(
    name="train",
    usage="boxmend train --out DIR [OPTIONS] DATA...",
    config=_fill_from_file,
    help_formatter=HelpLayout(PANELS),
)


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """The folder of the run, and where its settings and its log are."""

    out: Annotated[Path, Parameter(help="Folder of the run; new, or unfinished with --resume.")]
    resume: Annotated[bool, Parameter(help="Continue an unfinished run.", negative="")] = False
    settings: Annotated[
        Path | None,
        Parameter(
            help="TOML or JSON file of settings, like a run's settings.json. Options override it."
        ),
    ] = None
    log_to: Annotated[
        tuple[Literal["mlflow", "tensorboard", "wandb"], ...],
        Parameter(help="Experiment tracker to log to as well; may be repeated.", negative=""),
    ] = ()
    trainer: Annotated[
        str | None,
        Parameter(
            help="Train by Ultralytics instead, with mending: ultralytics:MODEL, like "
            "ultralytics:yolo11n.yaml. Only --epochs, --image-size, --batch-size, --seed, "
            "--device and --prescreen apply, with the defaults of Ultralytics."
        ),
    ] = None
    device: Annotated[
        str, Parameter(help="With --trainer: device as in Ultralytics, like cpu or 0.")
    ] = ""
    prescreen: Annotated[
        str | None,
        Parameter(
            help="With --trainer: weights of a ResNet-50 that judges the labels before the "
            "training; a safetensors file, or default, which downloads them."
        ),
    ] = None


@app.default
def train(
    *data: Data,
    running: RunOptions,
    val: Annotated[tuple[str, ...], Parameter(help=VAL_HELP, negative="")] = (),
    settings: Annotated[TrainSettings | None, Parameter(name="*")] = None,
    json: Json = False,
) -> int:
    """Train a detector that judges and corrects its annotations while it learns.

    The folder of the run gets settings.json, run.json, metrics.jsonl, the ledger with every
    judgement and, at the end, model.safetensors. Ctrl-C and SIGTERM save a checkpoint and stop;
    --resume continues. With --trainer, Ultralytics writes the weights into DIR-yolo, and only
    Python can resume a stopped training.

    Example: boxmend train data.yaml --out run
    """
    settings = settings or TrainSettings()
    if running.trainer is not None:
        other = OtherTrainer(running.trainer, running.device, running.prescreen)
        place = train_by(other, data, str(running.out), settings)
        return _answer_place(place, json)
    if running.device:
        raise UsageError("--device is for --trainer; CUDA_VISIBLE_DEVICES chooses GPUs otherwise")
    if running.prescreen is not None:
        raise UsageError("--prescreen is for --trainer; mend has a prescreen by its own --weights")
    try:
        from boxmend.training.processes import is_rank_zero
        from boxmend.training.trackers import follow
        from boxmend.training.train import (
            train as run_training,  # imports torch, which is slow
        )
    except ModuleNotFoundError as error:
        raise UsageError(
            f"training needs {error.name}, which is not installed: pip install 'boxmend[train]'"
        ) from error

    prints = is_rank_zero()  # only one of the processes that torchrun starts
    track = follow(running.log_to if prints else (), running.out)
    with display(settings.epochs, quiet=json or not prints) as show:

        def log(line: dict[str, Any]) -> None:
            show(line)
            track(line)

        run = run_training(data, running.out, settings, val=val, resume=running.resume, log=log)
    if not prints:
        return ExitStatus.FINE
    summary = run.summary()
    if json:
        print_json({"run": str(run.path), **summary})
        return ExitStatus.FINE
    rows = [(name, value) for name, value in summary.items() if not isinstance(value, dict)]
    rows += [(name, value) for name, value in summary.get("val", {}).items()]
    rows += list(describe_noise(summary.get("noise", {})))
    print_table(("what", "is"), rows)
    say(f"the run is {run.path}")
    return ExitStatus.FINE


def _answer_place(run: str, json: bool) -> int:
    """Say where the run of another trainer is."""
    if json:
        print_json({"run": run})
    else:
        say(f"the run is {run}")
    return ExitStatus.FINE
