"""Detect objects in a dataset, in image pixels, and compute their average precision."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.detections import Detections
from boxmend.detector import Detector, PaddedDetections
from boxmend.errors import DataError
from boxmend.scoring.voc import TrueBoxes, VocScores, average_precision
from boxmend.training.loader import Batch, Frame, Loader

MAX_LISTED_CLASSES = 5  # in a message


@torch.no_grad()
def detect(
    detector: Detector,
    loader: Loader,
    batch_size: int,
    *,
    precision: torch.dtype = torch.float32,
    progress: Callable[[int, int], None] | None = None,
) -> Detections:
    """Detect objects in every image; boxes are in the pixels of the annotations."""
    columns: list[tuple[NDArray[Any], ...]] = []
    done = 0
    detector.network.eval()
    for batch in loader.in_order(batch_size):
        detections = _detect_batch(detector, batch, precision)
        columns.append(to_image_pixels(detections, batch.frame, batch.image_rows))
        done += len(batch.image_rows)
        if progress is not None:
            progress(done, len(loader.image_rows))
    return join_columns(columns)


@torch.no_grad()
def detects_nothing(detector: Detector, batch: Batch, precision: torch.dtype) -> bool:
    """Return whether a detector detects no object in a batch that has annotated objects.

    The losses of such a network are finite, so they do not show it.
    """
    if not bool(batch.is_box.any()):
        return False
    network = detector.network
    was_training = network.training
    network.eval()
    detections = _detect_batch(detector, batch, precision)
    network.train(was_training)
    return not bool(detections.is_detection.any())


def _detect_batch(detector: Detector, batch: Batch, precision: torch.dtype) -> PaddedDetections:
    with torch.autocast(batch.images.device.type, precision, enabled=precision != torch.float32):
        return detector.detect(batch.images, batch.sizes)


def to_image_pixels(
    detections: PaddedDetections, frame: Frame, image_rows: NDArray[np.int64]
) -> tuple[NDArray[Any], ...]:
    """Return image rows, labels, scores and boxes in image pixels of a batch, on the host."""
    boxes = frame.to_image(detections.boxes.float()).cpu().numpy()
    mask = detections.is_detection.cpu().numpy()
    rows = np.broadcast_to(image_rows[:, None], mask.shape)
    labels, scores = detections.labels.cpu().numpy(), detections.scores.float().cpu().numpy()
    return rows[mask], labels[mask], scores[mask], boxes[mask]


def join_columns(columns: Sequence[tuple[NDArray[Any], ...]]) -> Detections:
    """Concatenate the columns of one or more batches."""
    rows, labels, scores, boxes = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Detections(rows, labels.astype(np.int64), scores, boxes)


def ensure_scorable(truth: Dataset, label_names: Sequence[str], data: str, model: str) -> None:
    """Raise a DataError for data without images, or without a class of the model.

    `data` and `model` describe the two in the message.
    """
    if not len(truth.images):
        raise DataError(f"{data} have no images")
    if not set(truth.label_names) & set(label_names):
        names, known = (
            ", ".join(classes[:MAX_LISTED_CLASSES]) for classes in (truth.label_names, label_names)
        )
        raise DataError(
            f"{data} share no class with {model}: {names} against {known}; classes are matched by "
            "name"
        )


def score(detections: Detections, truth: Dataset, label_names: tuple[str, ...]) -> VocScores:
    """Return VOC's AP50 of detections whose labels are `label_names`; classes match by name."""
    known = {name: label for label, name in enumerate(label_names)}
    new = np.array([*(known.get(name, UNKNOWN) for name in truth.label_names), UNKNOWN])
    labels = new[truth.labels]
    is_scored = (labels != UNKNOWN) & (truth.image_rows != UNKNOWN)
    return average_precision(
        detections,
        TrueBoxes(
            truth.image_rows[is_scored],
            labels[is_scored],
            truth.boxes[is_scored],
            truth.is_ignored[is_scored],
        ),
        num_labels=len(label_names),
    )
