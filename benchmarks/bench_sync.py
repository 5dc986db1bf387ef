"""Measure the cost of waiting until an output is on the disk, as a ratio in one run.

Writes the same dataset with and without sync, in turns, in each format: of several rounds the
median counts.

    python benchmarks/bench_sync.py [--images N] [--rounds N] [--folder DIR]
"""

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import boxmend
from bench_data import make_file
from boxmend.data.dataset import Dataset
from boxmend.data.formats import FORMATS
from boxmend.data.formats.writing import WriteOptions, write


def time_writing(dataset: Dataset, out: Path, format: str, *, sync: bool) -> float:
    """Write a dataset into a new folder, and return the seconds that takes."""
    begin = time.perf_counter()
    write(dataset, out, format, WriteOptions(allow_lossy=True, sync=sync))
    seconds = time.perf_counter() - begin
    shutil.rmtree(out)
    return seconds


def main() -> None:
    """Print a row for each format."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default=None, help="where to write; default: temporary files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        make_file(folder / "instances_train.json", round(options.images * 860 / 118))
        dataset = boxmend.load(folder / "instances_train.json")
        print(
            f"{len(dataset.images):,} images, {len(dataset):,} annotations; seconds, median of "
            f"{options.rounds}"
        )
        print("format  without  with sync  ratio")
        for format in FORMATS:
            seconds = np.array(
                [
                    [
                        time_writing(dataset, folder / "out", format, sync=sync)
                        for sync in (False, True)
                    ]
                    for _ in range(options.rounds)
                ]
            )
            plain, synced = (statistics.median(column) for column in seconds.T.tolist())
            print(f"{format:6}  {plain:7.2f}  {synced:9.2f}  {synced / plain:5.2f}")


if __name__ == "__main__":
    main()
