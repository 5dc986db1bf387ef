"""Evidence about annotations from the ledger of a training run.

The loss of the annotated label gives the evidence for it; the ledger also has the label that a run
preferred, if any. The rest of the probability is spread over the other classes. Boxes that a run
trains on are a mean of the annotated and the seen box; where the share of the annotated box is
known, the seen box is computed from it.

Errors cannot be planted into a finished run, and the detector has learnt from the labels that it
judges, wrong ones included. So the run's own estimate of the label noise sets the mean probability
that a label is wrong; the log odds rise with those of the evidence. Likewise the run's estimate of
the box noise shows how far the seen boxes follow the annotated ones.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from boxmend.auditing import boxes as box_model
from boxmend.auditing.calibration import Share
from boxmend.auditing.evidence import Evidence
from boxmend.auditing.labels import LabelOpinion
from boxmend.auditing.ordering import image_sizes
from boxmend.auditing.pairs import largest_by
from boxmend.data.box_noise_model import BOX_NOISE_MODEL
from boxmend.data.types import Floats, Rows
from boxmend.runs.folder import Run
from boxmend.runs.opening import OpenRun


@dataclass(frozen=True)
class RunEvidenceConstants:
    """Bounds on the evidence of a run."""

    min_class_evidence: float = 1e-4  # for a class that the run never prefers
    max_kept_share: float = 0.95  # of the annotated box; above it the seen box cannot be computed


RUN_EVIDENCE = RunEvidenceConstants()


def gather_run_evidence(opened: OpenRun, rows: Rows) -> Evidence:
    """Return the evidence of a run about the annotations at these rows, whose labels it judged."""
    dataset = opened.dataset
    num_labels = len(dataset.label_names)
    labels = dataset.labels[rows]
    own = np.exp(-opened.settlement.losses[rows])
    others, votes = _find_preferred_labels(opened, rows)
    is_other = others >= 0
    for_other = np.where(is_other, (1 - own) * votes, 0.0)
    left = np.maximum(1 - own - for_other, 0.0) / max(num_labels - 2, 1)
    rest = np.maximum(left, RUN_EVIDENCE.min_class_evidence)
    places = np.arange(len(rows))
    keys = np.concatenate([places * num_labels + labels, (places * num_labels + others)[is_other]])
    values = np.concatenate(
        [np.maximum(own - rest, 0.0), np.maximum(for_other - rest, 0.0)[is_other]]
    )
    order = np.argsort(keys)
    seen = _recover_seen_boxes(opened, rows)
    return Evidence(
        num_labels=num_labels,
        keys=keys[order],
        values=values[order],
        rest=rest,
        support=own,
        boxes=seen,
        confidences=np.nan_to_num(opened.settlement.confidences[rows]),
        pull=_estimate_pull(opened, rows, seen),
    )


def find_judged_rows(opened: OpenRun) -> Rows:
    """Return rows of annotations whose label the run judged by its loss."""
    is_judged = np.isfinite(opened.settlement.losses) & ~opened.dataset.is_ignored
    rows: Rows = np.flatnonzero(is_judged)
    return rows


def _find_preferred_labels(opened: OpenRun, rows: Rows) -> tuple[Rows, Floats]:
    """Return the label that the run most often preferred to the annotated one, or -1.

    Also return its share of the visits, weighted by confidence.
    """
    history, dataset = opened.history, opened.dataset
    num_labels = len(dataset.label_names)
    place = np.full(len(dataset), -1, np.int64)
    place[rows] = np.arange(len(rows))
    other = history.is_judged & (history.labels != dataset.labels[history.rows])
    at = np.flatnonzero(other & (place[history.rows] >= 0) & (history.labels >= 0))
    keys = place[history.rows[at]] * num_labels + history.labels[at]
    weights = np.nan_to_num(history.confidences[at].astype(np.float64), nan=1.0)
    unique, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    sums = np.bincount(inverse, weights, len(unique)).astype(np.float64)
    owner = unique // num_labels
    best, places = largest_by(owner, sums, len(rows))
    labels = np.where(places >= 0, _take_places(unique % num_labels, places), -1)
    number = np.where(places >= 0, _take_places(counts, places), 1)
    return labels, np.clip(best / number, 0.0, 1.0)


def _recover_seen_boxes(opened: OpenRun, rows: Rows) -> Floats:
    """Return the boxes that a run saw; NaN where it kept the annotated box."""
    annotated, final = opened.dataset.boxes[rows], opened.settlement.boxes[rows]
    kept = annotated_share(opened.run)
    seen = np.full((len(rows), 4), np.nan)
    if kept > RUN_EVIDENCE.max_kept_share:
        return seen
    is_moved = opened.settlement.num_moved[rows] > 0
    seen[is_moved] = ((final - kept * annotated) / (1 - kept))[is_moved]
    return seen


def annotated_share(run: Run) -> float:
    """Return the share of the annotated box in the boxes of the last epoch; 0 if unknown."""
    kept = read_last_metric(run, "keep")
    return kept if kept is not None and 0 <= kept <= 1 else 0.0


def read_last_metric(run: Run, name: str) -> float | None:
    """Return the last value of one of a run's metrics; None if there is none."""
    told: list[Any] = [record[name] for record in run.metrics() if name in record]
    numbers = [one for one in told if isinstance(one, int | float)]
    return float(numbers[-1]) if numbers else None


