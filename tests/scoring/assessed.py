"""Runs made up in memory, as an assessment sees them: a dataset, its visits and the truth."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path

import numpy as np

from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.data.dataset import UNKNOWN, Dataset, Images, as_ids
from boxmend.data.detections import Detections
from boxmend.runs.account import Account, account_of
from boxmend.runs.folder import Run
from boxmend.runs.history import History
from boxmend.runs.judgement import Judgement
from boxmend.scoring.truth import NONE, KnownTruth, TrueObjects

Box = tuple[float, float, float, float]
KEPT, RELABELLED, DISCARDED, UNJUDGED = (
    Judgement.KEPT,
    Judgement.RELABELLED,
    Judgement.DISCARDED,
    Judgement.UNJUDGED,
)
NAMES = ("van", "truck", "bus")
VAN, TRUCK, BUS = range(3)
NOWHERE: Box = (nan, nan, nan, nan)
STEPS_PER_EPOCH = 10


@dataclass(frozen=True)
class Seen:
    """One visit; boxes are the annotated one where none is given."""

    row: int
    verdict: Judgement = KEPT
    label: int | None = None
    loss: float = 0.0
    box: Box | None = None
    matched: Box | None = None
    epoch: int = 0
    is_kept: bool = True
    confidence: float = 0.9


def annotated(
    boxes: Sequence[Box],
    labels: Sequence[int],
    *,
    images: Sequence[int] | None = None,
    ids: Sequence[int | str] | None = None,
    names: Sequence[str] = NAMES,
) -> Dataset:
    """A dataset in memory; all in one image of 100 x 100 unless rows of images are given."""
    n = len(labels)
    of_image = list(images or [0] * n)
    num_images = max(of_image, default=0) + 1
    return Dataset(
        images=Images(
            ids=np.arange(1, num_images + 1),
            file_names=[f"{k}.png" for k in range(num_images)],
            paths=[""] * num_images,
            splits=["train"] * num_images,
            widths=np.full(num_images, 100),
            heights=np.full(num_images, 100),
            sources=np.zeros(num_images, np.int64),
            rows=np.arange(num_images),
        ),
        label_names=tuple(names),
        annotation_ids=as_ids(list(ids)) if ids is not None else np.arange(10, 10 + n),
        image_rows=np.array(of_image, np.int64),
        labels=np.array(labels, np.int64),
        boxes=np.array(boxes, np.float64).reshape(n, 4),
        is_crowd=np.zeros(n, np.bool_),
        is_difficult=np.zeros(n, np.bool_),
        source_of=np.zeros(n, np.int64),
        source_rows=np.arange(n),
    )


def account(dataset: Dataset, visits: Sequence[Seen], *, warm_up_epochs: int = 0) -> Account:
    """What a run with these visits, ordered by epoch, made of a dataset."""
    rows = np.array([one.row for one in visits], np.int64)
    epochs = np.array([one.epoch for one in visits], np.int32)
    steps = epochs.astype(np.int64) * STEPS_PER_EPOCH
    own = dataset.boxes[rows].tolist()
    final = [own[k] if one.box is None else one.box for k, one in enumerate(visits)]
    matched = [own[k] if one.matched is None else one.matched for k, one in enumerate(visits)]
    labels = [
        dataset.labels[one.row] if one.label is None else one.label for k, one in enumerate(visits)
    ]
    history = History(
        rows=rows,
        epochs=epochs,
        steps=steps,
        losses=np.array([one.loss for one in visits], np.float32),
        thresholds=np.ones(len(visits), np.float32),
        verdicts=np.array([one.verdict for one in visits], np.int8),
        labels=np.array(labels, np.int32),
        confidences=np.array([one.confidence for one in visits], np.float32),
        num_candidates=np.ones(len(visits), np.int32),
        matched_boxes=np.array(matched, np.float32).reshape(-1, 4),
        final_boxes=np.array(final, np.float32).reshape(-1, 4),
        is_kept=np.array([one.is_kept for one in visits], np.bool_),
        is_warm_up=steps < warm_up_epochs * STEPS_PER_EPOCH,
    )
    return account_of(Run(Path("nowhere")), dataset, history)


def truth_of(  # noqa: PLR0913  # a truth has as many columns
    dataset: Dataset,
    labels: Sequence[int],
    boxes: Sequence[Box],
    *,
    lacking: Sequence[Box] = (),
    lacking_labels: Sequence[int] | None = None,
    same_as: dict[int, int] | None = None,
    are_all_known: bool = True,
) -> KnownTruth:
    """The truth row by row; UNKNOWN as a label is an annotation of nothing.

    `lacking` are true boxes of the first image that nobody annotated, vans unless labels are
    given. `same_as` gives a row the object of an earlier one.
    """
    true_labels = np.array(labels, np.int64)
    true_boxes = np.array(boxes, np.float64).reshape(-1, 4)
    is_spurious = true_labels == UNKNOWN
    missing = np.array(lacking, np.float64).reshape(-1, 4)
    repeated = same_as or {}
    once = [row for row in np.flatnonzero(~is_spurious).tolist() if row not in repeated]
    object_rows = np.full(len(labels), NONE, np.int64)
    object_rows[once] = np.arange(len(once))
    for row, original in repeated.items():
        object_rows[row] = object_rows[original]
    of_missing = [VAN] * len(missing) if lacking_labels is None else list(lacking_labels)
    objects = TrueObjects(
        image_rows=np.append(dataset.image_rows[once], np.zeros(len(missing), np.int64)),
        labels=np.append(true_labels[once], np.array(of_missing, np.int64)),
        boxes=np.concatenate([true_boxes[once], missing]),
        object_rows=object_rows,
        are_all_known=are_all_known,
    )
    return KnownTruth(
        labels=true_labels,
        boxes=true_boxes,
        is_spurious=is_spurious,
        image_rows=objects.image_rows,
        image_boxes=objects.boxes,
        objects=objects,
    )


@dataclass(frozen=True)
class Fix:
    """One fix; what is not given is taken from the dataset, or is none."""

    kind: Kind
    row: int = UNKNOWN
    label: int = UNKNOWN
    box: Box = NOWHERE
    p: float = 0.9
    kept: int = UNKNOWN
    image: int = 0


def fixes_of(dataset: Dataset, *fixes: Fix) -> Fixes:
    """A table of fixes; `p` is the probability of both."""
    rows = np.array([one.row for one in fixes], np.int64)
    is_there = rows != UNKNOWN
    images = np.array([one.image for one in fixes], np.int64)
    images[is_there] = dataset.image_rows[rows[is_there]]
    old_labels, old_boxes = np.full(len(fixes), UNKNOWN), np.full((len(fixes), 4), nan)
    old_labels[is_there] = dataset.labels[rows[is_there]]
    old_boxes[is_there] = dataset.boxes[rows[is_there]]
    p = np.array([one.p for one in fixes], np.float64)
    return Fixes(
        ids=[str(k) for k in range(len(fixes))],
        kinds=np.array([one.kind for one in fixes], np.int8),
        rows=rows,
        image_rows=images,
        old_labels=old_labels,
        new_labels=np.array([one.label for one in fixes], np.int64),
        old_boxes=old_boxes,
        new_boxes=np.array([one.box for one in fixes], np.float64).reshape(-1, 4),
        kept_rows=np.array([one.kept for one in fixes], np.int64),
        p_wrong=p,
        p_fix=p.copy(),
        iou_gain=np.zeros(len(fixes)),
        reasons=[""] * len(fixes),
    )


def detected(*found: tuple[int, int, float, Box]) -> Detections:
    """Detections: row of the image, label, score, box."""
    return Detections(
        np.array([one[0] for one in found], np.int64),
        np.array([one[1] for one in found], np.int64),
        np.array([one[2] for one in found], np.float32),
        np.array([one[3] for one in found], np.float32).reshape(-1, 4),
    )
