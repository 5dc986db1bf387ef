"""hotcoco's `label_errors`, by its image diagnostics."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxmend.auditing.fixes.table import Kind
from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.data.types import Floats
from boxmend.scoring.finders.suspicion import Offered, Ranked, Suspects, Suspicion, proposed_at

MIN_IOU = 0.5  # hotcoco's default
MIN_SCORE = 0.5  # likewise: of a detection that speaks against a label


def suspicion(objects: Dataset, detections: Detections) -> Suspicion:
    """Suspect a label by the score of the detection that hotcoco calls a `wrong_label` by.

    That is a detection of another class that overlaps an annotation which no detection of its own
    class has found. Flags are by hotcoco's defaults; for scores the limit on the detection's is
    lifted, and an annotation without such a detection scores 0. It knows no bad boxes.
    """
    scores = _wrong_labels(objects, _label_errors(objects, detections))
    return Suspicion(labels=scores, boxes=None, is_label_flagged=scores >= MIN_SCORE)


def by_kind(objects: Dataset, detections: Detections) -> Suspects:
    """The same, and missing objects: detections that hotcoco calls a `missing_annotation`."""
    errors = _label_errors(objects, detections)
    labels = _wrong_labels(objects, errors)
    rows = np.array(
        [one["dt_id"] - 1 for one in errors if one["type"] == "missing_annotation"], np.int64
    )
    scores = detections.scores[rows].astype(np.float64)
    return Suspects(
        annotations={Kind.WRONG_LABEL: Ranked(labels, labels >= MIN_SCORE)},
        missing=Offered(proposed_at(detections, rows, scores), scores >= MIN_SCORE),
    )


def _wrong_labels(objects: Dataset, errors: list[dict[str, Any]]) -> Floats:
    scores = np.zeros(len(objects))
    for error in errors:
        if error["type"] == "wrong_label":
            row = error["gt_id"] - 1
            scores[row] = max(scores[row], error["dt_score"])
    return scores


def _label_errors(objects: Dataset, detections: Detections) -> list[dict[str, Any]]:
    """What hotcoco reports without a limit on scores; ids are rows of either side, from 1."""
    import hotcoco

    asked = hotcoco.COCO.from_arrays(
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
    found = asked.load_res(np.column_stack(columns).astype(np.float64))
    evaluation = hotcoco.COCOeval(asked, found, "bbox")
    evaluation.evaluate()
    told = evaluation.image_diagnostics(iou_thr=MIN_IOU, score_thr=0.0)
    errors: list[dict[str, Any]] = told["label_errors"]
    return errors


def _as_xywh(boxes: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)
