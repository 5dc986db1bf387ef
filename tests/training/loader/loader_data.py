"""Datasets made by hand, with image files, for the tests of the loader."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from boxmend.data.dataset import Dataset, Images, as_ids
from boxmend.training.loader import Batch, ImageSize, Loader, LoaderOptions

CPU = torch.device("cpu")
SMALL = ImageSize(64)
STREAMED = LoaderOptions(host_bytes=0, workers=2)
Box = tuple[float, float, float, float]


def dataset_with(
    folder: Path, sizes: Sequence[tuple[int, int]], boxes: Sequence[tuple[int, Box]] = ()
) -> Dataset:
    """A dataset of noise images of these (width, height), with (image row, box) annotations."""
    generator = np.random.default_rng(len(sizes))
    for row, (width, height) in enumerate(sizes):
        pixels = generator.integers(0, 256, (height, width, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{row}.png")
    n, m = len(boxes), len(sizes)
    return Dataset(
        images=Images(
            ids=as_ids(list(range(m))),
            file_names=[f"{row}.png" for row in range(m)],
            paths=[str(folder / f"{row}.png") for row in range(m)],
            splits=["train"] * m,
            widths=np.array([width for width, _ in sizes], np.int64),
            heights=np.array([height for _, height in sizes], np.int64),
            sources=np.zeros(m, np.int64),
            rows=np.arange(m),
        ),
        label_names=("cat", "dog", "owl"),
        annotation_ids=as_ids([100 + k for k in range(n)]),
        image_rows=np.array([row for row, _ in boxes], np.int64),
        labels=np.arange(n) % 3,
        boxes=np.array([box for _, box in boxes], np.float64).reshape(n, 4),
        is_crowd=np.zeros(n, np.bool_),
        is_difficult=np.zeros(n, np.bool_),
        source_of=np.zeros(n, np.int64),
        source_rows=np.arange(n),
    )


def loader(
    dataset: Dataset,
    *,
    image_size: ImageSize = SMALL,
    batch_size: int = 4,
    seed: int = 0,
    options: LoaderOptions | None = None,
) -> Loader:
    return Loader(
        dataset,
        image_size=image_size,
        batch_size=batch_size,
        seed=seed,
        device=CPU,
        options=options,
    )


def only(batches: Iterator[Batch]) -> Batch:
    (batch,) = batches
    return batch
