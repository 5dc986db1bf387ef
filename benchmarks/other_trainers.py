"""What the benchmarks of trainings outside boxmend share: options, noisy data and lines of results.

Each of these scripts trains one detector on VOC with known noise, with or without a `Mender`, and
appends a line like those of `boxmend bench run` to the file `--out`.
"""

import argparse
import contextlib
import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import boxmend
from boxmend.bench.grids.cells import Cell
from boxmend.bench.grids.outcomes import (
    collect_estimates,
    collect_scores,
    collect_versions,
    source_hash,
)
from boxmend.bench.grids.results import Data, Noise, Result, append_result
from boxmend.data.dataset import Dataset
from boxmend.data.files.locks import wait_for_lock
from boxmend.data.fingerprint import fingerprint
from boxmend.data.noise import disturb
from boxmend.repair.trained_runs import TrainedRun
from boxmend.runs.opening import open_run_with_history
from boxmend.scoring.corrections import assess, known_truth
from boxmend.training.evaluation import Evaluation

PACKAGES = ("torch", "torchvision", "numpy", "ultralytics", "opencv-python-headless")
METHODS = ("baseline", "mender")
SHARED_OPTIONS = (  # which a line has in other fields, or which are places of this machine
    *("voc", "work", "out", "method", "labels", "boxes", "seed"),
    *("train_split", "test_split", "device", "workers"),
)
MENDER_OPTIONS = ("prescreen", "settings", "warm_up", "every")


@dataclass(frozen=True)
class NoisyData:
    """The data of a training: the truth, the annotations to train on, and the data to score on."""

    clean: Dataset
    noisy: Dataset
    val: Dataset


@dataclass(frozen=True)
class Mended:
    """The run of a `Mender`, its dataset, and the same dataset with true labels and boxes."""

    run: TrainedRun
    dataset: Dataset
    truth: Dataset

    def assess(self) -> dict[str, Any]:
        """Return the scores of the annotations that `apply` would write."""
        opened = open_run_with_history(self.run.path, self.dataset)
        return assess(opened, known_truth(self.truth, opened.dataset)).to_json()


@dataclass
class Stopwatch:
    """The seconds that parts of a training took, by name."""

    seconds: dict[str, float] = field(default_factory=dict)
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @contextlib.contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the time of a `with` block to the seconds of a part."""
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all trainers share."""
    parser.add_argument("voc", help="folder in VOC's layout")
    parser.add_argument("--work", type=Path, required=True, help="folder of the data and runs")
    parser.add_argument("--out", type=Path, required=True, help="file to append the line to")
    parser.add_argument("--method", choices=METHODS, default="baseline")
    parser.add_argument("--labels", help="noise of the labels, such as symmetric:0.4")
    parser.add_argument("--boxes", help="noise of the boxes, such as uniform:0.4")
    parser.add_argument("--seed", type=int, default=0, help="of the noise and of the training")
    parser.add_argument("--train-split", default="trainval")
    parser.add_argument("--test-split", default="test")
    parser.add_argument("--prescreen", type=Path, help="ResNet-50 weights to prescreen labels")
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON of MenderSettings")


def get_cell(options: argparse.Namespace) -> Cell:
    """Return the cell of a training; its variant names the settings that are not the defaults."""
    variant = tuple(sorted(options.settings.items()))
    if options.method == "mender" and options.prescreen is None:
        variant = (*variant, ("prescreen", "off"))
    return Cell(options.labels, options.boxes, options.method, variant, options.seed)


def load_data(options: argparse.Namespace) -> NoisyData:
    """Load the data of a training and add its noise, which depends on the seed alone."""
    clean = boxmend.load(f"{options.voc}:{options.train_split}")
    cell = get_cell(options)
    noisy = clean if cell.is_clean else disturb(clean, cell.noise).dataset
    return NoisyData(clean, noisy, boxmend.load(f"{options.voc}:{options.test_split}"))


def load_prescreen(options: argparse.Namespace, dataset: Dataset) -> NDArray[np.float32] | None:
    """Return the probabilities of a prescreen, which is made once for equal annotations."""
    if options.prescreen is None:
        return None
    path = options.work / f"prescreen-{fingerprint(dataset)[:16]}.npy"
    options.work.mkdir(parents=True, exist_ok=True)
    with wait_for_lock(path.with_suffix(".lock")):
        if not path.is_file():
            np.save(path, boxmend.prescreen(dataset, weights=options.prescreen))
    probabilities: NDArray[np.float32] = np.load(path)
    return probabilities


def append_line(
    options: argparse.Namespace,
    trainer: str,
    data: NoisyData,
    evaluation: Evaluation,
    stopwatch: Stopwatch,
    mended: Mended | None = None,
) -> None:
    """Append the line of a finished training to `--out`; `trainer` becomes its scale.

    The annotations of `mended` are scored by the truth.
    """
    cell = get_cell(options)
    noise = Noise(cell.labels, cell.boxes, 0 if cell.is_clean else cell.seed)
    result = Result(
        cell=cell.name,
        scale=trainer,
        noise=noise,
        method=cell.method,
        variant=dict(cell.variant),
        seed=cell.seed,
        settings={**_describe_options(options), "seconds": dict(stopwatch.seconds)},
        data=Data(
            fingerprint(data.clean),
            fingerprint(data.noisy),
            fingerprint(data.val),
            {
                "train": [f"{Path(options.voc).name}:{options.train_split}"],
                "val": [f"{Path(options.voc).name}:{options.test_split}"],
            },
        ),
        versions=collect_versions(PACKAGES),
        code=source_hash(),
        hardware=torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        started=stopwatch.started,
        seconds=round(stopwatch.seconds["train"], 1),
        scores=collect_scores(evaluation),
        mending=None if mended is None else mended.assess(),
        estimates=None if mended is None else collect_estimates(mended.run.summary()),
    )
    append_result(options.out, result)
    figures = {name: round(value or 0.0, 4) for name, value in result.scores.items()}
    print(json.dumps({"cell": cell.name, "seconds": result.seconds, **figures}))


def _describe_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a trainer for its line, with the hashes of weights."""
    known = {*SHARED_OPTIONS, *(set() if options.method == "mender" else MENDER_OPTIONS)}
    described = {name: value for name, value in vars(options).items() if name not in known}
    for name in {"prescreen", "weights"} & described.keys():
        described[name] = _name_weights(described[name])
    return described


def _name_weights(path: Path | None) -> str | None:
    """Return the name of a file of weights and the start of its hash."""
    if path is None:
        return None
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{path.name} sha256:{digest[:16]}"
