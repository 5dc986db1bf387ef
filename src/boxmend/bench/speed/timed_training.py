"""Build trainings to time, with the same code as `boxmend train`."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from boxmend.bench.speed.choices import Counts, SpeedChoices
from boxmend.bench.speed.timing import Note
from boxmend.data.dataset import Dataset
from boxmend.detector import DETECTORS, Detector
from boxmend.detector.backbones import freeze
from boxmend.methods.table import METHODS
from boxmend.runs.settings import TrainSettings
from boxmend.training.assembly import make_detector, make_training
from boxmend.training.loader import Batch, Loader
from boxmend.training.loop import Training, TrainingOutput
from boxmend.training.processes import Processes


class TrainingSteps:
    """The steps of a training that stays in its last epoch, on new batches of its loader."""

    def __init__(self, training: Training):
        self.training = training
        self.batch_size = training.loader.batch_size
        self._batches = endless(training.loader)
        self._step = training.num_steps - 1

    def settle(self) -> None:
        """Do nothing; there are no batches to discard."""

    def run(self, steps: int) -> None:
        """Train, then flush the records of the ledger, as a training does from time to time."""
        for _ in range(steps):
            self.training.step = self._step  # a new epoch would record the step again
            self.training.train_on(next(self._batches))
        self.training.recorder.flush()


@dataclass
class TrainingFactory:
    """A factory of the trainings of one dataset on one device."""

    dataset: Dataset
    choices: SpeedChoices
    device: torch.device
    folder: Path
    """Folder for the ledgers of the trainings."""
    note: Note
    warnings: list[str] = field(default_factory=list)
    """The distinct messages of trainings, for example about an image that cannot be read."""
    _patterns: dict[tuple[Any, ...], Detector] = field(default_factory=dict)
    _made: int = 0

    def check(self) -> None:
        """Raise an error that every row would have: an unknown detector or invalid weights."""
        self.detector(self.choices.settings("baseline", self.choices.all_sizes[0]))

    def detector(self, settings: TrainSettings) -> Detector:
        """Make a detector whose first stages are frozen, whatever its weights.

        It is a copy of a detector that is made once, on the CPU.
        """
        key = (
            *(settings.rois, settings.proposals, settings.pre_nms),
            *(settings.box_loss, settings.rpn_low_quality),
            *METHODS[settings.method].detector.items(),
        )
        if key not in self._patterns:
            detector = make_detector(settings, len(self.dataset.label_names))
            freeze(detector, DETECTORS[detector.name].frozen_stages)
            self._patterns[key] = detector
        pattern = self._patterns[key]
        return replace(pattern, network=copy.deepcopy(pattern.network))

    def training(self, settings: TrainSettings, dataset: Dataset | None = None) -> Training:
        """Make a training, by default on the dataset of the factory."""
        self._made += 1
        run = self.folder / str(self._made)
        data = self.dataset if dataset is None else dataset
        detector = self.detector(settings)
        output = TrainingOutput(run, self._report)
        training, _ = make_training(settings, data, detector, Processes(self.device), output)
        return training

    def _report(self, text: str) -> None:
        self.note(text)
        if text not in self.warnings:
            self.warnings.append(text)

    def steps(self, row: str, size: str, counts: Counts | None = None) -> TrainingSteps:
        """Make the steps of one of boxmend's rows."""
        return TrainingSteps(self.training(self.choices.settings(row, size, counts)))


def endless(loader: Loader) -> Iterator[Batch]:
    """Yield the batches of one epoch after another, without end."""
    number = 0
    while True:
        yield from loader.epoch(number)
        number += 1
