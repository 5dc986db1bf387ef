"""What a `Mender` remembers of all updates: means of the evidence, in which old updates fade."""

from dataclasses import dataclass, replace

import numpy as np

from boxmend.auditing.evidence import Evidence, Objects
from boxmend.auditing.pairs import find_largest, find_overlaps
from boxmend.data.boxes import compute_iou
from boxmend.data.types import Floats, Mask, Rows, Singles
from boxmend.repair.mender.box_votes import BoxVotes
from boxmend.repair.mender.posteriors import (
    class_probabilities,
    least_evidence,
    mark_evident,
    split_rows,
)


@dataclass(frozen=True)
class MemoryConstants:
    """When memories are of the same object, and when one is given up."""

    same_place_min_iou: float = 0.5  # of two votes, or of two sightings, of one object
    min_probability: float = 0.05  # of a sighting that is remembered


MEMORY = MemoryConstants()


@dataclass(frozen=True, eq=False)
class Sightings:
    """Objects without annotation that detections showed, one row each."""

    image_rows: Rows  # [s] in the order of the scene
    labels: Rows  # [s] of the last sighting
    boxes: Floats  # [s, 4]
    p_missing: Floats  # [s] mean probability that there is an object without annotation
    p_fix: Floats  # [s] mean probability that class and box are right, too
    counts: Rows  # [s] updates that saw it

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Rows | Mask) -> "Sightings":
        """Return the sightings at `rows` (indices, or a mask)."""
        return Sightings(
            self.image_rows[rows],
            self.labels[rows],
            self.boxes[rows],
            self.p_missing[rows],
            self.p_fix[rows],
            self.counts[rows],
        )


@dataclass(frozen=True, eq=False)
class MenderMemory:
    """The memory of the judged annotations, one row each, and of sightings."""

    evidence: Singles  # [k, C] mean evidence p for the true class
    visits: Rows  # [k] opinions about the class
    votes: Floats  # [k, 4] mean voted box; NaN without a vote
    vote_scores: Floats  # [k] mean score of the strongest vote
    vote_visits: Rows  # [k] votes since the object was seen at another place
    spurious: Floats  # [k] mean probability that there is no object
    spurious_visits: Rows  # [k]
    sightings: Sightings


def empty_memory(objects: Objects) -> MenderMemory:
    """Return the memory before the first update."""
    k, num_labels = len(objects), max(objects.num_labels, 1)
    none = np.zeros(0)
    rows = none.astype(np.int64)
    return MenderMemory(
        evidence=np.full((k, num_labels), 1 / num_labels, np.float32),
        visits=np.zeros(k, np.int64),
        votes=np.full((k, 4), np.nan),
        vote_scores=np.zeros(k),
        vote_visits=np.zeros(k, np.int64),
        spurious=np.zeros(k),
        spurious_visits=np.zeros(k, np.int64),
        sightings=Sightings(rows, rows, np.zeros((0, 4)), none, none, rows),
    )


def visit_weights(visits: Rows, min_weight: float) -> Floats:
    """Return the weight [k] of a new opinion: max(1 / (visits + 1), min_weight)."""
    weights: Floats = np.maximum(1 / (visits + 1), min_weight)
    return weights


def remember_classes(memory: MenderMemory, evidence: Evidence, min_weight: float) -> MenderMemory:
    """Average the evidence of annotations: p += w (p_new - p), with w of `visit_weights`."""
    mean = memory.evidence.copy()
    is_new, least = mark_evident(evidence), least_evidence(evidence)
    weights = np.where(is_new, visit_weights(memory.visits, min_weight), 0).astype(np.float32)
    for rows in split_rows(len(mean), mean.shape[1]):
        p = class_probabilities(evidence, rows, least)
        mean[rows] += weights[rows, None] * (p - mean[rows])
    return replace(memory, evidence=mean, visits=memory.visits + is_new)


def remember_votes(memory: MenderMemory, votes: BoxVotes, min_weight: float) -> MenderMemory:
    """Average the voted boxes; a vote for another place replaces the earlier ones."""
    is_new = votes.counts > 0
    is_same = compute_iou(memory.votes, votes.boxes) >= MEMORY.same_place_min_iou
    visits = np.where(is_same, memory.vote_visits, 0)
    weights = visit_weights(visits, min_weight)
    moved = memory.votes + weights[:, None] * (votes.boxes - memory.votes)
    moved = np.where((visits > 0)[:, None], moved, votes.boxes)
    scores = memory.vote_scores + weights * (votes.scores - memory.vote_scores)
    return replace(
        memory,
        votes=np.where(is_new[:, None], moved, memory.votes),
        vote_scores=np.where(is_new, scores, memory.vote_scores),
        vote_visits=np.where(is_new, visits + 1, memory.vote_visits),
    )


def remember_doubts(
    memory: MenderMemory, p_spurious: Floats, is_new: Mask, min_weight: float
) -> MenderMemory:
    """Average the probabilities [k] that annotations are spurious."""
    weights = visit_weights(memory.spurious_visits, min_weight)
    mean = memory.spurious + weights * (p_spurious - memory.spurious)
    return replace(
        memory,
        spurious=np.where(is_new, mean, memory.spurious),
        spurious_visits=memory.spurious_visits + is_new,
    )


def remember_sightings(
    memory: MenderMemory, new: Sightings, is_seen: Mask, min_weight: float
) -> MenderMemory:
    """Join new sightings with the remembered ones at the same place.

    `is_seen` [images] marks the images with detections: a place that is not seen again there loses
    probability, and is given up in the end.
    """
    old = memory.sightings
    pairs = find_overlaps(
        old.image_rows, old.boxes, new.image_rows, new.boxes, MEMORY.same_place_min_iou
    )
    _, best = find_largest(pairs.first, pairs.iou, len(old))
    _, back = find_largest(pairs.second, pairs.iou, len(new))
    mutual = best[(best >= 0)]
    mutual = mutual[back[pairs.second[mutual]] == mutual]
    first, second = pairs.first[mutual], pairs.second[mutual]
    target = np.zeros((len(old), 2))
    target[first] = np.stack([new.p_missing[second], new.p_fix[second]], axis=1)
    weights = np.where(is_seen[old.image_rows], visit_weights(old.counts, min_weight), 0.0)
    is_again = np.zeros(len(old), np.bool_)
    is_again[first] = True
    labels, boxes = old.labels.copy(), old.boxes.copy()
    labels[first] = new.labels[second]
    boxes[first] += weights[first, None] * (new.boxes[second] - boxes[first])
    kept = Sightings(
        old.image_rows,
        labels,
        boxes,
        old.p_missing + weights * (target[:, 0] - old.p_missing),
        old.p_fix + weights * (target[:, 1] - old.p_fix),
        old.counts + is_again,
    )
    is_first = np.ones(len(new), np.bool_)
    is_first[second] = False
    added = new.take(is_first)
    columns = zip(
        (kept.image_rows, kept.labels, kept.boxes, kept.p_missing, kept.p_fix, kept.counts),
        (added.image_rows, added.labels, added.boxes, added.p_missing, added.p_fix, added.counts),
        strict=True,
    )
    joined = Sightings(*(np.concatenate(pair) for pair in columns))
    probable = joined.take(joined.p_missing >= MEMORY.min_probability)
    order = np.lexsort((*probable.boxes.T, probable.image_rows))
    return replace(memory, sightings=probable.take(order))
