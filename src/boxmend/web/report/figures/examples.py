"""The choice of changes to show: large ones with high confidence and different labels."""

from collections.abc import Iterator

import numpy as np

from boxmend.data.dataset import UNKNOWN
from boxmend.data.types import Floats, Rows
from boxmend.runs.judgement import Judgement
from boxmend.runs.opening import OpenRun

MAX_CANDIDATES = 60  # some images may be unreadable
MAX_MOVE = 0.5  # of 1 - IoU; larger moves do not count more
MIN_MOVE = 0.25  # of 1 - IoU; smaller moves are hardly visible
VISIBLE_SIDE = 32.0  # pixels; smaller objects are hard to see


def examples(opened: OpenRun) -> Iterator[int]:
    """Yield rows with clear changes, the best first.

    Relabelled and far-moved annotations score high, the more so the higher the confidence; the
    truth is not used. Each image appears once, and a new label repeats only after all others.
    """
    scores = _scores(opened)
    best = np.argsort(-scores, kind="stable")[: MAX_CANDIDATES * 20]
    best = best[scores[best] > 0]
    new_labels, dataset = opened.settlement.labels, opened.dataset
    images: set[int] = set()
    labels: set[int] = set()
    later: list[int] = []
    for row in best.tolist():
        image, label = int(dataset.image_rows[row]), int(new_labels[row])
        if image in images:
            continue
        if label in labels:
            later.append(row)
            continue
        images.add(image)
        labels.add(label)
        yield row
    for row in later:
        image = int(dataset.image_rows[row])
        if image not in images:
            images.add(image)
            yield row


def _scores(opened: OpenRun) -> Floats:
    """Return a score [n] of how clear each change is; 0 for changes that are not shown."""
    dataset, settlement = opened.dataset, opened.settlement
    is_relabelled = opened.settlement.verdicts == Judgement.RELABELLED
    move = np.minimum(1 - opened.settlement.iou, MAX_MOVE)
    usable = (
        is_relabelled | (opened.settlement.is_moved & (move >= MIN_MOVE))
    ) & ~settlement.is_unsure
    usable &= (dataset.image_rows != UNKNOWN) & (dataset.labels != UNKNOWN)
    boxes = (dataset.boxes, opened.settlement.matched_boxes, settlement.boxes)
    for column in boxes:
        usable &= np.isfinite(column).all(axis=1)
    with np.errstate(invalid="ignore"):
        sides = np.minimum(*(settlement.boxes[:, 2:] - settlement.boxes[:, :2]).T)
        visible = np.clip(sides / VISIBLE_SIDE, 0, 1)
    agreement = _share(settlement.num_agreeing, settlement.num_judged)
    confidence = np.nan_to_num(opened.settlement.confidences, nan=0.5) * agreement
    scores: Floats = np.where(usable, (is_relabelled + move) * confidence * visible, 0.0)
    return np.nan_to_num(scores)


def _share(part: Rows, whole: Rows) -> Floats:
    """Return the share, or 1 where the whole is 0: a method may move boxes but judge no labels."""
    share = np.ones(len(whole))
    np.divide(part, whole, out=share, where=whole > 0)
    return share
