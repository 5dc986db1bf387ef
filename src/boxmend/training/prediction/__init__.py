"""Prediction: apply the model of a run to images without annotations.

`predict` takes a run and files, folders or datasets of images, and returns `ModelPredictions`.
"""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from boxmend.data.detections import Detections
from boxmend.data.progress import Progress
from boxmend.detector import Detector
from boxmend.errors import DataError, UsageError
from boxmend.runs.settings import parse_image_size
from boxmend.training.loader import Frame, ImageSize
from boxmend.training.loader.readable import CANVAS_MULTIPLE, ReadableImages, read_headers
from boxmend.training.loader.store import FromFiles, default_workers
from boxmend.training.prediction.images import gather_images
from boxmend.training.prediction.model import open_model
from boxmend.training.prediction.results import ModelPredictions, ensure_new
from boxmend.training.validation import join_columns, to_image_pixels

BATCH_SIZE = 8  # fits wherever the training of the model did

__all__ = ["ModelPredictions", "ensure_new", "predict"]


def predict(
    run: str | Path,
    images: Sequence[str | Path],
    *,
    score_threshold: float = 0.05,
    progress: Progress = lambda done, total: None,
) -> ModelPredictions:
    """Detect objects in images with the model of a run; boxes are in pixels of the stored images.

    `run` is the folder of a finished run, or its model.safetensors. `images` are image files,
    folders, which are searched recursively, and addresses of datasets (PATH or PATH:SPLIT), whose
    annotations are not used. Unreadable images are listed in the result; raises a DataError if no
    image can be read. Each image is processed independently of the others.
    """
    if not 0 <= score_threshold <= 1:
        raise UsageError(f"score_threshold is {score_threshold}; expected a share from 0 to 1")
    columns = gather_images(images)
    detector, card = open_model(Path(run))
    short, long = parse_image_size(card.image_size)
    readable, skipped = read_headers(columns, ImageSize(long, short))
    detections, problems = _detect_all(detector, readable, score_threshold, progress)
    skipped += problems
    if len(skipped) == len(columns):
        raise DataError(f"none of the {len(columns)} images can be read; the first: {skipped[0]}")
    return ModelPredictions(columns, card, detections, skipped)


@torch.no_grad()
def _detect_all(
    detector: Detector, readable: ReadableImages, score_threshold: float, progress: Progress
) -> tuple[Detections, list[str]]:
    """Return the detections in the order of the images, and messages about unreadable images."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    detector.network.to(device).eval()
    columns: list[tuple[NDArray[np.generic], ...]] = [_empty_columns()]
    problem_of_row: dict[int, str] = {}
    done = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns about metadata that is not used
        for group in _group_by_canvas(readable):
            for index, pixels, problems in _batches(group, device):
                frame, sizes = _make_frame(group, index, device)
                padded = detector.detect(pixels, sizes, score_threshold=score_threshold)
                is_read = torch.tensor([problem is None for problem in problems], device=device)
                padded = padded._replace(is_detection=padded.is_detection & is_read[:, None])
                rows = group.rows[index]
                columns.append(to_image_pixels(padded, frame, rows))
                pairs = zip(rows.tolist(), problems, strict=True)
                problem_of_row |= {row: text for row, text in pairs if text is not None}
                done += len(index)
                progress(done, len(readable))
    messages = [problem_of_row[row] for row in sorted(problem_of_row)]
    return _sort_by_image(join_columns(columns)), messages


def _group_by_canvas(readable: ReadableImages) -> Iterator[ReadableImages]:
    """Group the images by the canvas that each needs, so that no image is padded for another."""
    if not len(readable):
        return
    canvases = -(-readable.sizes.fitted // CANVAS_MULTIPLE)  # [n, 2]
    _, group_of = np.unique(canvases, axis=0, return_inverse=True)
    for group in range(int(group_of.max()) + 1):
        rows = np.flatnonzero(group_of.reshape(-1) == group)
        paths = [readable.paths[row] for row in rows]
        yield ReadableImages(readable.rows[rows], paths, readable.sizes.take(rows))


def _batches(
    readable: ReadableImages, device: torch.device
) -> Iterator[tuple[NDArray[np.int64], torch.Tensor, Sequence[str | None]]]:
    """Yield the indices of each batch, its pixels, and the problem of each image, if any."""
    plan = np.split(np.arange(len(readable)), range(BATCH_SIZE, len(readable), BATCH_SIZE))
    stored = FromFiles(readable, device, default_workers()).batches(plan)
    for index, (pixels, problems) in zip(plan, stored, strict=True):
        yield index, pixels, problems


def _make_frame(
    readable: ReadableImages, index: NDArray[np.int64], device: torch.device
) -> tuple[Frame, torch.Tensor]:
    """Return the network frame of a batch, and the heights and widths of its images there."""
    sizes = readable.sizes.take(index)
    fitted = torch.from_numpy(sizes.fitted).to(device)  # [B, 2] width, height
    scales = torch.from_numpy(sizes.scales).to(device)
    is_flipped = torch.zeros(len(index), dtype=torch.bool, device=device)
    return Frame(scales[:, 0], scales[:, 1], fitted[:, 0], is_flipped), fitted.flip(-1)


def _empty_columns() -> tuple[NDArray[np.generic], ...]:
    none = np.zeros(0, np.int64)
    return none, none, np.zeros(0, np.float32), np.zeros((0, 4), np.float32)


def _sort_by_image(detections: Detections) -> Detections:
    """Sort detections by image; within an image they stay sorted by score."""
    order = np.argsort(detections.image_rows, kind="stable")
    return Detections(
        detections.image_rows[order],
        detections.labels[order],
        detections.scores[order],
        detections.boxes[order],
    )
