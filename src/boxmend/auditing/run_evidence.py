"""Evidence about annotations from the ledger of a training run.

The loss of the annotated label gives the evidence for this label, and the ledger has the label that
the run preferred, if any. The remaining probability is spread over the other classes. A run trains
on means of annotated and detected boxes; if the share of the annotated box is known, the detected
box is computed from the mean.

Errors cannot be planted into a finished run, and the detector was trained on the labels that it
judges, including wrong ones. So the mean probability of a wrong label is set to the run's own
estimate of the label noise, and the log odds of each label rise with those of the evidence. In the
same way the run's estimate of the box noise shows how far detected boxes follow annotated ones.
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
from boxmend.auditing.pairs import find_largest
from boxmend.data.box_noise_model import BOX_NOISE_MODEL
from boxmend.data.types import Floats, Rows
from boxmend.runs.folder import Run
from boxmend.runs.opening import OpenRun


@dataclass(frozen=True)
class RunEvidenceConstants:
    """Constants of the evidence of a run."""

    min_class_evidence: float = 1e-4  # for a class that the run never prefers
    max_kept_share: float = 0.95  # of the annotated box; with more, nothing can be recovered


RUN_EVIDENCE = RunEvidenceConstants()


def gather_run_evidence(opened: OpenRun, rows: Rows) -> Evidence:
    """Return the evidence of a run for the annotations at `rows`, whose labels it has judged."""
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
    """Return the rows of annotations whose labels the run has judged by their loss."""
    is_judged = np.isfinite(opened.settlement.losses) & ~opened.dataset.is_ignored
    rows: Rows = np.flatnonzero(is_judged)
    return rows


def _find_preferred_labels(opened: OpenRun, rows: Rows) -> tuple[Rows, Floats]:
    """Return the label that the run most often preferred to the annotated one, or -1 for none.

    Also return the mean confidence of the visits that preferred it.
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
    best, places = find_largest(owner, sums, len(rows))
    labels = np.where(places >= 0, _take_or_any(unique % num_labels, places), -1)
    number = np.where(places >= 0, _take_or_any(counts, places), 1)
    return labels, np.clip(best / number, 0.0, 1.0)


def _recover_seen_boxes(opened: OpenRun, rows: Rows) -> Floats:
    """Return the boxes [n, 4] that the run detected; NaN where it kept the annotated box."""
    annotated, final = opened.dataset.boxes[rows], opened.settlement.boxes[rows]
    kept = read_annotated_share(opened.run)
    seen = np.full((len(rows), 4), np.nan)
    if kept > RUN_EVIDENCE.max_kept_share:
        return seen
    is_moved = opened.settlement.num_moved[rows] > 0
    seen[is_moved] = ((final - kept * annotated) / (1 - kept))[is_moved]
    return seen


def read_annotated_share(run: Run) -> float:
    """Return the share of the annotated box in the boxes of the last epoch; 0 if unknown."""
    kept = read_last_metric(run, "keep")
    return kept if kept is not None and 0 <= kept <= 1 else 0.0


def read_last_metric(run: Run, name: str) -> float | None:
    """Return the last value of one of a run's metrics; None if there is none."""
    values: list[Any] = [record[name] for record in run.read_metrics() if name in record]
    numbers = [value for value in values if isinstance(value, int | float)]
    return float(numbers[-1]) if numbers else None


def read_estimate(run: Run, name: str) -> Share | None:
    """Return a run's last estimate of `label_noise` or `box_noise` with its bounds, or None."""
    value = read_last_metric(run, name)
    if value is None or not 0 <= value < 1:
        return None
    bounds = [read_last_metric(run, f"{name}_{end}") for end in ("low", "high")]
    low, high = (value if bound is None else bound for bound in bounds)
    return Share(value, low, high)


def judge_by_losses(opened: OpenRun, rows: Rows, evidence: Evidence) -> LabelOpinion | None:
    """Judge labels by a run's estimate of the label noise; return None without an estimate."""
    rate = read_estimate(opened.run, "label_noise")
    if rate is None or evidence.num_labels < 2:
        return None
    slope = read_last_metric(opened.run, "tau") or 1.0
    place = np.arange(len(rows))
    own = np.clip(np.exp(-opened.settlement.losses[rows]), 1e-6, 1 - 1e-6)
    odds = slope * np.log((1 - own) / own)
    p_wrong = expit(odds + find_shift(odds, rate.value))
    values, best = evidence.best_other(place, opened.dataset.labels[rows])
    # The share of the evidence for other classes that is for the best one.
    share = np.clip(values / np.maximum(1 - own, 1e-6), 0.0, 1.0)
    p_fix = np.where(best >= 0, p_wrong * share, 0.0)
    return LabelOpinion(p_wrong, best, p_fix, rate)


def find_shift(odds: Floats, rate: float) -> float:
    """Return what to add to log odds so that the mean probability is `rate`, by bisection."""
    low, high = -60.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(odds + middle).mean() < rate else (low, middle)
    return (low + high) / 2


def _estimate_pull(opened: OpenRun, rows: Rows, seen: Floats) -> float:
    """Return the share by which detected boxes follow annotated ones.

    It follows from the run's estimate of the box noise; 0 without an estimate.
    """
    noise = read_last_metric(opened.run, "box_noise")
    known = np.flatnonzero(~np.isnan(seen).any(axis=1))
    if not noise or not len(known):
        return 0.0
    dataset = opened.dataset
    sizes = dataset.images.sizes[dataset.image_rows[rows[known]]]
    confidences = np.nan_to_num(opened.settlement.confidences[rows[known]])
    model, _ = box_model.fit_box_model(
        dataset.boxes[rows[known]], seen[known], sizes, confidences, pull=0.0
    )
    return float(np.clip(1 - model.noise / noise, 0.0, BOX_NOISE_MODEL.max_pull))


def _take_or_any(values: NDArray[np.int64], places: Rows) -> Rows:
    """Return values at places; arbitrary values where the place is -1."""
    if not len(values):
        return np.zeros(len(places), np.int64)
    taken: Rows = values[np.maximum(places, 0)]
    return taken
