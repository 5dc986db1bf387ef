"""Audited runs on disk, made by hand: drawn images, noise that is known, fixes with probabilities.

`noisy_run` spoils the drawn dataset and proposes what the truth says, mixed with proposals that are
wrong. `plain_run` has a few fixes whose every number is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from boxmend.auditing.fixes.table import FIXES_FILE, Fixes, Kind, write_fixes
from boxmend.cli import run as run_command
from boxmend.data.dataset import UNKNOWN, Dataset, Images, as_ids
from boxmend.data.fingerprint import fingerprint
from boxmend.data.formats import load
from boxmend.runs import folder as runs

Box = tuple[float, float, float, float]
NOWHERE: Box = (np.nan, np.nan, np.nan, np.nan)
NAMES = ("van", "</script><img src=x onerror=alert(1)>", "bus")
SIZE = (200, 150)


@dataclass(frozen=True)
class Fix:
    """One fix, by rows and labels."""

    kind: Kind
    row: int
    image: int
    old: int
    new: int
    old_box: Box
    new_box: Box
    p_wrong: float = 0.9
    p_fix: float = 0.8
    kept: int = UNKNOWN
    reason: str = "detections say otherwise"


def fixes_of(found: Sequence[Fix]) -> Fixes:
    """Fixes as columns, named f0, f1 ..."""
    return Fixes(
        ids=[f"f{number}" for number in range(len(found))],
        kinds=np.array([one.kind for one in found], np.int8),
        rows=np.array([one.row for one in found], np.int64),
        image_rows=np.array([one.image for one in found], np.int64),
        old_labels=np.array([one.old for one in found], np.int64),
        new_labels=np.array([one.new for one in found], np.int64),
        old_boxes=np.array([one.old_box for one in found], np.float64).reshape(-1, 4),
        new_boxes=np.array([one.new_box for one in found], np.float64).reshape(-1, 4),
        kept_rows=np.array([one.kept for one in found], np.int64),
        p_wrong=np.array([one.p_wrong for one in found], np.float64),
        p_fix=np.array([one.p_fix for one in found], np.float64),
        iou_gain=np.array([0.25 if one.kind == Kind.BAD_BOX else 0.0 for one in found]),
        reasons=[one.reason for one in found],
    )


def audited(folder: Path, address: str, dataset: Dataset, fixes: Fixes) -> Path:
    """The folder of a finished audit of a dataset that lies at `address`."""
    sha256 = fingerprint(dataset)
    data = {"sha256": sha256, "images": len(dataset.images), "annotations": len(dataset)}
    data |= {"label_names": list(dataset.label_names)}
    facts = {"kind": "audit", "addresses": [address], "predictions": [], "data": data}
    run = runs.create(folder, {}, facts)
    write_fixes(run.path / FIXES_FILE, dataset, fixes, sha256)
    run.finish({})
    return run.path


def drawn_dataset(
    folder: Path, boxes: Sequence[Box], labels: Sequence[int], files: Sequence[str]
) -> Dataset:
    """Two annotations an image, on images of two colours."""
    folder.mkdir(parents=True)
    for number, name in enumerate(files):
        image = Image.new("RGB", SIZE, (40 + 20 * (number % 8), 90, 120))
        image.paste((200, 180, 60), (40, 30, 120, 100))
        image.save(folder / name, "PNG")
    number, n = len(files), len(boxes)
    return Dataset(
        images=Images(
            ids=as_ids(list(range(1, number + 1))),
            file_names=list(files),
            paths=[str(folder / name) for name in files],
            splits=["all"] * number,
            widths=np.full(number, SIZE[0], np.int64),
            heights=np.full(number, SIZE[1], np.int64),
            sources=np.zeros(number, np.int64),
            rows=np.arange(number),
        ),
        label_names=NAMES,
        annotation_ids=as_ids(list(range(10, 10 + n))),
        image_rows=np.arange(n) // 2,
        labels=np.array(labels, np.int64),
        boxes=np.array(boxes, np.float64),
        is_crowd=np.zeros(n, np.bool_),
        is_difficult=np.zeros(n, np.bool_),
        source_of=np.zeros(n, np.int64),
        source_rows=np.full(n, -1, np.int64),
    )


def saved(folder: Path, dataset: Dataset) -> tuple[str, Dataset]:
    """The dataset as COCO below `folder`, with its address, read again."""
    dataset.save(folder / "data", format="coco")
    address = str(folder / "data")
    return address, load(address)


BOX: Box = (40, 30, 120, 100)
MOVED: Box = (50, 40, 130, 110)
FIXES = (
    Fix(
        Kind.WRONG_LABEL,
        0,
        0,
        0,
        2,
        BOX,
        BOX,
        p_wrong=0.99,
        p_fix=0.98,
        reason="a bus, by <b>5</b>",
    ),
    Fix(Kind.WRONG_LABEL, 2, 1, 0, 2, BOX, BOX, p_wrong=0.95, p_fix=0.97),
    Fix(Kind.BAD_BOX, 4, 2, 1, 1, MOVED, BOX, p_wrong=0.9, p_fix=0.96),
    Fix(Kind.MISSING, UNKNOWN, 3, UNKNOWN, 2, NOWHERE, BOX, p_wrong=0.8, p_fix=0.7),
    Fix(Kind.SPURIOUS, 8, 4, 0, UNKNOWN, MOVED, NOWHERE, p_wrong=0.7, p_fix=0.6),
    Fix(Kind.DUPLICATE, 10, 5, 2, UNKNOWN, MOVED, NOWHERE, p_wrong=0.6, p_fix=0.55, kept=11),
    Fix(Kind.WRONG_LABEL, 12, 6, 2, 0, BOX, BOX, p_wrong=0.5, p_fix=0.4),
    Fix(Kind.WRONG_LABEL, 14, 7, 0, 2, BOX, BOX, p_wrong=0.4, p_fix=0.3),
)
FILES = (*(f"{number}.png" for number in range(7)), "quo'te & <i>.png")


def plain_run(folder: Path, found: Sequence[Fix] = FIXES) -> Path:
    """An audit with one fix an image; every annotation is a van, a hostile one or a bus."""
    labels = [0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 2, 2, 2, 1, 0, 1]
    boxes = [MOVED if row in (4, 8, 10) else BOX for row in range(16)]
    dataset = drawn_dataset(folder / "pictures", boxes, labels, FILES)
    address, read = saved(folder, dataset)
    return audited(folder / "run", address, read, fixes_of(found))


def noisy_run(folder: Path, images: int = 60, repeat: int = 1) -> Path:
    """An audit of the drawn dataset with noise in it; some of what it proposes is wrong.

    `repeat` proposes everything so often, under other names, to fill a long queue.
    """
    clean, noisy = folder / "clean", folder / "noisy"
    assert run_command(["synth", "--images", str(images), "--out", str(clean)]) == 0
    noise = ["--labels", "symmetric:0.2", "--boxes", "uniform:0.2", "--missing", "0.05"]
    told = ["noise", str(clean), "--out", str(noisy), *noise, "--spurious", "0.05"]
    assert run_command(told) == 0
    truth, dataset = load(str(clean)), load(str(noisy))
    found = proposals(truth, dataset, np.random.default_rng(5)) * repeat
    return audited(folder / "run", str(noisy), dataset, fixes_of(found))


def proposals(truth: Dataset, dataset: Dataset, rng: np.random.Generator) -> list[Fix]:
    """What differs from the truth, with one wrong proposal beside four."""
    image_of = {name: row for row, name in enumerate(dataset.images.file_names)}
    true_row = {one: row for row, one in enumerate(truth.annotation_ids.tolist())}
    found = []
    for row, one in enumerate(dataset.annotation_ids.tolist()):
        image, old = int(dataset.image_rows[row]), int(dataset.labels[row])
        box: Box = tuple(dataset.boxes[row].tolist())
        p_fix = float(rng.beta(6, 1.2))
        chance = (min(p_fix + 0.05, 1.0), p_fix)
        if one not in true_row:
            found.append(Fix(Kind.SPURIOUS, row, image, old, UNKNOWN, box, NOWHERE, *chance))
            continue
        there = true_row[one]
        new, true_box = int(truth.labels[there]), tuple(truth.boxes[there].tolist())
        if new == old and rng.random() < 0.05:
            new = (old + 1) % len(dataset.label_names)  # a wrong proposal
        if new != old:
            reason = f"{rng.integers(2, 9)} detections over it are {dataset.label_names[new]}"
            found.append(
                Fix(Kind.WRONG_LABEL, row, image, old, new, box, box, *chance, reason=reason)
            )
        if np.abs(np.array(box) - true_box).max() > 6:
            reason = "detections agree on another box"
            found.append(
                Fix(Kind.BAD_BOX, row, image, old, old, box, true_box, *chance, reason=reason)
            )
    known = set(dataset.annotation_ids.tolist())
    for row, one in enumerate(truth.annotation_ids.tolist()):
        if one not in known:
            image = image_of[truth.images.file_names[truth.image_rows[row]]]
            new, box = int(truth.labels[row]), tuple(truth.boxes[row].tolist())
            reason = "a confident detection that no annotation explains"
            found.append(
                Fix(Kind.MISSING, UNKNOWN, image, UNKNOWN, new, NOWHERE, box, reason=reason)
            )
    return found
