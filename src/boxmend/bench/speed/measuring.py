"""Run all parts of a speed measurement; a part that fails does not stop the others."""

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from boxmend.bench.speed.choices import SpeedChoices
from boxmend.bench.speed.growth import measure_growth, time_memory
from boxmend.bench.speed.side_by_side import ROWS as SIDE_BY_SIDE
from boxmend.bench.speed.side_by_side import is_mps_running, time_side_by_side
from boxmend.bench.speed.stages import measure_stage_shares
from boxmend.bench.speed.tables import measure_table
from boxmend.bench.speed.timed_training import TrainingFactory
from boxmend.bench.speed.timing import Note, first_reason, own_stream
from boxmend.data.dataset import Dataset
from boxmend.data.images.reading import read_header_size
from boxmend.errors import DataError
from boxmend.runs.settings import parse_image_size
from boxmend.training.facts import collect_facts
from boxmend.training.processes import Processes

STAGED_ROWS = ("baseline", "mend-paper", "mend")

Value = TypeVar("Value")


def measure_speed(
    dataset: Dataset,
    choices: SpeedChoices,
    addresses: Sequence[str] = (),
    note: Note = lambda text: None,
) -> dict[str, Any]:
    """Measure the parts that `choices` select on the first images of a dataset.

    Returns plain values for JSON. `note` is called with messages about the progress. A part that
    fails has an "error" in its place, and the others continue.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = _first_images(dataset, choices.num_images)
    with tempfile.TemporaryDirectory(prefix="boxmend-bench-") as folder, own_stream(device):
        factory = TrainingFactory(data, choices, device, Path(folder), note)
        factory.check()
        tables = [
            measure_table(factory, size, counts)
            for size in choices.all_sizes
            for counts in choices.all_counts
        ]
        return {
            "facts": _collect_facts(factory, addresses),
            "choices": asdict(choices) | {"workers": choices.num_workers},
            "tables": tables,
            "stages": _measure_stages(factory) if choices.stages else [],
            "growth": _measure_growth(factory, tables[0]["rows"].get("mend"))
            if choices.growth
            else None,
            "side_by_side": [
                time_side_by_side(factory, row, size)
                for size in choices.all_sizes
                for row in SIDE_BY_SIDE
                if choices.jobs
            ],
            "notes": [*_make_notes(factory), *factory.warnings],
        }


def _first_images(dataset: Dataset, number: int) -> Dataset:
    if not len(dataset.images) or not dataset.label_names:
        raise DataError("the dataset has no images, or no classes")
    return dataset.take_images(np.arange(min(number, len(dataset.images))))


def _collect_facts(factory: TrainingFactory, addresses: Sequence[str]) -> dict[str, Any]:
    """Return versions and hardware, with the same keys as in a run."""
    facts = collect_facts(addresses, factory.dataset, Processes(factory.device))
    is_cuda = factory.device.type == "cuda"
    return facts | {
        "cores": os.cpu_count(),
        "cuda": torch.version.cuda if is_cuda else None,
        "cudnn": torch.backends.cudnn.version() if is_cuda else None,  # type: ignore[no-untyped-call]
        "torch_threads": torch.get_num_threads(),
    }


def _make_notes(factory: TrainingFactory) -> list[str]:
    """Return notes for readers of the figures."""
    choices, device = factory.choices, factory.device
    notes = []
    if device.type != "cuda":
        notes.append("there is no GPU; times of a CPU say little about training speed")
    if choices.weights is None:
        notes.append(
            "the weights are random, because --weights names no file; the times are the same"
        )
    notes += [_note_scaling(factory, size) for size in choices.all_sizes]
    if choices.jobs and device.type == "cuda":
        mps_state = "runs" if is_mps_running() else "does not run"
        notes.append(f"NVIDIA's multi-process service (MPS) {mps_state}")
    return notes


def _note_scaling(factory: TrainingFactory, size: str) -> str:
    """Return a note about the scale of the images, and whether they are enlarged."""
    short, long = parse_image_size(size)
    sizes = [read_header_size(path) for path in factory.dataset.images.paths]
    scales = [
        min(long / max(sides), (short or long) / min(sides)) if short else long / max(sides)
        for sides in sizes
        if sides is not None and min(sides) > 0
    ]
    if not scales:
        return f"at {size}: no image can be read"
    scale = float(np.median(scales))
    how = "upscaled" if scale > 1 else "scaled"
    return f"at {size} images are {how} by {scale:.2f} (median)"


def _measure_stages(factory: TrainingFactory) -> list[dict[str, Any]]:
    names = [row for row in STAGED_ROWS if row in factory.choices.all_rows]
    measured = []
    for size in factory.choices.all_sizes:
        for row in names:
            factory.note(f"{size}: stages of {row}")
            shares, error = _try_measurement(partial(measure_stage_shares, factory, row, size))
            measured.append({"row": row, "image_size": size, "shares": shares, "error": error})
    return measured


def _measure_growth(factory: TrainingFactory, mend: dict[str, Any] | None) -> dict[str, Any]:
    """Measure growth and memory at the first size; only work on proposals and losses grows.

    `mend` is the row of `mend` at that size, if there is one, to compute the share of the memory.
    """
    size = factory.choices.all_sizes[0]
    memory, error = _try_measurement(partial(time_memory, factory, size))
    step = None if mend is None else mend["milliseconds"]
    share = memory / step if memory is not None and step else None
    return {
        "image_size": size,
        **measure_growth(factory, size),
        "memory": {"milliseconds": memory, "share": share, "error": error},
    }


def _try_measurement(make: Callable[[], Value]) -> tuple[Value | None, str | None]:
    """Return the value of `make` and None, or None and the reason why it failed."""
    try:
        return make(), None
    except Exception as error:  # one figure must not cost the others
        return None, first_reason(error)
