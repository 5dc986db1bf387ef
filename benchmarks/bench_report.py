"""Time how long a report takes, and how fast its page responds: 20,000 annotations, 12 epochs.

The benchmark writes 5,000 photographs of noise and shapes, 500 x 375, and the ledger of a run in
which every annotation changed. It makes the report twice, each time in a process of its own; the
second time the pictures exist already. Then Chromium opens the page and filters, sorts and
searches; times are from the event until the new layout.

    python benchmarks/bench_report.py [--annotations N] [--images N] [--keep FOLDER]
"""

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from boxmend.data.dataset import Dataset, Images, as_ids
from boxmend.data.fingerprint import fingerprint
from boxmend.data.formats import load
from boxmend.runs import folder as runs
from boxmend.runs.ledger import Entries, Judgement, Ledger

SIZE = (500, 375)
NUM_LABELS = 20
EPOCHS = 12
ROUNDS = 5
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--no-first-run", "--disable-sync"),
]
ACTIONS = {  # control, and the values that it gets in turn
    "filter by label": ("from", ["3", "7", ""]),
    "filter by verdict": ("verdict", ["relabelled", "kept", ""]),
    "filter by box": ("moved", ["no", "yes", ""]),
    "search by file name": ("query", ["0", "01", "012", ""]),
    "sort": ("sort", ["moved", "confidence", "file", "loss"]),
}
TIMED = """([id, value]) => {
  const control = document.getElementById(id);
  const start = performance.now();
  control.value = value;
  control.dispatchEvent(new Event(id === 'query' ? 'input' : 'change', { bubbles: true }));
  document.body.getBoundingClientRect();
  return performance.now() - start;
}"""


def draw(folder: Path, num_images: int, rng: np.random.Generator) -> None:
    """Write images that compress about as photographs do."""
    folder.mkdir(parents=True)
    for number in range(num_images):
        small = rng.integers(40, 216, (30, 40, 3), np.uint8)
        image = Image.fromarray(small).resize(SIZE, Image.Resampling.BICUBIC)
        pen = ImageDraw.Draw(image)
        for _ in range(6):
            x, y = int(rng.integers(0, SIZE[0])), int(rng.integers(0, SIZE[1]))
            color = tuple(rng.integers(0, 256, 3).tolist())
            pen.ellipse((x, y, x + 90, y + 70), fill=color, outline=(0, 0, 0))
        image.save(folder / f"{number:06d}.jpg", quality=88)


def dataset_of(
    folder: Path, annotations: int, num_images: int, rng: np.random.Generator
) -> Dataset:
    """Return annotations with random boxes on the images."""
    names = [f"{number:06d}.jpg" for number in range(num_images)]
    corner = rng.uniform(0, 1, (annotations, 2)) * (np.array(SIZE) - 60)
    side = rng.uniform(20, 220, (annotations, 2))
    boxes = np.concatenate([corner, np.minimum(corner + side, SIZE)], axis=1).round(2)
    return Dataset(
        images=Images(
            ids=as_ids(list(range(num_images))),
            file_names=names,
            paths=[str(folder / name) for name in names],
            splits=["train"] * num_images,
            widths=np.full(num_images, SIZE[0]),
            heights=np.full(num_images, SIZE[1]),
            sources=np.zeros(num_images, np.int64),
            rows=np.arange(num_images),
        ),
        label_names=tuple(f"label {number}" for number in range(NUM_LABELS)),
        annotation_ids=as_ids(list(range(annotations))),
        image_rows=np.sort(rng.integers(0, num_images, annotations)),
        labels=rng.integers(0, NUM_LABELS, annotations),
        boxes=boxes,
        is_crowd=np.zeros(annotations, np.bool_),
        is_difficult=np.zeros(annotations, np.bool_),
        source_of=np.zeros(annotations, np.int64),
        source_rows=np.arange(annotations),
    )


