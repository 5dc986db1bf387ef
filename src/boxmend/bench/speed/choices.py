"""The options of a speed measurement, and the settings of the trainings that it compares."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from boxmend.errors import UsageError
from boxmend.runs.settings import Optimisation, TrainSettings, parse_image_size, resolve_settings
from boxmend.runs.settings.presets import MAX_FEW_PROPOSALS

PLAIN_ROWS = ("plain", "plain-on-device")
OUR_ROWS: dict[str, dict[str, Any]] = {
    "baseline": {"method": "baseline"},
    "mend-paper": {"method": "mend", "preset": "paper"},
    "mend": {"method": "mend"},
    "baseline-eager": {"method": "baseline", "cuda_graph": False},
    "mend-eager": {"method": "mend", "cuda_graph": False},
}
KNOWN_RATES = {"label_noise": 0.4, "box_noise": 0.4}  # given, as the papers assume
PEER_ROWS: dict[str, dict[str, Any]] = {
    name: {"method": name, **KNOWN_RATES}
    for name in ("co-teaching", "note-rcnn", "ca-bbc", "oa-mil", "disco")
}
DEFAULT_ROWS = (*PLAIN_ROWS, *OUR_ROWS)
ROWS = (*DEFAULT_ROWS, *PEER_ROWS)
NUM_BLOCKS = 5  # of the steps of each row
MAX_WORKERS = 16
LEARNING_RATE = 1e-5  # low, so that random weights do not diverge; the speed is independent of it
NUM_EPOCHS = 12  # the last one is timed, long after warm-up


class Counts(NamedTuple):
    """The numbers of boxes per image."""

    rois: int
    """RoIs that are sampled for the loss of the second stage."""
    proposals: int
    """Proposals after suppression."""

    @property
    def pre_nms(self) -> int:
        """Return the number of anchors of each level that enter suppression."""
        return 1000 if self.proposals <= MAX_FEW_PROPOSALS else 2000

    def __str__(self) -> str:
        return f"{self.rois}/{self.proposals}"


@dataclass(frozen=True)
class SpeedChoices:
    """The options of a measurement; commas separate the entries of lists."""

    detector: str = "resnet50"
    """Detector of all rows, as in `boxmend train`."""
    weights: str | None = None
    """Safetensors file of weights; without one they are random, and as fast."""
    sizes: str = "320,600/1000"
    """Image sizes: long side, or short/long."""
    counts: str = "128/300,512/2000"
    """Numbers of RoIs/proposals per image; --stages, --growth and --jobs use the first pair."""
    rows: str = ",".join(DEFAULT_ROWS)
    """Rows of the tables; all rows of a table are in memory at the same time. Further rows are
    co-teaching, note-rcnn, ca-bbc, oa-mil and disco."""
    steps: int = 60
    """Number of timed steps per row, at least 5."""
    batch_size: int = 16
    """Number of images per step."""
    num_images: int = 256
    """Number of images to use, from the first on."""
    workers: int | None = None
    """Workers of the plain recipe's DataLoader; by default one per core, at most 16."""
    stages: bool = True
    """Measure the share of each stage in a step."""
    growth: bool = True
    """Measure how the time grows with objects per image and with the queue, at the first size."""
    jobs: int = 0
    """Trainings to also time side by side on one device; they use NVIDIA's MPS if it runs."""
    seconds: float = 10.0
    """Duration of the trainings side by side."""

    def __post_init__(self) -> None:
        for name, least in (
            ("steps", NUM_BLOCKS),
            ("batch_size", 1),
            ("num_images", 1),
            ("jobs", 0),
        ):
            if getattr(self, name) < least:
                value = getattr(self, name)
                raise UsageError(f"--{name.replace('_', '-')} is {value}; at least {least}")
        if self.workers is not None and not 0 <= self.workers <= 256:
            raise UsageError(f"--workers is {self.workers}; expected 0 to 256")
        if not 0 < self.seconds <= 3600:
            raise UsageError(f"--seconds is {self.seconds}; expected more than 0, up to 3600")
        if self.weights is not None and not Path(self.weights).is_file():
            raise UsageError(f"--weights {self.weights}: no such file")
        for size in self.all_sizes:
            parse_image_size(size)
        unknown = [name for name in self.all_rows if name not in ROWS]
        if unknown:
            raise UsageError(f"--rows has no {unknown[0]!r}; known: {', '.join(ROWS)}")
        assert self.all_counts  # raises a UsageError for invalid counts

    @property
    def all_sizes(self) -> tuple[str, ...]:
        """Return the image sizes."""
        return _split_list("sizes", self.sizes)

    @property
    def all_rows(self) -> tuple[str, ...]:
        """Return the names of the rows, in the order of the table."""
        return _split_list("rows", self.rows)

    @property
    def all_counts(self) -> tuple[Counts, ...]:
        """Return the numbers of boxes for which rows are measured."""
        return tuple(_parse_counts(text) for text in _split_list("counts", self.counts))

    @property
    def num_workers(self) -> int:
        """Return the number of processes that decode for the plain recipe."""
        if self.workers is not None:
            return self.workers
        return min(os.cpu_count() or 1, MAX_WORKERS)

    @property
    def block(self) -> int:
        """Return the number of steps of a block."""
        return self.steps // NUM_BLOCKS

    def settings(self, row: str, size: str, counts: Counts | None = None) -> TrainSettings:
        """Return the settings of a row; the plain recipe has those of `baseline`.

        `counts` defaults to the first pair of `all_counts`.
        """
        counts = counts or self.all_counts[0]
        shared = TrainSettings(
            detector=self.detector,
            weights="none" if self.weights is None else str(Path(self.weights).absolute()),
            image_size=size,
            batch_size=self.batch_size,
            epochs=NUM_EPOCHS,
            rois=counts.rois,
            proposals=counts.proposals,
            pre_nms=counts.pre_nms,
            optimisation=Optimisation(lr=LEARNING_RATE),
        )
        return resolve_settings(
            replace(shared, **(OUR_ROWS | PEER_ROWS)["baseline" if row in PLAIN_ROWS else row])
        )


def _split_list(name: str, text: str) -> tuple[str, ...]:
    parts = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(parts):
        raise UsageError(f"--{name} is {text!r}; expected a list with commas and nothing empty")
    return parts


def _parse_counts(text: str) -> Counts:
    parts = text.split("/")
    if len(parts) != 2 or not all(part.isdecimal() and 1 <= int(part) <= 10_000 for part in parts):
        raise UsageError(
            f"--counts has {text!r}; expected RoIs/proposals like 128/300, each from 1 to 10000"
        )
    return Counts(int(parts[0]), int(parts[1]))
