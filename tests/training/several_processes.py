"""Trainings for one process or several; run as a script, this is one of the processes.

Networks compute in float64 here. Convolutions round differently with the number of images, and in
float32 that lets near-ties among proposals fall differently, now and then, from where on the two
trainings sample other background.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torchvision.ops import roi_align

import boxmend
from boxmend.detector import Detector
from boxmend.detector.faster_rcnn import normalise
from boxmend.runs.settings import (
    CaBbcSettings,
    CoTeachingSettings,
    DiscoSettings,
    MendSettings,
    OaMilSettings,
    Optimisation,
    PublishedSettings,
    TrainSettings,
)
from boxmend.training.assembly import make_detector
from boxmend.training.loader import Batch
from boxmend.training.loop import Training
from boxmend.training.train import train
from tests import ROOT

PLAIN = TrainSettings(
    method="baseline",
    detector="tiny",
    epochs=3,
    batch_size=4,
    image_size="64",
    proposals=60,
    rois=24,
    log_every=2,
    checkpoint_every=3,
    warm_up=0.3,
    optimisation=Optimisation(lr=0.002, average_decay=0.9),
)
CASES = {
    "baseline": PLAIN,
    "co-teaching": replace(
        PLAIN,
        method="co-teaching",
        label_noise=0.4,
        co_teaching=CoTeachingSettings(queue_length=24),
    ),
    "ca-bbc": replace(PLAIN, method="ca-bbc", box_noise=0.3, ca_bbc=CaBbcSettings(queue_length=24)),
    "mend-paper": replace(
        PLAIN,
        method="mend-paper",
        label_noise=0.4,
        box_noise=0.4,
        published=PublishedSettings(
            queue_length=24, queue_warm_up_steps=2, confidence=0.25, discarded="rpn_only"
        ),
    ),
    "mend": replace(PLAIN, method="mend"),
    "mend-queue": replace(
        PLAIN,
        method="mend",
        mend=MendSettings(judgement="queue", queue_length=24, raw_box_share=0.5),
    ),
    "note-rcnn": replace(PLAIN, method="note-rcnn"),
    "oa-mil": replace(PLAIN, method="oa-mil", oa_mil=OaMilSettings(gamma=1.0, extension_rounds=1)),
    "disco": replace(PLAIN, method="disco", disco=DiscoSettings(correction_from=0.3, exponent=1.0)),
}


def noisy_toys(folder: Path) -> None:
    """Draw fifteen images, of which three are left over in every epoch, and add noise."""
    boxmend.synthesize(folder / "toys", images=18, seed=4)
    dataset = boxmend.load(f"{folder / 'toys'}:train")
    noise = boxmend.NoiseSettings(labels="symmetric:0.4", boxes="uniform:0.3", seed=1)
    boxmend.disturb(dataset, noise).dataset.save(folder / "noisy")


@contextmanager
def in_double() -> Iterator[None]:
    """Let detectors compute in float64; decisions are still taken on float32."""

    def network(*arguments: Any) -> Detector:
        made = make_detector(*arguments)
        made.network.double()
        return made

    def images(*arguments: Tensor) -> Tensor:
        return normalise(*arguments).double()

    def align(level: Tensor, rois: Tensor, **options: Any) -> Any:
        return roi_align(level, rois.to(level.dtype), **options)

    with (
        patch("boxmend.training.train.make_detector", network),
        patch("boxmend.detector.faster_rcnn.normalise", images),
        patch("boxmend.detector.pooling.roi_align", align),
    ):
        yield


@contextmanager
def after_each_step(do: Callable[[Training], None]) -> Iterator[None]:
    step = Training.train_on

    def watch(training: Training, batch: Batch) -> None:
        step(training, batch)
        do(training)

    with patch.object(Training, "train_on", watch):
        yield


def run_case(name: str, folder: Path, rank: int = 0) -> None:
    """Train a case into FOLDER/NAME; the method's state after each step goes to a file beside."""
    states: list[dict[str, Any]] = []
    with in_double(), after_each_step(lambda training: states.append(training.method.state_dict())):
        train([str(folder.parent / "noisy")], folder / name, CASES[name])
    torch.save(states, folder / f"{name}-{rank}.pt")


def states_of(name: str, folder: Path, rank: int = 0) -> list[dict[str, Tensor]]:
    states: list[dict[str, Tensor]] = torch.load(folder / f"{name}-{rank}.pt", weights_only=True)
    return states


def environments(number: int) -> list[dict[str, str]]:
    """What torchrun would tell each of several processes on this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(number),
        "LOCAL_WORLD_SIZE": str(number),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    places = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(number)]
    return [{**os.environ, **shared, **place} for place in places]


def together(
    command: Sequence[str | Path], number: int = 2
) -> list[subprocess.CompletedProcess[str]]:
    """Run a Python command in each of several processes that know of one another."""
    started = [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env=environment,
            cwd=ROOT,  # where `-m tests.NAME` is found
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for environment in environments(number)
    ]
    try:
        outputs = [process.communicate(timeout=300) for process in started]
    finally:
        for process in started:
            process.kill()
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *texts)
        for process, texts in zip(started, outputs, strict=True)
    ]


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case in sys.argv[2:]:
        run_case(case, Path(sys.argv[1]), rank=int(os.environ["RANK"]))
