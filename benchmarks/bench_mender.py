"""Measure the time and memory of an update of a `Mender` on a dataset as large as COCO.

100,000 images with 730,000 annotations of 80 classes and 2 million detections are made up, as in
`bench_audit`: 10 % wrong labels, edges off by up to 10 % of the side, 3 % missing and 3 % spurious
annotations. The output has the seconds and the processor seconds of every step, the peak memory so
far, and the processor time of an update as a ratio to that of a plain pass over the same pairs of
boxes, which depends little on the machine.

    python benchmarks/bench_mender.py [--images N] [--updates N]
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench_audit import (
    ANNOTATIONS_PER_IMAGE,
    HEIGHT,
    NUM_LABELS,
    WIDTH,
    Floats,
    Rows,
    _noisy,
    _random_boxes,
    _random_detections,
)
from boxmend import Dataset, Mender, MenderSettings, Predictions
from boxmend.auditing.pairs import find_overlaps

IMAGES = 100_000
DETECTIONS_PER_IMAGE = 20
MOST_SECONDS, MOST_GIB = 20, 2
GIB = 2**20  # in the unit of ru_maxrss, KiB


def draw(num_images: int) -> tuple[Dataset, tuple[list[str], Floats, Rows, Floats]]:
    """Return a dataset in memory, and the columns of detections in its images."""
    rng = np.random.default_rng(0)
    num = round(num_images * ANNOTATIONS_PER_IMAGE)
    images = np.sort(rng.integers(0, num_images, num))
    labels = np.minimum(rng.geometric(0.06, num) - 1, NUM_LABELS - 1)  # few classes are common
    boxes = _random_boxes(rng, num)
    number = round(num_images * DETECTIONS_PER_IMAGE)
    rows, classes, where, scores = _random_detections(rng, number, images, labels, boxes)
    names = [f"{k:012d}.jpg" for k in range(num_images)]
    of_image, noisy_labels, noisy_boxes = _noisy(rng, images, labels, boxes)
    dataset = Dataset.from_arrays(
        [names[row] for row in of_image.tolist()],
        _to_corners(noisy_boxes),
        noisy_labels,
        [f"class {k}" for k in range(NUM_LABELS)],
        images=names,
    )
    dataset.images.widths[:], dataset.images.heights[:] = WIDTH, HEIGHT
    return dataset, ([names[row] for row in rows.tolist()], _to_corners(where), classes, scores)


def _to_corners(boxes: Floats) -> Floats:
    corners: Floats = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
    return corners


def measure(num_images: int, num_updates: int, out: Path) -> dict[str, Any]:
    """Update a Mender; return the seconds and the peak memory of every step."""
    dataset, columns = draw(num_images)
    steps: dict[str, Any] = {}
    began, worked = time.perf_counter(), time.process_time()

    def record(step: str) -> None:
        nonlocal began, worked
        steps[step] = {
            "seconds": round(time.perf_counter() - began, 2),
            "cpu_seconds": round(time.process_time() - worked, 2),
            "gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / GIB, 2),
        }
        began, worked = time.perf_counter(), time.process_time()

    predictions = Predictions(*columns)
    del columns
    record("predictions")
    mender = Mender(dataset, MenderSettings(warm_up_updates=0), out=out)
    record("mender")
    for number in range(num_updates):
        mender.annotations()
        mender.update(number, predictions)
        record(f"update {number}")
    annotations = mender.annotations()
    record("annotations")
    found = predictions.resolve(dataset, is_compared=False)
    began, worked = time.perf_counter(), time.process_time()
    find_overlaps(dataset.image_rows, dataset.boxes, found.image_rows, found.boxes)
    record("plain pass")
    updates = [steps[f"update {number}"] for number in range(num_updates)]
    seconds, cpu = (max(step[name] for step in updates) for name in ("seconds", "cpu_seconds"))
    return {
        "images": num_images,
        "annotations": len(dataset),
        "detections": len(predictions),
        "relabelled": int((annotations.labels[: len(dataset)] != dataset.labels).sum()),
        "steps": steps,
        "ratio": round(cpu / max(steps["plain pass"]["cpu_seconds"], 0.01), 1),
        "is_within_limits": seconds < MOST_SECONDS and updates[-1]["gib"] < MOST_GIB,
    }


def main() -> None:
    """Parse the options, measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--updates", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(options.images, options.updates, Path(folder) / "run")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
