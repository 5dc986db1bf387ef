"""The demo on drawn images: add noise, train, mend the annotations, and measure the result.

Each training is a process with one thread, and two run at a time. On two cores this is faster than
one training with two threads.
"""

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from boxmend.data.boxes import compute_iou
from boxmend.data.dataset import Dataset
from boxmend.data.formats import load
from boxmend.data.formats.writing import WriteOptions
from boxmend.data.images.drawing import GREEN, RED, WHITE, Outline, Panel, draw_sheet
from boxmend.data.noise import NoiseSettings, disturb, write_noisy
from boxmend.data.progress import Progress
from boxmend.data.synth import synthesize
from boxmend.errors import BoxmendError, UsageError
from boxmend.repair.apply import apply
from boxmend.web.report.writing import ReportSettings, write_report

LABEL_NOISE, BOX_NOISE = "symmetric:0.4", "uniform:0.4"
IMAGE_SIDE = 96  # pixels, which the tiny detector is made for
BATCH_SIZE = 8
SETTINGS = """\
# What the demo trains with; try: boxmend train DATA --settings settings.toml --out RUN
detector = "tiny"
image_size = "96"
batch_size = {batch}
epochs = {epochs}
log_every = 20

[optimisation]
optimizer = "adamw"
lr = 0.003
schedule = "cosine"
"""
MAX_PROCESSES = 2  # trainings at the same time
TRAININGS = {  # the longest first
    "mend": ("noisy", "mend"),
    "clean": ("clean", "baseline"),
    "noisy": ("noisy", "baseline"),
}
NUM_SHOWN_IMAGES = 4  # images in the picture, before and after


class MeasuredNoise(NamedTuple):
    """The noise of a dataset, measured by the truth."""

    labels_wrong: float  # percent of all annotations
    mean_iou: float


def ensure_trainable() -> None:
    """Raise a UsageError if a package that training needs is not installed."""
    for package in ("torch", "torchvision", "safetensors"):
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"the demo trains, which needs {package}: pip install 'boxmend[train]'"
            )


def prepare(out: Path, *, images: int, seed: int, epochs: int, progress: Progress) -> int:
    """Write OUT/clean, OUT/noisy and OUT/settings.toml; return the steps of one training."""
    synthesize(out / "clean", images=images, seed=seed, size=IMAGE_SIDE, progress=progress)
    clean = load(f"{out / 'clean'}:train")
    settings = NoiseSettings(labels=LABEL_NOISE, boxes=BOX_NOISE, seed=seed)
    write_noisy(disturb(clean, settings), settings, out / "noisy", WriteOptions())
    text = SETTINGS.format(epochs=epochs, batch=BATCH_SIZE)
    (out / "settings.toml").write_text(text, encoding="utf-8")
    return -(-len(clean.images) // BATCH_SIZE) * epochs


def train_all(out: Path, *, steps: int, seed: int, progress: Progress) -> dict[str, float]:
    """Train OUT/runs/clean, noisy and mend, `steps` each; return their AP50 in percent."""
    (out / "runs").mkdir()
    waiting, running = list(TRAININGS), dict[str, subprocess.Popen[bytes]]()
    try:
        while waiting or running:
            while waiting and len(running) < MAX_PROCESSES:
                name = waiting.pop(0)
                running[name] = _start_training(name, out, seed)
            time.sleep(0.2)
            done = sum(_read_last_step(out / "runs" / name / "metrics.jsonl") for name in TRAININGS)
            progress(done, steps * len(TRAININGS))
            for name in [name for name, process in running.items() if process.poll() is not None]:
                if running.pop(name).returncode:
                    raise BoxmendError(f"the training {name!r} failed: {_last_log_line(out, name)}")
    finally:
        for process in running.values():
            process.terminate()
            process.wait()
    return {name: _ap50(out, name) for name in ("clean", "noisy", "mend")}


def mend(out: Path) -> None:
    """Write the mended annotations of the run `mend` into OUT/mended."""
    apply(out / "runs" / "mend", out / "mended")


def write_demo_report(out: Path, progress: Progress) -> Path:
    """Write OUT/runs/mend/report.html, which compares with the run `noisy` and with the truth."""
    settings = ReportSettings(
        truth=str(out / "noisy" / "truth.parquet"), baseline=out / "runs" / "noisy"
    )
    return write_report(out / "runs" / "mend", settings=settings, progress=progress).path


def measure_noise(out: Path, name: str) -> MeasuredNoise:
    """Compare the dataset OUT/NAME with the truth."""
    truth, dataset = _load_pair(out, name)
    wrong = float((truth.labels != dataset.labels).mean())
    return MeasuredNoise(100 * wrong, float(compute_iou(truth.boxes, dataset.boxes).mean()))


def draw_picture(out: Path) -> Path:
    """Draw OUT/demo.png: images with noisy annotations, and below them with mended ones."""
    rows = [_panels(*_load_pair(out, name)) for name in ("noisy", "mended")]
    path = out / "demo.png"
    draw_sheet([panel for panels in rows for panel in panels], columns=len(rows[0])).save(path)
    return path


def _start_training(name: str, out: Path, seed: int) -> "subprocess.Popen[bytes]":
    data, method = TRAININGS[name]
    command = [sys.executable, "-m", "boxmend", "train", f"{out / data}:train"]
    command += ["--val", f"{out / 'clean'}:val", "--out", str(out / "runs" / name)]
    command += ["--method", method, "--settings", str(out / "settings.toml")]
    command += ["--seed", str(seed), "--json"]
    with (out / "runs" / f"{name}.log").open("wb") as log:
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **threads})


