"""What one update adds to the ledger, the metrics and the summary of a run."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from boxmend.data.dataset import Dataset
from boxmend.data.types import Floats, Rows, Singles
from boxmend.repair.mender.beliefs import Beliefs
from boxmend.repair.mender.classes import Premises
from boxmend.repair.mender.posteriors import TINY
from boxmend.repair.mender.settings import MenderSettings
from boxmend.runs.ledger import Entries

MIN_CONFUSION_SHARE = 0.05  # of a label's annotations; rarer confusions are not listed
MAX_CONFUSIONS = 20
MEMORISED_SHARE = 0.12  # of wrong labels, before they are measured; as for `mend`
MAX_MEMORISED_SHARE = 0.2


def make_entries(
    dataset: Dataset, premises: Premises, beliefs: Beliefs, seen: Rows, update: int
) -> Entries:
    """Return a visit of each annotation at `seen`, in the order of the dataset.

    `update` is the number of the update, which counts as its epoch and its step. The loss is -log
    p(y) and the threshold is the loss at which q(y) would be 0.5, as for `mend`.
    """
    places = seen[np.argsort(premises.scene.rows[seen])]
    rows, memory = premises.scene.rows[places], beliefs.memory
    number = len(rows)
    labels = dataset.labels[rows]
    losses = -np.log(np.maximum(memory.evidence[places, labels].astype(np.float64), TINY))
    has_vote = memory.vote_visits[places] > 0
    annotated = dataset.boxes[rows]
    return Entries(
        epochs=np.full(number, update),
        steps=np.full(number, update),
        annotation_ids=dataset.annotation_ids[rows],
        image_ids=dataset.image_ids[rows],
        losses=losses.astype(np.float32),
        thresholds=_find_thresholds(beliefs, places, losses).astype(np.float32),
        verdicts=beliefs.judgements[places].astype(np.int8),
        num_candidates=memory.vote_visits[places],
        old_labels=labels,
        new_labels=beliefs.labels[places],
        confidences=beliefs.confidences[places].astype(np.float32),
        noisy_boxes=annotated.astype(np.float32),
        matched_boxes=np.where(has_vote[:, None], memory.votes[places], annotated).astype(
            np.float32
        ),
        final_boxes=beliefs.boxes[places].astype(np.float32),
        is_kept=~beliefs.is_spurious[places],
    )


def _find_thresholds(beliefs: Beliefs, places: Rows, losses: Floats) -> Floats:
    """Return the losses at which q(y) would be 0.5; infinite where labels are not judged."""
    if not beliefs.estimates.judges_labels:
        return np.full(len(places), np.inf)
    right = np.clip(beliefs.p_right[places], TINY, 1.0)
    wrong = np.clip(1 - right, TINY, 1.0)
    thresholds: Floats = losses + np.log(right / wrong) / beliefs.estimates.labels.tau
    return thresholds


def describe_noise(beliefs: Beliefs, settings: MenderSettings, *, is_prior: bool) -> dict[str, Any]:
    """Return the noise by the names of `boxmend train`, with intervals where it is estimated.

    Without a prescreen, the rate of wrong labels is raised by the share that the detector has
    memorised, as for `mend`.
    """
    labels, boxes = beliefs.estimates.labels, beliefs.estimates.boxes
    if settings.label_noise != "auto":
        figures: dict[str, Any] = {"label_noise": settings.label_noise}
    else:
        seen = 1.0 if is_prior else 1 - MEMORISED_SHARE
        most = 1.0 if is_prior else 1 - MAX_MEMORISED_SHARE
        figures = {
            "label_noise": min(labels.rate / seen, 1.0),
            "label_noise_low": labels.low,
            "label_noise_high": min(labels.high / most, 1.0),
        }
    figures["box_noise"] = boxes.noise
    if settings.box_noise == "auto":
        figures |= {"box_noise_low": boxes.low, "box_noise_high": boxes.high}
    return figures


def list_confusions(
    q_sums: Floats, labels: Rows, label_names: Sequence[str]
) -> list[dict[str, Any]]:
    """List the confused classes, most frequent first; `q_sums` [C, C] has sums of q by label."""
    totals = np.maximum(np.bincount(labels, minlength=len(q_sums)), 1)
    shares = q_sums / totals[:, None]
    np.fill_diagonal(shares, 0.0)
    called, truly = np.nonzero(shares >= MIN_CONFUSION_SHARE)
    order = np.argsort(-q_sums[called, truly], kind="stable")[:MAX_CONFUSIONS]
    return [
        {
            "called": label_names[called[k]],
            "truly": label_names[truly[k]],
            "share": round(float(shares[called[k], truly[k]]), 4),
            "annotations": round(float(q_sums[called[k], truly[k]])),
        }
        for k in order.tolist()
    ]


def sum_posteriors(q: Singles, labels: Rows) -> Floats:
    """Return the sums [C, C] of q [k, C] over the annotations of each label."""
    sums = np.zeros((q.shape[1], q.shape[1]))
    order = np.argsort(labels, kind="stable")
    present, starts = np.unique(labels[order], return_index=True)
    if len(present):
        sums[present] = np.add.reduceat(q[order], starts, axis=0)
    return sums