def epoch_of(dataset: Dataset, epoch: int, rng: np.random.Generator) -> Entries:
    """Return plausible visits of an epoch: boxes move, a third of the labels change."""
    n = len(dataset)
    verdicts = rng.choice(3, n, p=[0.6, 0.3, 0.1]).astype(np.int8)
    moved = (dataset.boxes + rng.normal(0, 6, (n, 4))).astype(np.float32)
    final: NDArray[np.float32] = np.clip(moved, 0, np.tile(np.array(SIZE, np.float32), 2))
    labels = np.where(verdicts == Judgement.RELABELLED, (dataset.labels + 3) % 7, dataset.labels)
    return Entries(
        epochs=np.full(n, epoch),
        steps=np.full(n, epoch),
        annotation_ids=dataset.annotation_ids,
        image_ids=dataset.image_ids,
        losses=rng.exponential(1, n).astype(np.float32),
        thresholds=np.full(n, 1.5, np.float32),
        verdicts=verdicts,
        num_candidates=rng.integers(0, 9, n),
        old_labels=dataset.labels,
        new_labels=labels,
        confidences=rng.random(n).astype(np.float32),
        noisy_boxes=dataset.boxes.astype(np.float32),
        matched_boxes=moved,
        final_boxes=final,
        is_kept=np.ones(n, np.bool_),
    )


def make_run(folder: Path, annotations: int, num_images: int) -> Path:
    """Write the images and the dataset; return a finished run."""
    rng = np.random.default_rng(0)
    draw(folder / "images", num_images, rng)
    dataset_of(folder / "images", annotations, num_images, rng).save(folder / "data", format="coco")
    dataset = load(folder / "data")
    facts = {
        "data": {"images": num_images, "annotations": annotations, "sha256": fingerprint(dataset)},
        "addresses": [str(folder / "data")],
    }
    run = runs.create(folder / "run", {"warm_up": 0.0, "method": "mend"}, facts)
    book = Ledger.create(run.path)
    for epoch in range(EPOCHS):
        book.append(epoch_of(dataset, epoch, rng))
    book.flush()
    run.finish({"steps": EPOCHS, "ledger_rows": book.num_rows})
    return run.path


class TimedCommand(NamedTuple):
    """The duration of a command, and its answer."""

    seconds: float
    cpu_seconds: float  # of the command and its workers
    answer: dict[str, Any]


def time_command(command: list[str]) -> TimedCommand:
    """Run a command that answers in JSON."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return TimedCommand(seconds, cpu, json.loads(done.stdout))


def in_the_browser(path: Path, chromium: str) -> dict[str, list[float]]:
    """Return the milliseconds of opening the page and of every action on it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        start = time.perf_counter()
        page.goto(path.as_uri())
        page.locator(".card").first.wait_for(state="attached")
        took = {"open the page": [1e3 * (time.perf_counter() - start)]}
        for what, (control, values) in ACTIONS.items():
            steps = [(control, value) for _ in range(ROUNDS) for value in values]
            took[what] = [page.evaluate(TIMED, list(step)) for step in steps]
        browser.close()
    return took


def measure(folder: Path, annotations: int, num_images: int) -> None:
    """Make a run, report on it, open the page, and print the times."""
    run = make_run(folder, annotations, num_images)
    command = [sys.executable, "-m", "boxmend", "report", str(run), "--json"]
    first, again = time_command(command), time_command(command)
    answer = first.answer
    beside = Path(answer["picture_folder"])
    size = sum(path.stat().st_size for path in beside.iterdir())
    print("| making the report | |\n|---|---|")
    for what, took in (("the first time", first), ("with existing pictures", again)):
        print(f"| {what} | {took.seconds:.1f} s, of the CPU {took.cpu_seconds:.1f} s |")
    print(f"| annotations shown | {answer['annotations_shown']:,} |")
    print(f"| the page | {answer['bytes'] / 1e6:.1f} MB |")
    where = "in it" if answer["pictures_embedded"] else "beside it"
    print(f"| pictures, {where} | {size / 1e6:.0f} MB |")
    chromium = shutil.which("chromium")
    if chromium is None:
        print("\nno Chromium is installed: the page was not opened")
        return
    print("\n| in the page | median | longest |\n|---|---|---|")
    for what, times in in_the_browser(Path(answer["out"]), chromium).items():
        print(f"| {what} | {statistics.median(times):.0f} ms | {max(times):.0f} ms |")


def main() -> None:
    """Parse the command line of the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--annotations", type=int, default=20_000)
    parser.add_argument("--images", type=int, default=5_000)
    parser.add_argument("--keep", type=Path, help="folder to work in and to leave as it is")
    options: Any = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) if options.keep is None else options.keep
        measure(place, options.annotations, options.images)


if __name__ == "__main__":
    main()
