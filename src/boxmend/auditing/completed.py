"""Audit a dataset in memory with predictions from memory or from files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from boxmend.auditing.audit import Audit, AuditSettings, DetectionColumns, audit
from boxmend.auditing.calibration import Share
from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.auditing.predictions import Predictions, ResolvedPredictions, read_predictions
from boxmend.auditing.predictions.raw import UNKNOWN_FOLD
from boxmend.auditing.probing import PROBE, describe_probe
from boxmend.auditing.provenance import provenance_warnings
from boxmend.auditing.weak_detectors import list_doubts
from boxmend.data.arguments import (
    check_length,
    check_type,
    refuse_rows,
    to_boxes,
    to_labels,
    to_scores,
)
from boxmend.data.dataset import Dataset
from boxmend.errors import UsageError

PathLike = str | os.PathLike[str]
AnyPredictions = Predictions | DetectionColumns | PathLike | Sequence[PathLike]
COLUMNS = ("image_rows", "labels", "scores", "boxes")
EXPECTED = (
    "expected boxmend.Predictions, or paths of files of predictions; "
    "Predictions.from_coco(...) and similar functions convert the results of other packages"
)


@dataclass(frozen=True, eq=False)
class CompletedAudit:
    """An audit with what it was made of."""

    dataset: Dataset
    detections: ResolvedPredictions
    settings: AuditSettings
    audit: Audit
    notes: tuple[str, ...]  # for the user; see `notes.warning`
    files: tuple[str, ...]  # of the predictions; empty for predictions in memory


def complete_audit(
    dataset: Dataset, predictions: AnyPredictions, settings: AuditSettings | None = None
) -> CompletedAudit:
    """Audit a dataset; `predictions` are `Predictions`, a path, or several paths."""
    settings = settings or AuditSettings()
    check_type("settings", settings, AuditSettings, "boxmend.AuditSettings(...)")
    check_type("dataset", dataset, Dataset, "boxmend.load(...)")
    files = _list_paths(predictions)
    detections = read_predictions(files, dataset) if files else _resolve(predictions, dataset)
    result = audit(dataset, detections, settings)
    warnings = provenance_warnings(dataset, detections, unseen=settings.unseen)
    notes = (*detections.notes, *warnings, *list_doubts(result.doubt))
    return CompletedAudit(dataset, detections, settings, result, notes, files)


def summarise_audit(
    audit: Audit, num_annotations: int, source: str, notes: Sequence[str]
) -> dict[str, Any]:
    """Return the result of an audit as plain data, as in audit.json."""
    probe = audit.probe
    return {
        "evidence": source,
        "annotations": num_annotations,
        "judged": audit.num_judged,
        "not_looked_at": audit.num_not_looked_at,
        "rates": {name: _round_share(share) for name, share in audit.rates.items()},
        "box_noise": _round_share(audit.box_noise),
        "fixes": {kind.words: _count_fixes(audit.fixes, kind) for kind in Kind},
        "probe": None if probe is None else describe_probe(probe),
        "notes": list(notes),
    }


def _list_paths(predictions: Any) -> tuple[str, ...]:
    """Return the paths if predictions are one or several of them; else an empty tuple."""
    if isinstance(predictions, str | os.PathLike):
        return (os.fspath(predictions),)
    if isinstance(predictions, list | tuple):
        wrong = [entry for entry in predictions if not isinstance(entry, str | os.PathLike)]
        if wrong or not predictions:
            what = f"holds {_type_name(wrong[0])}" if wrong else "is empty"
            raise UsageError(f"predictions {what}; {EXPECTED}")
        return tuple(os.fspath(path) for path in predictions)
    return ()


def _resolve(predictions: Any, dataset: Dataset) -> ResolvedPredictions:
    """Return predictions in memory by rows and labels of the dataset."""
    if isinstance(predictions, Predictions):
        return predictions.resolve(dataset)
    if not all(hasattr(predictions, name) for name in COLUMNS):
        raise UsageError(f"predictions is {_type_name(predictions)}; {EXPECTED}")
    boxes = to_boxes("predictions.boxes", predictions.boxes, allow_empty=True)
    number = len(boxes)
    limits = {"image_rows": len(dataset.images), "labels": len(dataset.label_names)}
    for name, limit in limits.items():
        column = to_labels(f"predictions.{name}", getattr(predictions, name), number)
        values = np.asarray(column)
        is_wrong = (values < 0) | (values >= limit) if values.dtype.kind == "i" else values != ""
        expected = f"expected a row number below {limit}, the number of the dataset's {name}"
        refuse_rows(f"predictions.{name}", is_wrong, values, expected)
    to_scores("predictions.scores", predictions.scores, number)
    if isinstance(predictions, ResolvedPredictions):
        return predictions
    vectors = getattr(predictions, "class_scores", None)
    if vectors is not None:
        check_length("predictions.class_scores", vectors[:, 0], number)
    return ResolvedPredictions(
        image_rows=predictions.image_rows,
        labels=predictions.labels,
        scores=predictions.scores,
        boxes=predictions.boxes,
        class_scores=vectors,
        folds=np.full(number, UNKNOWN_FOLD),
    )


def _type_name(value: object) -> str:
    return f"a {type(value).__name__}"


def _count_fixes(fixes: Fixes, kind: Kind) -> dict[str, int]:
    is_kind = fixes.kinds == kind
    return {
        "listed": int(is_kind.sum()),
        "called_wrong": int((is_kind & (fixes.p_wrong >= PROBE.called_min_probability)).sum()),
    }


def _round_share(share: Share) -> dict[str, float]:
    return {name: round(value, 6) for name, value in asdict(share).items()}
