"""Compare an audit with other finders, for each kind of error, on the same predictions.

All finders get the same annotations: all except crowds, difficult objects and those of unknown
image or label. A spurious annotation has neither a wrong label nor a bad box.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.detections import Detections
from boxmend.data.types import Floats, Mask, Rows
from boxmend.scoring.finders import OURS, hotcoco, mistakenness, objectlab, ours, short_rules
from boxmend.scoring.finders.overlapping import OverlapTable, find_overlaps
from boxmend.scoring.finders.suspicion import MissingRanking, Ranking, Suspects
from boxmend.scoring.fixes import get_true_objects, mark_erroneous
from boxmend.scoring.missing import mark_on_ignored, mark_right_proposals
from boxmend.scoring.ranking import average_precision, recall_at_precision, share
from boxmend.scoring.truth import KnownTruth


class KindFinder(Protocol):
    """A function that runs a finder other than boxmend."""

    def __call__(
        self, objects: Dataset, detections: Detections, table: OverlapTable | None = None
    ) -> Suspects:
        """Return the findings of the finder; `table` has the overlaps if they are known."""


OTHERS: dict[str, KindFinder] = {
    "cleanlab ObjectLab": objectlab.suspect_by_kind,
    "FiftyOne mistakenness": mistakenness.suspect_by_kind,
    "hotcoco label_errors": hotcoco.suspect_by_kind,
    "short rules": short_rules.suspect_by_kind,
}
PRECISION = 0.95  # at which recalls are compared by default
PLACES_WITHOUT_SCORE = (-np.inf, 0.5, np.inf)  # candidates; the best one for the finder counts


@dataclass(frozen=True)
class KindScores:
    """Scores of one finder for one kind of error.

    A value is None if the finder has no default threshold, or if there are no errors of this kind.
    Annotations without a score are ranked first, last or at 0.5: where the average precision of the
    finder is highest.
    """

    finder: str
    kind: str  # as in the table of fixes
    average_precision: float | None
    flagged: int | None
    """Suspects above the finder's default threshold, which precision and recall also use."""
    precision: float | None
    recall: float | None
    recall_at_precision: float | None
    """The largest recall of the ranking at the requested precision."""


