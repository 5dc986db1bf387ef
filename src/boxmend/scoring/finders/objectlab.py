"""ObjectLab, by cleanlab: swap scores for labels, badloc for boxes, overlooked for missing objects.

An optional extra. cleanlab compares every annotation with every detection of its image in Python:
thousands of images with a hundred detections each take minutes.
"""

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxmend.auditing.fixes.table import Kind
from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.data.types import Floats, Rows
from boxmend.errors import UsageError
from boxmend.scoring.finders.suspicion import (
    Offered,
    Ranked,
    Suspects,
    Suspicion,
    by_image,
    proposed_at,
)
from boxmend.scoring.voc import TrueBoxes, average_precision

IOUS = np.linspace(0.5, 0.95, 10)
AP_SCALE = 0.25  # cleanlab's default limits on a score: a share of the class's AP
LIMIT_FACTOR = 0.8  # and of that again, for every kind
SURE = 0.95  # score of a detection from which on it may be called overlooked


def ensure_installed() -> None:
    """Raise a UsageError where cleanlab is not installed."""
    _cleanlab_rank()


def suspicion(objects: Dataset, detections: Detections) -> Suspicion:
    """Suspect by 1 - cleanlab's scores of every box; a UsageError where it is not installed.

    cleanlab itself flags images only. The flags here are its limits for single boxes, from which
    those of images follow: a score of at most 0.8 * 0.25 * the class's mean AP.
    """
    rank = _cleanlab_rank()
    pairs = list(by_image(objects, detections))
    if not pairs:
        return Suspicion(labels=np.zeros(0), boxes=np.zeros(0))
    told = _told(objects, detections, pairs)
    swap, badloc = _scores(rank, told, np.concatenate([ours for ours, _ in pairs]))
    limits = _limits(objects, detections)[objects.labels]
    return Suspicion(
        labels=1 - swap,
        boxes=1 - badloc,
        is_label_flagged=swap <= limits,
        is_box_flagged=badloc <= limits,
    )


def by_kind(objects: Dataset, detections: Detections) -> Suspects:
    """Suspect by 1 - cleanlab's scores, and offer detections by 1 - their overlooked score.

    That has only what meets no annotation. To rank them, cleanlab's limit of 0.95 on the scores of
    detections is lifted here, which serves it; flags are with it, by the limits for single boxes.
    """
    rank = _cleanlab_rank()
    pairs = list(by_image(objects, detections, also_bare=True))
    if not pairs:
        pairs = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    told = _told(objects, detections, pairs)
    swap, badloc = _scores(rank, told, np.concatenate([ours for ours, _ in pairs]))
    limits = _limits(objects, detections)
    found = rank.compute_overlooked_box_scores(**told, high_probability_threshold=0.0)
    rows, overlooked = _overlooked(detections, [theirs for _, theirs in pairs], found)
    is_sure = detections.scores[rows] >= SURE
    return Suspects(
        annotations={
            Kind.WRONG_LABEL: Ranked(1 - swap, swap <= limits[objects.labels]),
            Kind.BAD_BOX: Ranked(1 - badloc, badloc <= limits[objects.labels]),
        },
        missing=Offered(
            proposed_at(detections, rows, 1 - overlooked),
            is_sure & (overlooked <= limits[detections.labels[rows]]),
        ),
    )


def _told(
    objects: Dataset, detections: Detections, pairs: list[tuple[Rows, Rows]]
) -> dict[str, Any]:
    """What cleanlab is to see: by image its annotations, and its detections by class."""
    return {
        "labels": [_annotations(objects, ours) for ours, _ in pairs],
        "predictions": [_by_label(objects, detections, theirs) for _, theirs in pairs],
    }


def _scores(rank: ModuleType, told: dict[str, Any], order: Rows) -> tuple[Floats, Floats]:
    """cleanlab's swap and badloc scores of all annotations; `order` are the rows as told."""
    swap, badloc = np.empty(len(order)), np.empty(len(order))
    swap[order] = np.concatenate(rank.compute_swap_box_scores(**told))
    badloc[order] = np.concatenate(rank.compute_badloc_box_scores(**told))
    return swap, badloc


def _overlooked(
    detections: Detections, rows: list[Rows], found: list[Floats]
) -> tuple[Rows, Floats]:
    """Rows of detections that have a score, and the scores; cleanlab goes class by class."""
    ordered = [one[np.argsort(detections.labels[one], kind="stable")] for one in rows]
    scores = np.concatenate(found)
    is_scored = ~np.isnan(scores)
    return np.concatenate(ordered)[is_scored], scores[is_scored]


def _cleanlab_rank() -> ModuleType:
    try:
        from cleanlab.object_detection import rank
    except ModuleNotFoundError as error:
        raise UsageError(
            f"comparing with ObjectLab needs {error.name}, which is not installed: "
            "pip install 'boxmend[compare]'"
        ) from error
    module: ModuleType = rank
    return module


def _annotations(objects: Dataset, rows: Rows) -> dict[str, NDArray[Any]]:
    return {"bboxes": objects.boxes[rows], "labels": objects.labels[rows]}


def _by_label(objects: Dataset, detections: Detections, rows: Rows) -> list[Floats]:
    """The detections of one image as cleanlab wants them: for each class boxes with scores."""
    table = np.column_stack([detections.boxes[rows], detections.scores[rows]]).astype(np.float64)
    labels = detections.labels[rows]
    return [table[labels == label] for label in range(len(objects.label_names))]


def _limits(objects: Dataset, detections: Detections) -> Floats:
    """[C] The highest score of each class that is flagged; cleanlab's AP is VOC's by area."""
    annotated = TrueBoxes(
        objects.image_rows, objects.labels, objects.boxes, np.zeros(len(objects), np.bool_)
    )
    num_labels = len(objects.label_names)
    ap = [
        average_precision(detections, annotated, num_labels=num_labels, min_iou=float(iou)).ap_area
        for iou in IOUS
    ]
    limits: Floats = np.nan_to_num(np.mean(ap, axis=0), nan=0.0) * AP_SCALE * LIMIT_FACTOR
    return limits
