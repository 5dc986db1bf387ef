"""Score boxes by all true boxes of their image, and by their own true box."""

from dataclasses import dataclass

import numpy as np

from boxmend.data.boxes import compute_iou, find_best_iou
from boxmend.data.dataset import Dataset
from boxmend.data.types import Floats, Rows
from boxmend.runs.opening import OpenRun
from boxmend.scoring.ranking import share
from boxmend.scoring.truth import KnownTruth

CORLOC_IOU = 0.7  # of the paper's CorLoc; a box above it counts as located


@dataclass(frozen=True)
class BoxFit:
    """The fit of boxes, as shares of the same annotations; None without annotations."""

    corloc: float | None
    """Share with an IoU above 0.7 with any true box of the image, of any class."""
    mean_iou: float | None
    """Mean IoU with the annotation's true box."""
    above_half: float | None
    """Share with an IoU above 0.5 with the annotation's true box."""
    above_corloc: float | None
    """Share with an IoU above 0.7 with the annotation's true box."""


@dataclass(frozen=True)
class BoxScores:
    """The fit of the boxes of one set of annotations, at four stages."""

    annotations: int
    noisy: BoxFit
    matched: BoxFit
    final: BoxFit
    settled: BoxFit
    """The boxes that `apply` writes."""


def score_boxes(opened: OpenRun, truth: KnownTruth, visits: Rows) -> BoxScores:
    """Score boxes at four stages, for visits of annotations that are not spurious.

    There is one visit for each annotation; it has the box after centre matching and the final box.
    """
    history, dataset = opened.history, opened.dataset
    rows = history.rows[visits]
    stages = {
        "noisy": dataset.boxes[rows],
        "matched": history.matched_boxes[visits].astype(np.float64),
        "final": history.final_boxes[visits].astype(np.float64),
        "settled": opened.settlement.boxes[rows],
    }
    return BoxScores(
        annotations=len(rows),
        **{name: _fit(dataset, truth, rows, boxes) for name, boxes in stages.items()},
    )


def _fit(dataset: Dataset, truth: KnownTruth, rows: Rows, boxes: Floats) -> BoxFit:
    own = compute_iou(boxes, truth.boxes[rows])
    best = find_best_iou(dataset.image_rows[rows], boxes, truth.image_rows, truth.image_boxes)
    num = len(rows)
    return BoxFit(
        corloc=share((best > CORLOC_IOU).sum(), num),
        mean_iou=share(own.sum(), num),
        above_half=share((own > 0.5).sum(), num),
        above_corloc=share((own > CORLOC_IOU).sum(), num),
    )
