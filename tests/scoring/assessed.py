"""Runs made up in memory, as an assessment sees them: a dataset, its visits and the truth."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.data.dataset import UNKNOWN, Dataset, as_ids
from boxmend.data.detections import Detections
from boxmend.data.types import Box
from boxmend.runs.folder import Run
from boxmend.runs.judgement import Judgement
from boxmend.runs.opening import OpenRun
from boxmend.scoring.truth import NONE, KnownTruth, TrueObjects
from tests.fabricated_runs import (
    KEPT,
    NAMES,
    NOWHERE,
    Fix,
    Visit,
    dataset_of,
    images_of,
    made_history,
    table_of,
)

VAN, TRUCK, BUS = range(3)


def seen(
    row: int,
    verdict: Judgement = KEPT,
    label: int | None = None,
    *,
    epoch: int = 0,
    confidence: float = 0.9,
    **others: Any,
) -> Visit:
    """A visit in the first epoch with a confident method; `others` are fields of `Visit`."""
    facts = {"threshold": 1.0, "num_candidates": 1, **others}
    return Visit(epoch, row, verdict, label, confidence, **facts)


def annotated(
    boxes: Sequence[Box],
    labels: Sequence[int],
    *,
    images: Sequence[int] | None = None,
    ids: Sequence[int | str] | None = None,
    names: Sequence[str] = NAMES,
) -> Dataset:
    """A dataset in memory; all in one image of 100 x 100 unless rows of images are given."""
    of_image = list(images or [0] * len(labels))
    files = [f"{k}.png" for k in range(max(of_image, default=0) + 1)]
    dataset = dataset_of(images_of(files), of_image, boxes, labels, names)
    return dataset if ids is None else replace(dataset, annotation_ids=as_ids(list(ids)))


def opened(dataset: Dataset, visits: Sequence[Visit], *, warm_up_epochs: int = 0) -> OpenRun:
    """A run with these visits, ordered by epoch, of a dataset."""
    return OpenRun(Run(Path("nowhere")), dataset, made_history(dataset, visits, warm_up_epochs))


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
    """Return the truth row by row; the label UNKNOWN marks a spurious annotation.

    `lacking` are unannotated true boxes of the first image, vans unless labels are given. `same_as`
    gives a row the object of an earlier one.
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


def fix(
    kind: Kind,
    row: int = UNKNOWN,
    label: int = UNKNOWN,
    box: Box = NOWHERE,
    p: float = 0.9,
    **others: Any,
) -> Fix:
    """One fix; `p` is the probability of both, `others` are fields of `Fix`."""
    return Fix("", kind, row, p, label, box, p_wrong=p, reason="", **others)


def fixes_of(dataset: Dataset, *fixes: Fix) -> Fixes:
    """A table of fixes with the ids 0, 1, ..."""
    return table_of(dataset, [replace(one, id=str(k)) for k, one in enumerate(fixes)])


def detected(*rows: tuple[int, int, float, Box]) -> Detections:
    """Detections: row of the image, label, score, box."""
    return Detections(
        np.array([one[0] for one in rows], np.int64),
        np.array([one[1] for one in rows], np.int64),
        np.array([one[2] for one in rows], np.float32),
        np.array([one[3] for one in rows], np.float32).reshape(-1, 4),
    )
