"""Measure how the cost of a step grows with objects and queue, and the cost of the memory."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from boxmend.bench.speed.choices import NUM_BLOCKS
from boxmend.bench.speed.tables import row_values
from boxmend.bench.speed.timed_training import TrainingFactory, TrainingSteps
from boxmend.bench.speed.timing import TimedTraining, time_in_turns, time_seconds
from boxmend.data.dataset import Dataset, as_ids
from boxmend.data.images.reading import read_header_size
from boxmend.methods.table import BatchAnnotations, Mend
from boxmend.runs.settings import TrainSettings

ROWS = ("mend-paper", "mend")
NUMBERS_OF_OBJECTS = (10, 20, 50, 100)
QUEUE_LENGTHS = (256, 1024, 4096)
CALLS_PER_TIMING = 20  # of the memory


def measure_growth(factory: TrainingFactory, size: str) -> dict[str, list[dict[str, Any]]]:
    """Measure steps by the objects of an image and by the length of the queue; boxes are random.

    `mend` has a queue only if `mend.judgement` is "queue", so it is "queue" here.
    """
    return {
        "objects": _measure_by_objects(factory, size),
        "queue": _measure_by_queue(factory, size),
    }


def _measure_by_objects(factory: TrainingFactory, size: str) -> list[dict[str, Any]]:
    """Measure all rows in turns, on the same images with different numbers of boxes."""
    data = {number: with_objects(factory.dataset, number) for number in NUMBERS_OF_OBJECTS}
    makers = {
        (row, number): _make_steps_later(factory, factory.choices.settings(row, size), data[number])
        for row in ROWS
        for number in NUMBERS_OF_OBJECTS
    }
    return _measure_rows(factory, makers, "objects")


def _measure_by_queue(factory: TrainingFactory, size: str) -> list[dict[str, Any]]:
    makers = {
        (row, length): _make_steps_later(
            factory, _with_queue(factory.choices.settings(row, size), length), None
        )
        for row in ROWS
        for length in QUEUE_LENGTHS
    }
    return _measure_rows(factory, makers, "losses in the queue")


def _with_queue(settings: TrainSettings, length: int) -> TrainSettings:
    return replace(
        settings,
        mend=replace(settings.mend, queue_length=length, judgement="queue"),
        published=replace(settings.published, queue_length=length),
    )


def _measure_rows(
    factory: TrainingFactory, makers: dict[tuple[str, int], Callable[[], TimedTraining]], what: str
) -> list[dict[str, Any]]:
    names = {f"{row}, {number} {what}": (row, number) for row, number in makers}
    timed = time_in_turns(
        {name: makers[key] for name, key in names.items()},
        factory.device,
        NUM_BLOCKS,
        factory.choices.block,
        factory.note,
    )
    rows = [
        {"row": row, "number": number, **row_values(timed[name])}
        for name, (row, number) in names.items()
    ]
    first = {values["row"]: values["milliseconds"] for values in reversed(rows)}
    for values in rows:
        least, own = first[values["row"]], values["milliseconds"]
        values["times_the_first"] = own / least if own is not None and least else None
    return rows


def _make_steps_later(
    factory: TrainingFactory, settings: TrainSettings, dataset: Dataset | None
) -> Callable[[], TimedTraining]:
    return lambda: TrainingSteps(factory.training(settings, dataset))


def with_objects(dataset: Dataset, number: int) -> Dataset:
    """Return the same images with `number` random boxes and labels in each."""
    rng = np.random.default_rng(number)
    sizes = np.array(
        [read_header_size(path) or (1, 1) for path in dataset.images.paths], np.float64
    )
    rows = np.repeat(np.arange(len(sizes)), number)
    sides = rng.uniform(0.1, 0.5, (len(rows), 2))  # shares of the image
    corners = rng.uniform(0, 1 - sides)
    boxes = np.concatenate([corners, corners + sides], axis=1) * np.tile(sizes[rows], 2)
    no_flags = np.zeros(len(rows), np.bool_)
    return Dataset(
        images=dataset.images,
        label_names=dataset.label_names,
        annotation_ids=as_ids(list(range(len(rows)))),
        image_rows=rows,
        labels=rng.integers(0, len(dataset.label_names), len(rows)),
        boxes=boxes,
        is_crowd=no_flags,
        is_difficult=no_flags,
        source_of=np.zeros(len(rows), np.int64),
        source_rows=np.arange(len(rows)),
    )


def time_memory(factory: TrainingFactory, size: str) -> float:
    """Return the milliseconds that the memory across visits takes in a step of `mend`.

    It cannot be switched off in a run, so it is timed alone; on a GPU as a CUDA graph, as in a
    step.
    """
    training = factory.training(factory.choices.settings("mend", size))
    batch = next(training.loader.epoch(0))
    annotations = BatchAnnotations(
        batch.boxes, batch.labels, batch.is_box, batch.is_ignored, batch.rows, batch.sizes
    )
    shape = (*batch.labels.shape, 1 + len(factory.dataset.label_names))
    probabilities = torch.rand(shape, device=factory.device).softmax(-1)
    method = training.method
    assert isinstance(method, Mend)

    def remember() -> None:
        for _ in range(CALLS_PER_TIMING):
            method.estimator.store(annotations, probabilities)

    remember()
    repeat = _capture_graph(remember) if factory.device.type == "cuda" else remember
    seconds = [time_seconds(factory.device, repeat) for _ in range(NUM_BLOCKS)]
    return float(1e3 * np.median(seconds) / CALLS_PER_TIMING)


def _capture_graph(work: Callable[[], None]) -> Callable[[], None]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(
        graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
    ):
        work()
    return graph.replay
