"""Who finds more: boxmend and other finders of label errors on the same annotations."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from boxmend.auditing.fixes.table import GOOD_IOU
from boxmend.data.boxes import overlaps
from boxmend.data.dataset import UNKNOWN
from boxmend.data.detections import Detections
from boxmend.data.types import Floats, Mask, Rows
from boxmend.runs.opening import OpenRun
from boxmend.scoring.finders import hotcoco, mistakenness, objectlab, ours
from boxmend.scoring.finders.suspicion import Suspicion
from boxmend.scoring.ranking import area_under_roc, average_precision, share
from boxmend.scoring.truth import KnownTruth

OTHERS = {
    "cleanlab ObjectLab": objectlab.suspicion,
    "FiftyOne mistakenness": mistakenness.suspicion,
    "hotcoco label_errors": hotcoco.suspicion,
}
OURS = "boxmend"
KINDS = ("wrong label", "bad box")


@dataclass(frozen=True)
class FinderScores:
    """How well one finder finds one kind of error; None where it has no scores, or no default."""

    finder: str
    kind: str  # one of KINDS
    auroc: float | None
    average_precision: float | None
    flagged: int | None
    """By its own default, as are those below."""
    precision: float | None
    recall: float | None


@dataclass(frozen=True)
class FinderComparison:
    """All finders on the same annotations: those visited by the run whose truth is known.

    Only boxmend corrects anything, so label noise and mean IoU after are its own; with any other
    finder they stay as they were before.
    """

    annotations: int
    wrong_labels: int
    bad_boxes: int
    scores: tuple[FinderScores, ...]
    label_noise_before: float | None
    label_noise_after: float | None
    mean_iou_before: float | None
    mean_iou_after: float | None

    def to_json(self) -> dict[str, Any]:
        """Give plain data: numbers, texts, None, lists and dictionaries."""
        return {**asdict(self), "scores": [asdict(one) for one in self.scores]}


def ensure_installed() -> None:
    """Raise a UsageError where `compare` lacks a package; ask before making detections."""
    objectlab.ensure_installed()


def compare(opened: OpenRun, truth: KnownTruth, detections: Detections) -> FinderComparison:
    """Let all finders judge the annotations of a run, and hold them against the truth.

    `detections` are of a detector on the run's dataset, by its image rows and labels. All finders
    see all annotations but crowds and difficult objects; scored are those that the run visited.
    """
    dataset = opened.dataset
    is_known = (dataset.image_rows != UNKNOWN) & (dataset.labels != UNKNOWN)
    rows = np.flatnonzero(is_known & ~dataset.is_ignored)
    is_scored = opened.settlement.is_visited & ~truth.is_spurious
    judged = np.flatnonzero(is_scored[rows])  # within rows
    suspicions = {OURS: ours.suspicion(opened, rows)}
    objects = dataset.take(rows)
    for name, suspicion in OTHERS.items():
        suspicions[name] = suspicion(objects, detections)

    chosen = rows[judged]
    is_wrong = truth.is_wrong(dataset.labels)[chosen]
    iou = overlaps(dataset.boxes[chosen], truth.boxes[chosen])
    labels, boxes = opened.settlement.labels[chosen], opened.settlement.boxes[chosen]
    return FinderComparison(
        annotations=len(chosen),
        wrong_labels=int(is_wrong.sum()),
        bad_boxes=int((iou < GOOD_IOU).sum()),
        scores=tuple(
            one
            for name, suspicion in suspicions.items()
            for one in _scores(name, suspicion, judged, (is_wrong, iou < GOOD_IOU))
        ),
        label_noise_before=share(is_wrong.sum(), len(chosen)),
        label_noise_after=share((labels != truth.labels[chosen]).sum(), len(chosen)),
        mean_iou_before=share(iou.sum(), len(chosen)),
        mean_iou_after=share(overlaps(boxes, truth.boxes[chosen]).sum(), len(chosen)),
    )


def _scores(
    name: str, suspicion: Suspicion, judged: Rows, sought: tuple[Mask, Mask]
) -> list[FinderScores]:
    columns = (
        (suspicion.labels, suspicion.is_label_flagged),
        (suspicion.boxes, suspicion.is_box_flagged),
    )
    return [
        _score(name, kind, _at(scores, judged), _at(flags, judged), is_sought)
        for kind, (scores, flags), is_sought in zip(KINDS, columns, sought, strict=True)
    ]


def _at(column: Any, rows: Rows) -> Any:
    return None if column is None else column[rows]


def _score(
    name: str, kind: str, scores: Floats | None, flags: Mask | None, is_sought: Mask
) -> FinderScores:
    is_hit = None if flags is None else flags & is_sought
    return FinderScores(
        finder=name,
        kind=kind,
        auroc=None if scores is None else area_under_roc(scores, is_sought),
        average_precision=None if scores is None else average_precision(scores, is_sought),
        flagged=None if flags is None else int(flags.sum()),
        precision=None if is_hit is None or flags is None else share(is_hit.sum(), flags.sum()),
        recall=None if is_hit is None else share(is_hit.sum(), is_sought.sum()),
    )
