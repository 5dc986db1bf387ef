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
SIZE = 96  # pixels: what the tiny detector is made for
BATCH = 8
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
AT_ONCE = 2
TRAININGS = {  # the longest first
    "mend": ("noisy", "mend"),
    "clean": ("clean", "baseline"),
    "noisy": ("noisy", "baseline"),
}
SHOWN = 4  # images in the picture, before and after


class MeasuredNoise(NamedTuple):
    """A dataset against the truth."""

    labels_wrong: float  # per cent of all annotations
    mean_iou: float


def ensure_trainable() -> None:
    """Raise a UsageError where what training needs is not installed."""
    for package in ("torch", "torchvision", "safetensors"):
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"the demo trains, which needs {package}: pip install 'boxmend[train]'"
            )


def prepare(out: Path, *, images: int, seed: int, epochs: int, progress: Progress) -> int:
    """Draw OUT/clean, spoil it into OUT/noisy, write OUT/settings.toml; returns steps to train."""
    synthesize(out / "clean", images=images, seed=seed, size=SIZE, progress=progress)
    clean = load(f"{out / 'clean'}:train")
    settings = NoiseSettings(labels=LABEL_NOISE, boxes=BOX_NOISE, seed=seed)
    write_noisy(disturb(clean, settings), settings, out / "noisy", WriteOptions())
    text = SETTINGS.format(epochs=epochs, batch=BATCH)
    (out / "settings.toml").write_text(text, encoding="utf-8")
    return -(-len(clean.images) // BATCH) * epochs


def train_all(out: Path, *, steps: int, seed: int, progress: Progress) -> dict[str, float]:
    """Train OUT/runs/clean, noisy and mend, `steps` each; returns their AP50 in per cent."""
    (out / "runs").mkdir()
    waiting, running = list(TRAININGS), dict[str, subprocess.Popen[bytes]]()
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                name = waiting.pop(0)
                running[name] = _started(name, out, seed)
            time.sleep(0.2)
            done = sum(_step(out / "runs" / name / "metrics.jsonl") for name in TRAININGS)
            progress(done, steps * len(TRAININGS))
            for name in [name for name, one in running.items() if one.poll() is not None]:
                if running.pop(name).returncode:
                    raise BoxmendError(f"the training {name!r} failed: {_last_words(out, name)}")
    finally:
        for process in running.values():
            process.terminate()
            process.wait()
    return {name: _ap50(out, name) for name in ("clean", "noisy", "mend")}


def mend(out: Path) -> None:
    """Write the annotations of the run `mend`, mended, into OUT/mended."""
    apply(out / "runs" / "mend", out / "mended")


def write_demo_report(out: Path, progress: Progress) -> Path:
    """Write OUT/runs/mend/report.html, which compares with the run `noisy` and with the truth."""
    settings = ReportSettings(
        truth=str(out / "noisy" / "truth.parquet"), baseline=out / "runs" / "noisy"
    )
    return write_report(out / "runs" / "mend", settings=settings, progress=progress).path


def measure_noise(out: Path, name: str) -> MeasuredNoise:
    """Compare OUT/NAME as it is written with the truth."""
    truth, dataset = _pair(out, name)
    wrong = float((truth.labels != dataset.labels).mean())
    return MeasuredNoise(100 * wrong, float(compute_iou(truth.boxes, dataset.boxes).mean()))


def draw_picture(out: Path) -> Path:
    """Draw OUT/demo.png: images with their noisy annotations, and the same mended below them."""
    rows = [_panels(*_pair(out, name)) for name in ("noisy", "mended")]
    path = out / "demo.png"
    draw_sheet([panel for panels in rows for panel in panels], columns=len(rows[0])).save(path)
    return path


def _started(name: str, out: Path, seed: int) -> "subprocess.Popen[bytes]":
    data, method = TRAININGS[name]
    command = [sys.executable, "-m", "boxmend", "train", f"{out / data}:train"]
    command += ["--val", f"{out / 'clean'}:val", "--out", str(out / "runs" / name)]
    command += ["--method", method, "--settings", str(out / "settings.toml")]
    command += ["--seed", str(seed), "--json"]
    with (out / "runs" / f"{name}.log").open("wb") as log:
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **threads})


def _step(path: Path) -> int:
    """The last step that a training told of."""
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


def _last_words(out: Path, name: str) -> str:
    lines = (out / "runs" / f"{name}.log").read_text(encoding="utf-8", errors="replace").split("\n")
    said = [line for line in lines if line.strip()]
    return said[-1] if said else "it said nothing"


def _pair(out: Path, name: str) -> tuple[Dataset, Dataset]:
    """The clean training set and OUT/NAME, whose annotations are in the same order."""
    truth, dataset = load(f"{out / 'clean'}:train"), load(f"{out / name}:train")
    if truth.annotation_ids.tolist() != dataset.annotation_ids.tolist():
        raise BoxmendError(f"{out / name}: its annotations are not those of {out / 'clean'}")
    return truth, dataset


def _panels(truth: Dataset, dataset: Dataset) -> list[Panel]:
    panels = []
    for image in _telling(truth):
        outlines = []
        for row in np.flatnonzero(truth.image_rows == image).tolist():
            label = int(dataset.labels[row])
            color = GREEN if label == int(truth.labels[row]) else RED
            outlines.append(_outline(truth.boxes[row], WHITE))
            outlines.append(_outline(dataset.boxes[row], color, dataset.label_names[label]))
        panels.append(Panel(Path(truth.images.paths[image]), outlines))
    return panels


def _telling(truth: Dataset) -> Sequence[int]:
    """The first images with at least three objects."""
    numbers = np.bincount(truth.image_rows, minlength=len(truth.images))
    rows: list[int] = np.flatnonzero(numbers >= min(3, numbers.max()))[:SHOWN].tolist()
    return rows


def _outline(box: NDArray[np.float64], color: tuple[int, int, int], caption: str = "") -> Outline:
    x1, y1, x2, y2 = box.tolist()
    return Outline((x1, y1, x2, y2), color, caption)
