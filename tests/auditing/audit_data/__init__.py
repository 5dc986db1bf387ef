"""The embedded dataset with predictions of detectors that did not see it: see README.md here."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from boxmend.auditing.predictions import ResolvedPredictions
from boxmend.data.dataset import Dataset
from boxmend.data.formats import load
from boxmend.data.noise import NoiseSettings, disturb
from boxmend.data.synth import synthesize
from boxmend.scoring.truth import KnownTruth, known_truth

HERE = Path(__file__).parent
IMAGES = 800
SEED = 0
NOISE = NoiseSettings("symmetric:0.2", "uniform:0.2", 0.05, 0.05, seed=SEED)
SIDES = ("x1", "y1", "x2", "y2")
NOISY, CLEAN = "noisy-mend", "clean-baseline"


@dataclass(frozen=True, eq=False)
class Audited:
    """A dataset, detections on its images by rows and labels of it, and the truth."""

    dataset: Dataset
    predictions: ResolvedPredictions
    truth: KnownTruth


@cache
def clean_dataset() -> Dataset:
    """The training split of the embedded dataset without errors: drawn once, images not kept."""
    with TemporaryDirectory() as folder:
        synthesize(f"{folder}/clean", images=IMAGES, seed=SEED)
        return load(f"{folder}/clean:train")


@cache
def audited(name: str) -> Audited:
    """The dataset of that name with its predictions; not to be changed.

    `noisy-mend` has 20 % wrong labels, 20 % box noise, 5 % missing and 5 % spurious annotations,
    and predictions of detectors trained on them by `mend`; `clean-baseline` has no errors, and
    predictions of detectors trained by `baseline`.
    """
    clean = clean_dataset()
    dataset = disturb(clean, NOISE).dataset if name == NOISY else clean
    table = _columns(name)
    row_of_image = {one: row for row, one in enumerate(dataset.images.ids.tolist())}
    image_rows = np.array([row_of_image[one] for one in table["image_id"].tolist()], np.int64)
    predictions = ResolvedPredictions(
        image_rows=image_rows,
        labels=table["label"].astype(np.int64),
        scores=table["score"].astype(np.float64),
        boxes=np.stack([table[side] for side in SIDES], axis=1).astype(np.float64),
        class_scores=None,
        folds=table["fold"].astype(np.int64),
    )
    return Audited(dataset, predictions, known_truth(clean, dataset))


def _columns(name: str) -> dict[str, NDArray[np.float32]]:
    table = pq.read_table(HERE / f"{name}.parquet")
    return {column: table[column].to_numpy() for column in table.column_names}
