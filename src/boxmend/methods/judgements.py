"""Judgement of the labels of a batch from evidence p [B, A, C], by posterior or by loss queue."""

import torch
from torch import Tensor
from torch.nn import functional

from boxmend.methods import equations
from boxmend.methods.equations import RefinedBatch
from boxmend.methods.equations.evidence import TINY
from boxmend.methods.protocol import BatchAnnotations
from boxmend.runs.judgement import Judgement

MIN_CONFIDENCE = 0.5  # T_refine of Eq. 13, as published


Judged = tuple[Tensor, RefinedBatch]
"""The posteriors q [B, A, C], and the batch with judged labels and original boxes.

A label is y if it is kept, otherwise the class of highest q. The loss is -log p(y); a label with a
loss above the threshold is not kept.
"""


def keep_labels(evidence: Tensor, annotations: BatchAnnotations) -> Judged:
    """Keep all labels: q is 1 for y, and the threshold is infinite."""
    loss = _losses(evidence, annotations)
    unjudged = torch.full_like(annotations.labels, int(Judgement.UNJUDGED))
    posteriors = _certain(annotations.labels, evidence)
    limit = torch.full_like(loss, torch.inf)
    return _judge_labels(annotations, posteriors, annotations.labels, unjudged, loss, limit)


def judge_by_posterior(
    evidence: Tensor,
    annotations: BatchAnnotations,
    transition: Tensor,
    tau: Tensor,
    label_floors: Tensor,
) -> Judged:
    """Judge labels by q(c) ~ p(c)^tau T[c, y]; see `methods.equations.posterior_judgements`.

    q(y) is at least `label_floors` [B, A], which protects the labels of lost classes.

    The threshold is the loss at which q(y) would be 0.5 with the other classes unchanged. The odds
    of y are proportional to p(y)^tau, so it is loss + log(q(y) / (1 - q(y))) / tau.
    """
    column = annotations.labels[..., None]
    posteriors = equations.posterior(evidence, annotations.labels, transition, tau)
    posteriors = equations.raise_to_floor(posteriors, annotations.labels, label_floors)
    verdict = equations.posterior_judgements(posteriors, annotations.labels, annotations.is_box)
    is_kept = verdict == int(Judgement.KEPT)
    right = posteriors.gather(-1, column)[..., 0].clamp(min=TINY)
    wrong = posteriors.scatter(-1, column, 0).sum(-1).clamp(min=TINY)
    loss = _losses(evidence, annotations)
    labels = torch.where(is_kept, annotations.labels, posteriors.argmax(-1))
    limit = loss + (right.log() - wrong.log()) / tau
    return _judge_labels(annotations, posteriors, labels, verdict, loss, limit)


def judge_by_queue(evidence: Tensor, annotations: BatchAnnotations, limit: Tensor) -> Judged:
    """Judge labels as published, but on the evidence p: noisy if the loss exceeds a scalar limit.

    A noisy label is replaced by the most probable class if p of that class exceeds 0.5; otherwise
    it is DISCARDED. q is 1 for the final label.
    """
    loss = _losses(evidence, annotations)
    confidence, likeliest = evidence.max(-1)
    is_noisy = equations.judge(loss, limit, annotations.is_box)
    is_replaced = is_noisy & equations.is_confident(confidence, MIN_CONFIDENCE)
    labels = torch.where(is_replaced, likeliest, annotations.labels)
    verdict = torch.where(is_noisy & ~is_replaced, int(Judgement.DISCARDED), int(Judgement.KEPT))
    verdict = torch.where(labels != annotations.labels, int(Judgement.RELABELLED), verdict)
    return _judge_labels(annotations, _certain(labels, evidence), labels, verdict, loss, limit)


def _judge_labels(
    annotations: BatchAnnotations,
    posteriors: Tensor,
    labels: Tensor,
    verdict: Tensor,
    loss: Tensor,
    threshold: Tensor,
) -> Judged:
    return posteriors, RefinedBatch(
        boxes=annotations.boxes,
        labels=labels,
        verdict=verdict,
        loss=loss,
        threshold=threshold,
        confidence=posteriors.amax(-1),
        num_candidates=torch.zeros_like(annotations.labels),
        matched=annotations.boxes,
    )


def _losses(evidence: Tensor, annotations: BatchAnnotations) -> Tensor:
    score = evidence.gather(-1, annotations.labels[..., None])[..., 0]
    return -score.clamp(min=TINY).log()


def _certain(labels: Tensor, evidence: Tensor) -> Tensor:
    return functional.one_hot(labels, evidence.shape[-1]).to(evidence.dtype)
