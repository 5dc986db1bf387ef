"""Records of runs made by hand: what figures and pages are drawn from, without a training."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from boxmend.data.dataset import Dataset
from boxmend.data.types import Box
from boxmend.runs.folder import Run
from boxmend.runs.history import History
from boxmend.runs.opening import OpenRun
from boxmend.scoring.truth import KnownTruth
from boxmend.web.report.record import RunRecord
from tests.fabricated_runs import (
    BOXES,
    DISCARDED,
    KEPT,
    NAMES,
    RELABELLED,
    UNJUDGED,
    Visit,
    dataset_of,
    images_of,
    made_history,
)

seen = partial(Visit, loss=nan, threshold=nan)


def made_dataset(
    boxes: Sequence[Box] = BOXES,
    labels: Sequence[int] | None = None,
    names: tuple[str, ...] = NAMES,
    folder: Path | None = None,
) -> Dataset:
    """A dataset with one image per two annotations, drawn into `folder` where one is given."""
    images = images_of([f"{number}.png" for number in range(-(-len(boxes) // 2))], folder)
    for shade, path in enumerate(images.paths if folder else []):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (100, 100), (20 * shade % 256, 90, 120)).save(path)
    return dataset_of(images, np.arange(len(boxes)) // 2, boxes, labels, names)


def made_run(dataset: Dataset, visits: Sequence[Visit], warm_up_epochs: int = 0) -> OpenRun:
    """A run with these visits of a dataset; its folder is not there."""
    return OpenRun(Run(Path("made-up")), dataset, made_history(dataset, visits, warm_up_epochs))


def made_truth(dataset: Dataset, labels: Sequence[int], boxes: Sequence[Box]) -> KnownTruth:
    """Return a truth by hand; a label of -1 marks a spurious annotation."""
    true = np.array(labels, np.int64)
    is_spurious = true < 0
    places = np.array(boxes, np.float64).reshape(-1, 4)
    places[is_spurious] = nan
    return KnownTruth(
        labels=true,
        boxes=places,
        is_spurious=is_spurious,
        image_rows=dataset.image_rows[~is_spurious],
        image_boxes=places[~is_spurious],
    )


def made_record(
    visits: Sequence[Visit],
    *,
    dataset: Dataset | None = None,
    warm_up_epochs: int = 0,
    **others: Any,
) -> RunRecord:
    """The record of these visits; `others` are fields of `RunRecord`."""
    data = made_dataset() if dataset is None else dataset
    record = RunRecord("made-up", made_run(data, visits, warm_up_epochs), [])
    return replace(record, **others)


def telling_visits(epochs: int = 3) -> list[Visit]:
    """Four annotations: one kept, one relabelled and moved, one discarded, one moved.

    The first epoch is for warm-up.
    """
    visits = [seen(0, row, UNJUDGED, loss=1.0, step=3 * row) for row in range(4)]
    for epoch in range(1, epochs):
        visits += [
            Visit(epoch, 0, loss=0.25, threshold=2.0, confidence=0.9, step=0),
            Visit(
                *(epoch, 1, RELABELLED, 2, 0.8, (40, 20, 60, 30)),
                loss=3.5,
                threshold=2.0,
                matched=(40, 20, 64, 40),
                step=3,
            ),
            Visit(epoch, 2, DISCARDED, None, 0.4, None, False, 2.5, 2.0, step=6),
            Visit(epoch, 3, KEPT, None, 0.7, (50, 50, 90, 90), True, 0.75, 2.0, step=9),
        ]
    return visits


def telling_record(folder: Path | None = None) -> RunRecord:
    """A record that every figure applies to; images are drawn into `folder`."""
    dataset = made_dataset(folder=folder)
    noise = {"label_noise": 0.25, "label_noise_low": 0.125, "label_noise_high": 0.5}
    return made_record(
        telling_visits(),
        dataset=dataset,
        warm_up_epochs=1,
        metrics=[{"step": 10 * (epoch + 1), "epoch": epoch, **noise} for epoch in range(3)],
        truth=made_truth(dataset, [0, 2, 0, 0], [*BOXES[:3], (50, 50, 90, 90)]),
        label_ap={"van": 0.5, "truck": 0.75, "bus": 0.25},
        baseline_ap={"van": 0.25, "truck": 0.8, "bus": 0.25},
    )


def many_visits_record(num_annotations: int, epochs: int, num_labels: int) -> RunRecord:
    """A record as large as wanted, with verdicts, losses and boxes drawn at random (seed 0)."""
    rng = np.random.default_rng(0)
    n, v = num_annotations, num_annotations * epochs
    low = rng.uniform(0, 50, (n, 2))
    boxes = np.concatenate([low, low + rng.uniform(5, 50, (n, 2))], axis=1)
    names = tuple(f"label {number}" for number in range(num_labels))
    labels = rng.integers(0, num_labels, n)
    dataset = dataset_of(images_of(["0.png"]), [0] * n, boxes.tolist(), labels.tolist(), names)
    rows = np.tile(np.arange(n), epochs)
    epoch_of = np.repeat(np.arange(epochs, dtype=np.int32), n)
    verdicts = rng.choice(3, v, p=(0.6, 0.3, 0.1)).astype(np.int8)
    verdicts[epoch_of == 0] = UNJUDGED
    losses = rng.exponential(1.0 + (verdicts > 0) * 3.0).astype(np.float32)
    guesses = rng.integers(0, num_labels, v)
    moved = boxes[rows].astype(np.float32) + rng.normal(0, 1, (v, 4)).astype(np.float32)
    columns: dict[str, Any] = {
        "epoch": epoch_of,
        "step": epoch_of * n + np.tile(np.arange(n), epochs),
        "loss": losses,
        "threshold": np.full(v, 1.5, np.float32),
        "verdict": verdicts,
        "new_label": np.where(verdicts == RELABELLED, guesses, dataset.labels[rows]),
        "confidence": rng.uniform(0, 1, v).astype(np.float32),
        "num_candidates": np.zeros(v, np.int32),
        "is_kept": verdicts != DISCARDED,
    }
    for k, side in enumerate(("x1", "y1", "x2", "y2")):
        columns[f"matched_{side}"] = boxes[rows, k].astype(np.float32)
        columns[f"final_{side}"] = moved[:, k]
    history = History(rows, columns, warm_up_steps=n)
    return RunRecord("made-up", OpenRun(Run(Path("made-up")), dataset, history), [])
