"""Bags, the decoded and re-scored positive RoIs of an annotation, as OA-MIL and DISCO use them.

Shapes: B images, A annotations, M slots for positive RoIs, C classes. Boxes returned here have no
gradient. There are no matrix products, because half precision would round coordinates.
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
    """The member of highest score in each bag; arbitrary where the bag is empty."""

    scores: Tensor  # [B, A]
    places: Tensor  # [B, A] indices 0 .. M - 1


class BagResult(NamedTuple):
    """The result of a method for the annotations of a batch."""

    chosen: Tensor  # [B, A, 4] the box that represents a bag
    log_scores: Tensor  # [B, A] log probability of the annotation's label at that box
    boxes: Tensor  # [B, A, 4] the new regression targets
    num_members: Tensor  # [B, A]


def has_begun(share: float, progress: TrainingProgress) -> bool:
    """Return whether a share of all steps is over."""
    return progress.step >= share * progress.num_steps


def select_positives(rois: RoiSample, numbers: DetectorNumbers) -> RoiSample:
    """Return the first M of the RoIs [B, S], which can be positive; sampling puts these first."""
    most = max(int(numbers.roi_samples * numbers.roi_positive_share), 1)
    return RoiSample(*(part[:, :most] for part in rois))


def select_first(output: RoiOutput, rois: RoiSample) -> RoiOutput:
    """Return the outputs [B, M, ...] of the first RoIs [B, M]."""
    most = rois.boxes.shape[1]
    return RoiOutput(*(part[:, :most] for part in output))


def mark_members(rois: RoiSample, num_annotations: int) -> Tensor:
    """Mark the RoIs in the bag of each annotation, [B, A, M]."""
    rows = torch.arange(num_annotations, device=rois.matched.device)
    is_of = rois.matched[:, None] == rows[:, None]  # [B, A, M]
    return is_of & rois.is_positive[:, None]


@torch.no_grad()
def decode_boxes(
    output: RoiOutput, references: Tensor, rois: RoiSample, sizes: Tensor, numbers: DetectorNumbers
) -> Tensor:
    """Decode boxes for the annotation's class, clipped to the image, sides at least one pixel.

    Takes outputs for references [B, M, 4] and image sizes [B, 2]. Returns [B, M, 4], inert where
    `rois` is not positive.
    """
    columns = (rois.labels + 1)[..., None, None]  # [B, M, 1, 1]
    deltas = output.deltas.take_along_dim(columns, dim=2)[:, :, 0]  # [B, M, 4]
    boxes = decode(deltas.float(), references.float(), numbers.delta_weights)
    return clipped_boxes(boxes, rois.is_positive, sizes)


def log_scores(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the log probability of labels [B, K], given logits [B, K, 1 + C]."""
    return logits.float().log_softmax(-1).take_along_dim((labels + 1)[..., None], dim=-1)[..., 0]


def find_best(scores: Tensor, is_member: Tensor) -> BestMember:
    """Find the best member of each bag.

    Takes scores [B, A, M], or [B, 1, M] for all bags, and is_member [B, A, M]. The gradient goes to
    the best member only, and to none where the bag is empty.
    """
    lowest = torch.finfo(scores.dtype).min
    highest = torch.where(is_member, scores, lowest).max(dim=-1)
    return BestMember(highest.values, highest.indices)


def blend_share(scores: Tensor, exponent: float, max_share: float) -> Tensor:
    """Compute the weight of a chosen box: phi = min(score ^ exponent, max_share)."""
    return scores.pow(exponent).clamp(max=max_share)


def blend_boxes(annotations: Tensor, chosen: Tensor, share: Tensor, has_bag: Tensor) -> Tensor:
    """Blend phi * chosen + (1 - phi) * given; where there is no bag, the given box stays.

    Takes boxes [B, A, 4], share and has_bag [B, A].
    """
    mixed = torch.lerp(annotations, chosen, share[..., None])
    return torch.where(has_bag[..., None], mixed, annotations)


def rows_of_annotations(values: Tensor, rois: RoiSample) -> Tensor:
    """Look up the row of values [B, A, 4] of each RoI's annotation. Returns [B, S, 4]."""
    padded_values = functional.pad(values, (0, 0, 0, 1))  # never empty
    return padded_values.take_along_dim(rois.matched[..., None], dim=1)


def with_box_targets(boxes: Tensor, rois: RoiSample, numbers: DetectorNumbers) -> RoiSample:
    """Return the RoIs with new regression targets: boxes [B, A, 4] of their annotations."""
    deltas = encode(rows_of_annotations(boxes, rois), rois.boxes, numbers.delta_weights)
    return rois._replace(deltas=torch.where(rois.is_positive[..., None], deltas, 0))


def class_weights(
    labels: Tensor, has_bag: Tensor, num_labels: int, all_sum: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return weights of bags [B, A] whose weighted sum is the mean over classes of class means.

    The weight of a bag of class c is 1 / (bags of c * classes that have bags), counted in the whole
    batch; `all_sum` adds up over processes. The weight is 0 without a bag.
    """
    classes = torch.arange(num_labels, device=labels.device)
    is_of = (labels[..., None] == classes) & has_bag[..., None]  # [B, A, C]
    numbers = all_sum(is_of.sum((0, 1)))  # [C]
    present = (numbers > 0).sum().clamp(min=1)
    return (is_of / (numbers.clamp(min=1) * present)).sum(-1)


def even_weights(has_bag: Tensor, all_sum: Callable[[Tensor], Tensor]) -> Tensor:
    """Return weights of bags [B, A] whose weighted sum is the mean over the whole batch."""
    return has_bag / all_sum(has_bag.sum()).clamp(min=1)


def weighted_sum(values: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum of values [B, A]; values of weight 0 may be NaN."""
    return (torch.where(weights > 0, values, 0) * weights).sum()


def normal_numbers(uniform: Tensor) -> Tensor:
    """Convert uniform numbers in [0, 1) to normal ones, cut at 4.8 standard deviations."""
    inside = uniform.clamp(1e-6, 1 - 1e-6)
    return math.sqrt(2) * torch.erfinv(2 * inside - 1)


def bag_outcome(annotations: BatchAnnotations, result: BagResult, *, is_changing: bool) -> Outcome:
    """Return the outcome of a batch; takes annotations with neutral padding.

    Labels are trusted, so all are UNJUDGED. Boxes change only if `is_changing`. An annotation
    without a bag keeps its box and has no scores.
    """
    has_bag = annotations.is_box & (result.num_members > 0)
    log_scores = torch.where(has_bag, result.log_scores, torch.nan)
    chosen = torch.where(has_bag[..., None], result.chosen, annotations.boxes)
    refined = RefinedBatch(
        boxes=result.boxes if is_changing else annotations.boxes,
        labels=annotations.labels,
        verdict=torch.full_like(annotations.labels, int(Judgement.UNJUDGED)),
        loss=-log_scores,
        threshold=torch.full_like(log_scores, torch.nan),
        confidence=log_scores.exp(),
        num_candidates=result.num_members,
        matched=chosen if is_changing else annotations.boxes,
    )
    return merge_outcome(
        annotations,
        refined,
        Roles(annotations.is_box, annotations.is_box, torch.zeros_like(annotations.is_box)),
    )
