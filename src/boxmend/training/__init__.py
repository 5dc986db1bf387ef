"""Training: the only room that joins loader, detector, methods and ledger.

`train` makes or resumes a run: settings, versions and metrics, a ledger of every annotation's
fate, checkpoints while it lasts, and the final weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from boxmend import runs
from boxmend.dataset import Dataset
from boxmend.detector import DETECTORS, Detector, build, save
from boxmend.errors import BoxmendError, DataError, UsageError
from boxmend.formats import load
from boxmend.ledger import Ledger
from boxmend.loader import ImageSize, Loader, LoaderOptions
from boxmend.methods import METHODS, Rates
from boxmend.methods import build as build_method
from boxmend.settings import TrainSettings, parsed_image_size
from boxmend.training import checkpoint, facts
from boxmend.training.evaluation import detect, score
from boxmend.training.loop import Interrupted, Training
from boxmend.training.loop import train as run_loop

MODEL_FILE = "model.safetensors"
Listener = Callable[[dict[str, Any]], None]

__all__ = ["MODEL_FILE", "Interrupted", "train"]


def train(
    data: Dataset | Sequence[str],
    out: str | Path,
    settings: TrainSettings | None = None,
    *,
    val: Dataset | Sequence[str] = (),
    resume: bool = False,
    log: Listener | None = None,
) -> runs.Run:
    """Train a detector on a dataset, or on addresses, and leave the run in the folder `out`.

    `log` hears every line of metrics.jsonl. With `val` the final weights are scored on it; nothing
    is chosen by that score.
    """
    settings = settings or TrainSettings()
    dataset, addresses = _dataset(data)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    detector = _detector(settings, len(dataset.label_names))  # before a folder is made: it may fail
    told = facts.gather(addresses, dataset, device)
    run = runs.create(out, asdict(settings), told, resume=resume)
    say = _teller(run, log)
    training = _training(settings, dataset, detector, run, device, say)
    try:
        run_loop(training, say)
    except torch.OutOfMemoryError as error:
        raise BoxmendError(
            f"out of memory with --batch-size {settings.batch_size} and --image-size "
            f"{settings.image_size}; lower one of them"
        ) from error
    save(training.teacher, run.path / MODEL_FILE)
    summary: dict[str, Any] = {"steps": training.step, "ledger_rows": training.ledger.num_rows}
    if val:
        summary["val"] = evaluate(training, _dataset(val)[0], say)
    run.finish(summary)
    checkpoint.remove(run.path)
    return run


def evaluate(training: Training, truth: Dataset, say: Listener) -> dict[str, Any]:
    """VOC's AP50 of the final weights, by both rules."""
    loader = _loader(training.settings, truth, training.device, say)
    found = detect(
        training.teacher, loader, training.settings.batch_size, precision=training.precision
    )
    scores = score(found, truth, training.dataset.label_names)
    return {
        "voc_ap50_11point": float(scores.mean_11_points),
        "voc_ap50_area": float(scores.mean_area),
    }


def _dataset(data: Dataset | Sequence[str]) -> tuple[Dataset, list[str]]:
    if isinstance(data, Dataset):
        return data, [str(source.path) for source in data.sources]
    return load(*data), list(data)


def _detector(settings: TrainSettings, num_labels: int) -> Detector:
    if settings.method not in METHODS:
        known = ", ".join(sorted(METHODS))
        raise UsageError(f"unknown method {settings.method!r}; known: {known}")
    if settings.detector not in DETECTORS:
        known = ", ".join(sorted(DETECTORS))
        raise UsageError(f"unknown detector {settings.detector!r}; known: {known}")
    numbers = DETECTORS[settings.detector].numbers
    changes: dict[str, Any] = {}
    if settings.proposals is not None:
        changes["post_nms_training"] = settings.proposals
    if settings.rois is not None:
        changes["roi_samples"] = settings.rois
    if settings.box_loss is not None:
        changes["box_loss"] = settings.box_loss
    torch.manual_seed(settings.seed)  # the heads start from random weights
    weights = None if settings.weights in (None, "none") else settings.weights
    return build(settings.detector, num_labels, weights, numbers=replace(numbers, **changes))


def _training(
    settings: TrainSettings,
    dataset: Dataset,
    detector: Detector,
    run: runs.Run,
    device: torch.device,
    say: Listener,
) -> Training:
    """Everything in place to start, or to go on from the last checkpoint."""
    loader = _loader(settings, dataset, device, say)
    detector.network.to(device)
    method = build_method(
        settings.method,
        num_annotations=len(dataset),
        num_labels=len(dataset.label_names),
        rates=Rates(settings.label_noise, settings.box_noise),
        device=device,
    )
    state = checkpoint.load(run.path, device)
    ledger_state = None if state is None else _with_arrays(state["ledger"])
    ledger = Ledger.resume(run.path, ledger_state)
    precision = _precision(settings.precision, device)
    training = Training(
        settings, detector, method, dataset, loader, ledger, run.path, device, precision
    )
    if state is not None:
        training.take_up(state)
    run.rewind_metrics(training.step if state is not None else None)
    return training


def _loader(
    settings: TrainSettings, dataset: Dataset, device: torch.device, say: Listener
) -> Loader:
    if not len(dataset.images):
        raise DataError("the dataset has no images")
    short, long = parsed_image_size(settings.image_size)
    return Loader(
        dataset,
        image_size=ImageSize(long, short),
        batch_size=settings.batch_size,
        seed=settings.seed,
        device=device,
        options=LoaderOptions(
            difficult=settings.difficult,
            is_strict=settings.strict,
            report=lambda text: say({"note": text}),
        ),
    )


def _precision(wanted: str, device: torch.device) -> torch.dtype:
    if wanted == "auto":
        has = device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if has else torch.float32
    return torch.bfloat16 if wanted == "bfloat16" else torch.float32


def _teller(run: runs.Run, log: Listener | None) -> Listener:
    def tell(line: dict[str, Any]) -> None:
        if "step" in line:
            run.append_metrics({k: v for k, v in line.items() if k not in _CLOCKS})
        if log is not None:
            log(line)

    return tell


_CLOCKS = {"seconds_left"}  # of interest while it runs, and never again


def _with_arrays(state: dict[str, Any]) -> Any:
    return {
        key: value.cpu().numpy() if isinstance(value, torch.Tensor) else value
        for key, value in state.items()
    }
