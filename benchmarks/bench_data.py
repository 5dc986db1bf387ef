"""Measure the speed of reading and writing, as ratios to pycocotools and json in one run.

Every task runs in a process of its own, so that its peak memory is its own; tasks take turns,
and of several rounds the median counts. The second file has outlines, and images beside it.

    python benchmarks/bench_data.py [--boxes N] [--rounds N] [--growth]
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
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import boxmend
from boxmend.cli import run

BOXES_PER_IMAGE = 860_000 / 118_000
NUM_LABELS = 80
Array = NDArray[np.float64]
CROWD_EVERY = 86  # 10,000 of the 860,000 objects of train2017 are crowds, with masks
POINTS = (4, 20)  # of an outline; COCO's have 27 on average, which json takes longer for
TINY_IMAGE = b"\xff\xd8\xff\xd9"  # nothing opens it


def make_file(path: Path, boxes: int, *, outlines: bool = False) -> None:
    """Write a COCO file with the proportions of COCO's train2017."""
    rng = np.random.default_rng(0)
    images = round(boxes / BOXES_PER_IMAGE)
    corner, side = rng.uniform(0, 400, (boxes, 2)), rng.uniform(5, 150, (boxes, 2))
    sides = np.round(np.concatenate([corner, side], axis=1), 2).tolist()
    image_ids = np.sort(rng.integers(1, images + 1, boxes)).tolist()
    labels = rng.integers(1, NUM_LABELS + 1, boxes).tolist()
    shapes = draw_outlines(rng, corner, side) if outlines else [[]] * boxes
    document = {
        "info": {"description": "made for a benchmark"},
        "images": [
            {"license": 1, "file_name": f"{k:012d}.jpg", "height": 600, "width": 640, "id": k}
            for k in range(1, images + 1)
        ],
        "annotations": [
            {
                "segmentation": shapes[k],
                "area": round(box[2] * box[3], 4),
                "iscrowd": int(isinstance(shapes[k], dict)),
                "image_id": image_ids[k],
                "bbox": box,
                "category_id": labels[k],
                "id": k + 1,
            }
            for k, box in enumerate(sides)
        ],
        "categories": [{"id": k, "name": f"label {k}"} for k in range(1, NUM_LABELS + 1)],
    }
    with path.open("w") as file:
        json.dump(document, file)


def draw_outlines(rng: np.random.Generator, corner: Array, side: Array) -> list[Any]:
    """Return an outline for each box: a polygon, or a mask for every crowd."""
    outlines: list[Any] = []
    for k, points in enumerate(rng.integers(*POINTS, len(corner), endpoint=True).tolist()):
        if k % CROWD_EVERY == CROWD_EVERY - 1:
            counts = rng.integers(1, 2000, 10 * points).tolist()
            outlines.append({"counts": counts, "size": [600, 640]})
        else:
            places = corner[k] + side[k] * rng.random((points, 2))
            outlines.append([np.round(places, 2).ravel().tolist()])
    return outlines


def make_images(file: Path) -> None:
    """Write a tiny file for every image of a COCO file, in the folder `images` beside it."""
    for path in boxmend.load(file).images.paths:
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_bytes(TINY_IMAGE)


def read_boxmend(file: Path) -> Callable[[], object]:
    """Read with boxmend."""
    load = boxmend.load  # imports what it needs, as pycocotools has by now
    return lambda: load(file)


def read_pycocotools(file: Path) -> Callable[[], object]:
    """Read with pycocotools, its index included."""
    from pycocotools.coco import COCO

    def read() -> object:
        with contextlib.redirect_stdout(io.StringIO()):
            return COCO(str(file))

    return read


def write_boxmend(file: Path) -> Callable[[], object]:
    """Write back with 40 % of the boxes moved."""
    dataset = boxmend.load(file)
    rows = np.random.default_rng(0).permutation(len(dataset))[: round(0.4 * len(dataset))]
    dataset.boxes[rows] = np.round(dataset.boxes[rows] + 1.25, 2)
    return lambda: dataset.save(file.parent / f"out-{time.time_ns()}", images_as="none")


def write_json(file: Path) -> Callable[[], object]:
    """Write the same content with json.dump."""
    with file.open() as opened:
        document = json.load(opened)

    def write() -> None:
        with (file.parent / f"out-{time.time_ns()}.json").open("w") as out:
            json.dump(document, out)

    return write


def noise_boxmend(file: Path) -> Callable[[], object]:
    """Return a run of the whole noise command, which links the images if there are any."""
    out = file.parent / f"noisy-{time.time_ns()}"
    images_as = "link" if (file.parent / "images").is_dir() else "none"
    tokens = ["noise", str(file), "--labels", "symmetric:0.4", "--boxes", "uniform:0.4"]
    tokens += ["--images-as", images_as, "--out", str(out)]
    return lambda: _quietly(tokens)


def load_and_dump(file: Path) -> Callable[[], object]:
    """Return a run of json.load and json.dump on the file."""

    def both() -> None:
        with file.open() as opened:
            document = json.load(opened)
        with (file.parent / f"out-{time.time_ns()}.json").open("w") as out:
            json.dump(document, out)

    return both


