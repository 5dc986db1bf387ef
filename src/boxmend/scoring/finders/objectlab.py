"""Run ObjectLab of cleanlab: its scores swap (labels), badloc (boxes), overlooked (missing).

cleanlab is an optional extra. It compares boxes pair by pair in Python, which takes half a minute
for 5,000 images. So this module computes the similarities with NumPy and passes them to cleanlab,
which computes its scores from them.
"""

from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from boxmend.auditing.fixes.table import Kind
from boxmend.data.boxes import compute_iou
from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.data.types import Floats, Rows
from boxmend.errors import UsageError
from boxmend.scoring.finders.overlapping import OverlapTable
from boxmend.scoring.finders.suspicion import (
    MissingRanking,
    Ranking,
    Suspects,
    Suspicion,
    group_by_image,
    propose_detections,
)
from boxmend.scoring.voc import TrueBoxes, average_precision

AP_IOUS = np.linspace(0.5, 0.95, 10)
AP_SCALE = 0.25  # cleanlab's default limit of a score, as a share of the class's AP
LIMIT_FACTOR = 0.8  # cleanlab's default factor for this limit, the same for every kind
MIN_OVERLOOKED_SCORE = 0.95  # cleanlab's default, of a detection whose object may be missing


class ObjectLabScores(NamedTuple):
    """cleanlab's scores; low scores are suspicious."""

    swap: Floats  # [n]
    badloc: Floats  # [n]
    rows: Rows  # [c] of the detections that have an overlooked score
    overlooked: Floats  # [c]


def ensure_installed() -> None:
    """Raise a UsageError if cleanlab is not installed."""
    _import_rank()


def suspect_annotations(objects: Dataset, detections: Detections) -> Suspicion:
    """Return 1 - cleanlab's scores of every box; raise a UsageError if it is not installed.

    cleanlab only flags images. The flags here use the limits for single boxes that its flags of
    images are based on: a score of at most 0.8 * 0.25 * the class's mean AP.
    """
    scores = _compute_scores(objects, detections)
    limits = _limit_scores(objects, detections)[objects.labels]
    return Suspicion(
        labels=1 - scores.swap,
        boxes=1 - scores.badloc,
        is_label_flagged=scores.swap <= limits,
        is_box_flagged=scores.badloc <= limits,
    )


def suspect_by_kind(
    objects: Dataset, detections: Detections, table: OverlapTable | None = None
) -> Suspects:
    """Return 1 - cleanlab's scores of annotations and, for missing objects, of detections.

    Only detections that overlap no annotation have an overlooked score. The ranking does without
    cleanlab's limit of 0.95 on the scores of detections, which improves it; flags use the limit.
    """
    del table  # the similarities need dense overlaps by image
    scores = _compute_scores(objects, detections)
    limits = _limit_scores(objects, detections)
    is_sure = detections.scores[scores.rows] >= MIN_OVERLOOKED_SCORE
    is_low = scores.overlooked <= limits[detections.labels[scores.rows]]
    return Suspects(
        annotations={
            Kind.WRONG_LABEL: Ranking(1 - scores.swap, scores.swap <= limits[objects.labels]),
            Kind.BAD_BOX: Ranking(1 - scores.badloc, scores.badloc <= limits[objects.labels]),
        },
        missing=MissingRanking(
            propose_detections(detections, scores.rows, 1 - scores.overlooked), is_sure & is_low
        ),
    )


def _compute_scores(objects: Dataset, detections: Detections) -> ObjectLabScores:
    """Return cleanlab's scores of all annotations, and of detections that overlap no annotation."""
    rank = _import_rank()
    swap, badloc = np.ones(len(objects)), np.ones(len(objects))
    rows, overlooked = [np.zeros(0, np.int64)], [np.zeros(0)]
    images = list(_describe_images(objects, detections))
    similarities = [image[2]["similarity_matrix"] for image in images]
    least = min((float(s[s > 0].min(initial=1.0)) for s in similarities), default=1.0)
    for ours, theirs, inputs in images:
        inputs["min_possible_similarity"] = least
        # cleanlab computes overlaps again if it does not use them or if all of them are 0. Without
        # predicted boxes this takes no time.
        without_boxes = {**inputs, "pred_bboxes": np.zeros((0, 4))}
        swap[ours] = rank.compute_swap_box_scores(auxiliary_inputs=[without_boxes])[0]
        badloc[ours] = rank.compute_badloc_box_scores(auxiliary_inputs=[inputs])[0]
        alone = np.flatnonzero(~(inputs["iou_matrix"] > 0).any(axis=0))
        rows.append(theirs[alone])
        overlooked.append(
            rank.compute_overlooked_box_scores(
                auxiliary_inputs=[_keep_detections(inputs, alone)], high_probability_threshold=0.0
            )[0]
        )
    return ObjectLabScores(swap, badloc, np.concatenate(rows), np.concatenate(overlooked))


def _describe_images(
    objects: Dataset, detections: Detections
) -> Iterator[tuple[Rows, Rows, dict[str, Any]]]:
    """Yield for each image the rows of its annotations and detections, and cleanlab's inputs."""
    from cleanlab.internal.constants import ALPHA, EUC_FACTOR

    detected_boxes = detections.boxes.astype(np.float64)
    for ours, unordered in group_by_image(objects, detections, include_empty=True):
        theirs = unordered[np.argsort(detections.labels[unordered], kind="stable")]
        boxes, detected = objects.boxes[ours], detected_boxes[theirs]
        iou = compute_iou(boxes[:, None], detected, equal_without_area=0.0)
        centres = [(corners[:, :2] + corners[:, 2:]) / 2 for corners in (boxes, detected)]
        distances = np.linalg.norm(centres[0][:, None] - centres[1], axis=2)
        yield (
            ours,
            theirs,
            {
                "lab_labels": objects.labels[ours],
                "lab_bboxes": boxes,
                "pred_labels": detections.labels[theirs],
                "pred_label_probs": detections.scores[theirs].astype(np.float64),
                "pred_bboxes": detected,
                "iou_matrix": iou,
                "similarity_matrix": iou * ALPHA + (1 - ALPHA) * np.exp(-distances * EUC_FACTOR),
            },
        )


def _keep_detections(inputs: dict[str, Any], places: Rows) -> dict[str, Any]:
    """Return the inputs of an image with some of its detections, which overlap no annotation."""
    columns = {name: inputs[name][places] for name in ("pred_labels", "pred_label_probs")}
    similarity = inputs["similarity_matrix"][:, places]
    return {
        **inputs,
        **columns,
        "pred_bboxes": inputs["pred_bboxes"][places],
        "lab_bboxes": np.zeros((0, 4)),
        "iou_matrix": None,
        "similarity_matrix": similarity,
    }


def _import_rank() -> ModuleType:
    try:
        from cleanlab.object_detection import rank
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the comparison with ObjectLab needs {error.name}, which is not installed; "
            "run pip install 'boxmend[compare]'"
        ) from error
    module: ModuleType = rank
    return module


def _limit_scores(objects: Dataset, detections: Detections) -> Floats:
    """Return the highest flagged score [C] of each class; cleanlab's AP is VOC's by area."""
    annotated = TrueBoxes(
        objects.image_rows, objects.labels, objects.boxes, np.zeros(len(objects), np.bool_)
    )
    num_labels = len(objects.label_names)
    ap = [
        average_precision(detections, annotated, num_labels=num_labels, min_iou=float(iou)).ap_area
        for iou in AP_IOUS
    ]
    limits: Floats = np.nan_to_num(np.mean(ap, axis=0), nan=0.0) * AP_SCALE * LIMIT_FACTOR
    return limits
