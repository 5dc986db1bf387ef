"""Objects whose annotation is missing: proposals that are sure of a class beside all annotations.

Taken for background, as everything beside annotations is, they teach the detector to overlook such
objects. Left out they teach nothing. No annotation is made of them here; `boxmend audit` does that.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from boxmend.detector import SecondStageOutput, Targets
from boxmend.detector.boxes import inert_boxes, pairwise_iou
from boxmend.detector.nms import suppress
from boxmend.methods import equations
from boxmend.methods.protocol import BatchAnnotations
from boxmend.methods.votes import Matches

BESIDE = 0.3  # IoU with an annotation from which a proposal means that one
ALIKE = 0.5  # IoU above which two proposals mean the same object
MOST = 20  # in an image


class UnannotatedObjects(NamedTuple):
    """Objects that nobody annotated, the surest first."""

    boxes: Tensor  # [B, K, 4], inert where there is none
    is_object: Tensor  # [B, K]


def find_missing_objects(
    annotations: BatchAnnotations, matches: Matches, scores: SecondStageOutput, least: float
) -> UnannotatedObjects:
    """Find proposals of a class's score `least` or more that overlap no annotation.

    Takes the scores of the P proposals. Each is regressed for its likeliest class, and of those
    that mean the same object the surest stays. Ignored annotations count as annotations.
    """
    sureness, labels = scores.probabilities[..., 1:].float().max(-1)  # [B, P]
    boxes = equations.boxes_of_class(scores.boxes.float(), labels)  # [B, P, 4]
    is_annotated = (annotations.is_box | annotations.is_ignored)[..., None]  # [B, A, 1]
    is_near = ((pairwise_iou(annotations.boxes, boxes) >= BESIDE) & is_annotated).any(1)
    is_sure = matches.is_proposal & (sureness >= least) & ~is_near
    ranks = torch.where(is_sure, sureness, -1).argsort(dim=1, descending=True, stable=True)
    boxes = boxes.take_along_dim(ranks[..., None], dim=1)
    is_sure = is_sure.take_along_dim(ranks, dim=1)
    is_first, _ = suppress(boxes, is_sure, overlap=ALIKE)
    first = is_first.int().argsort(dim=1, descending=True, stable=True)[:, :MOST]
    is_object = is_first.take_along_dim(first, dim=1)
    boxes = boxes.take_along_dim(first[..., None], dim=1)
    return UnannotatedObjects(inert_boxes(boxes, is_object), is_object)


def ignore_objects(targets: Targets, missing: UnannotatedObjects) -> Targets:
    """Give the targets with these objects besides, as rows whose surroundings teach nothing."""
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
