"""Evidence from a training run: what its visits say of every annotation, in its ledger.

The ledger tells the loss of the annotated label, so how much speaks for it; and, where the run
preferred another label, which one. The rest of the probability is spread over the other classes.
Boxes that a run trains on are a mean of the annotated box and of what it saw; where the share of
the annotated one is known, what it saw is computed back.

Nothing can be planted into what is past, and the detector has learnt from the labels that it
judges, wrong ones included. So the run's own estimate of the label noise, which it made while it
learnt, sets how probable it is that a label is wrong: log odds rise with those of the evidence,
and their mean is the estimate. Likewise the box noise tells how far boxes follow the annotated
ones: by as much as the noise looks smaller than it is.
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
    """How visits of a run count as evidence."""

    min_class_evidence: float = 1e-4  # for a class that a run never prefers
    max_kept_share: float = 0.95  # of the annotated box; above it nothing can be computed back


RUN_EVIDENCE = RunEvidenceConstants()


def evidence_of(opened: OpenRun, rows: Rows) -> Evidence:
    """What a run says of the annotations at these rows, whose labels it judged."""
    dataset = opened.dataset
    num_labels = len(dataset.label_names)
    labels = dataset.labels[rows]
    own = np.exp(-opened.settlement.losses[rows])
    others, votes = _others(opened, rows)
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
    seen = _seen(opened, rows)
    return Evidence(
        num_labels=num_labels,
        keys=keys[order],
        values=values[order],
        rest=rest,
        support=own,
        boxes=seen,
        confidences=np.nan_to_num(opened.settlement.confidences[rows]),
        pull=_pull(opened, rows, seen),
    )


def judged_rows(opened: OpenRun) -> Rows:
    """Rows of annotations whose label a run judged by its loss."""
    is_judged = np.isfinite(opened.settlement.losses) & ~opened.dataset.is_ignored
    rows: Rows = np.flatnonzero(is_judged)
    return rows


def _others(opened: OpenRun, rows: Rows) -> tuple[Rows, Floats]:
    """The label that a run most often preferred to the annotated one, and in which share of those
    visits, weighted by its confidence; -1 where it never did.
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
    labels = np.where(places >= 0, _at(unique % num_labels, places), -1)
    number = np.where(places >= 0, _at(counts, places), 1)
    return labels, np.clip(best / number, 0.0, 1.0)


def _seen(opened: OpenRun, rows: Rows) -> Floats:
    """Where a run saw the objects; NaN where it left the box alone."""
    annotated, final = opened.dataset.boxes[rows], opened.settlement.boxes[rows]
    kept = kept_share(opened.run)
    seen = np.full((len(rows), 4), np.nan)
    if kept > RUN_EVIDENCE.max_kept_share:
        return seen
    is_moved = opened.settlement.num_moved[rows] > 0
    seen[is_moved] = ((final - kept * annotated) / (1 - kept))[is_moved]
    return seen


def kept_share(run: Run) -> float:
    """The share of the annotated box in those that a run trained on at its end; 0 if unknown."""
    kept = last_figure(run, "keep")
    return kept if kept is not None and 0 <= kept <= 1 else 0.0


def last_figure(run: Run, name: str) -> float | None:
    """A figure of a run's metrics as it last was; None where there is none."""
    told: list[Any] = [record[name] for record in run.metrics() if name in record]
    numbers = [one for one in told if isinstance(one, int | float)]
    return float(numbers[-1]) if numbers else None


def judge_by_losses(opened: OpenRun, rows: Rows, evidence: Evidence) -> LabelOpinion | None:
    """Weigh the labels of a run that estimated their noise; None where it did not."""
    rate = last_figure(opened.run, "label_noise")
    if rate is None or not 0 <= rate < 1 or evidence.num_labels < 2:
        return None
    slope = last_figure(opened.run, "tau") or 1.0
    place = np.arange(len(rows))
    own = np.clip(np.exp(-opened.settlement.losses[rows]), 1e-6, 1 - 1e-6)
    odds = slope * np.log((1 - own) / own)
    p_wrong = expit(odds + _shift(odds, rate))
    values, best = evidence.best_other(place, opened.dataset.labels[rows])
    share = np.clip(values / np.maximum(1 - own, 1e-6), 0.0, 1.0)  # of what speaks for others
    bounds = [last_figure(opened.run, f"label_noise_{end}") for end in ("low", "high")]
    low, high = (rate if one is None else one for one in bounds)
    p_fix = np.where(best >= 0, p_wrong * share, 0.0)
    return LabelOpinion(p_wrong, best, p_fix, Share(rate, low, high))


def _shift(odds: Floats, rate: float) -> float:
    """What to add to log odds so that the mean probability is this; halved towards it."""
    low, high = -60.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(odds + middle).mean() < rate else (low, middle)
    return (low + high) / 2


def _pull(opened: OpenRun, rows: Rows, seen: Floats) -> float:
    """How far boxes that a run saw follow the annotated ones, by its estimate of their noise."""
    noise = last_figure(opened.run, "box_noise")
    known = np.flatnonzero(~np.isnan(seen).any(axis=1))
    if not noise or not len(known):
        return 0.0
    dataset = opened.dataset
    sizes = image_sizes(dataset)[dataset.image_rows[rows[known]]]
    confidences = np.nan_to_num(opened.settlement.confidences[rows[known]])
    model, _ = box_model.fitted(
        dataset.boxes[rows[known]], seen[known], sizes, confidences, pull=0.0
    )
    return float(np.clip(1 - model.noise / noise, 0.0, BOX_NOISE_MODEL.max_pull))


def _at(values: NDArray[np.int64], places: Rows) -> Rows:
    """Values at places; anything where the place is -1."""
    if not len(values):
        return np.zeros(len(places), np.int64)
    found: Rows = values[np.maximum(places, 0)]
    return found
