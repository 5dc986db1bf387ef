"""Who finds more, by kind of error: an audit and other finders on the same predictions.

All see the same annotations: all but crowds, difficult objects and those of unknown image or
label. An annotation of nothing is spurious, and has neither a wrong label nor a bad box.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.detections import Detections
from boxmend.data.types import Floats, Mask
from boxmend.scoring.finders import OURS, hotcoco, mistakenness, objectlab, ours
from boxmend.scoring.finders.suspicion import Offered, Ranked, Suspects
from boxmend.scoring.fixes import are_errors, known_objects
from boxmend.scoring.missing import are_found, are_on_ignored
from boxmend.scoring.ranking import average_precision, share
from boxmend.scoring.truth import KnownTruth

OTHERS = {
    "cleanlab ObjectLab": objectlab.by_kind,
    "FiftyOne mistakenness": mistakenness.by_kind,
    "hotcoco label_errors": hotcoco.by_kind,
}
PLACES = (-np.inf, 0.5, np.inf)  # where annotations without a score may be put in a ranking


@dataclass(frozen=True)
class KindScores:
    """How well one finder finds one kind of error; None where it has no default, or none to find.

    Annotations that a finder gives no score are ranked where that serves it best: before all
    others, after them, or at 0.5.
    """

    finder: str
    kind: str  # in words
    average_precision: float | None
    flagged: int | None
    """By its own default, as are those below."""
    precision: float | None
    recall: float | None


@dataclass(frozen=True)
class KindComparison:
    """All finders by kind."""

    annotations: int
    errors: dict[str, int | None]
    """How many there are of each kind, in words; None where the truth does not tell."""
    scores: tuple[KindScores, ...]

    def to_json(self) -> dict[str, Any]:
        """Give plain data: numbers, texts, None, lists and dictionaries."""
        return {**asdict(self), "scores": [asdict(one) for one in self.scores]}


def compare_kinds(
    dataset: Dataset,
    truth: KnownTruth,
    detections: Detections,
    p_wrong: Mapping[Kind, Floats],
    missing: Fixes,
) -> KindComparison:
    """Let all finders judge a dataset by the same detections, and hold them against the truth.

    `p_wrong` and `missing` are what an audit made of them. Missing objects are left out where the
    truth does not tell of all of them.
    """
    is_known = (dataset.image_rows != UNKNOWN) & (dataset.labels != UNKNOWN)
    rows = np.flatnonzero(is_known & ~dataset.is_ignored)
    objects = dataset.take(rows)
    suspects = {OURS: ours.by_kind(p_wrong, missing, rows)}
    suspects |= {name: by_kind(objects, detections) for name, by_kind in OTHERS.items()}
    nothing = np.full(len(dataset), np.nan)
    is_error: dict[Kind, Mask] = {
        kind: are_errors(dataset, truth, kind, p_wrong.get(kind, nothing))[rows]
        for kind in Kind
        if kind != Kind.MISSING
    }
    true_objects = known_objects(truth)
    num_missing = int(true_objects.is_missing.sum()) if true_objects.are_all_known else None
    errors = {kind.words: int(marks.sum()) for kind, marks in is_error.items()}
    scores = [
        one
        for kind in Kind
        for name, told in suspects.items()
        if (one := _of_kind(name, kind, told, is_error, (dataset, truth))) is not None
    ]
    return KindComparison(len(rows), {**errors, Kind.MISSING.words: num_missing}, tuple(scores))


def _of_kind(
    name: str,
    kind: Kind,
    told: Suspects,
    is_error: Mapping[Kind, Mask],
    known: tuple[Dataset, KnownTruth],
) -> KindScores | None:
    """The scores of one finder, or None where it does not know the kind, or the truth does not."""
    if kind != Kind.MISSING:
        ranked = told.annotations.get(kind)
        return None if ranked is None else _of_annotations(name, kind, ranked, is_error[kind])
    dataset, truth = known
    if told.missing is None or not known_objects(truth).are_all_known:
        return None
    return _of_missing(name, told.missing, dataset, truth)


def _of_annotations(name: str, kind: Kind, ranked: Ranked, is_error: Mask) -> KindScores:
    places = PLACES if np.isnan(ranked.scores).any() else PLACES[:1]
    precisions = [
        average_precision(np.where(np.isnan(ranked.scores), place, ranked.scores), is_error)
        for place in places
    ]
    best = max((one for one in precisions if one is not None), default=None)
    return _scores(name, kind, best, (ranked.is_flagged, is_error), int(is_error.sum()))


def _of_missing(name: str, offered: Offered, dataset: Dataset, truth: KnownTruth) -> KindScores:
    objects = known_objects(truth)
    num_missing = int(objects.is_missing.sum())
    is_right = are_found(offered.proposed, objects)
    is_counted = is_right | ~are_on_ignored(offered.proposed, dataset)
    is_right, scores = is_right[is_counted], offered.proposed.scores[is_counted]
    precision = average_precision(scores, is_right, num_missing)
    marks = (offered.is_flagged[is_counted], is_right)
    return _scores(name, Kind.MISSING, precision, marks, num_missing)


def _scores(
    name: str,
    kind: Kind,
    precision: float | None,
    marks: tuple[Mask | None, Mask],
    num_sought: int,
) -> KindScores:
    flags, is_sought = marks
    if flags is None:
        return KindScores(name, kind.words, precision, None, None, None)
    num_right = int((flags & is_sought).sum())
    return KindScores(
        finder=name,
        kind=kind.words,
        average_precision=precision,
        flagged=int(flags.sum()),
        precision=share(num_right, flags.sum()),
        recall=share(num_right, num_sought),
    )
