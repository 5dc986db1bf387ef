"""Two short rules as a baseline: what a few lines of code find with the same detections.

- Labels: among detections with an IoU of at least 0.3, let s be the highest score of the annotated
  class y, and o the highest score of another class c. Detections of another class do not count if
  they overlap an annotation of their own class with an IoU of 0.5 or more. The suspicion is
  log((o + 0.02) / (s + 0.02)) + log f(y, c). A contradiction is an annotation with o > s, and
  f(y, c) is the share of confident contradictions (o - s > 0.8) among all contradictions of the
  ordered pair (y, c), shrunk towards 0.25.
- Boxes: the best detection of the annotated class has the highest product of score and IoU. The
  suspicion is its score times (1 - IoU), or 0 if it overlaps another annotation of the class more.
"""

import numpy as np

from boxmend.auditing.fixes.table import Kind
from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.data.types import Floats, Mask, Rows
from boxmend.scoring.finders.overlapping import OverlapTable, find_overlaps
from boxmend.scoring.finders.suspicion import Ranking, Suspects

MIN_LABEL_IOU = 0.3
MIN_OWNER_IOU = 0.5  # of a detection with an annotation of its class that it shows
SCORE_OFFSET = 0.02  # keeps the ratio of scores finite
CONFIDENT_GAP = 0.8
PRIOR_SHARE = 0.25
NO_PAIR = -1
PRIOR_CONTRADICTIONS = 4.0  # weight of the prior share


def suspect_by_kind(
    objects: Dataset, detections: Detections, table: OverlapTable | None = None
) -> Suspects:
    """Return the suspicion of labels and boxes, without flags."""
    table = table or find_overlaps(objects, detections)
    return Suspects(
        annotations={
            Kind.WRONG_LABEL: Ranking(_suspect_labels(objects, detections, table), None),
            Kind.BAD_BOX: Ranking(_suspect_boxes(objects, detections, table), None),
        }
    )


def _suspect_labels(objects: Dataset, detections: Detections, table: OverlapTable) -> Floats:
    is_own = detections.labels[table.detections] == objects.labels[table.annotations]
    shows_own = np.zeros(len(detections.scores), np.bool_)
    shows_own[table.detections[is_own & (table.iou >= MIN_OWNER_IOU)]] = True
    counts = (table.iou >= MIN_LABEL_IOU) & (is_own | ~shows_own[table.detections])
    near, is_own = table.take(counts), is_own[counts]
    rows, labels = near.annotations, detections.labels[near.detections]
    scores = detections.scores[near.detections].astype(np.float64)
    own, other = np.zeros(len(objects)), np.zeros(len(objects))
    np.maximum.at(own, rows[is_own], scores[is_own])
    rival = objects.labels.copy()  # the class itself where no other class was detected
    order = np.flatnonzero(~is_own)[np.argsort(scores[~is_own], kind="stable")]
    other[rows[order]] = scores[order]  # the highest score is written last
    rival[rows[order]] = labels[order]
    shares = _share_confident(objects.labels, rival, other - own, len(objects.label_names))
    ratio: Floats = np.log((other + SCORE_OFFSET) / (own + SCORE_OFFSET)) + np.log(shares)
    return ratio


def _share_confident(labels: Rows, rival: Rows, gap: Floats, num_labels: int) -> Floats:
    """Return the share [n] of confident contradictions of each annotation's ordered pair."""
    pairs = labels * num_labels + rival

    def count(marks: Mask) -> Floats:
        return np.bincount(pairs[marks], minlength=num_labels**2).astype(np.float64)

    confident = count(gap > CONFIDENT_GAP) + PRIOR_SHARE * PRIOR_CONTRADICTIONS
    shares: Floats = (confident / (count(gap > 0) + PRIOR_CONTRADICTIONS))[pairs]
    return shares


def _suspect_boxes(objects: Dataset, detections: Detections, table: OverlapTable) -> Floats:
    is_own = detections.labels[table.detections] == objects.labels[table.annotations]
    same = table.take(is_own)
    best = np.zeros(len(detections.scores))  # IoU with the annotation that owns the detection
    np.maximum.at(best, same.detections, same.iou)
    scores = detections.scores[same.detections].astype(np.float64)
    chosen = np.full(len(objects), NO_PAIR)
    order = np.argsort(scores * same.iou, kind="stable")
    chosen[same.annotations[order]] = order  # the best detection is written last
    has_best = chosen != NO_PAIR
    pairs = chosen[has_best]
    is_owner = same.iou[pairs] >= best[same.detections[pairs]]
    suspicion = np.zeros(len(objects))
    suspicion[has_best] = np.where(is_owner, (1 - same.iou[pairs]) * scores[pairs], 0.0)
    return suspicion
