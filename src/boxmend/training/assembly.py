"""Build the parts of a training from its settings."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from boxmend.data.dataset import Dataset
from boxmend.detector import DETECTORS, Detector, DetectorNumbers, build
from boxmend.errors import DataError, UsageError
from boxmend.methods.table import METHODS, build_from
from boxmend.runs.ledger import Ledger
from boxmend.runs.settings import TrainSettings, parse_image_size
from boxmend.training import checkpoint
from boxmend.training.loader import ImageSize, Loader, LoaderOptions
from boxmend.training.loop import Training, TrainingOutput
from boxmend.training.processes import Processes


def make_detector(settings: TrainSettings, num_labels: int) -> Detector:
    """Build the detector of resolved settings; raise a UsageError for an unknown name."""
    for what, name, known in (
        ("method", settings.method, METHODS),
        ("detector", settings.detector, DETECTORS),
    ):
        if name not in known:
            raise UsageError(f"unknown {what} {name!r}; known: {', '.join(sorted(known))}")
    torch.manual_seed(settings.seed)  # the heads start from random weights
    weights = None if settings.weights in (None, "none") else settings.weights
    numbers = _choose_numbers(settings, DETECTORS[settings.detector].numbers)
    return build(settings.detector, num_labels, weights, numbers=numbers)


def fill_detector_numbers(settings: TrainSettings, numbers: DetectorNumbers) -> TrainSettings:
    """Return the settings with the detector's own numbers of proposals and RoIs."""
    return replace(
        settings,
        proposals=numbers.post_nms_training,
        pre_nms=numbers.pre_nms_training,
        rois=numbers.roi_samples,
    )


def make_loader(
    settings: TrainSettings,
    dataset: Dataset,
    processes: Processes,
    note: Callable[[str], None],
    *,
    is_shared: bool = False,
) -> Loader:
    """Build the loader of a dataset; `note` is called for images that cannot be read.

    With `is_shared`, every process has its own loader and takes its part of each batch.
    """
    if not len(dataset.images):
        raise DataError("the dataset has no images")
    short, long = parse_image_size(settings.image_size)
    defaults = LoaderOptions()
    return Loader(
        dataset,
        image_size=ImageSize(long, short),
        batch_size=settings.batch_size,
        seed=settings.seed,
        device=processes.device,
        options=LoaderOptions(
            difficult=settings.difficult or "ignore",
            is_strict=settings.strict,
            host_bytes=defaults.host_bytes // processes.local_world_size,
            workers=max(defaults.workers // processes.local_world_size, 1),
            part=processes.rank if is_shared else 0,
            parts=processes.world_size if is_shared else 1,
            report=note,
        ),
    )


def make_training(
    settings: TrainSettings,
    dataset: Dataset,
    detector: Detector,
    processes: Processes,
    output: TrainingOutput,
) -> tuple[Training, dict[str, Any] | None]:
    """Build a training; return it with the checkpoint to continue from, if there is one.

    Only process 0 reads the folder of the run; it sends the checkpoint to the others.
    """
    device, run = processes.device, output.run
    detector.network.to(device)
    detector = replace(detector, sum_over_processes=processes.all_sum)
    method = build_from(settings, len(dataset), len(dataset.label_names), device, processes)
    method.prepare(detector)
    load_device = device if processes.is_single_process else torch.device("cpu")
    state = processes.on_rank_zero(
        lambda: checkpoint.load(run, load_device, detector.network, method.state_dict())
    )
    ledgers: list[Ledger] = []  # stays empty in the other processes
    processes.on_rank_zero(lambda: ledgers.append(_open_ledger(run, state)))
    training = Training(
        settings,
        detector,
        method,
        dataset,
        make_loader(settings, dataset, processes, output.note, is_shared=True),
        ledgers[0] if ledgers else None,
        processes,
        resolve_precision(settings.precision, device),
        output,
    )
    return training, state


def _open_ledger(run: Path, state: dict[str, Any] | None) -> Ledger:
    return Ledger.resume(run, None if state is None else _with_arrays(state["ledger"]))


def _choose_numbers(settings: TrainSettings, numbers: DetectorNumbers) -> DetectorNumbers:
    chosen = {
        "post_nms_training": settings.proposals,
        "pre_nms_training": settings.pre_nms,
        "roi_samples": settings.rois,
        "box_loss": settings.box_loss,
        "rpn_low_quality": settings.rpn_low_quality,
    }
    changes: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    return replace(numbers, **changes, **METHODS[settings.method].detector)


def resolve_precision(precision: str, device: torch.device) -> torch.dtype:
    """Return the type of numbers for the setting `precision` on a device."""
    if precision == "auto":
        is_supported = device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if is_supported else torch.float32
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def _with_arrays(state: dict[str, Any]) -> Any:
    return {
        key: value.cpu().numpy() if isinstance(value, torch.Tensor) else value
        for key, value in state.items()
    }
