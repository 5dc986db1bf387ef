"""Detections of a dataset in its own pixels, and their average precision."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.detections import Detections
from boxmend.detector import Detector
from boxmend.detector import PaddedDetections as Found
from boxmend.errors import DataError
from boxmend.scoring.voc import TrueBoxes, VocScores, average_precision
from boxmend.training.loader import Batch, Frame, Loader

SHOWN = 5  # classes that an error lists


@torch.no_grad()
def detect(
    detector: Detector,
    loader: Loader,
    batch_size: int,
    *,
    precision: torch.dtype = torch.float32,
    progress: Callable[[int, int], None] | None = None,
) -> Detections:
    """Find objects in every image; boxes come in the pixels of the image as annotated."""
    columns: list[tuple[NDArray[Any], ...]] = []
    done = 0
    detector.network.eval()
    for batch in loader.in_order(batch_size):
        found = _found(detector, batch, precision)
        columns.append(in_image_pixels(found, batch.frame, batch.image_rows))
        done += len(batch.image_rows)
        if progress is not None:
            progress(done, len(loader.image_rows))
    return joined(columns)


@torch.no_grad()
def finds_nothing(detector: Detector, batch: Batch, precision: torch.dtype) -> bool:
    """Tell whether a detector finds no object at all in images that have annotated ones.

    A network whose features have died, or that calls everything background, has finite losses.
    """
    if not bool(batch.is_box.any()):
        return False
    network = detector.network
    was_training = network.training
    network.eval()
    found = _found(detector, batch, precision)
    network.train(was_training)
    return not bool(found.is_detection.any())


def _found(detector: Detector, batch: Batch, precision: torch.dtype) -> Found:
    with torch.autocast(batch.images.device.type, precision, enabled=precision != torch.float32):
        return detector.detect(batch.images, batch.sizes)


def in_image_pixels(
    found: Found, frame: Frame, image_rows: NDArray[np.int64]
) -> tuple[NDArray[Any], ...]:
    """Bring a batch of detections over: image rows, labels, scores and boxes in image pixels."""
    boxes = frame.to_image(found.boxes.float()).cpu().numpy()
    mask = found.is_detection.cpu().numpy()
    rows = np.broadcast_to(image_rows[:, None], mask.shape)
    labels, scores = found.labels.cpu().numpy(), found.scores.float().cpu().numpy()
    return rows[mask], labels[mask], scores[mask], boxes[mask]


def joined(columns: Sequence[tuple[NDArray[Any], ...]]) -> Detections:
    """Put the columns of batches, of which there is one at least, below one another."""
    rows, labels, scores, boxes = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Detections(rows, labels.astype(np.int64), scores, boxes)


def ensure_scorable(truth: Dataset, label_names: Sequence[str], data: str, model: str) -> None:
    """Raise a DataError for data that could never be scored: no images, or no class in common.

    `data` and `model` say what they are.
    """
    if not len(truth.images):
        raise DataError(f"{data} have no images")
    if not set(truth.label_names) & set(label_names):
        asked, known = (", ".join(names[:SHOWN]) for names in (truth.label_names, label_names))
        raise DataError(
            f"{data} share no class with {model}: {asked} against {known}; classes are matched by "
            "name"
        )


def score(detections: Detections, truth: Dataset, label_names: tuple[str, ...]) -> VocScores:
    """VOC's AP50 of detections of `label_names`; labels are matched by name."""
    known = {name: label for label, name in enumerate(label_names)}
    new = np.array([*(known.get(name, UNKNOWN) for name in truth.label_names), UNKNOWN])
    labels = new[truth.labels]
    asked = (labels != UNKNOWN) & (truth.image_rows != UNKNOWN)
    return average_precision(
        detections,
        TrueBoxes(
            truth.image_rows[asked], labels[asked], truth.boxes[asked], truth.is_ignored[asked]
        ),
        num_labels=len(label_names),
    )
