"""`boxmend train --trainer`: a training by another package, with mending."""

from dataclasses import dataclass

from cyclopts import ArgumentCollection, Token

from boxmend.errors import UsageError
from boxmend.runs.settings import TrainSettings

PACKAGE = "ultralytics"
DEFAULTS = {"--epochs": 100, "--image-size": "640", "--batch-size": 16}  # those of Ultralytics
SUPPORTED = ("--trainer", "--device", "--prescreen", "--out", "--seed", "--json", *DEFAULTS)
NOTE = "see docs/ultralytics.md for the other options of Ultralytics"


def fill_defaults(arguments: ArgumentCollection) -> None:
    """Fill options that are not given by the defaults of the package that --trainer names.

    Raise a UsageError for options that only boxmend's own trainings have.
    """
    if not any(argument.name == "--trainer" and argument.tokens for argument in arguments):
        return
    given = {argument.name for argument in arguments if argument.tokens}
    if unsupported := sorted(n for n in given if n.startswith("--") and n not in SUPPORTED):
        raise UsageError(
            f"--trainer does not support {', '.join(unsupported)}; it supports "
            f"{', '.join(SUPPORTED[1:])}; {NOTE}"
        )
    for argument in arguments:
        if argument.name in DEFAULTS and argument.name not in given:
            value = DEFAULTS[argument.name]
            argument.append(Token(keyword=argument.name, source="--trainer", implicit_value=value))


@dataclass(frozen=True)
class OtherTrainer:
    """The options of a training by another package that boxmend's own trainings do not have."""

    trainer: str
    device: str
    prescreen: str | None


def train_by(other: OtherTrainer, data: tuple[str, ...], out: str, settings: TrainSettings) -> str:
    """Train by another package; return the folder of the run."""
    trainer = other.trainer
    package, _, model = trainer.partition(":")
    if package != PACKAGE or not model:
        raise UsageError(
            f"--trainer is {trainer}; expected {PACKAGE}:MODEL, like {PACKAGE}:yolo11n.yaml"
        )
    file, _, split = data[0].rpartition(":") if len(data) == 1 else ("", "", "")
    if file.endswith((".yaml", ".yml")):
        raise UsageError(
            f"--trainer {PACKAGE} reads the splits train and val of a data.yaml; leave out "
            f"`:{split}` of {data[0]}"
        )
    if len(data) != 1 or not data[0].endswith((".yaml", ".yml")):
        raise UsageError(
            f"--trainer {PACKAGE} needs one data.yaml, but the data are {' '.join(data)}; "
            "`boxmend convert` writes several datasets as one in YOLO's format"
        )
    if not settings.image_size.isdigit():
        raise UsageError(f"--image-size is {settings.image_size}; expected one number, like 640")
    from boxmend.integrations.versions import ensure_supported

    ensure_supported("ultralytics")
    from boxmend.integrations.ultralytics.training import YoloOptions, train

    options = YoloOptions(
        settings.epochs,
        int(settings.image_size),
        settings.batch_size,
        settings.seed,
        other.device,
        other.prescreen,
    )
    return str(train(model, data[0], out, options).path)
