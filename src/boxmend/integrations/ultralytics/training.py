"""`boxmend train --trainer ultralytics:MODEL`: train a YOLO model from Python in one call."""

from dataclasses import dataclass
from pathlib import Path

from ultralytics import YOLO

from boxmend.errors import DataError, UsageError
from boxmend.integrations.ultralytics.attaching import attach, prescreen_labels
from boxmend.integrations.ultralytics.folders import ensure_usable
from boxmend.integrations.ultralytics.predicting import SUPPORTED_MODELS
from boxmend.integrations.ultralytics.reading import read_training_split
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
    if "," in options.device:
        raise UsageError(
            f"the device is {options.device}, but `train` runs on one; for several GPUs, use "
            "`configure` in Python, see docs/ultralytics.md#several-gpus"
        )
    folder = Path(out).absolute()
    ensure_usable(folder)
    dataset = read_training_split(data)  # its errors say more than those of Ultralytics
    yolo = _load_model(model)
    prescreen = None  # made here, since its errors should come before Ultralytics writes files
    if options.prescreen is not None:
        prescreen = prescreen_labels(dataset, options.prescreen)
    mending = attach(yolo, folder, settings, dataset=dataset, prescreen=prescreen)
    _run_training(yolo, data, folder, options)
    if mending.run is None:
        raise DataError(
            f"{folder}: no update succeeded; the log of the training above says why. The weights "
            f"are in {folder.name}-yolo"
        )
    return mending.run


def _load_model(model: str) -> YOLO:
    """Return a model for detection; raise a UsageError for any other."""
    try:
        yolo = YOLO(model)
    except FileNotFoundError as error:
        raise UsageError(f"Ultralytics has no model {model}, and there is no such file") from error
    except ConnectionError as error:
        raise UsageError(
            f"Ultralytics cannot download the model {model}: {error}. Download it elsewhere and "
            "pass the file, or start from random weights with a .yaml, like yolo11n.yaml"
        ) from error
    except NotImplementedError as error:
        raise UsageError(f"the model {model} is not a YOLO model; {SUPPORTED_MODELS}") from error
    if yolo.task != "detect":
        raise UsageError(f"the model {model} is for the task {yolo.task}; {SUPPORTED_MODELS}")
    return yolo


def _run_training(yolo: YOLO, data: str | Path, folder: Path, options: YoloOptions) -> None:
    """Train a model; raise a UsageError with the reason if Ultralytics stops."""
    try:
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
    except (ValueError, RuntimeError) as error:
        raise UsageError(
            f"Ultralytics refused the training: {str(error).strip()}\nChange --device, "
            "--image-size, --batch-size or the data.yaml accordingly, and name a new folder if "
            f"{folder} exists"
        ) from error
