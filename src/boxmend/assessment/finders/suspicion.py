"""What every finder of label errors gives: how suspicious each annotation is."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boxmend.dataset import Dataset
from boxmend.scores import Detections

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Suspicion:
    """Scores in any scale, higher for what is likelier wrong; None where a finder has none.

    Flags are what the finder itself would report with its defaults.
    """

    labels: Floats | None  # [n] that the label is wrong
    boxes: Floats | None  # [n] that the box is bad
    is_label_flagged: Mask | None = None  # [n]
    is_box_flagged: Mask | None = None  # [n]


def by_image(objects: Dataset, detections: Detections) -> Iterator[tuple[Rows, Rows]]:
    """Yield, for each image with annotations, their rows and those of its detections."""
    ours = np.argsort(objects.image_rows, kind="stable")
    theirs = np.argsort(detections.image_rows, kind="stable")
    images, first, counts = np.unique(
        objects.image_rows[ours], return_index=True, return_counts=True
    )
    begin, end = (
        np.searchsorted(detections.image_rows[theirs], images, side) for side in ("left", "right")
    )
    bounds = (one.tolist() for one in (first, first + counts, begin, end))
    for first_of_ours, last_of_ours, first_of_theirs, last_of_theirs in zip(*bounds, strict=True):
        yield ours[first_of_ours:last_of_ours], theirs[first_of_theirs:last_of_theirs]
