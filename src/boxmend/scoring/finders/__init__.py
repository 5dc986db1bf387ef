"""Compare boxmend with other finders of annotation errors, on the annotations of a run."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from boxmend.auditing.fixes.table import GOOD_IOU
from boxmend.data.boxes import compute_iou
from boxmend.data.dataset import UNKNOWN
from boxmend.data.detections import Detections
from boxmend.data.types import Floats, Mask, Rows
from boxmend.runs.opening import OpenRun
from boxmend.scoring.finders import hotcoco, mistakenness, objectlab, ours
from boxmend.scoring.finders.suspicion import Suspicion
from boxmend.scoring.ranking import area_under_roc, average_precision, share
from boxmend.scoring.truth import KnownTruth

OTHERS = {
    "cleanlab ObjectLab": objectlab.suspect_annotations,
    "FiftyOne mistakenness": mistakenness.suspect_annotations,
    "hotcoco label_errors": hotcoco.suspect_annotations,
}
OURS = "boxmend"
KINDS = ("wrong label", "bad box")


@dataclass(frozen=True)
class FinderScores:
    """Scores of one finder for one kind of error; None if it has no scores or no threshold."""

    finder: str
    kind: str  # one of KINDS
    auroc: float | None
    average_precision: float | None
    flagged: int | None
    """Annotations above the finder's default threshold, which precision and recall also use."""
    precision: float | None
    recall: float | None


@dataclass(frozen=True)
class FinderComparison:
    """The scores of all finders on the annotations that the run visited and whose truth is known.

    Label noise and mean IoU "after" are those of boxmend, the only finder with corrections.
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
        """Return plain data: numbers, texts, None, lists and dictionaries."""
        return {**asdict(self), "scores": [asdict(scores) for scores in self.scores]}


def ensure_installed() -> None:
    """Raise a UsageError if a package that `compare` needs is not installed."""
    objectlab.ensure_installed()


def compare(opened: OpenRun, truth: KnownTruth, detections: Detections) -> FinderComparison:
    """Run all finders on the annotations of a run, and score them by the truth.

    `detections` have image rows and labels of the run's dataset. All finders get all annotations
    except crowds and difficult objects; only annotations that the run visited are scored.
    """
    dataset = opened.dataset
    is_known = (dataset.image_rows != UNKNOWN) & (dataset.labels != UNKNOWN)
    rows = np.flatnonzero(is_known & ~dataset.is_ignored)
    is_scored = opened.settlement.is_visited & ~truth.is_spurious
    judged = np.flatnonzero(is_scored[rows])  # places in `rows`
    suspicions = {OURS: ours.suspect_annotations(opened, rows)}
    objects = dataset.take(rows)
    for name, suspicion in OTHERS.items():
        suspicions[name] = suspicion(objects, detections)

    chosen = rows[judged]
    is_wrong = truth.is_wrong(dataset.labels)[chosen]
    iou = compute_iou(dataset.boxes[chosen], truth.boxes[chosen])
    labels, boxes = opened.settlement.labels[chosen], opened.settlement.boxes[chosen]
    return FinderComparison(
        annotations=len(chosen),
        wrong_labels=int(is_wrong.sum()),
        bad_boxes=int((iou < GOOD_IOU).sum()),
        scores=tuple(
            scores
            for name, suspicion in suspicions.items()
            for scores in _score_finder(name, suspicion, judged, (is_wrong, iou < GOOD_IOU))
        ),
        label_noise_before=share(is_wrong.sum(), len(chosen)),
        label_noise_after=share((labels != truth.labels[chosen]).sum(), len(chosen)),
        mean_iou_before=share(iou.sum(), len(chosen)),
        mean_iou_after=share(compute_iou(boxes, truth.boxes[chosen]).sum(), len(chosen)),
    )


def _score_finder(
    name: str, suspicion: Suspicion, judged: Rows, is_error_of: tuple[Mask, Mask]
) -> list[FinderScores]:
    """Return the scores of one finder for labels and for boxes."""
    columns = (
        (suspicion.labels, suspicion.is_label_flagged),
        (suspicion.boxes, suspicion.is_box_flagged),
    )
    return [
        _score_column(name, kind, _take(scores, judged), _take(flags, judged), is_error)
        for kind, (scores, flags), is_error in zip(KINDS, columns, is_error_of, strict=True)
    ]


def _take(column: Any, rows: Rows) -> Any:
    return None if column is None else column[rows]


def _score_column(
    name: str, kind: str, scores: Floats | None, flags: Mask | None, is_error: Mask
) -> FinderScores:
    is_hit = None if flags is None else flags & is_error
    return FinderScores(
        finder=name,
        kind=kind,
        auroc=None if scores is None else area_under_roc(scores, is_error),
        average_precision=None if scores is None else average_precision(scores, is_error),
        flagged=None if flags is None else int(flags.sum()),
        precision=None if is_hit is None or flags is None else share(is_hit.sum(), flags.sum()),
        recall=None if is_hit is None else share(is_hit.sum(), is_error.sum()),
    )
