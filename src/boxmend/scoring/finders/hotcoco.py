"""Run hotcoco's `label_errors`, a part of its image diagnostics."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxmend.auditing.fixes.table import Kind
from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.data.types import Floats
from boxmend.scoring.finders.overlapping import OverlapTable
from boxmend.scoring.finders.suspicion import (
    MissingRanking,
    Ranking,
    Suspects,
    Suspicion,
    propose_detections,
)

MIN_IOU = 0.5  # hotcoco's default
MIN_SCORE = 0.5  # hotcoco's default, of a detection that contradicts a label


def suspect_annotations(objects: Dataset, detections: Detections) -> Suspicion:
    """Return the score of the detection that makes an annotation a `wrong_label` for hotcoco.

    It is a detection of another class that overlaps the annotation, while no detection of the
    annotation's class matches it. Annotations without such a detection have a score of 0. Flags use
    hotcoco's default limit on scores. hotcoco does not look for bad boxes.
    """
    scores = _score_labels(objects, _find_label_errors(objects, detections))
    return Suspicion(labels=scores, boxes=None, is_label_flagged=scores >= MIN_SCORE)


def suspect_by_kind(
    objects: Dataset, detections: Detections, table: OverlapTable | None = None
) -> Suspects:
    """Return the suspicion of labels, and the detections that are a `missing_annotation`."""
    del table  # hotcoco computes overlaps itself
    errors = _find_label_errors(objects, detections)
    labels = _score_labels(objects, errors)
    rows = np.array(
        [error["dt_id"] - 1 for error in errors if error["type"] == "missing_annotation"], np.int64
    )
    scores = detections.scores[rows].astype(np.float64)
    return Suspects(
        annotations={Kind.WRONG_LABEL: Ranking(labels, labels >= MIN_SCORE)},
        missing=MissingRanking(propose_detections(detections, rows, scores), scores >= MIN_SCORE),
    )


def _score_labels(objects: Dataset, errors: list[dict[str, Any]]) -> Floats:
    scores = np.zeros(len(objects))
    for error in errors:
        if error["type"] == "wrong_label":
            row = error["gt_id"] - 1
            scores[row] = max(scores[row], error["dt_score"])
    return scores


def _find_label_errors(objects: Dataset, detections: Detections) -> list[dict[str, Any]]:
    """Return hotcoco's findings without a limit on scores; their ids are rows plus 1."""
    import hotcoco

    annotated = hotcoco.COCO.from_arrays(
        [{"id": row + 1} for row in range(len(objects.images))],
        [{"id": label + 1, "name": str(label)} for label in range(len(objects.label_names))],
        objects.image_rows + 1,
        objects.labels + 1,
        _as_xywh(objects.boxes),
        ids=np.arange(len(objects)) + 1,
        iscrowd=np.zeros(len(objects), np.bool_),
    )
    columns = (
        detections.image_rows + 1,
        _as_xywh(detections.boxes),
        detections.scores,
        detections.labels + 1,
    )
    detected = annotated.load_res(np.column_stack(columns).astype(np.float64))
    evaluation = hotcoco.COCOeval(annotated, detected, "bbox")
    evaluation.evaluate()
    diagnostics = evaluation.image_diagnostics(iou_thr=MIN_IOU, score_thr=0.0)
    errors: list[dict[str, Any]] = diagnostics["label_errors"]
    return errors


def _as_xywh(boxes: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)
