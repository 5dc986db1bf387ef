"""What every finder of label errors gives: how suspicious each annotation is."""

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
    """Scores in any scale, higher for what is likelier wrong; None where a finder has none.

    Flags are what the finder itself would report with its defaults.
    """

    labels: Floats | None  # [n] that the label is wrong
    boxes: Floats | None  # [n] that the box is bad
    is_label_flagged: Mask | None = None  # [n]
    is_box_flagged: Mask | None = None  # [n]


@dataclass(frozen=True, eq=False)
class Ranked:
    """How suspicious annotations are of one kind of error."""

    scores: Floats  # [n] in any scale, higher for what is likelier wrong; NaN where there is none
    is_flagged: Mask | None  # [n] by the finder's own defaults; None where it has none


@dataclass(frozen=True, eq=False)
class Offered:
    """Objects that a finder holds for missing."""

    proposed: Proposed
    is_flagged: Mask  # [c] by the finder's own defaults


@dataclass(frozen=True, eq=False)
class Suspects:
    """What a finder says of each kind of error that it knows."""

    annotations: dict[Kind, Ranked]
    missing: Offered | None = None


def proposed_at(detections: Detections, rows: Rows, scores: Floats) -> Proposed:
    """Detections as missing objects, with scores of the finder."""
    return Proposed(
        image_rows=detections.image_rows[rows],
        labels=detections.labels[rows].astype(np.int64),
        boxes=detections.boxes[rows].astype(np.float64),
        scores=scores,
    )


def by_image(
    objects: Dataset, detections: Detections, *, also_bare: bool = False
) -> Iterator[tuple[Rows, Rows]]:
    """Yield, for each image with annotations, their rows and those of its detections.

    With `also_bare`, images that have detections only, too.
    """
    ours = np.argsort(objects.image_rows, kind="stable")
    theirs = np.argsort(detections.image_rows, kind="stable")
    images = np.unique(objects.image_rows)
    if also_bare:
        images = np.union1d(images, detections.image_rows)
    bounds = [
        np.searchsorted(column, images, side).tolist()
        for column in (objects.image_rows[ours], detections.image_rows[theirs])
        for side in ("left", "right")
    ]
    for first_of_ours, last_of_ours, first_of_theirs, last_of_theirs in zip(*bounds, strict=True):
        yield ours[first_of_ours:last_of_ours], theirs[first_of_theirs:last_of_theirs]
