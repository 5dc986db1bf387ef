"""Evidence p for the true class of annotations, and its posterior q under label noise T.

The equations are those of `boxmend.methods.equations.evidence`, in NumPy. p is [n, C]; T[c, y] is
the probability that class c is annotated as y.
"""

import numpy as np

from boxmend.auditing.evidence import EVIDENCE, Evidence
from boxmend.data.types import Floats, Mask, Rows, Singles
from boxmend.runs.judgement import Judgement

TINY = float(np.finfo(np.float32).tiny)  # the smallest normal number stands in for zero
MAX_ENTRIES_PER_CHUNK = 4_000_000  # of [n, C] in double precision: 32 MB


def class_probabilities(evidence: Evidence) -> tuple[Singles, Mask]:
    """Return p [n, C] of the evidence of one update, and which rows [n] have any.

    A row without a detection is uniform. Every class has the evidence `rest` of the audit.
    """
    n, num_labels = len(evidence), evidence.num_labels
    p = np.full(n * num_labels, EVIDENCE.min_class_evidence, np.float32)
    p[evidence.keys] += evidence.values.astype(np.float32)
    p = p.reshape(n, num_labels)
    p /= p.sum(axis=1, keepdims=True)
    is_seen = np.zeros(n, np.bool_)
    is_seen[evidence.keys // max(num_labels, 1)] = True
    return p, is_seen


def update_memory(
    old: Singles, visits: Rows, new: Singles, is_new: Mask, weights: Floats
) -> tuple[Singles, Rows]:
    """Average evidence over visits: p += w (p_new - p), with w `weights` [n] after the first.

    Return the mean [n, C] and the new number of visits [n]; rows that are not new stay.
    """
    weight = np.where(visits > 0, weights, 1.0).astype(np.float32)[:, None]
    mean: Singles = np.where(is_new[:, None], old + weight * (new - old), old)
    return mean, visits + is_new


def visit_weights(visits: Rows, min_weight: float) -> Floats:
    """Return the weight [n] of a new visit: max(1 / (visits + 1), min_weight)."""
    weights: Floats = np.maximum(1 / (visits + 1), min_weight)
    return weights


def combine_evidence(p: Singles, others: Singles, weight: float) -> Singles:
    """Combine two sources of evidence: p(c) o(c)^weight, renormalised.

    A weight below 1 allows for errors that both sources share. Where the two have no class in
    common, the result is p.
    """
    joint = p * np.maximum(others, TINY) ** np.float32(weight)
    kept = joint.sum(axis=1, keepdims=True)
    total = p.sum(axis=1, keepdims=True)
    combined: Singles = np.where(kept > TINY, joint * (total / np.maximum(kept, TINY)), p)
    return combined.astype(np.float32, copy=False)


def posterior(p: Singles, labels: Rows, transition: Floats, tau: float) -> Singles:
    """Return the posterior of the true class: q(c) ~ p(c)^tau T[c, y]; [n, C].

    For a label that T makes impossible, q is p^tau renormalised.
    """
    q = np.empty(p.shape, np.float32)
    with np.errstate(divide="ignore"):
        noise = np.log(transition.T)  # [y, c]
    noise = np.where(np.isfinite(noise).any(axis=1, keepdims=True), noise, 0.0)
    step = max(MAX_ENTRIES_PER_CHUNK // max(p.shape[1], 1), 1)
    for start in range(0, len(p), step):
        part = slice(start, start + step)
        q[part] = softmax(tau * np.log(np.maximum(p[part], TINY)) + noise[labels[part]])
    return q


def softmax(logits: Floats) -> Floats:
    """Return the softmax of every row."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities: Floats = shifted / shifted.sum(axis=1, keepdims=True)
    return probabilities


def raise_to_floor(q: Singles, labels: Rows, floors: Floats) -> Singles:
    """Raise q(y) to at least a floor [n], and scale the other classes down in proportion."""
    low = np.flatnonzero(take_columns(q, labels) < floors)
    raised = q.copy()
    right = take_columns(q[low], labels[low])
    factors = (1 - floors[low]) / np.maximum(1 - right, TINY)
    raised[low] *= factors[:, None]
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


def take_columns(values: Singles, columns: Rows) -> Singles:
    """Return one value [n] of each row."""
    taken: Singles = values[np.arange(len(values)), columns]
    return taken
