"""Compare an audit with other finders on the same predictions, and check its probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from boxmend.auditing.fixes.choosing import choose_fixes
from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.auditing.predictions import ResolvedPredictions
from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.data.types import Floats
from boxmend.scoring.calibration import NUM_BINS, Calibration
from boxmend.scoring.finders import OURS
from boxmend.scoring.finders.kinds import KindComparison, compare_kinds
from boxmend.scoring.fixes import (
    IN_ALL,
    FixScores,
    assess_fixes,
    called_wrong,
    get_true_objects,
    measure_annotation_calibration,
)
from boxmend.scoring.truth import KnownTruth


class AuditLike(Protocol):
    """The parts of an audit that the comparison uses."""

    @property
    def fixes(self) -> Fixes:
        """The proposed fixes."""

    @property
    def p_wrong(self) -> Mapping[Kind, Floats]:
        """[n] For every kind but missing; NaN if an annotation is not judged."""

    @property
    def missing(self) -> Fixes:
        """All objects that may be missing, improbable ones included."""


@dataclass(frozen=True)
class AtPrecision:
    """The fixes chosen for a requested precision, scored by the truth."""

    wanted: float
    left: int
    """Fixes left for review."""
    scores: FixScores

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {"wanted": self.wanted, "left": self.left, "by_kind": self.scores.to_json()}


@dataclass(frozen=True)
class AuditFigures:
    """The scores of an audit and of other finders, by the truth."""

    images: int
    detections: int
    comparison: KindComparison
    calibration: dict[str, Calibration]
    """Of the probability that an annotation is wrong, over all annotations, by kind in words."""
    called_wrong: dict[str, float | None]
    """The share of annotations with a probability of at least 0.5, by kind and in all."""
    missing: FixScores | None
    """All objects that may be missing; None if the truth does not have all missing objects."""
    fixes: FixScores
    """All fixes that the audit proposes."""
    at_precision: AtPrecision

    def to_json(self) -> dict[str, Any]:
        """Return plain data: numbers, texts, None, lists and dictionaries."""
        missing = self.missing
        return {
            "images": self.images,
            "detections": self.detections,
            "finders": self.comparison.to_json(),
            "calibration_bins": NUM_BINS,
            "calibration": {kind: bins.to_json() for kind, bins in self.calibration.items()},
            "called_wrong": self.called_wrong,
            "missing": None if missing is None else missing.by_kind[Kind.MISSING.words].to_json(),
            "fixes": self.fixes.to_json(),
            "at_precision": self.at_precision.to_json(),
        }


def measure_audit(
    dataset: Dataset,
    predictions: ResolvedPredictions,
    truth: KnownTruth,
    audit: AuditLike,
    precision: float,
) -> AuditFigures:
    """Score an audit of these predictions, and the other finders, by the truth."""
    chosen = choose_fixes(audit.fixes, {}, precision)
    chosen_fixes = audit.fixes.take(chosen.rows)
    knows_missing = get_true_objects(truth).are_all_known
    return AuditFigures(
        images=len(dataset.images),
        detections=len(predictions),
        comparison=compare_kinds(
            dataset,
            truth,
            as_detections(predictions),
            audit.p_wrong,
            audit.missing,
            precision,
        ),
        calibration=measure_annotation_calibration(dataset, truth, audit.p_wrong),
        called_wrong=called_wrong(audit.p_wrong),
        missing=assess_fixes(dataset, audit.missing, truth) if knows_missing else None,
        fixes=assess_fixes(dataset, audit.fixes, truth),
        at_precision=AtPrecision(
            precision, chosen.num_left, assess_fixes(dataset, chosen_fixes, truth)
        ),
    )


def as_detections(predictions: ResolvedPredictions) -> Detections:
    """Return predictions as plain detections."""
    return Detections(
        predictions.image_rows, predictions.labels, predictions.scores, predictions.boxes
    )


__all__ = [
    "IN_ALL",
    "OURS",
    "AtPrecision",
    "AuditFigures",
    "AuditLike",
    "as_detections",
    "measure_audit",
]
