"""What a `Mender` believes about the judged annotations, and how an update revises it."""

from dataclasses import dataclass, replace

import numpy as np

from boxmend.auditing.evidence import Detected, gather_evidence
from boxmend.data.boxes import clip_boxes
from boxmend.data.types import Floats, Mask, Rows, Singles
from boxmend.repair.mender.box_votes import (
    BoxVotes,
    expected_boxes,
    expected_scores,
    hold_at_border,
    pair_votes,
    vote_boxes,
)
from boxmend.repair.mender.classes import (
    Premises,
    estimate_noise,
    initial_noise,
    is_precise,
    is_steady,
    judge_classes,
    prior_posteriors,
)
from boxmend.repair.mender.estimates import (
    Estimates,
    estimate_boxes,
    estimate_hold_share,
    find_errors,
    initial_boxes,
    measure_agreement,
    measure_pull,
)
from boxmend.repair.mender.label_noise import LabelNoise
from boxmend.repair.mender.memory import (
    MenderMemory,
    Sightings,
    empty_memory,
    remember_classes,
    remember_votes,
)
from boxmend.repair.mender.objects import remember_objects
from boxmend.repair.mender.posteriors import judge_posteriors, take_columns
from boxmend.runs.judgement import Judgement

MIN_SIDE_PIXELS = 1.0  # of a mended box


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Memory, estimates and decisions about the judged annotations, one row each."""

    memory: MenderMemory
    estimates: Estimates
    labels: Rows  # [k]
    judgements: Rows  # [k] Judgement
    confidences: Floats  # [k] probability of the label
    p_right: Floats  # [k] probability of the annotated label
    boxes: Floats  # [k, 4]
    is_spurious: Mask  # [k]
    lost: Rows  # classes that the detector has lost; see `label_noise.find_lost_classes`


def initial_beliefs(premises: Premises) -> Beliefs:
    """Return the beliefs before the first update: the annotations, or those of the prescreen."""
    objects = premises.scene.objects
    certain = np.ones(len(objects))
    beliefs = Beliefs(
        memory=empty_memory(objects),
        estimates=Estimates(
            initial_noise(premises), initial_boxes(premises.settings), 0.0, 0.0, True, False, False
        ),
        labels=objects.labels,
        judgements=np.full(len(objects), Judgement.UNJUDGED),
        confidences=certain,
        p_right=certain,
        boxes=objects.boxes,
        is_spurious=np.zeros(len(objects), np.bool_),
        lost=np.zeros(0, np.int64),
    )
    if premises.prior is None or not premises.settings.mends_labels:
        return beliefs
    judged = _judge(premises, beliefs, prior_posteriors(premises))
    return replace(judged, judgements=beliefs.judgements)


def revise(premises: Premises, before: Beliefs, detected: Detected, number: int) -> Beliefs:
    """Return the beliefs after one more update with these detections; `number` counts from 0."""
    scene, settings, objects = premises.scene, premises.settings, premises.scene.objects
    evidence = gather_evidence(objects, objects, detected)
    memory = remember_classes(before.memory, evidence, settings.memory_min_weight)
    is_firm = before.estimates.judges_labels
    noise = estimate_noise(premises, memory, before.estimates.labels, is_firm=is_firm)
    q, lost = judge_classes(premises, memory, noise)
    votes, pull = _vote(premises, detected, q)
    memory = remember_votes(memory, votes, settings.memory_min_weight)
    model, unbiased = estimate_boxes(scene, memory, pull, before.estimates, settings)
    agreement = measure_agreement(objects.boxes, memory.votes)
    is_early = number < settings.warm_up_updates or agreement < settings.min_agreement
    is_warm_up = before.estimates.is_warm_up and is_early
    estimates = Estimates(
        labels=noise,
        boxes=model,
        hold_share=estimate_hold_share(scene, model),
        agreement=agreement,
        is_warm_up=is_warm_up,
        judges_labels=not is_warm_up and _can_judge(premises, before, noise, number),
        mends_boxes=False,
    )
    is_noisy = estimates.has_box_noise and (number == 0 or before.estimates.has_box_noise)
    estimates = replace(estimates, mends_boxes=is_noisy and not is_warm_up)
    if is_warm_up:
        return replace(before, memory=memory, estimates=estimates, lost=lost)
    p_right = take_columns(q, objects.labels)
    seen, believed = (evidence, detected), (p_right, model.noise)
    memory = remember_objects(scene, memory, seen, believed, settings, number)
    is_doubted = memory.spurious >= settings.spurious_min_probability
    after = replace(
        before,
        memory=memory,
        estimates=estimates,
        boxes=_mend_boxes(premises, unbiased, memory, estimates),
        is_spurious=is_doubted & (memory.spurious_visits >= settings.min_sightings),
        lost=lost,
    )
    if estimates.judges_labels:
        return _judge(premises, after, q)
    certain = np.ones(len(objects))
    unjudged = np.full(len(objects), Judgement.UNJUDGED)
    return replace(
        after,
        labels=objects.labels,
        judgements=unjudged,
        confidences=certain,
        p_right=certain,
    )


def _can_judge(premises: Premises, before: Beliefs, noise: LabelNoise, number: int) -> bool:
    """Return whether labels can be judged: by a precise rate, which is steady at first."""
    if not is_precise(premises, noise):
        return False
    is_first = number == 0  # there is nothing to compare with
    known = before.estimates
    return is_first or known.judges_labels or is_steady(premises, known.labels, noise)


def _judge(premises: Premises, beliefs: Beliefs, q: Singles) -> Beliefs:
    """Return the beliefs with labels judged by the posteriors q [k, C]."""
    own, least = premises.labels, premises.settings.relabel_min_posterior
    labels, judgements = judge_posteriors(q, own, least)
    return replace(
        beliefs,
        labels=labels,
        judgements=judgements,
        confidences=take_columns(q, labels),
        p_right=take_columns(q, own),
    )


def _vote(premises: Premises, detected: Detected, q: Singles) -> tuple[BoxVotes, float]:
    """Return the votes of the detections, and the share by which they follow annotated boxes."""
    objects = premises.scene.objects
    pairs, share = pair_votes(objects, detected)
    scores = expected_scores(q, detected, pairs)
    votes = vote_boxes(len(objects), pairs, scores, share, detected.boxes)
    return votes, measure_pull(premises.scene, detected, q, votes)


def _mend_boxes(
    premises: Premises, votes: Floats, memory: MenderMemory, estimates: Estimates
) -> Floats:
    """Return the expected boxes [k, 4]; annotated ones without a vote, or if noise is small."""
    annotated, all_sizes = premises.scene.objects.boxes, premises.scene.object_sizes
    if not estimates.mends_boxes:
        return annotated
    rows = np.flatnonzero(~np.isnan(votes).any(axis=1))
    own, sizes = annotated[rows], all_sizes[rows]
    errors = find_errors(estimates.boxes, memory.vote_scores[rows])
    moved = expected_boxes(own, votes[rows], estimates.boxes.noise, errors)
    moved = clip_boxes(hold_at_border(moved, own, sizes, estimates.hold_share), sizes)
    is_box = (moved[:, 2:] - moved[:, :2] >= MIN_SIDE_PIXELS).all(axis=1)
    boxes = annotated.copy()
    boxes[rows[is_box]] = moved[is_box]
    return boxes


def find_missing_objects(premises: Premises, beliefs: Beliefs) -> Sightings:
    """Return the objects without annotation that were seen often enough to count."""
    settings, seen = premises.settings, beliefs.memory.sightings
    p = seen.p_fix if settings.missing == "add" else seen.p_missing
    is_sure = (p >= settings.missing_min_probability) & (seen.counts >= settings.min_sightings)
    return seen.take(is_sure)
