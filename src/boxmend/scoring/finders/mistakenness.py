"""Compute FiftyOne's mistakenness of annotations, by its formula for confidences.

The facts come from the documentation and source of FiftyOne Brain (`compute_mistakenness`) and of
FiftyOne's COCO evaluation, which does the matching. The code is boxmend's own and does not need
FiftyOne.

- Matching ignores the class. Detections choose in descending order of confidence; each gets the
  free annotation with the largest IoU, which must be at least 0.5.
- Let c be the confidence of the matched detection, and m be -1 if its label is the annotated one
  and 1 if not. Then mistakenness = (m c + 1) / 2.
- Let i = (1 - IoU) / (1 - 0.5). Then mistakenness_loc = (c (2 i - 1) + 1) / 2.
- An annotation without a match has no mistakenness, but is possibly spurious: a flag, not a score.
- A detection without a match is possibly a missing object if its confidence is above 0.95. The
  ranking of missing objects has all unmatched detections, by confidence.

`suspect_annotations` has to rank all annotations. It gives an annotation without a match a label
score of 0.5, the score for a confidence of zero, and a box score of 1, because no detection
confirms it. `suspect_by_kind` leaves such annotations without a score.
"""

import numpy as np

from boxmend.auditing.fixes.table import Kind
from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.data.types import Floats, Rows
from boxmend.scoring.finders.overlapping import OverlapTable, find_overlaps
from boxmend.scoring.finders.suspicion import (
    MissingRanking,
    Ranking,
    Suspects,
    Suspicion,
    propose_detections,
)

MIN_IOU = 0.5
MIN_MISSING_SCORE = 0.95  # an unmatched detection with a higher score is possibly a missing object
NO_MATCH = -1


def suspect_annotations(objects: Dataset, detections: Detections) -> Suspicion:
    """Return mistakenness and mistakenness_loc of every annotation; FiftyOne has no flags."""
    matches, iou = _match(objects, detections, find_overlaps(objects, detections))
    labels, boxes = _score_matches(objects, detections, matches, iou)
    return Suspicion(
        labels=np.where(np.isnan(labels), 0.5, labels), boxes=np.where(np.isnan(boxes), 1.0, boxes)
    )


def suspect_by_kind(
    objects: Dataset, detections: Detections, table: OverlapTable | None = None
) -> Suspects:
    """Return all four findings; annotations without a match have no mistakenness."""
    matches, iou = _match(objects, detections, table or find_overlaps(objects, detections))
    labels, boxes = _score_matches(objects, detections, matches, iou)
    has_no_match = matches == NO_MATCH
    is_unmatched = np.ones(len(detections.scores), np.bool_)
    is_unmatched[matches[~has_no_match]] = False
    rows = np.flatnonzero(is_unmatched)
    scores = detections.scores[rows].astype(np.float64)
    return Suspects(
        annotations={
            Kind.WRONG_LABEL: Ranking(labels, None),
            Kind.BAD_BOX: Ranking(boxes, None),
            Kind.SPURIOUS: Ranking(has_no_match.astype(np.float64), has_no_match),
        },
        missing=MissingRanking(
            propose_detections(detections, rows, scores), scores > MIN_MISSING_SCORE
        ),
    )


def _score_matches(
    objects: Dataset, detections: Detections, matches: Rows, iou: Floats
) -> tuple[Floats, Floats]:
    """Return mistakenness and mistakenness_loc [n]; NaN without a match."""
    is_matched = matches != NO_MATCH
    rows = matches[is_matched]
    confidence = detections.scores[rows].astype(np.float64)
    is_same = detections.labels[rows] == objects.labels[is_matched]
    badness = (1 - iou[is_matched]) / (1 - MIN_IOU)  # i
    labels, boxes = np.full(len(objects), np.nan), np.full(len(objects), np.nan)
    labels[is_matched] = (np.where(is_same, -confidence, confidence) + 1) / 2
    boxes[is_matched] = (confidence * (2 * badness - 1) + 1) / 2
    return labels, boxes


def _match(objects: Dataset, detections: Detections, table: OverlapTable) -> tuple[Rows, Floats]:
    """Return the row [n] of the detection that each annotation is matched to, and their IoU."""
    matches = np.full(len(objects), NO_MATCH, np.int64)
    iou = np.zeros(len(objects))
    near = table.take(table.iou >= MIN_IOU)
    # Detections by falling score, and for each of them annotations by falling IoU.
    scores = detections.scores[near.detections]
    order = np.lexsort((near.annotations, -near.iou, near.detections, -scores))
    is_used = np.zeros(len(detections.scores), np.bool_)
    for pair in order.tolist():
        row, detection = near.annotations[pair], near.detections[pair]
        if matches[row] == NO_MATCH and not is_used[detection]:
            matches[row], iou[row] = detection, near.iou[pair]
            is_used[detection] = True
    return matches, iou