def _read_last_step(path: Path) -> int:
    """Return the last step in the metrics of a training; 0 before the first one."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return 0
    lines = text[: text.rfind("\n") + 1].splitlines()  # the last one may be half written
    return int(json.loads(lines[-1])["step"]) if lines else 0


def _ap50(out: Path, name: str) -> float:
    log = (out / "runs" / f"{name}.log").read_text(encoding="utf-8")
    answer = json.loads(log[log.index("{") :])
    return 100 * float(answer["val"]["voc_ap50_area"])


def _last_log_line(out: Path, name: str) -> str:
    lines = (out / "runs" / f"{name}.log").read_text(encoding="utf-8", errors="replace").split("\n")
    lines = [line for line in lines if line.strip()]
    return lines[-1] if lines else "its log is empty"


def _load_pair(out: Path, name: str) -> tuple[Dataset, Dataset]:
    """Return the clean training set and OUT/NAME; their annotations have the same order."""
    truth, dataset = load(f"{out / 'clean'}:train"), load(f"{out / name}:train")
    if truth.annotation_ids.tolist() != dataset.annotation_ids.tolist():
        raise BoxmendError(f"{out / name}: its annotations are not those of {out / 'clean'}")
    return truth, dataset


def _panels(truth: Dataset, dataset: Dataset) -> list[Panel]:
    panels = []
    for image in _pick_images(truth):
        outlines = []
        for row in np.flatnonzero(truth.image_rows == image).tolist():
            label = int(dataset.labels[row])
            color = GREEN if label == int(truth.labels[row]) else RED
            outlines.append(_outline(truth.boxes[row], WHITE))
            outlines.append(_outline(dataset.boxes[row], color, dataset.label_names[label]))
        panels.append(Panel(Path(truth.images.paths[image]), outlines))
    return panels


def _pick_images(truth: Dataset) -> Sequence[int]:
    """Return the first images with at least three objects."""
    numbers = np.bincount(truth.image_rows, minlength=len(truth.images))
    rows: list[int] = np.flatnonzero(numbers >= min(3, numbers.max()))[:NUM_SHOWN_IMAGES].tolist()
    return rows


def _outline(box: NDArray[np.float64], color: tuple[int, int, int], caption: str = "") -> Outline:
    x1, y1, x2, y2 = box.tolist()
    return Outline((x1, y1, x2, y2), color, caption)
