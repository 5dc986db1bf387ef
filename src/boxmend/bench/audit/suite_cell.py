"""One cell of the audit suite: one regime with one seed, measured for every finder."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from boxmend.auditing.audit import AuditSettings, audit
from boxmend.auditing.fixes.choosing import choose_fixes
from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.auditing.predictions import ResolvedPredictions
from boxmend.bench.audit import AuditLike, as_detections
from boxmend.bench.audit.regimes import Regime
from boxmend.data.dataset import Dataset
from boxmend.data.noise import disturb
from boxmend.data.types import Floats, Mask
from boxmend.scoring.finders import OURS
from boxmend.scoring.finders.image_scores import (
    SCORE_OF_KIND,
    mark_images,
    score_images,
    score_images_by_audit,
)
from boxmend.scoring.finders.kinds import (
    OTHERS,
    ComparedScene,
    compare_kinds,
    mark_errors,
    select_objects,
)
from boxmend.scoring.fixes import (
    IN_ALL,
    assess_fixes,
    called_wrong,
    get_true_objects,
    mark_counted_fixes,
    mark_right_fixes,
)
from boxmend.scoring.ranking import average_precision
from boxmend.scoring.truth import NONE, KnownTruth
from boxmend.scoring.truth_of_noise import truth_of_noise

PRECISIONS = (0.95, 0.9, 0.8)  # requested of the chosen fixes
YIELD_PRECISION = 0.95  # true share of right ones among the fixes that could be taken
RATE_OF_KIND = {
    Kind.WRONG_LABEL: "wrong_labels",
    Kind.BAD_BOX: "bad_boxes",
    Kind.MISSING: "missing",
    Kind.SPURIOUS: "spurious",
    Kind.DUPLICATE: "duplicates",
}


def measure_cell(
    dataset: Dataset, predictions: ResolvedPredictions, regime: Regime, seed: int
) -> dict[str, Any]:
    """Disturb a dataset, run all finders on it, and return their figures as plain data."""
    detections = as_detections(predictions)
    settings = regime.with_seed(seed)
    noisy = disturb(dataset, settings, detections)
    truth = truth_of_noise(dataset, noisy)
    result = audit(noisy.dataset, predictions, AuditSettings(probe=0))
    scene = select_objects(noisy.dataset, detections)
    kinds = compare_kinds(noisy.dataset, truth, scene, result.p_wrong, result.missing)
    errors = mark_errors(noisy.dataset, truth, result.p_wrong, scene.rows)
    return {
        "regime": regime.name,
        "seed": seed,
        "settings": settings.to_json(),
        "counts": noisy.counts,
        "annotations": kinds.annotations,
        "errors": kinds.errors,
        "ranking": [
            {"kind": row.kind, "finder": row.finder, "ap": row.average_precision}
            for row in kinds.scores
        ],
        "images": _rank_images(noisy.dataset, truth, scene, result, errors),
        "promise": {
            f"{precision:g}": _count_taken(noisy.dataset, truth, result.fixes, precision)
            for precision in PRECISIONS
        },
        "calibration": _bin_fixes(noisy.dataset, truth, result.fixes),
        "yield": _measure_yield(noisy.dataset, truth, result.fixes),
        "rates": _compare_rates(truth, scene, errors, result.rates),
        "called_wrong": called_wrong(result.p_wrong)[IN_ALL],
    }


def _rank_images(
    dataset: Dataset,
    truth: KnownTruth,
    scene: ComparedScene,
    result: AuditLike,
    errors: Mapping[Kind, Mask],
) -> list[dict[str, Any]]:
    """Return the AP of rankings of images by whether they have an error of each kind."""
    theirs = score_images(scene.objects, scene.detections, scene.table)
    ours = score_images_by_audit(dataset, result.p_wrong, result.missing)
    objects = get_true_objects(truth)
    num_images = len(dataset.images)
    rows = []
    for kind, name in SCORE_OF_KIND.items():
        image_rows = (
            objects.image_rows[objects.is_missing]
            if kind == Kind.MISSING
            else scene.objects.image_rows[errors[kind]]
        )
        has_error = mark_images(image_rows, num_images)
        for finder, scores in ((OURS, ours[kind]), (name, theirs[name])):
            rows.append(
                {
                    "kind": kind.words,
                    "finder": finder,
                    "images": int(has_error.sum()),
                    "ap": average_precision(scores, has_error),
                }
            )
    return rows


def _count_taken(
    dataset: Dataset, truth: KnownTruth, fixes: Fixes, precision: float
) -> dict[str, dict[str, int]]:
    """Return how many fixes are chosen for a precision, and how many are right, by kind."""
    chosen = choose_fixes(fixes, {}, precision)
    scores = assess_fixes(dataset, fixes.take(chosen.rows), truth)
    return {
        kind: {"fixes": counts.fixes, "right": counts.right}
        for kind, counts in scores.by_kind.items()
    }


def _bin_fixes(dataset: Dataset, truth: KnownTruth, fixes: Fixes) -> dict[str, Any]:
    """Return sums over all proposed fixes in bins of their probability; seeds add them up."""
    return {
        kind: [
            {
                "number": part.number,
                "expected": (part.mean or 0.0) * part.number,
                "right": (part.happened or 0.0) * part.number,
            }
            for part in counts.calibration.bins
        ]
        for kind, counts in assess_fixes(dataset, fixes, truth).by_kind.items()
    }


def _measure_yield(dataset: Dataset, truth: KnownTruth, fixes: Fixes) -> dict[str, int]:
    """Return the number of top-ranked fixes that are 95 % right, and the fixes taken at 0.95."""
    is_right = mark_right_fixes(dataset, fixes, truth)
    is_counted = mark_counted_fixes(dataset, fixes, truth, is_right)
    p_fix, is_right = fixes.p_fix[is_counted], is_right[is_counted]
    chosen = _count_taken(dataset, truth, fixes, YIELD_PRECISION)[IN_ALL]
    return {
        "k": _count_precise(p_fix, is_right),
        "taken": chosen["fixes"],
        "right": chosen["right"],
    }


def _count_precise(p_fix: Floats, is_right: Mask) -> int:
    """Return the largest number of most probable fixes whose share of right ones is 0.95."""
    order = np.argsort(-p_fix, kind="stable")
    shares = np.cumsum(is_right[order]) / np.arange(1, len(order) + 1)
    enough = np.flatnonzero(shares >= YIELD_PRECISION)
    return int(enough[-1]) + 1 if len(enough) else 0


def _compare_rates(
    truth: KnownTruth, scene: ComparedScene, errors: Mapping[Kind, Mask], rates: Mapping[str, Any]
) -> dict[str, dict[str, float]]:
    """Return the true rate of each kind of error, with the estimate and its 95 % interval.

    Wrong labels and bad boxes are shares of the annotations that show an object, spurious and
    duplicate annotations of all annotations, and missing objects of all objects.
    """
    objects = get_true_objects(truth)
    num_real = int((~truth.is_spurious[scene.rows]).sum())
    num_missing = int(objects.is_missing.sum())
    own = objects.object_rows[scene.rows]
    num_objects = len(np.unique(own[own != NONE])) + num_missing
    true_rates = {
        Kind.WRONG_LABEL: errors[Kind.WRONG_LABEL].sum() / max(num_real, 1),
        Kind.BAD_BOX: errors[Kind.BAD_BOX].sum() / max(num_real, 1),
        Kind.MISSING: num_missing / max(num_objects, 1),
        Kind.SPURIOUS: errors[Kind.SPURIOUS].sum() / max(len(scene.rows), 1),
        Kind.DUPLICATE: errors[Kind.DUPLICATE].sum() / max(len(scene.rows), 1),
    }
    rates_by_kind: dict[str, dict[str, float]] = {}
    for kind, true_rate in true_rates.items():
        rate = rates[RATE_OF_KIND[kind]]
        rates_by_kind[kind.words] = {
            "true": float(true_rate),
            "estimate": float(rate.value),
            "low": float(rate.low),
            "high": float(rate.high),
        }
    return rates_by_kind


def name_finders() -> Sequence[str]:
    """Return the names of all finders, boxmend first."""
    return (OURS, *OTHERS)
