"""Objects without an annotation: confident proposals that overlap no annotation.

As background they would train the detector to overlook such objects, so they are ignored. They do
not become annotations here; `boxmend audit` proposes those.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from boxmend.detector import SecondStageOutput, Targets
from boxmend.detector.boxes import inert_boxes, pairwise_iou
from boxmend.detector.nms import suppress
from boxmend.methods import equations
from boxmend.methods.protocol import BatchAnnotations
from boxmend.methods.votes import Matches


@dataclass(frozen=True)
class MissingObjectConstants:
    """The overlaps that separate objects, and their number."""

    annotated_min_iou: float = 0.3  # with an annotation; the proposal then belongs to it
    same_object_iou: float = 0.5  # between two proposals; above it they belong to one object
    max_per_image: int = 20  # objects


MISSING = MissingObjectConstants()


class UnannotatedObjects(NamedTuple):
    """Objects without an annotation, in descending order of score."""

    boxes: Tensor  # [B, K, 4], inert where there is none
    is_object: Tensor  # [B, K]


def find_missing_objects(
    annotations: BatchAnnotations, matches: Matches, scores: SecondStageOutput, min_score: float
) -> UnannotatedObjects:
    """Find proposals with a class score of at least `min_score` that overlap no annotation.

    Takes the scores of the P proposals. Each proposal is regressed for its most probable class, and
    the highest score among proposals of one object is kept. Ignored annotations count as
    annotations.
    """
    score, labels = scores.probabilities[..., 1:].float().max(-1)  # [B, P]
    boxes = equations.boxes_of_class(scores.boxes.float(), labels)  # [B, P, 4]
    is_annotated = (annotations.is_box | annotations.is_ignored)[..., None]  # [B, A, 1]
    overlaps = pairwise_iou(annotations.boxes, boxes)  # [B, A, P]
    is_near = ((overlaps >= MISSING.annotated_min_iou) & is_annotated).any(1)
    is_eligible = matches.is_proposal & (score >= min_score) & ~is_near
    ranks = torch.where(is_eligible, score, -1).argsort(dim=1, descending=True, stable=True)
    boxes = boxes.take_along_dim(ranks[..., None], dim=1)
    is_eligible = is_eligible.take_along_dim(ranks, dim=1)
    is_first, _ = suppress(boxes, is_eligible, overlap=MISSING.same_object_iou)
    first = is_first.int().argsort(dim=1, descending=True, stable=True)[:, : MISSING.max_per_image]
    is_object = is_first.take_along_dim(first, dim=1)
    boxes = boxes.take_along_dim(first[..., None], dim=1)
    return UnannotatedObjects(inert_boxes(boxes, is_object), is_object)


def ignore_objects(targets: Targets, missing: UnannotatedObjects) -> Targets:
    """Append the objects to the targets as ignored rows."""
    is_object = missing.is_object
    labels = torch.zeros_like(is_object, dtype=targets.labels.dtype)
    boxes = missing.boxes.to(targets.boxes.dtype)
    soft = targets.soft
    if soft is not None:
        soft = torch.cat([soft, soft.new_zeros(*is_object.shape, soft.shape[-1])], dim=1)
    return targets._replace(
        boxes=torch.cat([targets.boxes, boxes], dim=1),
        labels=torch.cat([targets.labels, labels], dim=1),
        is_box=torch.cat([targets.is_box, is_object], dim=1),
        is_ignored=torch.cat([targets.is_ignored, is_object], dim=1),
        soft=soft,
        box_targets=None
        if targets.box_targets is None
        else torch.cat([targets.box_targets, boxes], dim=1),
    )