def judge_by_losses(opened: OpenRun, rows: Rows, evidence: Evidence) -> LabelOpinion | None:
    """Judge labels by a run's estimate of the label noise; return None without an estimate."""
    rate = read_last_metric(opened.run, "label_noise")
    if rate is None or not 0 <= rate < 1 or evidence.num_labels < 2:
        return None
    slope = read_last_metric(opened.run, "tau") or 1.0
    place = np.arange(len(rows))
    own = np.clip(np.exp(-opened.settlement.losses[rows]), 1e-6, 1 - 1e-6)
    odds = slope * np.log((1 - own) / own)
    p_wrong = expit(odds + _find_shift(odds, rate))
    values, best = evidence.best_other(place, opened.dataset.labels[rows])
    share = np.clip(
        values / np.maximum(1 - own, 1e-6), 0.0, 1.0
    )  # of the evidence for other classes
    bounds = [read_last_metric(opened.run, f"label_noise_{end}") for end in ("low", "high")]
    low, high = (rate if one is None else one for one in bounds)
    p_fix = np.where(best >= 0, p_wrong * share, 0.0)
    return LabelOpinion(p_wrong, best, p_fix, Share(rate, low, high))


def _find_shift(odds: Floats, rate: float) -> float:
    """Return what to add to log odds so that the mean probability is `rate`, by bisection."""
    low, high = -60.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(odds + middle).mean() < rate else (low, middle)
    return (low + high) / 2


def _estimate_pull(opened: OpenRun, rows: Rows, seen: Floats) -> float:
    """Return how far seen boxes follow the annotated ones, by the run's estimate of box noise."""
    noise = read_last_metric(opened.run, "box_noise")
    known = np.flatnonzero(~np.isnan(seen).any(axis=1))
    if not noise or not len(known):
        return 0.0
    dataset = opened.dataset
    sizes = image_sizes(dataset)[dataset.image_rows[rows[known]]]
    confidences = np.nan_to_num(opened.settlement.confidences[rows[known]])
    model, _ = box_model.fit_box_model(
        dataset.boxes[rows[known]], seen[known], sizes, confidences, pull=0.0
    )
    return float(np.clip(1 - model.noise / noise, 0.0, BOX_NOISE_MODEL.max_pull))


def _take_places(values: NDArray[np.int64], places: Rows) -> Rows:
    """Return values at places; arbitrary values where the place is -1."""
    if not len(values):
        return np.zeros(len(places), np.int64)
    found: Rows = values[np.maximum(places, 0)]
    return found
