"""Apply the model of a run to the images of a dataset, as the scoring during training does."""

import os
from pathlib import Path

import torch

from boxmend.data.dataset import Dataset
from boxmend.data.progress import Progress
from boxmend.runs.folder import open_run
from boxmend.runs.settings import parse_image_size
from boxmend.training.assembly import resolve_precision
from boxmend.training.loader import ImageSize, Loader, LoaderOptions
from boxmend.training.prediction.model import open_model
from boxmend.training.prediction.results import ModelPredictions
from boxmend.training.validation import detect, ensure_scorable

DEFAULT_BATCH_SIZE = 8  # for model files, which have no settings
MAX_BATCH_SIZE = 4096


def detect_on_dataset(run: Path, dataset: Dataset, progress: Progress) -> ModelPredictions:
    """Detect objects in every image of a dataset with the model of a finished run.

    Image size, batch size and precision are those of the run, so its scores are reproduced. Raises
    a DataError if the dataset has no image, or no class of the model.
    """
    detector, card = open_model(run)
    ensure_scorable(dataset, card.label_names, "the data to score on", "the run")
    batch_size, precision = _scoring_settings(run)
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
    dtype = resolve_precision(precision, device)
    detections = detect(detector, loader, batch_size, precision=dtype, progress=progress)
    return ModelPredictions(dataset.images, card, detections, loader.skipped)


def _scoring_settings(run: Path) -> tuple[int, str]:
    """Return the batch size and the precision of a run."""
    settings = open_run(run).settings() if os.path.isdir(run) else {}
    size, precision = settings.get("batch_size"), settings.get("precision")
    if type(size) is not int or not 0 < size <= MAX_BATCH_SIZE:
        size = DEFAULT_BATCH_SIZE
    return size, precision if precision in ("float32", "bfloat16") else "auto"
