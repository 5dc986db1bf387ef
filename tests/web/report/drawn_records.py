"""Records of runs made by hand: what figures and pages are drawn from, without a training."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from boxmend.data.dataset import Dataset, Images, as_ids
from boxmend.runs.account import Account, account_of
from boxmend.runs.folder import Run
from boxmend.runs.history import History
from boxmend.runs.judgement import Judgement
from boxmend.scoring.truth import KnownTruth
from boxmend.web.report.record import RunRecord

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
SIDE = 100  # of the images, in pixels


@dataclass(frozen=True)
class Seen:
    """One visit; label and boxes are the annotated ones where none are given."""

    epoch: int
    row: int
    verdict: Judgement = KEPT
    label: int | None = None
    loss: float = nan
    threshold: float = nan
    confidence: float = nan
    matched: Box | None = None
    final: Box | None = None
    is_kept: bool = True
    step: int = 0  # within the epoch


def made_dataset(
    boxes: Sequence[Box] = BOXES,
    labels: Sequence[int] | None = None,
    names: tuple[str, ...] = NAMES,
    folder: Path | None = None,
) -> Dataset:
    """A dataset with one image per two annotations, drawn into `folder` where one is given."""
    n = len(boxes)
    num_images = -(-n // 2)
    files = [f"{number}.png" for number in range(num_images)]
    for shade, name in enumerate(files if folder else []):
        assert folder is not None
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (SIDE, SIDE), (20 * shade % 256, 90, 120)).save(folder / name)
    return Dataset(
        images=Images(
            ids=as_ids(list(range(num_images))),
            file_names=files,
            paths=[str(folder / name) if folder else "" for name in files],
            splits=["train"] * num_images,
            widths=np.full(num_images, SIDE),
            heights=np.full(num_images, SIDE),
            sources=np.zeros(num_images, np.int64),
            rows=np.arange(num_images),
        ),
        label_names=names,
        annotation_ids=as_ids([10 + row for row in range(n)]),
        image_rows=np.arange(n) // 2,
        labels=np.array(labels if labels is not None else np.arange(n) % len(names), np.int64),
        boxes=np.array(boxes, np.float64).reshape(n, 4),
        is_crowd=np.zeros(n, np.bool_),
        is_difficult=np.zeros(n, np.bool_),
        source_of=np.zeros(n, np.int64),
        source_rows=np.arange(n),
    )


def made_history(dataset: Dataset, visits: Sequence[Seen], warm_up_epochs: int = 0) -> History:
    """The visits as columns, as the ledger has them; they must be in order."""
    rows = np.array([one.row for one in visits], np.int64)
    noisy = dataset.boxes[rows].astype(np.float32).reshape(-1, 4)
    boxes = [
        np.array(
            [noisy[k] if box is None else box for k, box in enumerate(given)], np.float32
        ).reshape(-1, 4)
        for given in ([one.matched for one in visits], [one.final for one in visits])
    ]
    old = dataset.labels[rows]
    new = [old[k] if one.label is None else one.label for k, one in enumerate(visits)]
    epochs = np.array([one.epoch for one in visits], np.int32)
    return History(
        rows=rows,
        epochs=epochs,
        steps=np.array([one.epoch * STEPS_PER_EPOCH + one.step for one in visits], np.int64),
        losses=np.array([one.loss for one in visits], np.float32),
        thresholds=np.array([one.threshold for one in visits], np.float32),
        verdicts=np.array([one.verdict for one in visits], np.int8),
        labels=np.array(new, np.int32),
        confidences=np.array([one.confidence for one in visits], np.float32),
        num_candidates=np.zeros(len(visits), np.int32),
        matched_boxes=boxes[0],
        final_boxes=boxes[1],
        is_kept=np.array([one.is_kept for one in visits], np.bool_),
        is_warm_up=epochs < warm_up_epochs,
    )


def made_account(
    dataset: Dataset, visits: Sequence[Seen], warm_up_epochs: int = 0, run: Run | None = None
) -> Account:
    """What a run with these visits makes of a dataset; its folder need not be there."""
    history = made_history(dataset, visits, warm_up_epochs)
    return account_of(run or Run(Path("made-up")), dataset, history)


def made_truth(dataset: Dataset, labels: Sequence[int], boxes: Sequence[Box]) -> KnownTruth:
    """The truth by hand; a label of -1 is an annotation of nothing."""
    true = np.array(labels, np.int64)
    is_spurious = true < 0
    places = np.array(boxes, np.float64).reshape(-1, 4)
    places[is_spurious] = nan
    return KnownTruth(
        labels=true,
        boxes=places,
        is_spurious=is_spurious,
        image_rows=dataset.image_rows[~is_spurious],
        image_boxes=places[~is_spurious],
    )


def made_record(
    visits: Sequence[Seen],
    *,
    dataset: Dataset | None = None,
    warm_up_epochs: int = 0,
    **others: Any,
) -> RunRecord:
    """The record of these visits; `others` are fields of `RunRecord`."""
    data = made_dataset() if dataset is None else dataset
    record = RunRecord("made-up", made_account(data, visits, warm_up_epochs), [])
    return replace(record, **others)


def telling_visits(epochs: int = 3) -> list[Seen]:
    """Four annotations: one kept, one relabelled and moved, one discarded, one moved.

    The first epoch is for warm-up.
    """
    visits = [Seen(0, row, UNJUDGED, loss=1.0, step=3 * row) for row in range(4)]
    for epoch in range(1, epochs):
        visits += [
            Seen(epoch, 0, loss=0.25, threshold=2.0, confidence=0.9, step=0),
            Seen(
                *(epoch, 1, RELABELLED, 2, 3.5, 2.0, 0.8),
                matched=(40, 20, 64, 40),
                final=(40, 20, 60, 30),
                step=3,
            ),
            Seen(epoch, 2, DISCARDED, None, 2.5, 2.0, 0.4, is_kept=False, step=6),
            Seen(epoch, 3, KEPT, None, 0.75, 2.0, 0.7, final=(50, 50, 90, 90), step=9),
        ]
    return visits


def telling_record(folder: Path | None = None) -> RunRecord:
    """A record that every figure applies to; images are drawn into `folder`."""
    dataset = made_dataset(folder=folder)
    noise = {"label_noise": 0.25, "label_noise_low": 0.125, "label_noise_high": 0.5}
    return made_record(
        telling_visits(),
        dataset=dataset,
        warm_up_epochs=1,
        metrics=[{"step": 10 * (epoch + 1), "epoch": epoch, **noise} for epoch in range(3)],
        truth=made_truth(dataset, [0, 2, 0, 0], [*BOXES[:3], (50, 50, 90, 90)]),
        label_ap={"van": 0.5, "truck": 0.75, "bus": 0.25},
        baseline_ap={"van": 0.25, "truck": 0.8, "bus": 0.25},
    )


def many_visits_record(num_annotations: int, epochs: int, num_labels: int) -> RunRecord:
    """A record as large as wanted, with verdicts, losses and boxes drawn at random (seed 0)."""
    rng = np.random.default_rng(0)
    n, v = num_annotations, num_annotations * epochs
    low = rng.uniform(0, 50, (n, 2))
    boxes = np.concatenate([low, low + rng.uniform(5, 50, (n, 2))], axis=1)
    names = tuple(f"label {number}" for number in range(num_labels))
    dataset = replace(
        made_dataset([(0, 0, 1, 1)] * 2, [0, 0], names),
        annotation_ids=np.arange(n),
        image_rows=np.zeros(n, np.int64),
        labels=rng.integers(0, num_labels, n),
        boxes=boxes,
        is_crowd=np.zeros(n, np.bool_),
        is_difficult=np.zeros(n, np.bool_),
        source_of=np.zeros(n, np.int64),
        source_rows=np.arange(n),
    )
    rows = np.tile(np.arange(n), epochs)
    epoch_of = np.repeat(np.arange(epochs, dtype=np.int32), n)
    verdicts = rng.choice(3, v, p=(0.6, 0.3, 0.1)).astype(np.int8)
    verdicts[epoch_of == 0] = UNJUDGED
    losses = rng.exponential(1.0 + (verdicts > 0) * 3.0).astype(np.float32)
    guesses = rng.integers(0, num_labels, v)
    labels = np.where(verdicts == RELABELLED, guesses, dataset.labels[rows])
    moved = boxes[rows].astype(np.float32) + rng.normal(0, 1, (v, 4)).astype(np.float32)
    history = History(
        rows=rows,
        epochs=epoch_of,
        steps=np.arange(v) // 16,
        losses=losses,
        thresholds=np.full(v, 1.5, np.float32),
        verdicts=verdicts,
        labels=labels.astype(np.int32),
        confidences=rng.uniform(0, 1, v).astype(np.float32),
        num_candidates=np.zeros(v, np.int32),
        matched_boxes=boxes[rows].astype(np.float32),
        final_boxes=moved,
        is_kept=verdicts != DISCARDED,
        is_warm_up=epoch_of == 0,
    )
    return RunRecord("made-up", account_of(Run(Path("made-up")), dataset, history), [])