def check_boxmend(file: Path) -> Callable[[], object]:
    """Return a run of the check command that opens no images."""
    return lambda: _quietly(["check", str(file), "--no-open-images"])


def _quietly(tokens: list[str]) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        if run(tokens) > 1:
            raise SystemExit(f"boxmend {' '.join(tokens)} failed")


TASKS = {
    "read boxmend": read_boxmend,
    "read pycocotools": read_pycocotools,
    "write boxmend": write_boxmend,
    "write json.dump": write_json,
    "noise boxmend": noise_boxmend,
    "json.load + json.dump": load_and_dump,
    "check boxmend": check_boxmend,
}
Bar = tuple[str, str, str, float]
BARS: list[Bar] = [  # task, task to compare it with, measure, maximum ratio
    ("read boxmend", "read pycocotools", "seconds", 0.25),
    ("read boxmend", "read pycocotools", "megabytes", 0.5),
    ("write boxmend", "write json.dump", "seconds", 0.2),
    ("noise boxmend", "json.load + json.dump", "seconds", 1.0),
    ("check boxmend", "read boxmend", "seconds", 3.0),
]
OUTLINED_TASKS = ("noise boxmend", "json.load + json.dump")
OUTLINED_BARS: list[Bar] = [
    ("noise boxmend", "json.load + json.dump", "seconds", 1.0),
    ("noise boxmend", "json.load + json.dump", "megabytes", 1.0),
]
GROWING = ("read boxmend", "write boxmend", "noise boxmend", "check boxmend")


def peak_megabytes() -> float:
    """Return the peak memory of this process in MiB.

    On Linux, ru_maxrss includes the memory of the program that this process was before; VmHWM does
    not.
    """
    status = Path("/proc/self/status")
    if status.exists():
        marks = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(marks[0].split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(task: str, file: Path) -> None:
    """Run one task in this process and print what it took."""
    work = TASKS[task](file)
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    peak = peak_megabytes()
    del result
    print(json.dumps({"seconds": seconds, "megabytes": peak}))


def measure_apart(task: str, file: Path) -> dict[str, float]:
    """Run one task in a process of its own."""
    command = [sys.executable, __file__, "--task", task, "--file", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{task} failed:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    for left in file.parent.glob("*-*"):
        subprocess.run(["rm", "-rf", str(left)], check=True)
    return figures


def compare(file: Path, rounds: int, tasks: Iterable[str], bars: list[Bar]) -> None:
    """Print the table of seconds and memory, and the table of ratios."""
    size = file.stat().st_size / 2**20
    images = len(list((file.parent / "images").glob("*")))
    print(f"\n{size:,.0f} MB, {images:,} images, median of {rounds} rounds\n")
    figures: dict[str, list[dict[str, float]]] = {task: [] for task in tasks}
    for _ in range(rounds):
        for task, of_task in figures.items():
            of_task.append(measure_apart(task, file))
    medians: dict[str, dict[str, float]] = {
        task: {
            key: statistics.median(run[key] for run in of_task) for key in ("seconds", "megabytes")
        }
        for task, of_task in figures.items()
    }
    print("| task | seconds | peak MB |\n|---|---|---|")
    for task, median in medians.items():
        print(f"| {task} | {median['seconds']:.2f} | {median['megabytes']:.0f} |")
    print("\n| compared | measure | ratio | at most |\n|---|---|---|---|")
    for task, other, key, most in bars:
        ratio = medians[task][key] / medians[other][key]
        print(f"| {task} / {other} | {key} | {ratio:.2f} | {most} |")


def compare_outlined(folder: Path, boxes: int, rounds: int) -> None:
    """Print the tables of a file with outlines and images beside it."""
    folder.mkdir()
    file = folder / "instances_train.json"
    make_file(file, boxes, outlines=True)
    make_images(file)
    compare(file, rounds, OUTLINED_TASKS, OUTLINED_BARS)


def growth(folder: Path) -> None:
    """Print what each task takes per million boxes, from one million to eight."""
    print("\n| boxes | " + " | ".join(f"{task}, s per million" for task in GROWING) + " |")
    print("|---" * (len(GROWING) + 1) + "|")
    for millions in (1, 2, 4, 8):
        file = folder / "instances_train.json"
        make_file(file, millions * 1_000_000)
        cells = [measure_apart(task, file)["seconds"] / millions for task in GROWING]
        print(f"| {millions} million | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")


def main() -> None:
    """Parse the command line of the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--boxes", type=int, default=860_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--growth", action="store_true", help="also one to eight million boxes")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options: Any = parser.parse_args()
    if options.task:
        measure(options.task, options.file)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "instances_train.json"
        make_file(file, options.boxes)
        print(f"{options.boxes:,} boxes, without outlines and then with")
        compare(file, options.rounds, TASKS, BARS)
        compare_outlined(Path(folder) / "outlined", options.boxes, options.rounds)
        if options.growth:
            growth(Path(folder))


if __name__ == "__main__":
    main()
