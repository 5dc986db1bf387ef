"""What a `Mender` believes about the judged annotations, and how an update revises it."""

from dataclasses import dataclass, replace

import numpy as np

from boxmend.auditing.evidence import Detected, gather_evidence
from boxmend.data.types import Floats, Mask, Rows, Singles
from boxmend.repair.mender import posteriors
from boxmend.repair.mender.label_noise import LabelNoise, fit_label_noise, symmetric_transition
from boxmend.repair.mender.scene import Scene
from boxmend.repair.mender.settings import MenderSettings
from boxmend.runs.judgement import Judgement


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Memory, estimates and decisions about the judged annotations, one row each."""

    evidence: Singles  # [k, C] mean evidence p for the true class
    visits: Rows  # [k] opinions about the class
    noise: LabelNoise
    labels: Rows  # [k]
    judgements: Rows  # [k] Judgement
    posteriors: Singles  # [k, C] q
    boxes: Floats  # [k, 4]
    is_spurious: Mask  # [k]
    is_warm_up: bool


def initial_beliefs(scene: Scene, settings: MenderSettings) -> Beliefs:
    """Return the beliefs before the first update: all annotations are right."""
    objects = scene.objects
    k, num_labels = len(objects), objects.num_labels
    rate = settings.initial_label_noise if settings.label_noise == "auto" else settings.label_noise
    return Beliefs(
        evidence=np.full((k, num_labels), 1 / max(num_labels, 1), np.float32),
        visits=np.zeros(k, np.int64),
        noise=LabelNoise(rate, 0.0, 1.0, 1.0, symmetric_transition(rate, num_labels)),
        labels=objects.labels,
        judgements=np.full(k, Judgement.UNJUDGED),
        posteriors=one_hot(objects.labels, num_labels),
        boxes=objects.boxes,
        is_spurious=np.zeros(k, np.bool_),
        is_warm_up=True,
    )


def revise(
    scene: Scene, before: Beliefs, detected: Detected, settings: MenderSettings, number: int
) -> Beliefs:
    """Return the beliefs after one more update with these detections; `number` counts from 0."""
    objects = scene.objects
    evidence = gather_evidence(objects, objects, detected)
    p, is_new = posteriors.class_probabilities(evidence)
    weights = posteriors.visit_weights(before.visits, settings.memory_min_weight)
    memory, visits = posteriors.update_memory(before.evidence, before.visits, p, is_new, weights)
    beliefs = replace(before, evidence=memory, visits=visits)
    if number < settings.warm_up_updates:
        return beliefs
    known = np.flatnonzero(visits > 0)
    noise = fit_label_noise(
        memory[known], objects.labels[known], before.noise.rate, full=settings.full_matrix
    )
    q = posteriors.posterior(memory, objects.labels, noise.transition, noise.tau)
    labels, judgements = posteriors.judge_posteriors(q, objects.labels)
    return replace(
        beliefs,
        noise=noise,
        labels=labels,
        judgements=judgements,
        posteriors=q,
        is_warm_up=False,
    )


def one_hot(labels: Rows, num_labels: int) -> Singles:
    """Return labels as rows [k, C] with a single 1."""
    rows = np.zeros((len(labels), num_labels), np.float32)
    rows[np.arange(len(labels)), labels] = 1
    return rows
