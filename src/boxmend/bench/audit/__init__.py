"""Who finds more label errors on the same predictions, and whether an audit keeps its word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from boxmend.auditing.fixes.choosing import choose
from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.auditing.predictions import Predictions
from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.data.types import Floats
from boxmend.scoring.calibration import NUM_BINS, Calibration
from boxmend.scoring.finders import OURS
from boxmend.scoring.finders.kinds import KindComparison, compare_kinds
from boxmend.scoring.fixes import (
    IN_ALL,
    FixScores,
    annotation_calibration,
    assess_fixes,
    called_wrong,
    known_objects,
)
from boxmend.scoring.truth import KnownTruth


class AuditLike(Protocol):
    """What this needs of an audit."""

    @property
    def fixes(self) -> Fixes:
        """Those that it proposes."""

    @property
    def p_wrong(self) -> Mapping[Kind, Floats]:
        """[n] of every kind but missing; NaN where an annotation is not judged."""

    @property
    def missing(self) -> Fixes:
        """All objects that may be missing, also improbable ones."""


@dataclass(frozen=True)
class AtPrecision:
    """What is chosen for a wanted precision, and what became of it."""

    wanted: float
    left: int
    """Fixes left for review."""
    scores: FixScores

    def to_json(self) -> dict[str, Any]:
        """Give plain data."""
        return {"wanted": self.wanted, "left": self.left, "by_kind": self.scores.to_json()}


@dataclass(frozen=True)
class AuditFigures:
    """An audit held against the truth, beside other finders."""

    images: int
    detections: int
    comparison: KindComparison
    calibration: dict[str, Calibration]
    """Of the probability that an annotation is wrong, over all of them, by kind in words."""
    called_wrong: dict[str, float | None]
    """The share of annotations with a probability of 0.5 or more, by kind and in all."""
    missing: FixScores | None
    """All objects that may be missing; None where the truth does not tell of them."""
    fixes: FixScores
    """All fixes that the audit proposes."""
    at_precision: AtPrecision

    def to_json(self) -> dict[str, Any]:
        """Give plain data: numbers, texts, None, lists and dictionaries."""
        missing = self.missing
        return {
            "images": self.images,
            "detections": self.detections,
            "finders": self.comparison.to_json(),
            "calibration_bins": NUM_BINS,
            "calibration": {kind: one.to_json() for kind, one in self.calibration.items()},
            "called_wrong": self.called_wrong,
            "missing": None if missing is None else missing.by_kind[Kind.MISSING.words].to_json(),
            "fixes": self.fixes.to_json(),
            "at_precision": self.at_precision.to_json(),
        }


def figures(
    dataset: Dataset,
    predictions: Predictions,
    truth: KnownTruth,
    found: AuditLike,
    precision: float,
) -> AuditFigures:
    """Hold an audit of these predictions against the truth, beside the other finders."""
    chosen = choose(found.fixes, {}, precision)
    taken = found.fixes.take(chosen.rows)
    is_told = known_objects(truth).are_all_known
    seen = Detections(
        predictions.image_rows, predictions.labels, predictions.scores, predictions.boxes
    )
    return AuditFigures(
        images=len(dataset.images),
        detections=len(predictions),
        comparison=compare_kinds(dataset, truth, seen, found.p_wrong, found.missing),
        calibration=annotation_calibration(dataset, truth, found.p_wrong),
        called_wrong=called_wrong(found.p_wrong),
        missing=assess_fixes(dataset, found.missing, truth) if is_told else None,
        fixes=assess_fixes(dataset, found.fixes, truth),
        at_precision=AtPrecision(precision, chosen.num_left, assess_fixes(dataset, taken, truth)),
    )


__all__ = ["IN_ALL", "OURS", "AtPrecision", "AuditFigures", "AuditLike", "figures"]
