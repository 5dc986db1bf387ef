"""Measure a ledger's size and speed: COCO's 860,000 annotations, visited in 12 epochs.

The generated entries resemble those of `mend`: in the first quarter nothing is judged, later most
labels are kept and most boxes moved. Writing and each way of reading run in processes of their
own, which have their own peak memory. The time of generating entries does not count.

    python benchmarks/bench_ledger.py [--annotations N] [--epochs N]
"""

import argparse
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from numpy.typing import NDArray

from boxmend.runs.ledger import Entries, Judgement, Ledger, read

ANNOTATIONS_PER_IMAGE = 860_000 / 118_000
IMAGES_PER_STEP = 16
STEPS_AT_ONCE = 256  # steps whose entries are generated together, and then appended one by one
NUM_LABELS = 80
WARM_UP = 0.25  # share of the epochs
FIELDS = Entries.__dataclass_fields__


class Visits:
    """A dataset of random boxes, with plausible visits to each."""

    def __init__(self, annotations: int, epochs: int) -> None:
        self.rng = np.random.default_rng(0)
        self.epochs = epochs
        self.num_images = round(annotations / ANNOTATIONS_PER_IMAGE)
        corner = self.rng.uniform(0, 400, (annotations, 2))
        side = self.rng.uniform(5, 150, (annotations, 2))
        boxes = np.concatenate([corner, corner + side], axis=1)
        self.boxes = np.round(boxes, 2).astype(np.float32)
        self.labels = self.rng.integers(0, NUM_LABELS, annotations)
        self.image_of = np.sort(self.rng.integers(0, self.num_images, annotations))
        self.starts = np.searchsorted(self.image_of, np.arange(self.num_images + 1))

    def steps(self) -> Iterator[Entries]:
        """Yield the entries of every step of a training, in order."""
        step = 0
        for epoch in range(self.epochs):
            batches = np.array_split(
                self.rng.permutation(self.num_images), -(-self.num_images // IMAGES_PER_STEP)
            )
            for first in range(0, len(batches), STEPS_AT_ONCE):
                rows = [self._rows(images) for images in batches[first : first + STEPS_AT_ONCE]]
                whole = self._entries(epoch, step, rows)
                yield from _split_entries(whole, [len(row) for row in rows])
                step += len(rows)

    def _rows(self, images: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the annotations of some images."""
        ranges = [np.arange(self.starts[one], self.starts[one + 1]) for one in images.tolist()]
        return np.concatenate(ranges)

    def _entries(self, epoch: int, first: int, rows: list[NDArray[np.int64]]) -> Entries:
        rng, sizes = self.rng, [len(one) for one in rows]
        row = np.concatenate(rows)
        n, is_warm_up = len(row), epoch < WARM_UP * self.epochs
        boxes = self.boxes[row]
        verdicts = rng.choice(3, n, p=[0.65, 0.25, 0.1]).astype(np.int8)
        verdicts[:] = Judgement.UNJUDGED if is_warm_up else verdicts
        num_candidates = np.where(rng.random(n) < 0.3, 0, rng.integers(1, 11, n))
        is_moved = (num_candidates[:, None] > 0) & (not is_warm_up)
        moved = boxes + rng.normal(0, 4, (n, 4)).astype(np.float32)
        matched = np.where(is_moved, moved, boxes)
        new = rng.integers(0, NUM_LABELS, n)
        thresholds = rng.exponential(1, n) + 1
        confidences = rng.random(n)
        return Entries(
            epochs=np.full(n, epoch),
            steps=np.repeat(np.arange(first, first + len(rows)), sizes),
            annotation_ids=row + 1,
            image_ids=self.image_of[row] + 1,
            losses=rng.exponential(1, n).astype(np.float32),
            thresholds=np.where(is_warm_up, np.nan, thresholds).astype(np.float32),
            verdicts=verdicts,
            num_candidates=num_candidates,
            old_labels=self.labels[row],
            new_labels=np.where(verdicts == Judgement.RELABELLED, new, self.labels[row]),
            confidences=np.where(is_warm_up, np.nan, confidences).astype(np.float32),
            noisy_boxes=boxes,
            matched_boxes=matched,
            final_boxes=np.where(is_moved, (matched + boxes) / 2, boxes),
            is_kept=verdicts != Judgement.DISCARDED,
        )


def _split_entries(whole: Entries, sizes: list[int]) -> Iterator[Entries]:
    ends = np.cumsum(sizes).tolist()
    columns = {name: getattr(whole, name) for name in FIELDS}
    for start, end in zip([0, *ends], ends, strict=False):
        yield Entries(**{name: column[start:end] for name, column in columns.items()})


def write(run: Path, annotations: int, epochs: int) -> dict[str, float]:
    """Write a ledger as a training does, and close it."""
    visits = Visits(annotations, epochs)
    ledger = Ledger.create(run)
    before = reset_peak()
    took: list[float] = []
    for entries in visits.steps():
        start = time.perf_counter()
        ledger.append(entries)
        took.append(time.perf_counter() - start)
    start = time.perf_counter()
    state = ledger.state()
    saving = time.perf_counter() - start
    start = time.perf_counter()
    ledger.flush()
    closing = time.perf_counter() - start
    return {
        "rows": ledger.num_rows,
        "steps": len(took),
        "seconds": sum(took) + closing,
        "median_step": float(np.median(took)),
        "longest_step": max(took),
        "checkpoint_seconds": saving,
        "checkpoint_bytes": state["pending"].nbytes,
        "megabytes": peak_megabytes(),
        "megabytes_more": peak_megabytes() - before,
    }


def last_epoch(run: Path) -> pa.Table:
    """Read the last epoch with `boxmend.runs.ledger.read`."""
    return read(run, last_epoch_only=True)


def last_labels(run: Path) -> pa.Table:
    """Read the decisions about labels in the last epoch: three columns."""
    return read(run, ["annotation_id", "verdict", "new_label"], last_epoch_only=True)


def history(run: Path) -> pa.Table:
    """Read all visits of one annotation with pyarrow's dataset."""
    return ds.dataset(run / "ledger").to_table(filter=ds.field("annotation_id") == 77)


READERS: dict[str, Callable[[Path], pa.Table]] = {
    "the last epoch, all columns": last_epoch,
    "the last epoch, three columns": last_labels,
    "one annotation's history": history,
}


def read_back(run: Path, name: str) -> dict[str, float]:
    """Read in one of the ways."""
    before = reset_peak()
    start = time.perf_counter()
    table = READERS[name](run)
    seconds = time.perf_counter() - start
    peak = peak_megabytes()
    return {
        "rows": table.num_rows,
        "seconds": seconds,
        "megabytes": peak,
        "megabytes_more": peak - before,
    }


def peak_megabytes() -> float:
    """Return the peak memory of this process in MiB; see `bench_data`."""
    status = Path("/proc/self/status")
    if status.exists():
        marks = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(marks[0].split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def reset_peak() -> float:
    """Reset the peak, if the system allows it; return the memory in use now."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_megabytes()


def apart(run: Path, task: str, options: Any) -> dict[str, float]:
    """Run a task in a process of its own."""
    command = [sys.executable, __file__, "--task", task, "--run", str(run)]
    command += ["--annotations", str(options.annotations), "--epochs", str(options.epochs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{task} failed:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def print_tables(run: Path, options: Any) -> None:
    """Write, read, and print both as tables."""
    result = apart(run, "write", options)
    files = list((run / "ledger").iterdir())
    size = sum(path.stat().st_size for path in files)
    print("| writing | |\n|---|---|")
    for what, value in {
        "rows": f"{result['rows']:,.0f}",
        "size": f"{size / 1e6:,.0f} MB in {len(files)} parts",
        "bytes a row": f"{size / result['rows']:.1f}",
        "rows a second": f"{result['rows'] / result['seconds']:,.0f}",
        "seconds in all": f"{result['seconds']:.1f}",
        "milliseconds a step, the mean": f"{1e3 * result['seconds'] / result['steps']:.2f}",
        "milliseconds a step, the median": f"{1e3 * result['median_step']:.2f}",
        "milliseconds of the longest step": f"{1e3 * result['longest_step']:.0f}",
        "in a checkpoint": f"{result['checkpoint_bytes'] / 1e6:.1f} MB, "
        f"{1e3 * result['checkpoint_seconds']:.0f} ms",
        "peak MB, and of that while writing": f"{result['megabytes']:.0f}, "
        f"{result['megabytes_more']:.0f}",
    }.items():
        print(f"| {what} | {value} |")
    print("\n| reading | rows | seconds | peak MB, of which reading adds |\n|---|---|---|---|")
    for name in READERS:
        got = apart(run, name, options)
        memory = f"{got['megabytes']:.0f}, {got['megabytes_more']:.0f}"
        print(f"| {name} | {got['rows']:,.0f} | {got['seconds']:.2f} | {memory} |")


def main() -> None:
    """Parse the command line of the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--annotations", type=int, default=860_000)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--task", choices=["write", *READERS], help=argparse.SUPPRESS)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    options: Any = parser.parse_args()
    if options.task == "write":
        print(json.dumps(write(options.run, options.annotations, options.epochs)))
    elif options.task:
        print(json.dumps(read_back(options.run, options.task)))
    else:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{options.annotations:,} annotations, {options.epochs} epochs\n")
            print_tables(Path(folder) / "run", options)


if __name__ == "__main__":
    main()
