"""Datasets, finished runs and audits made by hand: what commands get, without a training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from boxmend.auditing.fixes.table import FIXES_FILE, Fixes, Kind, write_fixes
from boxmend.auditing.fixes.verdicts import Verdict, append_verdicts
from boxmend.data.dataset import UNKNOWN, Dataset, Images, as_ids
from boxmend.data.fingerprint import fingerprint
from boxmend.data.formats import load
from boxmend.data.types import Box, Rows
from boxmend.runs import folder as runs
from boxmend.runs.history import History
from boxmend.runs.ledger import Entries, Judgement, Ledger
from boxmend.runs.ledger.entries import entries_to_columns
from boxmend.runs.planting import PLANTED_KEY

KEPT, RELABELLED, DISCARDED, UNJUDGED = (
    Judgement.KEPT,
    Judgement.RELABELLED,
    Judgement.DISCARDED,
    Judgement.UNJUDGED,
)
NAMES = ("van", "truck", "bus")
BOXES: list[Box] = [(10, 10, 30, 50), (40, 20, 60, 40), (5, 5, 25, 15), (50, 50, 90, 70)]
NOWHERE: Box = (nan, nan, nan, nan)
STEPS_PER_EPOCH = 10


@dataclass(frozen=True)
class Visit:
    """One row of a ledger; label and boxes are the annotated ones where none are given."""

    epoch: int
    row: int
    verdict: Judgement = KEPT
    label: int | None = None
    confidence: float = nan
    box: Box | None = None  # as trained on
    is_kept: bool = True
    loss: float = 0.0
    threshold: float = 0.0
    num_candidates: int = 0
    matched: Box | None = None
    step: int = 0  # within the epoch


@dataclass(frozen=True)
class Fix:
    """One row of a table of fixes; what is not given is as annotated, or empty."""

    id: str
    kind: Kind
    row: int = UNKNOWN
    p_fix: float = 1.0
    label: str | int | None = None
    box: Box | None = None
    image: int = 0
    kept: int = UNKNOWN
    reason: str = "why"
    p_wrong: float = 0.875
    iou_gain: float = 0.0


def images_of(
    names: Sequence[str], folder: Path | None = None, size: tuple[int, int] = (100, 100)
) -> Images:
    """Images of one size with the ids 1, 2, ...; they lie in `folder`, or nowhere."""
    n = len(names)
    return Images(
        ids=as_ids(list(range(1, n + 1))),
        file_names=list(names),
        paths=[str(folder / name) if folder else "" for name in names],
        splits=["train"] * n,
        widths=np.full(n, size[0]),
        heights=np.full(n, size[1]),
        sources=np.zeros(n, np.int64),
        rows=np.arange(n),
    )


def dataset_of(
    images: Images,
    image_rows: Sequence[int] | Rows,
    boxes: Sequence[Box],
    labels: Sequence[int] | None = None,
    names: Sequence[str] = NAMES,
) -> Dataset:
    """A dataset in memory with the annotations 10, 11, ...; labels by turns unless given."""
    n = len(boxes)
    return Dataset(
        images=images,
        label_names=tuple(names),
        annotation_ids=as_ids(list(range(10, 10 + n))),
        image_rows=np.array(image_rows, np.int64),
        labels=np.array(np.arange(n) % len(names) if labels is None else labels, np.int64),
        boxes=np.array(boxes, np.float64).reshape(n, 4),
        is_crowd=np.zeros(n, np.bool_),
        is_difficult=np.zeros(n, np.bool_),
        source_of=np.zeros(n, np.int64),
        source_rows=np.arange(n),
    )


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
    images = images_of(["a.png", "b.png"], pictures, (size, size))
    for shade, path in enumerate(images.paths):
        Image.new("L", (size, size), shade).save(path)
    n = len(boxes)
    dataset_of(images, np.arange(n) * 2 // max(n, 1), boxes, names=names).save(
        folder / "data", format=format
    )
    return str(folder / "data")


def entries_of(dataset: Dataset, visits: Sequence[Visit]) -> Entries:
    """The rows of a ledger, as training would make them."""
    rows = np.array([visit.row for visit in visits], np.int64)
    noisy = dataset.boxes[rows].astype(np.float32).reshape(-1, 4)
    final, matched = (
        np.array(
            [noisy[k] if box is None else box for k, box in enumerate(boxes)], np.float32
        ).reshape(-1, 4)
        for boxes in ([visit.box for visit in visits], [visit.matched for visit in visits])
    )
    old = dataset.labels[rows]
    new = [old[k] if visit.label is None else visit.label for k, visit in enumerate(visits)]
    epochs = np.array([visit.epoch for visit in visits], np.int64)
    return Entries(
        epochs=epochs,
        steps=epochs * STEPS_PER_EPOCH + np.array([visit.step for visit in visits], np.int64),
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


def made_history(dataset: Dataset, visits: Sequence[Visit], warm_up_epochs: int = 0) -> History:
    """The visits as the ledger of a run gives them; they must be in order."""
    rows = np.array([visit.row for visit in visits], np.int64)
    entries = entries_of(dataset, visits)
    columns = entries_to_columns(
        replace(entries, image_ids=entries.annotation_ids)
    )  # some have no image
    return History(rows, columns, warm_up_epochs * STEPS_PER_EPOCH)


def facts_of(dataset: Dataset, addresses: Sequence[str]) -> dict[str, Any]:
    """Return the entry of run.json about the data."""
    data = {
        "images": len(dataset.images),
        "annotations": len(dataset),
        "label_names": list(dataset.label_names),
        "sha256": fingerprint(dataset),
    }
    return {"data": data, "addresses": list(addresses)}


def run_on(  # noqa: PLR0913  # a run has as many parts
    dataset: Dataset,
    out: Path,
    addresses: Sequence[str],
    visits: Sequence[Visit],
    *,
    settings: dict[str, Any] | None = None,
    facts: dict[str, Any] | None = None,
    summary: dict[str, Any] | None = None,
    rows_per_part: int = 1000,
) -> Path:
    """The folder of a finished run on a dataset with these visits, ordered by epoch.

    `settings`, `facts` and `summary` are put into the files of these names.
    """
    facts = facts_of(dataset, addresses) | (facts or {})
    run = runs.create(out, {"warm_up": 0.0} | (settings or {}), facts)
    book = Ledger.create(out, rows_per_part=rows_per_part)
    book.append(entries_of(dataset, visits))
    book.flush()
    epochs = max((visit.epoch for visit in visits), default=-1) + 1
    counts = {"steps": epochs * STEPS_PER_EPOCH, "ledger_rows": book.num_rows}
    run.finish(counts | (summary or {}))
    return out


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
    settings = {"warm_up": warm_up}
    return run_on(
        load(*addresses), out, addresses, visits, settings=settings, rows_per_part=rows_per_part
    )


def probed_run(
    out: Path,
    address: str,
    visits: Sequence[Visit],
    *,
    labels: Mapping[int, int] | None = None,
    boxes: Mapping[int, Box] | None = None,
    settings: dict[str, Any] | None = None,
) -> Path:
    """The folder of a finished run that saw these rows with other labels or boxes."""
    dataset = load(address)
    seen = replace(dataset, labels=dataset.labels.copy(), boxes=dataset.boxes.copy())
    for row, label in (labels or {}).items():
        seen.labels[row] = label
    for row, box in (boxes or {}).items():
        seen.boxes[row] = box
    facts = facts_of(dataset, [address])
    facts["data"][PLANTED_KEY] = fingerprint(seen)
    return run_on(seen, out, [address], visits, settings=settings, facts=facts)


def table_of(dataset: Dataset, made: Sequence[Fix]) -> Fixes:
    """The fixes as an audit of the dataset proposes them."""
    n = len(made)
    rows = np.array([one.row for one in made], np.int64)
    old_labels, images = np.full(n, -1, np.int64), np.array([one.image for one in made], np.int64)
    old_boxes = np.full((n, 4), nan)
    is_known = rows >= 0
    old_labels[is_known] = dataset.labels[rows[is_known]]
    old_boxes[is_known] = dataset.boxes[rows[is_known]]
    images[is_known] = dataset.image_rows[rows[is_known]]
    labels, boxes = old_labels.copy(), old_boxes.copy()
    for k, one in enumerate(made):
        if one.kind in (Kind.SPURIOUS, Kind.DUPLICATE):
            labels[k], boxes[k] = -1, nan
        if one.label is not None:
            is_name = isinstance(one.label, str)
            labels[k] = dataset.label_names.index(one.label) if is_name else one.label
        boxes[k] = boxes[k] if one.box is None else one.box
    return Fixes(
        ids=[one.id for one in made],
        kinds=np.array([one.kind for one in made], np.int8),
        rows=rows,
        image_rows=images,
        old_labels=old_labels,
        new_labels=labels,
        old_boxes=old_boxes,
        new_boxes=boxes,
        kept_rows=np.array([one.kept for one in made], np.int64),
        p_wrong=np.array([one.p_wrong for one in made], np.float64),
        p_fix=np.array([one.p_fix for one in made], np.float64),
        iou_gain=np.array([one.iou_gain for one in made], np.float64),
        reasons=[one.reason for one in made],
    )


def audit_run(
    out: Path,
    addresses: str | Sequence[str],
    made: Sequence[Fix],
    verdicts: Sequence[Verdict] = (),
    **reading: Any,
) -> Path:
    """The folder of a finished audit with these fixes, of data that were read in this way."""
    addresses = [addresses] if isinstance(addresses, str) else addresses
    dataset = load(*addresses, **reading)
    facts = facts_of(dataset, addresses) | {"kind": "audit", "images_folder": reading.get("images")}
    run = runs.create(out, {}, facts)
    write_fixes(out / FIXES_FILE, dataset, table_of(dataset, made), fingerprint(dataset))
    append_verdicts(out, verdicts)
    run.finish({})
    return out


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder but images, by its path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".png"
    }
