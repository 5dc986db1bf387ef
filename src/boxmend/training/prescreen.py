"""Features for the prescreen: the backbone's features of annotated boxes before training."""

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

NUM_FOLDS = 5
NOTE_INTERVAL_SECONDS = 20.0
BATCH_SIZE = 16


def describe_annotations(
    detector: Detector,
    loader: Loader,
    dataset: Dataset,
    seed: int,
    note: Callable[[str], None],
    check: Callable[[], None] = lambda: None,
) -> BoxFeatures:
    """Return the features of every annotation to learn from; `check` is called after each batch.

    Images are split into folds as `boxmend folds` does, with rare classes spread evenly. Features
    are kept on the host in half precision.
    """
    device = next(detector.network.parameters()).device
    was_training = detector.network.training
    detector.network.eval()
    fold_of = _split_images(dataset, seed)
    columns: list[tuple[torch.Tensor, ...]] = []
    total, done, last_note = len(loader.image_rows), 0, time.monotonic()
    for batch in loader.in_order(min(BATCH_SIZE, total)):
        is_real = batch.is_box & (batch.rows >= 0)
        owners, places = is_real.nonzero(as_tuple=True)
        folds = torch.from_numpy(fold_of[batch.image_rows]).to(device)
        if len(owners):
            boxes = batch.boxes[owners, places]
            features = describe_boxes(detector, batch.images, batch.sizes, boxes, owners)
            labels, rows = batch.labels[owners, places], batch.rows[owners, places]
            new = (_to_half(features), labels, folds[owners], rows)
            columns.append(tuple(column.cpu() for column in new))
        done += len(batch.image_rows)
        if time.monotonic() - last_note > NOTE_INTERVAL_SECONDS:
            last_note = time.monotonic()
            note(f"prescreen: {done:,} of {total:,} images")
        check()
    detector.network.train(was_training)
    if not columns:
        empty = torch.zeros(0, dtype=torch.int64)
        return BoxFeatures(torch.zeros(0, 1), empty, empty, empty)
    return BoxFeatures(*(torch.cat(column) for column in zip(*columns, strict=True)))


def _split_images(dataset: Dataset, seed: int) -> NDArray[np.int64]:
    """Return the fold [images] of every image; with fewer images than NUM_FOLDS, fewer folds."""
    number = min(NUM_FOLDS, len(set(dataset.images.file_names)))
    if number < 2:
        return np.zeros(len(dataset.images), np.int64)
    return assign_folds(dataset, FoldSettings(k=number, seed=seed))


def _to_half(features: torch.Tensor) -> torch.Tensor:
    """Convert to half precision; values that are not finite or too large are clamped."""
    limit = torch.finfo(torch.float16).max
    return features.nan_to_num(0.0, limit, -limit).clamp(-limit, limit).half()
