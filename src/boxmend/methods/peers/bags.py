"""Bags: the positive RoIs of an annotation, decoded and scored anew; what OA-MIL and DISCO share.

Letters: B images, A annotations, M places for positive RoIs, C classes. Boxes that come out of
here carry no gradient. Nothing is multiplied as matrices: half precision would round coordinates.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from boxmend.detector import DetectorNumbers, RoiOutput, RoiSample
from boxmend.detector.boxes import clipped_boxes
from boxmend.detector.coding import decode, encode
from boxmend.methods.equations import RefinedBatch, Roles
from boxmend.methods.outcomes import merge_outcome
from boxmend.methods.protocol import BatchAnnotations, Outcome, TrainingProgress
from boxmend.runs.judgement import Judgement


class BestMember(NamedTuple):
    """The member of highest score of each bag; meaningless where the bag is empty."""

    scores: Tensor  # [B, A]
    places: Tensor  # [B, A] in 0 .. M - 1


class BagResult(NamedTuple):
    """What a method found out about the annotations of a batch."""

    chosen: Tensor  # [B, A, 4] the box that speaks for a bag
    log_scores: Tensor  # [B, A] logarithm of its probability of being of the annotation's label
    boxes: Tensor  # [B, A, 4] the new targets of regression
    num_members: Tensor  # [B, A]


def has_begun(share: float, progress: TrainingProgress) -> bool:
    """Say whether a share of all steps is over."""
    return progress.step >= share * progress.num_steps


def select_positives(rois: RoiSample, numbers: DetectorNumbers) -> RoiSample:
    """Cut RoIs [B, S] to the places [B, M] that can be positive; sampling puts these first."""
    most = max(int(numbers.roi_samples * numbers.roi_positive_share), 1)
    return RoiSample(*(part[:, :most] for part in rois))


def select_first(output: RoiOutput, rois: RoiSample) -> RoiOutput:
    """Cut outputs [B, S, ...] to the first RoIs [B, M]."""
    most = rois.boxes.shape[1]
    return RoiOutput(*(part[:, :most] for part in output))


def membership(rois: RoiSample, num_annotations: int) -> Tensor:
    """Mark which RoI is in the bag of which annotation, [B, A, M]."""
    annotations = torch.arange(num_annotations, device=rois.matched.device)
    is_of = rois.matched[:, None] == annotations[:, None]  # [B, A, M]
    return is_of & rois.is_positive[:, None]


@torch.no_grad()
def decode_boxes(
    output: RoiOutput, references: Tensor, rois: RoiSample, sizes: Tensor, numbers: DetectorNumbers
) -> Tensor:
    """Decode for the annotation's class, cut at the image, with no side below a pixel: [B, M, 4].

    Takes outputs for references [B, M, 4] and image sizes [B, 2]; no box where `rois` is not
    positive.
    """
    columns = (rois.labels + 1)[..., None, None]  # [B, M, 1, 1]
    deltas = output.deltas.take_along_dim(columns, dim=2)[:, :, 0]  # [B, M, 4]
    boxes = decode(deltas.float(), references.float(), numbers.delta_weights)
    return clipped_boxes(boxes, rois.is_positive, sizes)


def log_scores(logits: Tensor, labels: Tensor) -> Tensor:
    """Logarithm of the probability of labels [B, K], given logits [B, K, 1 + C]."""
    return logits.float().log_softmax(-1).take_along_dim((labels + 1)[..., None], dim=-1)[..., 0]


def best_of(scores: Tensor, is_member: Tensor) -> BestMember:
    """Find the best member of each bag.

    Takes scores [B, A, M], or [B, 1, M] where they are those of every bag, and is_member
    [B, A, M]. A gradient goes to the best member alone, to none where the bag is empty.
    """
    lowest = torch.finfo(scores.dtype).min
    found = torch.where(is_member, scores, lowest).max(dim=-1)
    return BestMember(found.values, found.indices)


def blend_share(scores: Tensor, exponent: float, most: float) -> Tensor:
    """How much of a chosen box is believed: phi = min(score ^ exponent, most)."""
    return scores.pow(exponent).clamp(max=most)


def blend_boxes(annotations: Tensor, chosen: Tensor, share: Tensor, has_bag: Tensor) -> Tensor:
    """Blend phi * chosen + (1 - phi) * given; where there is no bag, the given box stays.

    Takes boxes [B, A, 4], share and has_bag [B, A].
    """
    mixed = torch.lerp(annotations, chosen, share[..., None])
    return torch.where(has_bag[..., None], mixed, annotations)


def rows_of_annotations(values: Tensor, rois: RoiSample) -> Tensor:
    """Give every RoI [B, S] its annotation's row of values [B, A, 4]."""
    never_empty = functional.pad(values, (0, 0, 0, 1))
    return never_empty.take_along_dim(rois.matched[..., None], dim=1)


