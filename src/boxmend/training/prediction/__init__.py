"""Prediction: the model of a run on images that nobody has annotated.

`predict` takes a run and files, folders or datasets of images, and gives `ModelPredictions`.
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
from boxmend.training.loader.pictures import CANVAS_MULTIPLE, ReadableImages, survey
from boxmend.training.loader.store import FromFiles, default_workers
from boxmend.training.prediction.images import gather
from boxmend.training.prediction.model import open_model
from boxmend.training.prediction.results import ModelPredictions, ensure_new
from boxmend.training.validation import in_image_pixels, joined

BATCH_SIZE = 8  # less than any training that fits into the memory of its device

__all__ = ["ModelPredictions", "ensure_new", "predict"]


def predict(
    run: str | Path,
    images: Sequence[str | Path],
    *,
    score_threshold: float = 0.05,
    progress: Progress = lambda done, total: None,
) -> ModelPredictions:
    """Find objects in images by the model of a run; boxes are in pixels of the images as stored.

    `run` is the folder of a finished run, or its model.safetensors. `images` are image files,
    folders that are searched with all folders in them, and addresses of datasets (PATH or
    PATH:SPLIT), whose annotations are not looked at. What cannot be read is left out and told in
    the result; a DataError tells where nothing can be read. What is found in an image does not
    depend on the other images.
    """
    if not 0 <= score_threshold <= 1:
        raise UsageError(f"score_threshold is {score_threshold}; expected a share from 0 to 1")
    columns = gather(images)
    detector, card = open_model(Path(run))
    short, long = parse_image_size(card.image_size)
    pictures, skipped = survey(columns, ImageSize(long, short))
    found, problems = _detected(detector, pictures, score_threshold, progress)
    skipped += problems
    if len(skipped) == len(columns):
        raise DataError(
            f"none of the {len(columns)} images can be read, the first because: {skipped[0]}"
        )
    return ModelPredictions(columns, card, found, skipped)


@torch.no_grad()
def _detected(
    detector: Detector, pictures: ReadableImages, score_threshold: float, progress: Progress
) -> tuple[Detections, list[str]]:
    """Detections in the order of the images, and what is wrong with images that show nothing."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    detector.network.to(device).eval()
    columns: list[tuple[NDArray[np.generic], ...]] = [_nothing()]
    problems: dict[int, str] = {}
    done = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, about metadata that nothing here reads
        for group in _of_one_canvas(pictures):
            for index, pixels, told in _batches(group, device):
                frame, sizes = _placed(group, index, device)
                found = detector.detect(pixels, sizes, score_threshold=score_threshold)
                is_read = torch.tensor([one is None for one in told], device=device)
                found = found._replace(is_detection=found.is_detection & is_read[:, None])
                rows = group.rows[index]
                columns.append(in_image_pixels(found, frame, rows))
                pairs = zip(rows.tolist(), told, strict=True)
                problems |= {row: one for row, one in pairs if one is not None}
                done += len(index)
                progress(done, len(pictures))
    return _in_order(joined(columns)), [problems[row] for row in sorted(problems)]


def _of_one_canvas(pictures: ReadableImages) -> Iterator[ReadableImages]:
    """Part the images by the canvas each of them needs, so that none is padded for another."""
    if not len(pictures):
        return
    canvases = -(-pictures.sizes.fitted // CANVAS_MULTIPLE)  # [n, 2]
    _, group_of = np.unique(canvases, axis=0, return_inverse=True)
    for group in range(int(group_of.max()) + 1):
        rows = np.flatnonzero(group_of.reshape(-1) == group)
        paths = [pictures.paths[row] for row in rows]
        yield ReadableImages(pictures.rows[rows], paths, pictures.sizes.take(rows))


def _batches(
    pictures: ReadableImages, device: torch.device
) -> Iterator[tuple[NDArray[np.int64], torch.Tensor, Sequence[str | None]]]:
    """Yield which images these are, their pixels, and what is wrong with each."""
    plan = np.split(np.arange(len(pictures)), range(BATCH_SIZE, len(pictures), BATCH_SIZE))
    stored = FromFiles(pictures, device, default_workers()).batches(plan)
    for index, (pixels, problems) in zip(plan, stored, strict=True):
        yield index, pixels, problems


def _placed(
    pictures: ReadableImages, index: NDArray[np.int64], device: torch.device
) -> tuple[Frame, torch.Tensor]:
    """How images lie in the network frame, and their heights and widths there."""
    sizes = pictures.sizes.take(index)
    fitted = torch.from_numpy(sizes.fitted).to(device)  # [B, 2] width, height
    scales = torch.from_numpy(sizes.scales).to(device)
    is_flipped = torch.zeros(len(index), dtype=torch.bool, device=device)
    return Frame(scales[:, 0], scales[:, 1], fitted[:, 0], is_flipped), fitted.flip(-1)


def _nothing() -> tuple[NDArray[np.generic], ...]:
    none = np.zeros(0, np.int64)
    return none, none, np.zeros(0, np.float32), np.zeros((0, 4), np.float32)


def _in_order(found: Detections) -> Detections:
    """Image by image; within an image the best first, as they came."""
    order = np.argsort(found.image_rows, kind="stable")
    return Detections(
        found.image_rows[order], found.labels[order], found.scores[order], found.boxes[order]
    )