@dataclass(frozen=True)
class KindComparison:
    """The scores of all finders, by kind of error."""

    annotations: int
    errors: dict[str, int | None]
    """The number of errors of each kind; None if the truth does not have it."""
    scores: tuple[KindScores, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain data: numbers, texts, None, lists and dictionaries."""
        return {**asdict(self), "scores": [asdict(scores) for scores in self.scores]}


@dataclass(frozen=True, eq=False)
class ComparedScene:
    """The input of every finder: annotations, detections and their overlaps."""

    rows: Rows  # [n] of the dataset
    objects: Dataset
    detections: Detections
    table: OverlapTable


def select_objects(dataset: Dataset, detections: Detections) -> ComparedScene:
    """Return the annotations that all finders get, with their overlaps."""
    is_known = (dataset.image_rows != UNKNOWN) & (dataset.labels != UNKNOWN)
    rows = np.flatnonzero(is_known & ~dataset.is_ignored)
    objects = dataset.take(rows)
    return ComparedScene(rows, objects, detections, find_overlaps(objects, detections))


def compare_kinds(
    dataset: Dataset,
    truth: KnownTruth,
    scene: ComparedScene | Detections,
    p_wrong: Mapping[Kind, Floats],
    missing: Fixes,
    precision: float = PRECISION,
) -> KindComparison:
    """Run all finders on the same annotations and detections, and score them by the truth.

    `p_wrong` and `missing` come from an audit. Missing objects are left out if the truth does not
    have all of them. Recalls are compared at `precision`.
    """
    if isinstance(scene, Detections):
        scene = select_objects(dataset, scene)
    suspects = {OURS: ours.suspect_by_kind(p_wrong, missing, scene.rows)}
    for name, by_kind in OTHERS.items():
        suspects[name] = by_kind(scene.objects, scene.detections, scene.table)
    is_counted = truth.is_counted[scene.rows]
    suspects = {
        name: _take_counted(suspicions, is_counted) for name, suspicions in suspects.items()
    }
    is_error = mark_errors(dataset, truth, p_wrong, scene.rows[is_counted])
    true_objects = get_true_objects(truth)
    num_missing = int(true_objects.is_missing.sum()) if true_objects.are_all_known else None
    errors = {kind.words: int(marks.sum()) for kind, marks in is_error.items()}
    marked = (
        (name, kind, _mark_suspects(kind, suspected, is_error, (dataset, truth)))
        for kind in Kind
        for name, suspected in suspects.items()
    )
    scores = (
        _score_finder(name, kind, marks, precision)
        for name, kind, marks in marked
        if marks is not None
    )
    errors_and_missing = {**errors, Kind.MISSING.words: num_missing}
    return KindComparison(int(is_counted.sum()), errors_and_missing, tuple(scores))


def _take_counted(suspects: Suspects, is_counted: Mask) -> Suspects:
    """Return the suspects without neutral annotations."""
    rankings = {
        kind: Ranking(
            ranking.scores[is_counted],
            None if ranking.is_flagged is None else ranking.is_flagged[is_counted],
        )
        for kind, ranking in suspects.annotations.items()
    }
    return Suspects(rankings, suspects.missing)


def mark_errors(
    dataset: Dataset, truth: KnownTruth, p_wrong: Mapping[Kind, Floats], rows: Rows
) -> dict[Kind, Mask]:
    """Return, for each kind of error except missing objects, a mask of annotations that have it."""
    nothing = np.full(len(dataset), np.nan)
    return {
        kind: mark_erroneous(dataset, truth, kind, p_wrong.get(kind, nothing))[rows]
        for kind in Kind
        if kind != Kind.MISSING
    }


@dataclass(frozen=True, eq=False)
class _MarkedSuspects:
    """What a finder suspects of one kind of error, and what is right of it."""

    scores: Floats  # [s] NaN without a score
    is_flagged: Mask | None  # [s] None without a default threshold
    is_error: Mask  # [s]
    num_errors: int  # with those that the finder never suspects


def _mark_suspects(
    kind: Kind,
    suspects: Suspects,
    is_error: Mapping[Kind, Mask],
    known: tuple[Dataset, KnownTruth],
) -> _MarkedSuspects | None:
    """Return the suspects of a finder, or None if the finder or the truth lacks this kind."""
    if kind == Kind.MISSING:
        return _mark_missing(suspects.missing, *known)
    ranking = suspects.annotations.get(kind)
    if ranking is None:
        return None
    marks = is_error[kind]
    return _MarkedSuspects(ranking.scores, ranking.is_flagged, marks, int(marks.sum()))


def _mark_missing(
    ranking: MissingRanking | None, dataset: Dataset, truth: KnownTruth
) -> _MarkedSuspects | None:
    objects = get_true_objects(truth)
    if ranking is None or not objects.are_all_known:
        return None
    is_right = mark_right_proposals(ranking.proposed, objects)
    is_counted = is_right | ~mark_on_ignored(ranking.proposed, dataset, truth)
    scores, is_flagged = ranking.proposed.scores[is_counted], ranking.is_flagged[is_counted]
    num_missing = int(objects.is_missing.sum())
    return _MarkedSuspects(scores, is_flagged, is_right[is_counted], num_missing)


def _score_finder(name: str, kind: Kind, suspects: _MarkedSuspects, precision: float) -> KindScores:
    has_no_score = np.isnan(suspects.scores)
    places = PLACES_WITHOUT_SCORE if has_no_score.any() else PLACES_WITHOUT_SCORE[:1]
    rankings = [np.where(has_no_score, place, suspects.scores) for place in places]
    marks, num_errors = suspects.is_error, suspects.num_errors
    precisions = [average_precision(ranking, marks, num_errors) or 0.0 for ranking in rankings]
    best = rankings[int(np.argmax(precisions))]
    flags = suspects.is_flagged
    num_right = None if flags is None else int((flags & marks).sum())
    num_flagged = None if flags is None else int(flags.sum())
    return KindScores(
        finder=name,
        kind=kind.words,
        average_precision=average_precision(best, marks, num_errors),
        flagged=num_flagged,
        precision=None if num_right is None else share(num_right, num_flagged or 0),
        recall=None if num_right is None else share(num_right, num_errors),
        recall_at_precision=recall_at_precision(best, marks, precision, num_errors),
    )
