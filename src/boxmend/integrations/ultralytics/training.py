"""`boxmend train --trainer ultralytics:MODEL`: train a YOLO model from Python in one call."""

from dataclasses import dataclass
from pathlib import Path

from ultralytics import YOLO

from boxmend.data.formats import load
from boxmend.errors import DataError, UsageError
from boxmend.integrations.ultralytics.attaching import attach, prescreen_labels
from boxmend.repair.mender import MenderSettings
from boxmend.repair.trained_runs import TrainedRun

ENDINGS = (".yaml", ".yml", ".pt")


@dataclass(frozen=True)
class YoloOptions:
    """The usual options of an Ultralytics training, with its default values."""

    epochs: int = 100
    image_size: int = 640
    batch_size: int = 16
    seed: int = 0
    device: str = ""  # chosen by Ultralytics
    prescreen: str | None = None  # weights of a ResNet-50 that judges the labels before


def train(
    model: str,
    data: str | Path,
    out: str | Path,
    options: YoloOptions | None = None,
    settings: MenderSettings | None = None,
) -> TrainedRun:
    """Train a YOLO model, like yolo11n.yaml, on a data.yaml, and mend its annotations into `out`.

    Ultralytics writes its weights into `out` with the ending `-yolo`.
    """
    if not str(model).endswith(ENDINGS):
        raise UsageError(f"the model is {model}; expected a .yaml or .pt file, like yolo11n.yaml")
    options = options or YoloOptions()
    folder = Path(out).absolute()
    dataset = load(f"{data}:train")  # its errors say more than those of Ultralytics
    try:
        yolo = YOLO(model)
    except FileNotFoundError as error:
        raise UsageError(f"Ultralytics has no model {model}, and there is no such file") from error
    prescreen = None  # made here, since its errors should come before Ultralytics writes files
    if options.prescreen is not None:
        prescreen = prescreen_labels(dataset, options.prescreen)
    mending = attach(yolo, folder, settings, dataset=dataset, prescreen=prescreen)
    yolo.train(
        data=str(data),
        epochs=options.epochs,
        imgsz=options.image_size,
        batch=options.batch_size,
        seed=options.seed,
        device=options.device or None,
        project=str(folder.parent),
        name=f"{folder.name}-yolo",
        exist_ok=False,
    )
    if mending.run is None:
        raise DataError(
            f"{folder}: no update succeeded; the log of the training above says why. The weights "
            f"are in {folder.name}-yolo"
        )
    return mending.run
