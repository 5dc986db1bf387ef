"""A Mender on drawn scenes: what a detector would see after each epoch, without a training."""

from pathlib import Path

import numpy as np

from boxmend import Mender, MenderSettings, Predictions
from boxmend.data.dataset import Dataset
from tests.auditing.audit_scenes import LABELS, Noise, Scene, scene

ONLY_ANNOTATED = MenderSettings(missing="off", spurious=False)  # judges no objects: faster

__all__ = ["LABELS", "ONLY_ANNOTATED", "Noise", "Scene", "mend", "predictions_of", "scene"]


def predictions_of(drawn: Scene) -> Predictions:
    """The detections of a scene as a user passes them."""
    detected = drawn.detected
    names = [drawn.dataset.images.file_names[row] for row in detected.image_rows.tolist()]
    boxes = np.concatenate(
        [
            np.minimum(detected.boxes[:, :2], detected.boxes[:, 2:]),
            np.maximum(detected.boxes[:, :2], detected.boxes[:, 2:]),
        ],
        axis=1,
    )
    return Predictions(names, boxes, detected.labels, detected.scores)


def mend(
    dataset: Dataset,
    predictions: Predictions,
    out: Path,
    settings: MenderSettings | None = None,
    *,
    updates: int = 4,
) -> Mender:
    """A Mender after some updates with the same detections."""
    mender = Mender(dataset, settings, out=out)
    for epoch in range(updates):
        mender.annotations()
        mender.update(epoch, predictions)
    return mender
