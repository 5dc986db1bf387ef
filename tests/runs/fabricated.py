"""Datasets and finished runs made by hand: what `apply` gets, without a training."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from boxmend.data.dataset import Dataset, Images, as_ids
from boxmend.data.fingerprint import fingerprint
from boxmend.data.formats import load
from boxmend.runs import folder as runs
from boxmend.runs.ledger import Entries, Judgement, Ledger

Box = tuple[float, float, float, float]
KEPT, RELABELLED, DISCARDED, UNJUDGED = (
    Judgement.KEPT,
    Judgement.RELABELLED,
    Judgement.DISCARDED,
    Judgement.UNJUDGED,
)
NAMES = ("van", "truck", "bus")
BOXES: list[Box] = [(10, 10, 30, 50), (40, 20, 60, 40), (5, 5, 25, 15), (50, 50, 90, 70)]
STEPS_PER_EPOCH = 10


@dataclass(frozen=True)
class Visit:
    """One row of a ledger; the box is the annotated one where none is given."""

    epoch: int
    row: int
    verdict: Judgement = KEPT
    label: int | None = None
    confidence: float = nan
    box: Box | None = None
    is_kept: bool = True
    loss: float = 0.0
    threshold: float = 0.0
    num_candidates: int = 0
    matched: Box | None = None


def drawn(
    folder: Path,
    format: str,
    boxes: Sequence[Box] = BOXES,
    names: tuple[str, ...] = NAMES,
    size: int = 100,
) -> str:
    """The address of a dataset on disk: two images, annotations and labels by turns."""
    pictures = folder / "pictures"
    pictures.mkdir(parents=True)
    files = ["a.png", "b.png"]
    for shade, name in enumerate(files):
        Image.new("L", (size, size), shade).save(pictures / name)
    n = len(boxes)
    dataset = Dataset(
        images=Images(
            ids=as_ids([1, 2]),
            file_names=files,
            paths=[str(pictures / name) for name in files],
            splits=["train"] * 2,
            widths=np.full(2, size),
            heights=np.full(2, size),
            sources=np.zeros(2, np.int64),
            rows=np.arange(2),
        ),
        label_names=names,
        annotation_ids=as_ids([10 + row for row in range(n)]),
        image_rows=np.arange(n) * 2 // max(n, 1),
        labels=np.arange(n) % len(names),
        boxes=np.array(boxes, np.float64).reshape(n, 4),
        is_crowd=np.zeros(n, np.bool_),
        is_difficult=np.zeros(n, np.bool_),
        source_of=np.zeros(n, np.int64),
        source_rows=np.arange(n),
    )
    dataset.save(folder / "data", format=format)
    return str(folder / "data")


def entries_of(dataset: Dataset, visits: Sequence[Visit]) -> Entries:
    """The rows of a ledger, as training would make them."""
    rows = np.array([visit.row for visit in visits], np.int64)
    noisy = dataset.boxes[rows].astype(np.float32).reshape(-1, 4)
    final = np.array(
        [noisy[k] if visit.box is None else visit.box for k, visit in enumerate(visits)], np.float32
    ).reshape(-1, 4)
    matched = np.array(
        [noisy[k] if visit.matched is None else visit.matched for k, visit in enumerate(visits)],
        np.float32,
    ).reshape(-1, 4)
    old = dataset.labels[rows]
    new = [old[k] if visit.label is None else visit.label for k, visit in enumerate(visits)]
    epochs = np.array([visit.epoch for visit in visits], np.int64)
    return Entries(
        epochs=epochs,
        steps=epochs * STEPS_PER_EPOCH,
        annotation_ids=dataset.annotation_ids[rows],
        image_ids=dataset.image_ids[rows],
        losses=np.array([visit.loss for visit in visits], np.float32),
        thresholds=np.array([visit.threshold for visit in visits], np.float32),
        verdicts=np.array([visit.verdict for visit in visits], np.int8),
        num_candidates=np.array([visit.num_candidates for visit in visits], np.int64),
        old_labels=old,
        new_labels=np.array(new, np.int64),
        confidences=np.array([visit.confidence for visit in visits], np.float32),
        noisy_boxes=noisy,
        matched_boxes=matched,
        final_boxes=final,
        is_kept=np.array([visit.is_kept for visit in visits], np.bool_),
    )


def facts_of(dataset: Dataset, addresses: Sequence[str]) -> dict[str, Any]:
    """What run.json says of the data."""
    data = {
        "images": len(dataset.images),
        "annotations": len(dataset),
        "label_names": list(dataset.label_names),
        "sha256": fingerprint(dataset),
    }
    return {"data": data, "addresses": list(addresses)}


def finished_run(
    out: Path,
    addresses: str | Sequence[str],
    visits: Sequence[Visit],
    *,
    warm_up: float = 0.0,
    rows_per_part: int = 1000,
) -> Path:
    """The folder of a finished run on these addresses with these visits, ordered by epoch."""
    addresses = [addresses] if isinstance(addresses, str) else addresses
    dataset = load(*addresses)
    run = runs.create(out, {"warm_up": warm_up}, facts_of(dataset, addresses))
    book = Ledger.create(out, rows_per_part=rows_per_part)
    book.append(entries_of(dataset, visits))
    book.flush()
    epochs = max((visit.epoch for visit in visits), default=-1) + 1
    run.finish({"steps": epochs * STEPS_PER_EPOCH, "ledger_rows": book.num_rows})
    return out


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder but images, by its path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".png"
    }
