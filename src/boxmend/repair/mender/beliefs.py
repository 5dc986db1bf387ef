"""What a `Mender` believes about the judged annotations, and how an update revises it."""

from dataclasses import dataclass, replace

import numpy as np

from boxmend.auditing.evidence import Detected, gather_evidence
from boxmend.auditing.missing import find_missing
from boxmend.auditing.presence import judge_presence
from boxmend.data.boxes import clip_boxes
from boxmend.data.types import Floats, Mask, Rows, Singles
from boxmend.repair.mender import posteriors
from boxmend.repair.mender.box_votes import (
    expected_boxes,
    expected_scores,
    hold_at_border,
    pair_votes,
    vote_boxes,
)
from boxmend.repair.mender.estimates import (
    Estimates,
    estimate_boxes,
    estimate_hold_share,
    estimate_labels,
    find_errors,
    initial_estimates,
    measure_agreement,
    measure_pull,
)
from boxmend.repair.mender.label_noise import find_lost_classes, symmetric_transition
from boxmend.repair.mender.memory import (
    Memory,
    Sightings,
    empty_memory,
    remember_classes,
    remember_doubts,
    remember_sightings,
    remember_votes,
)
from boxmend.repair.mender.scene import Scene
from boxmend.repair.mender.settings import MenderSettings
from boxmend.runs.judgement import Judgement

SEED = 0
MIN_SIDE_PIXELS = 1.0  # of a mended box


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Memory, estimates and decisions about the judged annotations, one row each."""

    memory: Memory
    estimates: Estimates
    labels: Rows  # [k]
    judgements: Rows  # [k] Judgement
    posteriors: Singles  # [k, C] q
    boxes: Floats  # [k, 4]
    is_spurious: Mask  # [k]
    missing: Sightings  # objects without annotation that count


def initial_beliefs(scene: Scene, settings: MenderSettings) -> Beliefs:
    """Return the beliefs before the first update: all annotations are right."""
    objects = scene.objects
    memory = empty_memory(objects)
    return Beliefs(
        memory=memory,
        estimates=initial_estimates(objects.num_labels, settings),
        labels=objects.labels,
        judgements=np.full(len(objects), Judgement.UNJUDGED),
        posteriors=one_hot(objects.labels, objects.num_labels),
        boxes=objects.boxes,
        is_spurious=np.zeros(len(objects), np.bool_),
        missing=memory.sightings,
    )


def revise(
    scene: Scene, before: Beliefs, detected: Detected, settings: MenderSettings, number: int
) -> Beliefs:
    """Return the beliefs after one more update with these detections; `number` counts from 0."""
    objects, least = scene.objects, settings.memory_min_weight
    evidence = gather_evidence(objects, objects, detected)
    p, is_new = posteriors.class_probabilities(evidence)
    memory = remember_classes(before.memory, p, is_new, least)
    visited = np.flatnonzero(memory.visits > 0)
    noise = estimate_labels(
        memory.evidence[visited], objects.labels[visited], before.estimates, settings
    )
    q = posteriors.posterior(memory.evidence, objects.labels, noise.transition, noise.tau)
    lost = find_lost_classes(
        q[visited], objects.labels[visited], symmetric_transition(noise.rate, objects.num_labels)
    )
    floors = np.where(np.isin(objects.labels, lost), noise.transition[objects.labels, objects.labels], 0.0)
    q = posteriors.raise_to_floor(q, objects.labels, floors)

    pairs, share = pair_votes(objects, detected)
    scores = expected_scores(q, detected, pairs)
    votes = vote_boxes(len(objects), pairs, scores, share, detected.boxes)
    memory = remember_votes(memory, votes, least)
    pull = measure_pull(scene, detected, q, votes)
    model, corrected = estimate_boxes(
        scene, (memory.votes, memory.vote_scores), pull, before.estimates, settings
    )
    agreement = measure_agreement(objects.boxes, memory.votes)
    is_warm_up = before.estimates.is_warm_up and (
        number < settings.warm_up_updates or agreement < settings.min_agreement
    )
    estimates = Estimates(
        noise, model, estimate_hold_share(scene, model), agreement, is_warm_up
    )
    if is_warm_up:
        return replace(before, memory=memory, estimates=estimates)
    memory = _remember_objects(scene, memory, (evidence, detected), estimates, q, settings)
    labels, judgements = posteriors.judge_posteriors(
        q, objects.labels, settings.relabel_min_posterior
    )
    boxes = objects.boxes
    if estimates.mends_boxes:
        boxes = _mend_boxes(scene, corrected, memory.vote_scores, estimates)
    counted = memory.sightings
    counted = counted.take(
        (counted.counts >= settings.min_sightings) & (counted.p_missing >= 0.5)
    )
    return Beliefs(
        memory=memory,
        estimates=estimates,
        labels=labels,
        judgements=judgements,
        posteriors=q,
        boxes=boxes,
        is_spurious=(memory.spurious >= 0.7) & (memory.spurious_visits >= settings.min_sightings),
        missing=counted,
    )


def _remember_objects(scene, memory, seen, estimates, q, settings):
    evidence, detected = seen
    objects, noise = scene.objects, estimates.boxes.noise
    random = np.random.default_rng(SEED)
    presence = judge_presence(objects, evidence, detected, scene.sizes, noise, random)
    memory = remember_doubts(
        memory, presence.p_spurious, scene.mark_seen(detected), settings.memory_min_weight
    )
    p_right = posteriors.take_columns(q, objects.labels).astype(np.float64)
    found = find_missing(
        (objects, scene.ignored, detected), 1 - presence.p_spurious, p_right, noise
    )
    is_probable = found.p_missing >= 0.05
    rows = found.detections[is_probable]
    new = Sightings(
        detected.image_rows[rows],
        detected.labels[rows],
        detected.boxes[rows],
        found.p_missing[is_probable],
        found.p_fix[is_probable],
        np.ones(len(rows), np.int64),
    )
    is_seen = np.zeros(len(scene.images), np.bool_)
    is_seen[detected.image_rows] = True
    return remember_sightings(memory, new, is_seen, settings.memory_min_weight)


def _mend_boxes(scene: Scene, votes: Floats, scores: Floats, estimates: Estimates) -> Floats:
    """Return the expected boxes [k, 4]; annotated ones without a vote."""
    annotated = scene.objects.boxes
    rows = np.flatnonzero(~np.isnan(votes).any(axis=1))
    errors = find_errors(estimates.boxes, scores[rows])
    moved = expected_boxes(annotated[rows], votes[rows], estimates.boxes.noise, errors)
    sizes = scene.object_sizes[rows]
    moved = hold_at_border(moved, annotated[rows], sizes, estimates.hold_share)
    moved = clip_boxes(moved, sizes)
    is_box = (moved[:, 2:] - moved[:, :2] >= MIN_SIDE_PIXELS).all(axis=1)
    boxes = annotated.copy()
    boxes[rows[is_box]] = moved[is_box]
    return boxes


def one_hot(labels: Rows, num_labels: int) -> Singles:
    """Return labels as rows [k, C] with a single 1."""
    rows = np.zeros((len(labels), num_labels), np.float32)
    rows[np.arange(len(labels)), labels] = 1
    return rows
