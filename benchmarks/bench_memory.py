"""Measure the host memory of a training on a dataset as large as COCO.

The dataset has 118,000 images, 860,000 annotations and 80 labels in a COCO file; image files are
not needed. One process makes the annotations, the memory across visits and the ledger in turn. For
each part it prints by how much the memory of the process grows, and the peak meanwhile. With a GPU
the columns of the loader and the memory across visits are on the device; here all is on the host,
which is the worst case.

    python benchmarks/bench_memory.py [--annotations N]
"""

import argparse
import contextlib
import gc
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import boxmend
from bench_data import make_file
from boxmend.data.dataset import Dataset
from boxmend.methods.table import Mend
from boxmend.runs.ledger import Entries, Judgement, Ledger
from boxmend.runs.ledger.writing import ROWS_PER_PART
from boxmend.training.loader.columns import Columns
from boxmend.training.loader.frame import fit
from boxmend.training.loader.readable import Sizes

LIMIT_MIB = 1024


def columns(data: Dataset) -> Columns:
    """Return what the loader keeps of the annotations."""
    stored = np.stack([data.images.widths, data.images.heights], -1)
    fitted = np.array([fit(width, height, 600, 1000) for width, height in stored.tolist()])
    return Columns(
        data,
        np.arange(len(data.images)),
        Sizes(stored, fitted),
        difficult="ignore",
        device=torch.device("cpu"),
    )


def memory(data: Dataset) -> Mend:
    """Return the memory of `mend`, written to once, so that the system really allocates it."""
    made = Mend(len(data), len(data.label_names))
    for tensor in made.estimator.state.values():
        tensor.add_(0) if tensor.dtype != torch.bool else tensor.logical_or_(tensor)
    return made


def ledger(data: Dataset, run: Path, rows_in_all: int) -> Ledger:
    """Return a ledger with this number of rows."""
    made = Ledger.create(run)
    rng, step = np.random.default_rng(1), 0
    while made.num_rows < rows_in_all:
        rows = rng.integers(0, len(data), 128)
        made.append(_entries(data, rows, step))
        step += 1
    return made


def _entries(data: Dataset, rows: Any, step: int) -> Entries:
    n = len(rows)
    boxes = data.boxes[rows].astype(np.float32)
    return Entries(
        epochs=np.zeros(n, np.int64),
        steps=np.full(n, step),
        annotation_ids=data.annotation_ids[rows],
        image_ids=data.images.ids[data.image_rows[rows]],
        losses=np.ones(n, np.float32),
        thresholds=np.ones(n, np.float32),
        verdicts=np.full(n, Judgement.KEPT, np.int8),
        num_candidates=np.full(n, 3),
        old_labels=data.labels[rows],
        new_labels=data.labels[rows],
        confidences=np.ones(n, np.float32),
        noisy_boxes=boxes,
        matched_boxes=boxes,
        final_boxes=boxes,
        is_kept=np.ones(n, np.bool_),
    )


def resident() -> float:
    """Return the MiB of this process that are in memory now."""
    return _status("VmRSS")


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


class Scale:
    """Parts that are kept, and the memory that each of them added."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.weights: list[tuple[str, float, float]] = []

    def add(self, name: str, make: Callable[[], Any]) -> Any:
        """Make a part, keep it, and return it."""
        gc.collect()
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = resident()
        made = make()
        peak = _status("VmHWM") - before
        gc.collect()
        self.kept.append(made)
        self.weights.append((name, resident() - before, peak))
        return made


def _make_apart(file: Path, annotations: int) -> None:
    """Write a COCO file in a process of its own, whose memory does not count."""
    arguments = ["--make", str(file), "--annotations", str(annotations)]
    subprocess.run([sys.executable, __file__, *arguments], check=True)


def main() -> None:
    """Parse the command line of the benchmark, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--annotations", type=int, default=860_000)
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    options: Any = parser.parse_args()
    if options.make is not None:
        make_file(options.make, options.annotations)
        return
    scale = Scale()
    with tempfile.TemporaryDirectory() as folder:
        small, file = Path(folder) / "small.json", Path(folder) / "instances.json"
        _make_apart(small, 100)
        _make_apart(file, options.annotations)
        known = boxmend.load(small)  # so that imports and caches do not count
        columns(known), memory(known), ledger(known, Path(folder) / "small", 128)
        data = scale.add(
            "annotations: the dataset, document and columns", lambda: boxmend.load(file)
        )
        scale.add("annotations: the loader's columns", lambda: columns(data))
        scale.add("memory of `mend`", lambda: memory(data))
        full = 2 * ROWS_PER_PART - 512  # one part written, the next nearly full
        scale.add("ledger", lambda: ledger(data, Path(folder) / "run", full))
    labels = len(data.label_names)
    print(f"{len(data.images):,} images, {len(data):,} annotations, {labels} labels\n")
    print("| part | MiB kept | MiB at most while it is made |\n|---|---|---|")
    for name, weight, peak in scale.weights:
        print(f"| {name} | {weight:.0f} | {peak:.0f} |")
    total = sum(weight for _, weight, _ in scale.weights)
    print(f"| all, target below {LIMIT_MIB} | {total:.0f} | |")


if __name__ == "__main__":
    main()
