"""Evidence p for the true class of annotations, and its posterior q under label noise T.

The equations are those of `boxmend.methods.equations.evidence`, in NumPy. p is [n, C]; T[c, y] is
the probability that class c is annotated as y.
"""

from collections.abc import Iterator

import numpy as np

from boxmend.auditing.evidence import EVIDENCE, Evidence
from boxmend.auditing.pairs import find_largest
from boxmend.data.types import AnyFloats, Floats, Mask, Rows, Singles
from boxmend.runs.judgement import Judgement

TINY = float(np.finfo(np.float32).tiny)  # the smallest normal number stands in for zero
MIN_USUAL_EVIDENCE = 0.01  # of the strongest class; detectors have hardly lower scores
MAX_ENTRIES_PER_CHUNK = 2_000_000  # of [n, C] in double precision: 16 MB


def split_rows(number: int, num_labels: int) -> Iterator[slice]:
    """Yield slices of rows [n, C] that are small enough to compute with."""
    step = max(MAX_ENTRIES_PER_CHUNK // max(num_labels, 1), 1)
    for start in range(0, number, step):
        yield slice(start, min(start + step, number))


def class_probabilities(evidence: Evidence, rows: slice, least: float) -> Singles:
    """Return p [n, C] of the evidence of one update, for some rows.

    Every class has the evidence `least` in addition, so a row without a detection is uniform.
    """
    num_labels = evidence.num_labels
    first, last = np.searchsorted(evidence.keys, [rows.start * num_labels, rows.stop * num_labels])
    p = np.full((rows.stop - rows.start) * num_labels, least, np.float32)
    places = evidence.keys[first:last] - rows.start * num_labels
    p[places] += evidence.values[first:last].astype(np.float32)
    p = p.reshape(-1, num_labels)
    p /= p.sum(axis=1, keepdims=True)
    return p


def least_evidence(evidence: Evidence) -> float:
    """Return the evidence for a class without a detection, in proportion to the usual evidence.

    Weak detectors give low scores to right classes, too.
    """
    strongest, places = find_largest(
        evidence.keys // max(evidence.num_labels, 1), evidence.values, len(evidence)
    )
    usual = float(np.median(strongest[places >= 0])) if (places >= 0).any() else 1.0
    return EVIDENCE.min_class_evidence * max(usual, MIN_USUAL_EVIDENCE)


def mark_evident(evidence: Evidence) -> Mask:
    """Mark the rows [n] that have evidence for any class."""
    is_evident = np.zeros(len(evidence), np.bool_)
    is_evident[evidence.keys // max(evidence.num_labels, 1)] = True
    return is_evident


def combine_evidence(p: Singles, others: Singles, tau: float, others_tau: float) -> Singles:
    """Combine two sources of evidence: p(c)^tau o(c)^others_tau, renormalised; [n, C]."""
    logs = tau * np.log(np.maximum(p, TINY).astype(np.float64))
    logs += others_tau * np.log(np.maximum(others, TINY).astype(np.float64))
    return softmax(logs).astype(np.float32)


def posterior(p: Singles, labels: Rows, transition: Floats, tau: float) -> Singles:
    """Return the posterior of the true class: q(c) ~ p(c)^tau T[c, y]; [n, C].

    For a label that T makes impossible, q is p^tau renormalised.
    """
    with np.errstate(divide="ignore"):
        noise = np.log(transition.T)  # [y, c]
    noise = np.where(np.isfinite(noise).any(axis=1, keepdims=True), noise, 0.0)
    logs = tau * np.log(np.maximum(p, TINY).astype(np.float64))
    return softmax(logs + noise[labels]).astype(np.float32)


def softmax(logits: Floats) -> Floats:
    """Return the softmax of every row."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities: Floats = shifted / shifted.sum(axis=1, keepdims=True)
    return probabilities


def raise_to_floor(q: Singles, labels: Rows, floors: Floats) -> Singles:
    """Raise q(y) to at least a floor [n], and scale the other classes down in proportion."""
    right = take_columns(q, labels)
    low = np.flatnonzero(right < floors)
    raised = q.copy()
    raised[low] *= ((1 - floors[low]) / np.maximum(1 - right[low], TINY))[:, None]
    raised[low, labels[low]] = floors[low]
    return raised


def judge_posteriors(q: Singles, labels: Rows, min_posterior: float = 0.5) -> tuple[Rows, Rows]:
    """Judge labels by q: return the new labels [n] and the judgements [n].

    KEPT if q(y) >= 0.5, RELABELLED if another q(c) > `min_posterior`, else DISCARDED, which means
    that the label is unsure. An unsure label stays.
    """
    is_kept = take_columns(q, labels) >= 0.5
    best = q.argmax(axis=1)
    is_other = ~is_kept & (best != labels) & (take_columns(q, best) > min_posterior)
    judgements = np.where(is_other, Judgement.RELABELLED, Judgement.DISCARDED)
    judgements = np.where(is_kept, Judgement.KEPT, judgements)
    return np.where(is_other, best, labels), judgements


def take_columns(values: AnyFloats, columns: Rows) -> Floats:
    """Return one value [n] of each row."""
    taken: Floats = values[np.arange(len(values)), columns].astype(np.float64)
    return taken


def one_hot(labels: Rows, num_labels: int) -> Singles:
    """Return labels [n] as rows [n, C] with a single 1; a label of -1 gives a row of 0."""
    rows = np.zeros((len(labels), num_labels), np.float32)
    known = np.flatnonzero(labels >= 0)
    rows[known, labels[known]] = 1
    return rows
