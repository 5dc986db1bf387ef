"""The model of a run on the images of a dataset, just as training scores itself on them."""

import os
from pathlib import Path

import torch

from boxmend.data.dataset import Dataset
from boxmend.data.progress import Progress
from boxmend.runs.folder import open_run
from boxmend.runs.settings import parse_image_size
from boxmend.training.assembly import working_precision
from boxmend.training.loader import ImageSize, Loader, LoaderOptions
from boxmend.training.prediction.model import open_model
from boxmend.training.prediction.results import ModelPredictions
from boxmend.training.validation import detect, ensure_scorable

USUAL_BATCH = 8  # images at a time, where a run does not tell its own number
LARGEST_BATCH = 4096


def detect_in(run: Path, dataset: Dataset, progress: Progress) -> ModelPredictions:
    """Find objects in every image of a dataset by the model of a finished run.

    Size, batches and precision are those that the run was scored with, so that its scores come
    out the same. A DataError tells where the dataset has no image, or no class that the model
    knows by name.
    """
    detector, card = open_model(run)
    ensure_scorable(dataset, card.label_names, "the data to score on", "the run")
    batch_size, precision = _habits(run)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    detector.network.to(device)
    short, long = parse_image_size(card.image_size)
    loader = Loader(
        dataset,
        image_size=ImageSize(long, short),
        batch_size=batch_size,
        seed=0,
        device=device,
        options=LoaderOptions(),
    )
    kind = working_precision(precision, device)
    found = detect(detector, loader, batch_size, precision=kind, progress=progress)
    return ModelPredictions(dataset.images, card, found, loader.skipped)


def _habits(run: Path) -> tuple[int, str]:
    """How many images a run takes at a time, and in which precision."""
    told = open_run(run).settings() if os.path.isdir(run) else {}
    size, precision = told.get("batch_size"), told.get("precision")
    if type(size) is not int or not 0 < size <= LARGEST_BATCH:
        size = USUAL_BATCH
    return size, precision if precision in ("float32", "bfloat16") else "auto"