def with_box_targets(boxes: Tensor, rois: RoiSample, numbers: DetectorNumbers) -> RoiSample:
    """Let positive RoIs regress to new boxes [B, A, 4] of their annotations; all else stays."""
    wanted = encode(rows_of_annotations(boxes, rois), rois.boxes, numbers.delta_weights)
    return rois._replace(deltas=torch.where(rois.is_positive[..., None], wanted, 0))


def class_weights(
    labels: Tensor, has_bag: Tensor, num_labels: int, total: Callable[[Tensor], Tensor]
) -> Tensor:
    """Weigh bags [B, A] so that their sum is the mean over classes of each class's mean.

    A bag of class c weighs 1 / (bags of c * classes that have bags), both counted in the whole
    batch: `total` adds up what the processes have. What is no bag weighs nothing.
    """
    classes = torch.arange(num_labels, device=labels.device)
    is_of = (labels[..., None] == classes) & has_bag[..., None]  # [B, A, C]
    numbers = total(is_of.sum((0, 1)))  # [C]
    present = (numbers > 0).sum().clamp(min=1)
    return (is_of / (numbers.clamp(min=1) * present)).sum(-1)


def even_weights(has_bag: Tensor, total: Callable[[Tensor], Tensor]) -> Tensor:
    """Weigh bags [B, A] so that their sum is their mean in the whole batch."""
    return has_bag / total(has_bag.sum()).clamp(min=1)


def weighted_sum(values: Tensor, weights: Tensor) -> Tensor:
    """Add up values [B, A] by weight; what weighs nothing may hold anything."""
    return (torch.where(weights > 0, values, 0) * weights).sum()


def normal_numbers(uniform: Tensor) -> Tensor:
    """Turn numbers uniform in [0, 1) into normal ones, cut at 4.8 deviations."""
    inside = uniform.clamp(1e-6, 1 - 1e-6)
    return math.sqrt(2) * torch.erfinv(2 * inside - 1)


def bag_outcome(annotations: BatchAnnotations, found: BagResult, *, is_changing: bool) -> Outcome:
    """Tell the ledger; takes annotations without padding. Labels are believed, so never judged.

    Before boxes are changed, all are those given. An annotation without a bag keeps its box, and
    has no scores.
    """
    has_bag = annotations.is_box & (found.num_members > 0)
    log_scores = torch.where(has_bag, found.log_scores, torch.nan)
    chosen = torch.where(has_bag[..., None], found.chosen, annotations.boxes)
    refined = RefinedBatch(
        boxes=found.boxes if is_changing else annotations.boxes,
        labels=annotations.labels,
        verdict=torch.full_like(annotations.labels, int(Judgement.UNJUDGED)),
        loss=-log_scores,
        threshold=torch.full_like(log_scores, torch.nan),
        confidence=log_scores.exp(),
        num_candidates=found.num_members,
        matched=chosen if is_changing else annotations.boxes,
    )
    return merge_outcome(
        annotations,
        refined,
        Roles(annotations.is_box, annotations.is_box, torch.zeros_like(annotations.is_box)),
    )
