"""Measure the time and memory of an audit of a dataset as large as COCO.

118,000 images with 860,000 annotations of 80 classes and 4 million detections are made up: true
objects in random places, annotated with 10 % wrong labels, edges off by up to 10 % of the side, 3 %
missing and 3 % spurious annotations. The detector sees nine objects of ten, most of them under
their true label; its other detections lie anywhere, or near an object, and have low scores. One
process runs the command, and another one measures the parts. The output has wall-clock seconds,
processor seconds and the peak memory so far.

    python benchmarks/bench_audit.py [--images N] [--format json|parquet] [--probe SHARE]
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

IMAGES = 118_000
ANNOTATIONS_PER_IMAGE = 860 / 118
DETECTIONS_PER_IMAGE = 4000 / 118
NUM_LABELS = 80
WIDTH, HEIGHT = 640, 480
WRONG, MISSING, SPURIOUS = 0.1, 0.03, 0.03  # shares of the annotations
OFF = 0.1  # maximum error of annotated edges, in shares of the side
NEAR = 1 / 3  # of the detections lie near an object
MOST_SECONDS, MOST_GIB = 180, 4
AT_ONCE = 200_000  # entries turned into text together
GIB = 2**20  # in the unit of ru_maxrss, KiB

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


def make_files(folder: Path, num_images: int, format: str) -> Path:
    """Write data.json and a file of detections; return the path of the latter."""
    rng = np.random.default_rng(0)
    num = round(num_images * ANNOTATIONS_PER_IMAGE)
    images = np.sort(rng.integers(0, num_images, num))
    labels = np.minimum(rng.geometric(0.06, num) - 1, NUM_LABELS - 1)  # few classes are common
    boxes = _random_boxes(rng, num)
    _write_dataset(folder / "data.json", num_images, _noisy(rng, images, labels, boxes))
    out = folder / f"found.{format}"
    detections = _random_detections(
        rng, round(num_images * DETECTIONS_PER_IMAGE), images, labels, boxes
    )
    writer = _write_results if format == "json" else _write_table
    writer(out, *detections)
    return out


def _random_boxes(rng: np.random.Generator, num: int) -> Floats:
    """Return boxes [n, 4] of all sizes within the image, xywh."""
    sides = np.clip(rng.lognormal(4.2, 0.8, (num, 2)), 8, (WIDTH, HEIGHT))
    low = rng.random((num, 2)) * ((WIDTH, HEIGHT) - sides)
    return np.concatenate([low, sides], axis=1)


def _shaken(rng: np.random.Generator, boxes: Floats, share: float) -> Floats:
    """Move each edge by up to a share of its side."""
    moves = rng.uniform(-share, share, boxes.shape) * np.tile(boxes[:, 2:], 2)
    return np.concatenate([boxes[:, :2] + moves[:, :2], boxes[:, 2:] + moves[:, 2:]], axis=1)


def _noisy(
    rng: np.random.Generator, images: Rows, labels: Rows, boxes: Floats
) -> tuple[Rows, Rows, Floats]:
    num = len(images)
    is_wrong, is_there = rng.random(num) < WRONG, rng.random(num) >= MISSING
    noisy = np.where(is_wrong, rng.integers(0, NUM_LABELS, num), labels)
    extra = round(num * SPURIOUS)
    return (
        np.append(images[is_there], rng.integers(0, images.max() + 1, extra)),
        np.append(noisy[is_there], rng.integers(0, NUM_LABELS, extra)),
        np.concatenate([_shaken(rng, boxes, OFF)[is_there], _random_boxes(rng, extra)]),
    )


def _random_detections(
    rng: np.random.Generator, num: int, images: Rows, labels: Rows, boxes: Floats
) -> tuple[Rows, Rows, Floats, Floats]:
    """Return detections by image: rows of images, labels, boxes and scores."""
    near = round(num * NEAR)
    # The first ones are a good detection of most objects, the next ones repeat some less well.
    first = np.flatnonzero(rng.random(len(images)) < 0.9)[:near]
    again = rng.integers(0, len(images), near - len(first))
    of = np.concatenate([first, again])
    is_true = rng.random(near) < np.where(np.arange(near) < len(first), 0.9, 0.4)
    rows = np.concatenate([images[of], rng.integers(0, images.max() + 1, num - near)])
    detected_labels = np.where(is_true, labels[of], rng.integers(0, NUM_LABELS, near))
    classes = np.concatenate([detected_labels, rng.integers(0, NUM_LABELS, num - near)])
    where = np.concatenate(
        [
            _shaken(rng, boxes[first], 0.08),
            _shaken(rng, boxes[again], 0.3),
            _random_boxes(rng, num - near),
        ]
    )
    sure = np.concatenate([rng.beta(5, 1.5, len(first)), rng.beta(1, 8, num - len(first))])
    order = np.argsort(rows, kind="stable")
    return rows[order], classes[order], where[order], sure[order]


def _write_dataset(out: Path, num_images: int, noisy: tuple[Rows, Rows, Floats]) -> None:
    images, labels, boxes = noisy
    document = {
        "images": [
            {"id": k + 1, "file_name": f"{k + 1:012d}.jpg", "width": WIDTH, "height": HEIGHT}
            for k in range(num_images)
        ],
        "annotations": [
            {
                "id": k + 1,
                "image_id": image + 1,
                "category_id": label + 1,
                "bbox": box,
                "area": box[2] * box[3],
                "iscrowd": 0,
            }
            for k, (image, label, box) in enumerate(
                zip(images.tolist(), labels.tolist(), boxes.round(2).tolist(), strict=True)
            )
        ],
        "categories": [{"id": k + 1, "name": f"class {k}"} for k in range(NUM_LABELS)],
    }
    out.write_bytes(msgspec.json.encode(document))


def _write_results(out: Path, rows: Rows, labels: Rows, boxes: Floats, scores: Floats) -> None:
    with out.open("wb") as file:
        for first in range(0, len(rows), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            columns = (
                *(rows[part] + 1, labels[part] + 1),
                *(boxes[part].round(2), scores[part].round(5)),
            )
            entries = [
                {"image_id": image, "category_id": label, "bbox": box, "score": score}
                for image, label, box, score in zip(
                    *(column.tolist() for column in columns), strict=True
                )
            ]
            file.write(b"[" if not first else b",")
            file.write(msgspec.json.encode(entries)[1:-1])
        file.write(b"]")


def _write_table(out: Path, rows: Rows, labels: Rows, boxes: Floats, scores: Floats) -> None:
    columns = {"image_id": rows + 1, "category_id": labels + 1, "score": scores}
    sides = {name: boxes[:, k].round(2) for k, name in enumerate(("x", "y", "w", "h"))}
    pq.write_table(pa.table({**columns, **sides}), out, compression="zstd")


def parts(folder: Path, predictions_path: Path) -> dict[str, Any]:
    """Audit part by part; return the seconds and peak memory of each, and the counts."""
    from boxmend.auditing.audit import AuditSettings, audit
    from boxmend.auditing.fixes.table import write_fixes
    from boxmend.auditing.predictions import read_predictions
    from boxmend.data.fingerprint import fingerprint
    from boxmend.data.formats import load

    report: dict[str, Any] = {"parts": {}}
    began, worked = time.perf_counter(), time.process_time()

    def record_part(part: str) -> None:
        nonlocal began, worked
        report["parts"][part] = {
            "seconds": time.perf_counter() - began,
            "cpu_seconds": time.process_time() - worked,
            "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / GIB,
        }
        began, worked = time.perf_counter(), time.process_time()

    dataset = load(str(folder / "data.json"))
    record_part("read the dataset")
    predictions = read_predictions([predictions_path], dataset)
    record_part("read the detections")
    result = audit(dataset, predictions, AuditSettings(probe=0))
    record_part("audit")
    write_fixes(folder / "fixes.parquet", dataset, result.fixes, fingerprint(dataset))
    record_part("write the fixes")
    counts = {"annotations": len(dataset), "detections": len(predictions)}
    return {**report, **counts, "fixes": len(result.fixes)}


def command(folder: Path, predictions_path: Path, probe: float) -> dict[str, float]:
    """Run the command as users do; return its seconds and peak memory."""
    asked = ["audit", str(folder / "data.json"), "--predictions", str(predictions_path), "--out"]
    asked += [str(folder / "run"), "--probe", str(probe)]
    began = time.perf_counter()
    with (folder / "said.txt").open("wb") as said:
        started = subprocess.Popen(
            [sys.executable, "-m", "boxmend", *asked], stdout=said, stderr=said
        )
        _, status, used = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    if started.returncode:
        raise SystemExit((folder / "said.txt").read_text())
    return {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "gib": used.ru_maxrss / GIB,
    }


def measure(num_images: int, format: str, probe: float) -> None:
    """Make the files, run each audit in a process of its own, and print the table."""
    with tempfile.TemporaryDirectory() as name:
        path = make_files(Path(name), num_images, format)
        print(f"{path.name}: {path.stat().st_size / 2**20:,.0f} MiB", flush=True)
        whole = command(Path(name), path, probe)
        done = subprocess.run(
            [sys.executable, __file__, "--found", str(path)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    report = json.loads(done.stdout)
    print(f"{num_images:,} images, {report['annotations']:,} annotations, ", end="")
    print(f"{report['detections']:,} detections, {report['fixes']:,} fixes")
    for part, one in report["parts"].items():
        print(f"{part}: {_format_measurement(one)}")
    print(f"the command, with a probe of {probe}: {_format_measurement(whole)}")
    print(f"target: at most {MOST_SECONDS} s and {MOST_GIB} GiB")


def _format_measurement(one: dict[str, float]) -> str:
    work = f"{one['seconds']:.1f} s ({one['cpu_seconds']:.1f} s of work)"
    return f"{work}, peak {one['gib']:.2f} GiB"


def main() -> None:
    """Measure, or run the part that a measuring process asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--format", choices=("json", "parquet"), default="json")
    parser.add_argument("--probe", type=float, default=0.02)
    parser.add_argument("--found", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.found is None:
        measure(chosen.images, chosen.format, chosen.probe)
    else:
        print(json.dumps(parts(chosen.found.parent, chosen.found)))


if __name__ == "__main__":
    main()
