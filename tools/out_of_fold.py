"""Make the predictions in `tests/audit_data`, by detectors that were not trained on the image.

    python tools/out_of_fold.py --out FOLDER [--seed 0] [--clean] [--method mend] [--folds 5]

Draws 800 images of the embedded dataset, spoils the annotations of the 640 for training (unless
--clean), trains a tiny detector on each four fifths of those and lets it look at the rest. FOLDER
holds the work, so that a call that was stopped goes on; the predictions are in
FOLDER/NAME-METHOD.parquet. One training takes about two minutes on one core.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from boxmend.data.dataset import Dataset
from boxmend.data.formats import load
from boxmend.data.formats.writing import WriteOptions
from boxmend.data.noise import NoiseSettings, disturb, write_noisy
from boxmend.data.synth import synthesize

IMAGES, SIZE = 800, 96
LEAST_SCORE = 0.02
SIDES = ("x1", "y1", "x2", "y2")
SETTINGS = """detector = "tiny"
image_size = "96"
batch_size = 8
epochs = 14
log_every = 50
[optimisation]
optimizer = "adamw"
lr = 0.003
schedule = "cosine"
"""


def main() -> None:
    """Draw, add noise, train, predict and write, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clean", action="store_true")
    parser.add_argument("--method", default="mend")
    parser.add_argument("--folds", type=int, default=5)
    asked = parser.parse_args()
    name = "clean" if asked.clean else "noisy"
    asked.out.mkdir(parents=True, exist_ok=True)
    data = load_split(asked.out, asked.seed, name)
    work = asked.out / f"{name}-{asked.method}"
    work.mkdir(exist_ok=True)
    (work / "settings.toml").write_text(SETTINGS)
    rows: list[dict[str, Any]] = []
    for fold, members in enumerate(assign_folds(len(data.images), asked.folds)):
        detections = predict_fold(data, members, work / str(fold), asked.method, asked.seed)
        rows += [{**detection, "fold": fold} for detection in detections]
    out = asked.out / f"{work.name}.parquet"
    write(out, rows)
    print(f"wrote {out}: {len(rows):,} detections, {out.stat().st_size:,} bytes")


def load_split(out: Path, seed: int, name: str) -> Dataset:
    """Return the training split, clean or noisy; draw it if it is not there."""
    if not (out / "clean").exists():
        synthesize(out / "clean", images=IMAGES, seed=seed, size=SIZE)
    if name == "noisy" and not (out / "noisy").exists():
        noise = NoiseSettings("symmetric:0.2", "uniform:0.2", 0.05, 0.05, seed=seed)
        write_noisy(disturb(load(f"{out}/clean:train"), noise), noise, out / name, WriteOptions())
    return load(f"{out / name}:train")


def assign_folds(num_images: int, number: int) -> list[np.ndarray[Any, np.dtype[np.bool_]]]:
    """Return which images each fold excludes from training, one mask per fold."""
    order = np.random.default_rng(0).permutation(num_images)
    fold_of = np.empty(num_images, np.int64)
    fold_of[order] = np.arange(num_images) % number
    return [fold_of == fold for fold in range(number)]


def predict_fold(
    data: Dataset, members: np.ndarray[Any, np.dtype[np.bool_]], work: Path, method: str, seed: int
) -> list[dict[str, Any]]:
    """Train on the other images, and predict on the members."""
    work.mkdir(exist_ok=True)
    out = work / "predictions.json"
    if not out.exists():
        for name, rows in (("train", ~members), ("test", members)):
            if not (work / name).exists():
                data.take_images(np.flatnonzero(rows)).save(work / name)
        chosen = ("--method", method, "--settings", work.parent / "settings.toml")
        call("train", work / "train", "--out", work / "run", *chosen, "--seed", seed, "--json")
        options = ("--score-threshold", LEAST_SCORE, "--out", out)
        call("predict", work / "run", work / "test", *options)
    detections: list[dict[str, Any]] = json.loads(out.read_text())
    return detections


def call(*words: object) -> None:
    """Run a command of boxmend on one thread: same seed, same weights."""
    command = [sys.executable, "-m", "boxmend", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def write(out: Path, detections: list[dict[str, Any]]) -> None:
    """Write detections as a small table: image ids, labels from 0 on, corners in pixels."""
    detections = sorted(detections, key=lambda one: (one["image_id"], -one["score"]))
    xywh = np.array([one["bbox"] for one in detections], np.float64).reshape(-1, 4)
    corners = np.concatenate([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]], axis=1)
    columns = {
        "image_id": pa.array([one["image_id"] for one in detections], pa.int32()),
        "label": pa.array([one["category_id"] - 1 for one in detections], pa.int8()),
        "fold": pa.array([one["fold"] for one in detections], pa.int8()),
        "score": pa.array([one["score"] for one in detections], pa.float32()),
        **{side: pa.array(corners[:, k], pa.float32()) for k, side in enumerate(SIDES)},
    }
    pq.write_table(
        pa.table(columns),
        out,
        compression="zstd",
        compression_level=19,
        write_page_checksum=True,
        use_dictionary=False,
        use_byte_stream_split=["score", *SIDES],
    )


if __name__ == "__main__":
    main()
