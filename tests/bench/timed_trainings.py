"""A few drawn images, and a factory of trainings of the tiny detector on them."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from boxmend.bench.speed.choices import SpeedChoices
from boxmend.bench.speed.timed_training import TrainingFactory
from boxmend.data.dataset import Dataset, Images, as_ids

SMALL = SpeedChoices(
    detector="tiny",
    sizes="64",
    counts="8/20",
    steps=5,
    batch_size=2,
    num_images=4,
    workers=0,
)
BOXES = [(0, (4.0, 4, 40, 40)), (0, (30.0, 10, 70, 60)), (2, (10.0, 10, 50, 55))]


def drawn_dataset(folder: Path) -> Dataset:
    """Four images of 80 x 64 with three annotations; the last one is difficult."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    names = [f"{row}.png" for row in range(4)]
    for name in names:
        Image.fromarray(rng.integers(0, 256, (64, 80, 3), np.uint8)).save(folder / name)
    n = len(BOXES)
    return Dataset(
        images=Images(
            ids=as_ids(list(range(4))),
            file_names=names,
            paths=[str(folder / name) for name in names],
            splits=["train"] * 4,
            widths=np.full(4, 80),
            heights=np.full(4, 64),
            sources=np.zeros(4, np.int64),
            rows=np.arange(4),
        ),
        label_names=("disc", "square"),
        annotation_ids=as_ids([7, 8, 9]),
        image_rows=np.array([row for row, _ in BOXES]),
        labels=np.array([0, 1, 1]),
        boxes=np.array([box for _, box in BOXES], np.float64),
        is_crowd=np.zeros(n, np.bool_),
        is_difficult=np.array([False, False, True]),
        source_of=np.zeros(n, np.int64),
        source_rows=np.arange(n),
    )


def factory_in(folder: Path, choices: SpeedChoices = SMALL) -> TrainingFactory:
    """A factory on the CPU."""
    dataset = drawn_dataset(folder / "data")
    return TrainingFactory(
        dataset, choices, torch.device("cpu"), folder / "runs", lambda text: None
    )
