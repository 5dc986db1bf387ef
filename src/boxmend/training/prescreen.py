"""Features for the prescreen: annotated boxes as the backbone sees them before training."""

import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from boxmend.data.dataset import Dataset
from boxmend.data.folds import FoldSettings, assign_folds
from boxmend.detector import Detector
from boxmend.detector.describing import describe_boxes
from boxmend.methods.table import BoxFeatures
from boxmend.training.loader import Loader

FOLDS = 5
PATIENCE = 20.0  # seconds between two words about how far it is
BATCH = 16  # images at a time


def describe(
    detector: Detector,
    loader: Loader,
    dataset: Dataset,
    seed: int,
    note: Callable[[str], None],
    check: Callable[[], None] = lambda: None,
) -> BoxFeatures:
    """Describe every annotation to learn from; `check` is called as it goes on.

    Images are dealt to the folds as `boxmend folds` does it, rare classes evenly. Features are kept
    on the host in half precision.
    """
    device = next(detector.network.parameters()).device
    was_training = detector.network.training
    detector.network.eval()
    dealt = _dealt(dataset, seed)
    columns: list[tuple[torch.Tensor, ...]] = []
    total, done, told = len(loader.image_rows), 0, time.monotonic()
    for batch in loader.in_order(min(BATCH, total)):
        is_real = batch.is_box & (batch.rows >= 0)
        owners, places = is_real.nonzero(as_tuple=True)
        folds = torch.from_numpy(dealt[batch.image_rows]).to(device)
        if len(owners):
            boxes = batch.boxes[owners, places]
            features = describe_boxes(detector, batch.images, batch.sizes, boxes, owners)
            labels, rows = batch.labels[owners, places], batch.rows[owners, places]
            found = (_halved(features), labels, folds[owners], rows)
            columns.append(tuple(column.cpu() for column in found))
        done += len(batch.image_rows)
        if time.monotonic() - told > PATIENCE:
            told = time.monotonic()
            note(f"first look: {done:,} of {total:,} images")
        check()
    detector.network.train(was_training)
    if not columns:
        nothing = torch.zeros(0, dtype=torch.int64)
        return BoxFeatures(torch.zeros(0, 1), nothing, nothing, nothing)
    return BoxFeatures(*(torch.cat(column) for column in zip(*columns, strict=True)))


def _dealt(dataset: Dataset, seed: int) -> NDArray[np.int64]:
    """The fold [images] of every image, of as many as there can be; a single image is in none."""
    number = min(FOLDS, len(set(dataset.images.file_names)))
    if number < 2:
        return np.zeros(len(dataset.images), np.int64)
    return assign_folds(dataset, FoldSettings(k=number, seed=seed))


def _halved(features: torch.Tensor) -> torch.Tensor:
    """In half precision, whatever a strange network makes of its images."""
    most = torch.finfo(torch.float16).max
    return features.nan_to_num(0.0, most, -most).clamp(-most, most).half()
