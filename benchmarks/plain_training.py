"""Measure the accuracy of the plain recipe: torchvision's module, the schedule of `baseline`.

It trains as `boxmend bench speed` times it: torchvision's Faster R-CNN called as documented, a
DataLoader that decodes and flips, autocast to bfloat16 on a GPU, SGD. Rates, warm-up, drop, limit
of the gradients, number of epochs, first weights and frozen stages are those of `boxmend train
--method baseline` with the same options, and the final weights are scored by the same code. Only
the steps differ, and difficult objects are left out of the targets, since torchvision cannot
ignore them. The result is a line of JSON with AP50 by both rules.

    python benchmarks/plain_training.py DATA --val DATA [--weights FILE] [--image-size 320]
        [--epochs 12] [--seed 0] [--batch-size 16] [--rois 128] [--proposals 300]
        [--detector resnet50] [--workers N]
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import RandomSampler

import boxmend
from boxmend.bench.speed.choices import MAX_WORKERS
from boxmend.bench.speed.plain import (
    AnnotatedImages,
    PlainTrainer,
    make_data_loader,
    prepare_network,
)
from boxmend.data.dataset import Dataset
from boxmend.detector import Detector
from boxmend.runs.settings import TrainSettings, resolve_settings
from boxmend.training.assembly import make_detector, make_loader, resolve_precision
from boxmend.training.optimisation import learning_rate_at
from boxmend.training.processes import Processes
from boxmend.training.validation import detect, ensure_scorable, score

LOG_EVERY = 100  # steps


@dataclass(frozen=True)
class Place:
    """The device and precision of a training, and its number of decoding processes."""

    device: torch.device
    precision: torch.dtype
    workers: int


def train_plain(detector: Detector, dataset: Dataset, settings: TrainSettings, place: Place) -> int:
    """Train a detector's weights by the plain recipe; return the number of steps."""
    network = prepare_network(detector, settings.image_size).to(place.device)
    trainer = PlainTrainer(network, place.device, place.precision)
    images = AnnotatedImages(dataset)
    sampler = RandomSampler(images, generator=torch.Generator().manual_seed(settings.seed))
    loader = make_data_loader(images, sampler, settings.batch_size, place.device, place.workers)
    number, step = settings.epochs * len(loader), 0
    optimisation, started = settings.optimisation, time.monotonic()
    for _ in range(settings.epochs):
        for examples in loader:
            trainer.set_rate(learning_rate_at(step, number, settings.learning_rate, optimisation))
            loss = trainer.train_on(examples, optimisation.max_norm or None)
            step += 1
            if step % LOG_EVERY == 0 or step == number:
                _say(loss, step, number, step * settings.batch_size / (time.monotonic() - started))
    return number


def _say(loss: Tensor, step: int, number: int, rate: float) -> None:
    text = f"step {step} of {number}, loss {float(loss):.3f}, {rate:.0f} images/s"
    print(text, file=sys.stderr, flush=True)


def score_weights(
    detector: Detector, truth: Dataset, names: Sequence[str], settings: TrainSettings, place: Place
) -> dict[str, float]:
    """Return the AP50 of the weights by both rules, as at the end of `boxmend train`."""
    loader = make_loader(settings, truth, Processes(place.device), lambda text: None)
    detections = detect(detector, loader, settings.batch_size, precision=place.precision)
    scores = score(detections, truth, tuple(names))
    return {
        "voc_ap50_11point": float(scores.mean_11_points),
        "voc_ap50_area": float(scores.mean_area),
    }


def train_and_score(
    dataset: Dataset, truth: Dataset, settings: TrainSettings, workers: int
) -> dict[str, Any]:
    """Train and score; return plain values for JSON."""
    ensure_scorable(truth, dataset.label_names, "the data to score on (--val)", "the training data")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    place = Place(device, resolve_precision(settings.precision, device), workers)
    detector = make_detector(settings, len(dataset.label_names))
    started = time.monotonic()
    steps = train_plain(detector, dataset, settings, place)
    seconds = time.monotonic() - started
    return {
        "recipe": "plain",
        "seed": settings.seed,
        "epochs": settings.epochs,
        "steps": steps,
        "images_per_second": steps * settings.batch_size / seconds,
        **score_weights(detector, truth, dataset.label_names, settings, place),
    }


def settings_of(options: Any) -> TrainSettings:
    """Return the settings of `boxmend train --method baseline` with the same options."""
    return resolve_settings(
        TrainSettings(
            method="baseline",
            detector=options.detector,
            weights=options.weights,
            image_size=options.image_size,
            epochs=options.epochs,
            seed=options.seed,
            batch_size=options.batch_size,
            rois=options.rois,
            proposals=options.proposals,
        )
    )


def main() -> None:
    """Parse the command line of the benchmark, and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("data", nargs="+", help="what to train on: PATH or PATH:SPLIT")
    parser.add_argument("--val", nargs="+", required=True, help="what to score on")
    parser.add_argument("--weights", default="none", help="safetensors file; default: random")
    parser.add_argument("--detector", default="resnet50")
    parser.add_argument("--image-size", default="320")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--rois", type=int, default=128)
    parser.add_argument("--proposals", type=int, default=300)
    parser.add_argument("--workers", type=int, default=min(os.cpu_count() or 1, MAX_WORKERS))
    options: Any = parser.parse_args()
    data, truth = boxmend.load(*options.data), boxmend.load(*options.val)
    print(json.dumps(train_and_score(data, truth, settings_of(options), options.workers)))


if __name__ == "__main__":
    main()
