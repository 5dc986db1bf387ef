"""Which changes to show: large ones that the run was sure of, no two alike."""

from collections.abc import Iterator

import numpy as np

from boxmend.data.dataset import UNKNOWN
from boxmend.data.types import Floats, Rows
from boxmend.runs.judgement import Judgement
from boxmend.runs.opening import OpenRun

NUM_TRIED = 60  # images may be unreadable, but not without end
LARGEST_MOVE = 0.5  # of 1 - IoU; to move farther counts no more
LEAST_MOVE = 0.25  # likewise; less is hardly seen
PLAIN_SIDE = 32.0  # pixels; what is smaller is hard to see


def examples(opened: OpenRun) -> Iterator[int]:
    """Rows of telling changes, the best first: a good choice are the first few that can be shown.

    Those that were relabelled or moved far count, the more so the surer the run was; truth has no
    say. Each image is there once, and a new label comes again only when there is no other.
    """
    scores = _scores(opened)
    best = np.argsort(-scores, kind="stable")[: NUM_TRIED * 20]
    best = best[scores[best] > 0]
    settled, dataset = opened.settlement.labels, opened.dataset
    images: set[int] = set()
    labels: set[int] = set()
    later: list[int] = []
    for row in best.tolist():
        image, label = int(dataset.image_rows[row]), int(settled[row])
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
    """[n] How telling each change is; 0 for what should not be shown."""
    dataset, settlement = opened.dataset, opened.settlement
    is_relabelled = opened.settlement.verdicts == Judgement.RELABELLED
    move = np.minimum(1 - opened.settlement.iou, LARGEST_MOVE)
    usable = (
        is_relabelled | (opened.settlement.is_moved & (move >= LEAST_MOVE))
    ) & ~settlement.is_unsure
    usable &= (dataset.image_rows != UNKNOWN) & (dataset.labels != UNKNOWN)
    boxes = (dataset.boxes, opened.settlement.matched_boxes, settlement.boxes)
    for one in boxes:
        usable &= np.isfinite(one).all(axis=1)
    with np.errstate(invalid="ignore"):
        sides = np.minimum(*(settlement.boxes[:, 2:] - settlement.boxes[:, :2]).T)
        visible = np.clip(sides / PLAIN_SIDE, 0, 1)
    agreement = _share(settlement.num_agreeing, settlement.num_judged)
    sureness = np.nan_to_num(opened.settlement.confidences, nan=0.5) * agreement
    scores: Floats = np.where(usable, (is_relabelled + move) * sureness * visible, 0.0)
    return np.nan_to_num(scores)


def _share(part: Rows, whole: Rows) -> Floats:
    """The share, or 1 of nothing: a method may move boxes and judge no label."""
    share = np.ones(len(whole))
    np.divide(part, whole, out=share, where=whole > 0)
    return share
