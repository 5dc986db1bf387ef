"""The parts of a training, made from its settings."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from boxmend.dataset import Dataset
from boxmend.detector import DETECTORS, Detector, DetectorNumbers, build
from boxmend.errors import DataError, UsageError
from boxmend.ledger import Ledger
from boxmend.loader import ImageSize, Loader, LoaderOptions
from boxmend.methods import METHODS, Method, Rates
from boxmend.methods import build as build_method
from boxmend.settings import TrainSettings, parsed_image_size
from boxmend.training import checkpoint
from boxmend.training.loop import Training


def make_detector(settings: TrainSettings, num_labels: int) -> Detector:
    """Make the detector of resolved settings; unknown names are a UsageError that lists them."""
    for what, name, known in (
        ("method", settings.method, METHODS),
        ("detector", settings.detector, DETECTORS),
    ):
        if name not in known:
            raise UsageError(f"unknown {what} {name!r}; known: {', '.join(sorted(known))}")
    torch.manual_seed(settings.seed)  # the heads start from random weights
    weights = None if settings.weights in (None, "none") else settings.weights
    numbers = _numbers(settings, DETECTORS[settings.detector].numbers)
    return build(settings.detector, num_labels, weights, numbers=numbers)


def completed(settings: TrainSettings, numbers: DetectorNumbers) -> TrainSettings:
    """Put the detector's own numbers where the settings left the choice to it."""
    return replace(
        settings,
        proposals=numbers.post_nms_training,
        pre_nms=numbers.pre_nms_training,
        rois=numbers.roi_samples,
    )


def make_loader(
    settings: TrainSettings, dataset: Dataset, device: torch.device, note: Callable[[str], None]
) -> Loader:
    """Make the loader of a dataset; `note` hears of images that cannot be read."""
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
            difficult=settings.difficult or "ignore", is_strict=settings.strict, report=note
        ),
    )


def make_training(
    settings: TrainSettings,
    dataset: Dataset,
    detector: Detector,
    run: Path,
    device: torch.device,
    note: Callable[[str], None],
) -> tuple[Training, dict[str, Any] | None]:
    """Put everything in place; returns the training and the checkpoint it is to go on from."""
    detector.network.to(device)
    state = checkpoint.load(run, device, detector.network)
    training = Training(
        settings,
        detector,
        _method(settings, dataset, device),
        dataset,
        make_loader(settings, dataset, device, note),
        Ledger.resume(run, None if state is None else _with_arrays(state["ledger"])),
        run,
        device,
        _precision(settings.precision, device),
    )
    return training, state


def _numbers(settings: TrainSettings, numbers: DetectorNumbers) -> DetectorNumbers:
    told = {
        "post_nms_training": settings.proposals,
        "pre_nms_training": settings.pre_nms,
        "roi_samples": settings.rois,
        "box_loss": settings.box_loss,
        "rpn_low_quality": settings.rpn_low_quality,
    }
    changes: dict[str, Any] = {name: value for name, value in told.items() if value is not None}
    return replace(numbers, **changes)


def _method(settings: TrainSettings, dataset: Dataset, device: torch.device) -> Method:
    return build_method(
        settings.method,
        num_annotations=len(dataset),
        num_labels=len(dataset.label_names),
        rates=Rates(settings.label_noise, settings.box_noise),
        settings=settings.mend if settings.method == "mend" else settings.published,
        device=device,
    )


def _precision(wanted: str, device: torch.device) -> torch.dtype:
    if wanted == "auto":
        has = device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if has else torch.float32
    return torch.bfloat16 if wanted == "bfloat16" else torch.float32


def _with_arrays(state: dict[str, Any]) -> Any:
    return {
        key: value.cpu().numpy() if isinstance(value, torch.Tensor) else value
        for key, value in state.items()
    }
