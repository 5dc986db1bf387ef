"""Measure the speed of scoring, as a ratio to pycocotools on the same files in one run.

A COCO file and a file of detections are generated: 5,000 images with about seven objects each of 80
classes, and 100 detections in each image, of which half lie near an object. pycocotools reads and
scores both by COCO's rule; boxmend reads both and scores them by the rules of COCO and VOC, all at
once and part by part. Each runs in a process of its own, in turns, and the median counts.

    python benchmarks/bench_evaluation.py [--images N] [--rounds N]
"""

import argparse
import contextlib
import io
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

OBJECTS_PER_IMAGE = 7.2
DETECTIONS_PER_IMAGE = 100
NUM_LABELS = 80
MIN_SPEEDUP = 10  # times faster
NUM_FIGURES = 12  # of COCO
PARTS = ("read the dataset", "read the detections", "COCO", "VOC")


def make_files(folder: Path, num_images: int) -> None:
    """Write truth.json and found.json."""
    rng = np.random.default_rng(0)
    n, m = num_images * DETECTIONS_PER_IMAGE, round(num_images * OBJECTS_PER_IMAGE)
    image_of = np.sort(rng.integers(0, num_images, m))
    labels = rng.integers(0, NUM_LABELS, m)
    boxes = np.concatenate([rng.uniform(0, 400, (m, 2)), rng.lognormal(4, 0.9, (m, 2))], axis=1)
    is_crowd = rng.random(m) < 0.01
    areas = boxes[:, 2] * boxes[:, 3] * 0.7  # outlines fill a part of their boxes
    image_ids = rng.permutation(600_000)[:num_images] + 1
    document = {
        "images": [{"id": one, "file_name": f"{one:012d}.jpg"} for one in image_ids.tolist()],
        "annotations": [
            {
                "id": k + 1,
                "image_id": int(image_ids[image_of[k]]),
                "category_id": int(labels[k]) + 1,
                "bbox": boxes[k].round(2).tolist(),
                "area": round(float(areas[k]), 3),
                "iscrowd": int(is_crowd[k]),
            }
            for k in range(m)
        ],
        "categories": [{"id": k + 1, "name": f"class {k}"} for k in range(NUM_LABELS)],
    }
    (folder / "truth.json").write_text(json.dumps(document))

    like = rng.integers(0, m, n)
    is_near = rng.random(n) < 0.5
    detected = np.where(
        is_near[:, None], boxes[like] * rng.normal(1, 0.1, (n, 4)), boxes[like[::-1]]
    )
    images = np.where(is_near, image_of[like], rng.integers(0, num_images, n))
    classes = np.where(rng.random(n) < 0.8, labels[like], rng.integers(0, NUM_LABELS, n))
    scores = np.where(is_near, rng.beta(3, 2, n), rng.beta(1, 5, n)).round(5).tolist()
    order = np.argsort(images, kind="stable").tolist()
    results = [
        {
            "image_id": int(image_ids[images[k]]),
            "category_id": int(classes[k]) + 1,
            "bbox": np.abs(detected[k]).round(2).tolist(),
            "score": scores[k],
        }
        for k in order
    ]
    (folder / "found.json").write_text(json.dumps(results))


def by_pycocotools(folder: Path) -> dict[str, Any]:
    """Read and score the files as its manual says."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(folder / "truth.json"))
        evaluator = COCOeval(truth, truth.loadRes(str(folder / "found.json")), "bbox")
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    return {"seconds": time.perf_counter() - start, "figures": evaluator.stats.tolist()}


def by_boxmend(folder: Path) -> dict[str, Any]:
    """Read and score the files by one call, as `boxmend evaluate` does."""
    from boxmend.training.evaluation import evaluate

    start = time.perf_counter()
    evaluation = evaluate(predictions=folder / "found.json", data=folder / "truth.json")
    figures = list(evaluation.figures.values())[:NUM_FIGURES]
    return {"seconds": time.perf_counter() - start, "figures": figures}


def by_parts(folder: Path) -> dict[str, Any]:
    """Score the same files part by part."""
    import boxmend
    from boxmend.auditing.predictions import read_coco_results
    from boxmend.data.formats.coco.sizes import measure_annotations
    from boxmend.scoring.coco import CocoTruth, score_by_coco
    from boxmend.scoring.voc import average_precision

    times = [time.perf_counter()]
    dataset = boxmend.load(folder / "truth.json")
    times.append(time.perf_counter())
    predictions = read_coco_results(folder / "found.json", dataset)
    times.append(time.perf_counter())
    truth = CocoTruth(
        dataset.image_rows,
        dataset.labels,
        dataset.boxes,
        dataset.is_ignored,
        dataset.is_crowd,
        *measure_annotations(dataset),
    )
    score_by_coco(predictions, truth, num_labels=NUM_LABELS)
    times.append(time.perf_counter())
    average_precision(predictions, truth, num_labels=NUM_LABELS)
    times.append(time.perf_counter())
    return {"parts": dict(zip(PARTS, np.diff(times).tolist(), strict=True))}


TASKS = {"pycocotools": by_pycocotools, "boxmend": by_boxmend, "parts": by_parts}


def measure_task(task: str, folder: Path) -> dict[str, Any]:
    """Run a task in its own process; return its figures and its peak memory."""
    command = [sys.executable, __file__, "--task", task, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    measurement: dict[str, Any] = json.loads(done.stdout)
    return measurement


def compare(num_images: int, rounds: int) -> None:
    """Make the files, time all tasks in turns, and print the tables."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_files(folder, num_images)
        measurements = [{task: measure_task(task, folder) for task in TASKS} for _ in range(rounds)]
    seconds = {
        task: statistics.median(measurement[task]["seconds"] for measurement in measurements)
        for task in ("pycocotools", "boxmend")
    }
    for task, value in seconds.items():
        print(f"{task}: {value:.2f} s, {measurements[0][task]['megabytes']:.0f} MB")
    for part in PARTS:
        value = statistics.median(
            measurement["parts"]["parts"][part] for measurement in measurements
        )
        print(f"  {part}: {value:.2f} s")
    ours, theirs = measurements[0]["boxmend"]["figures"], measurements[0]["pycocotools"]["figures"]
    pairs = zip(ours, theirs, strict=True)
    apart = max(abs((-1 if a is None else a) - b) for a, b in pairs)
    print(f"largest difference of the {NUM_FIGURES} figures: {apart:.1e} (AP {ours[0]:.4f})")
    ratio = seconds["pycocotools"] / seconds["boxmend"]
    print(f"boxmend is {ratio:.0f} times faster (target: {MIN_SPEEDUP})")


def main() -> None:
    """Compare, or run one task for a comparing process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.task is None:
        compare(chosen.images, chosen.rounds)
        return
    answer = TASKS[chosen.task](chosen.folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(answer | {"megabytes": peak}))


if __name__ == "__main__":
    main()
