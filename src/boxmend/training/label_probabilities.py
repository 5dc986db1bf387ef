"""The prescreen for other trainings: probabilities of labels that a `Mender` can use."""

import logging
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from boxmend.data.arguments import check_type
from boxmend.data.dataset import Dataset
from boxmend.errors import DataError
from boxmend.methods.equations import prescreen_labels
from boxmend.runs.settings import TrainSettings, resolve_settings
from boxmend.training.assembly import make_detector, make_loader
from boxmend.training.prescreen import describe_annotations
from boxmend.training.processes import Processes

log = logging.getLogger(__name__)


def prescreen(
    dataset: Dataset,
    *,
    detector: str = "resnet50",
    weights: str | Path | None = "default",
    image_size: str = "320",
    seed: int = 0,
) -> NDArray[np.float32]:
    """Return the probability [n, C] of every label for every annotation, for `Mender`.

    A linear classifier of the features of a pretrained backbone judges each annotation. It is
    trained on the annotations of other images, so it cannot memorise a wrong label. Rows are NaN
    for annotations that no training learns from, such as crowds and difficult objects. `detector`,
    `weights` and `image_size` are those of `boxmend train`. Raises a DataError for fewer than two
    labels, since there is nothing to judge then.
    """
    check_type("dataset", dataset, Dataset, "boxmend.load(...)")
    num_labels = len(dataset.label_names)
    if num_labels < 2:
        raise DataError(f"the dataset has {num_labels} labels; a prescreen needs at least two")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    settings = resolve_settings(
        TrainSettings(
            detector=detector,
            weights=None if weights is None else str(weights),
            image_size=image_size,
            seed=seed,
        )
    )
    network = make_detector(settings, num_labels)
    network.network.to(device)
    loader = make_loader(settings, dataset, Processes(device), log.info)
    with torch.no_grad():
        found = describe_annotations(network, loader, dataset, seed, log.info)
    probabilities = np.full((len(dataset), num_labels), np.nan, np.float32)
    if len(found.rows):
        result = prescreen_labels(found.features.to(device), found.labels, found.folds, num_labels)
        probabilities[found.rows.numpy()] = result.probabilities.cpu().numpy()
    return probabilities
