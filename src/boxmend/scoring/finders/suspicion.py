"""The output of all finders of annotation errors: suspicions, rankings and flags."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from boxmend.auditing.fixes.table import Kind
from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.data.types import Floats, Mask, Rows
from boxmend.scoring.missing import Proposed


@dataclass(frozen=True, eq=False)
class Suspicion:
    """Suspicions of labels and boxes on any scale, higher for annotations that are likely wrong.

    A column is None if the finder does not have it. Flags mark what the finder reports with its
    default settings.
    """

    labels: Floats | None  # [n] suspicion of a wrong label
    boxes: Floats | None  # [n] suspicion of a bad box
    is_label_flagged: Mask | None = None  # [n]
    is_box_flagged: Mask | None = None  # [n]


@dataclass(frozen=True, eq=False)
class Ranking:
    """The suspicion of annotations for one kind of error."""

    scores: Floats  # [n] on any scale, higher is more suspicious; NaN without a score
    is_flagged: Mask | None  # [n] by the finder's default settings; None if it has none


@dataclass(frozen=True, eq=False)
class MissingRanking:
    """Objects that a finder reports as missing."""

    proposed: Proposed
    is_flagged: Mask  # [c] by the finder's default settings


@dataclass(frozen=True, eq=False)
class Suspects:
    """The findings of one finder, for each kind of error that it supports."""

    annotations: dict[Kind, Ranking]
    missing: MissingRanking | None = None


def propose_detections(detections: Detections, rows: Rows, scores: Floats) -> Proposed:
    """Return detections as missing objects, with the scores of a finder."""
    return Proposed(
        image_rows=detections.image_rows[rows],
        labels=detections.labels[rows].astype(np.int64),
        boxes=detections.boxes[rows].astype(np.float64),
        scores=scores,
    )


def group_by_image(
    objects: Dataset, detections: Detections, *, include_empty: bool = False
) -> Iterator[tuple[Rows, Rows]]:
    """Yield the rows of the annotations and of the detections of each image with annotations.

    With `include_empty`, also yield images that have detections only.
    """
    ours = np.argsort(objects.image_rows, kind="stable")
    theirs = np.argsort(detections.image_rows, kind="stable")
    images = np.unique(objects.image_rows)
    if include_empty:
        images = np.union1d(images, detections.image_rows)
    bounds = [
        np.searchsorted(column, images, side).tolist()
        for column in (objects.image_rows[ours], detections.image_rows[theirs])
        for side in ("left", "right")
    ]
    for first_of_ours, last_of_ours, first_of_theirs, last_of_theirs in zip(*bounds, strict=True):
        yield ours[first_of_ours:last_of_ours], theirs[first_of_theirs:last_of_theirs]
