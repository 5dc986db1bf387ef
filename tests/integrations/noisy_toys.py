"""A drawn dataset with wrong labels and loose boxes, and the detections of a perfect detector."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import boxmend
from boxmend.cli import run
from boxmend.data.dataset import Dataset

SIDE = 64


@dataclass
class NoisyToys:
    """Annotations with noise, those without, and how often detections were made."""

    noisy: Dataset
    clean: Dataset
    num_calls: int = 0

    def detect(self) -> boxmend.Predictions:
        """Return the true objects as detections."""
        self.num_calls += 1
        clean = self.clean
        scores = np.full((len(clean), len(clean.label_names)), 0.01)
        scores[np.arange(len(clean)), clean.labels] = 0.9
        return boxmend.Predictions(
            clean.image_ids,
            clean.boxes,
            clean.labels,
            np.full(len(clean), 0.9),
            label_names=clean.label_names,
            class_scores=scores,
        )

    def count_wrong(self, labels: NDArray[np.int64]) -> int:
        return int((labels[: len(self.clean)] != self.clean.labels).sum())


def draw_noisy_toys(folder: Path, *, images: int = 50) -> NoisyToys:
    tokens = ["--images", str(images), "--size", str(SIDE)]
    assert run(["synth", "--out", str(folder / "clean"), *tokens]) == 0
    noise = ["--labels", "symmetric:0.3", "--boxes", "uniform:0.2", "--out", str(folder / "noisy")]
    assert run(["noise", f"{folder / 'clean'}:train", *noise]) == 0
    return NoisyToys(boxmend.load(folder / "noisy"), boxmend.load(f"{folder / 'clean'}:train"))
