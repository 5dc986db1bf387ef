"""Finished runs on disk made by hand, with images to cut pictures from."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from boxmend.data.dataset import Dataset
from boxmend.data.fingerprint import fingerprint
from boxmend.data.formats import load
from boxmend.runs import folder as runs
from boxmend.runs.ledger import Entries, Ledger
from tests.web.report.drawn_records import (
    BOXES,
    NAMES,
    STEPS_PER_EPOCH,
    Box,
    Seen,
    made_dataset,
    made_history,
)


def drawn_run(
    folder: Path,
    visits: Sequence[Seen],
    *,
    boxes: Sequence[Box] = BOXES,
    names: tuple[str, ...] = NAMES,
    summary: dict[str, Any] | None = None,
    files: Sequence[str] | None = None,
) -> Path:
    """The folder of a finished run without warm-up; its data lie in `folder` as COCO."""
    dataset = made_dataset(boxes, names=names, folder=folder / "pictures")
    if files is not None:
        dataset = renamed(dataset, files, folder / "pictures")
    dataset.save(folder / "data", format="coco")
    address = str(folder / "data")
    read = load(address)
    data = {"images": len(read.images), "annotations": len(read), "sha256": fingerprint(read)}
    facts = {"data": data, "addresses": [address], "versions": {"boxmend": "0.0", "torch": "9.9"}}
    settings = {"warm_up": 0.0, "method": "mend", "detector": "tiny", "seed": 3}
    run = runs.create(folder / "run", settings, facts)
    book = Ledger.create(run.path)
    book.append(entries_of(read, visits))
    book.flush()
    steps = (max(one.epoch for one in visits) + 1) * STEPS_PER_EPOCH
    run.append_metrics({"step": steps, "epoch": 0, "loss": 1.0})
    run.finish({"steps": steps, "ledger_rows": book.num_rows, **(summary or {})})
    return run.path


def renamed(dataset: Dataset, files: Sequence[str], folder: Path) -> Dataset:
    """The same dataset with other names of its image files, drawn again."""
    for name in files:
        Image.new("RGB", (100, 100), (90, 120, 60)).save(folder / name, "PNG")
    paths = [str(folder / name) for name in files]
    return replace(dataset, images=replace(dataset.images, file_names=list(files), paths=paths))


def entries_of(dataset: Dataset, visits: Sequence[Seen]) -> Entries:
    """The visits as rows of a ledger."""
    history = made_history(dataset, visits)
    return Entries(
        epochs=history.epochs.astype(np.int64),
        steps=history.steps,
        annotation_ids=dataset.annotation_ids[history.rows],
        image_ids=dataset.image_ids[history.rows],
        losses=history.losses,
        thresholds=history.thresholds,
        verdicts=history.verdicts,
        num_candidates=history.num_candidates.astype(np.int64),
        old_labels=dataset.labels[history.rows],
        new_labels=history.labels.astype(np.int64),
        confidences=history.confidences,
        noisy_boxes=dataset.boxes[history.rows].astype(np.float32),
        matched_boxes=history.matched_boxes,
        final_boxes=history.final_boxes,
        is_kept=history.is_kept,
    )
