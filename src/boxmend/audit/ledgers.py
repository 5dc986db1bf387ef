"""Evidence from a training run: what its visits say of every annotation, in its ledger.

The ledger tells the loss of the annotated label, so how much speaks for it; and, where the run
preferred another label, which one. The rest of the probability is spread over the other classes.
Boxes that a run trains on are a mean of the annotated box and of what it saw; where the share of
the annotated one is known, what it saw is computed back.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxmend.audit.evidence import Evidence
from boxmend.audit.pairs import largest_by
from boxmend.mending.account import Account
from boxmend.runs import Run

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]

FAINT = 1e-4  # evidence for a class that a run never speaks of, at least
MOST_KEPT = 0.95  # share of the annotated box above which nothing can be computed back


def evidence_of(account: Account, rows: Rows) -> Evidence:
    """What a run says of the annotations at these rows, whose labels it judged."""
    dataset = account.dataset
    num_labels = len(dataset.label_names)
    labels = dataset.labels[rows]
    own = np.exp(-account.losses[rows])
    others, votes = _others(account, rows)
    is_other = others >= 0
    for_other = np.where(is_other, (1 - own) * votes, 0.0)
    left = np.maximum(1 - own - for_other, 0.0) / max(num_labels - 2, 1)
    rest = np.maximum(left, FAINT)
    places = np.arange(len(rows))
    keys = np.concatenate([places * num_labels + labels, (places * num_labels + others)[is_other]])
    values = np.concatenate(
        [np.maximum(own - rest, 0.0), np.maximum(for_other - rest, 0.0)[is_other]]
    )
    order = np.argsort(keys)
    return Evidence(
        num_labels=num_labels,
        keys=keys[order],
        values=values[order],
        rest=rest,
        support=own,
        boxes=_seen(account, rows),
        confidences=np.nan_to_num(account.confidences[rows]),
    )


def judged_rows(account: Account) -> Rows:
    """Rows of annotations whose label a run judged by its loss."""
    is_judged = np.isfinite(account.losses) & ~account.dataset.is_ignored
    rows: Rows = np.flatnonzero(is_judged)
    return rows


def _others(account: Account, rows: Rows) -> tuple[Rows, Floats]:
    """The label that a run most often preferred to the annotated one, and in which share of those
    visits, weighted by its confidence; -1 where it never did.
    """
    history, dataset = account.history, account.dataset
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


def _seen(account: Account, rows: Rows) -> Floats:
    """Where a run saw the objects; NaN where it left the box alone."""
    annotated, final = account.dataset.boxes[rows], account.settlement.boxes[rows]
    kept = kept_share(account.run)
    seen = np.full((len(rows), 4), np.nan)
    if kept > MOST_KEPT:
        return seen
    is_moved = account.settlement.num_moved[rows] > 0
    seen[is_moved] = ((final - kept * annotated) / (1 - kept))[is_moved]
    return seen


def kept_share(run: Run) -> float:
    """The share of the annotated box in those that a run trained on at its end; 0 if unknown."""
    told: list[Any] = [record["keep"] for record in run.metrics() if "keep" in record]
    numbers = [one for one in told if isinstance(one, int | float) and 0 <= one <= 1]
    return float(numbers[-1]) if numbers else 0.0


def _at(values: NDArray[np.int64], places: Rows) -> Rows:
    """Values at places; anything where the place is -1."""
    if not len(values):
        return np.zeros(len(places), np.int64)
    found: Rows = values[np.maximum(places, 0)]
    return found
