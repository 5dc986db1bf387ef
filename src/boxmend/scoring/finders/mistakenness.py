"""FiftyOne's mistakenness of detections, by its formula for confidences.

Facts from the documentation and source of FiftyOne Brain (`compute_mistakenness`, in
fiftyone/brain/internal/core/mistakenness.py) and of FiftyOne's COCO evaluation, which it matches
by; written anew here. FiftyOne itself is not needed.

- Detections are matched to annotations whatever their class: the most confident first, each to
  the free annotation that it overlaps most, with an IoU of at least 0.5.
- With c the confidence of the matched detection, and m = -1 where its label is the annotated one
  and 1 where it is not: mistakenness = (m c + 1) / 2.
- With i = (1 - IoU) / (1 - 0.5): mistakenness_loc = (c (2 i - 1) + 1) / 2.

FiftyOne gives an annotation without a match no mistakenness but calls it possibly spurious. To
rank all annotations, `suspicion` gives the label of such a one 0.5, which is what a detection of
no confidence would give it, and its box 1: no detection agrees with it. `by_kind` leaves them
without a score.

- An annotation without a match is possibly spurious: a flag, and no score.
- A detection without a match is possibly a missing object if its confidence is above 0.95. To rank
  them, all unmatched ones are taken by their confidence.
"""

import numpy as np

from boxmend.auditing.fixes.table import Kind
from boxmend.data.boxes import overlaps
from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.data.types import Floats, Mask, Rows
from boxmend.scoring.finders.suspicion import (
    Offered,
    Ranked,
    Suspects,
    Suspicion,
    by_image,
    proposed_at,
)

MIN_IOU = 0.5
MISSING_SCORE = 0.95  # above it an unmatched detection is possibly a missing object
PAIRS_PER_CHUNK = 2**20  # of a detection and an annotation of one image; bounds the memory
NO_MATCH = -1


def suspicion(objects: Dataset, detections: Detections) -> Suspicion:
    """Compute mistakenness and mistakenness_loc of every annotation; there are no default flags."""
    labels, boxes = _scores(objects, detections, *_matched(objects, detections))
    return Suspicion(
        labels=np.where(np.isnan(labels), 0.5, labels), boxes=np.where(np.isnan(boxes), 1.0, boxes)
    )


def by_kind(objects: Dataset, detections: Detections) -> Suspects:
    """Compute all four; annotations without a match have no mistakenness."""
    matches, iou = _matched(objects, detections)
    labels, boxes = _scores(objects, detections, matches, iou)
    is_single_process = matches == NO_MATCH
    is_unmatched = np.ones(len(detections.scores), np.bool_)
    is_unmatched[matches[~is_single_process]] = False
    rows = np.flatnonzero(is_unmatched)
    scores = detections.scores[rows].astype(np.float64)
    return Suspects(
        annotations={
            Kind.WRONG_LABEL: Ranked(labels, None),
            Kind.BAD_BOX: Ranked(boxes, None),
            Kind.SPURIOUS: Ranked(is_single_process.astype(np.float64), is_single_process),
        },
        missing=Offered(proposed_at(detections, rows, scores), scores > MISSING_SCORE),
    )


def _scores(
    objects: Dataset, detections: Detections, matches: Rows, iou: Floats
) -> tuple[Floats, Floats]:
    """[n] Mistakenness and mistakenness_loc; NaN without a match."""
    is_matched = matches != NO_MATCH
    found = matches[is_matched]
    confidence = detections.scores[found].astype(np.float64)
    is_same = detections.labels[found] == objects.labels[is_matched]
    badness = (1 - iou[is_matched]) / (1 - MIN_IOU)  # i
    labels, boxes = np.full(len(objects), np.nan), np.full(len(objects), np.nan)
    labels[is_matched] = (np.where(is_same, -confidence, confidence) + 1) / 2
    boxes[is_matched] = (confidence * (2 * badness - 1) + 1) / 2
    return labels, boxes


def _matched(objects: Dataset, detections: Detections) -> tuple[Rows, Floats]:
    """[n] The row of the detection that each annotation is matched to, and their IoU."""
    matches = np.full(len(objects), NO_MATCH, np.int64)
    iou = np.zeros(len(objects))
    found_boxes = detections.boxes.astype(np.float64)
    for ours, theirs in by_image(objects, detections):
        order = theirs[np.argsort(-detections.scores[theirs], kind="stable")]
        is_free = np.ones(len(ours), np.bool_)
        at_once = max(1, PAIRS_PER_CHUNK // len(ours))
        for first in range(0, len(order), at_once):
            some = order[first : first + at_once]
            table = overlaps(found_boxes[some, None], objects.boxes[ours])
            for place, best in _pairs(table, is_free):
                matches[ours[best]] = some[place]
                iou[ours[best]] = table[place, best]
    return matches, iou


def _pairs(table: Floats, is_free: Mask) -> list[tuple[int, int]]:
    """Match rows of a table of IoUs in turn, each to the free column where it is highest.

    Columns that are matched are not free afterwards.
    """
    pairs = []
    for place in np.flatnonzero(table.max(axis=1, initial=0.0) >= MIN_IOU).tolist():
        free = np.where(is_free, table[place], -1.0)
        best = int(free.argmax())
        if free[best] >= MIN_IOU:
            pairs.append((place, best))
            is_free[best] = False
    return pairs
