"""Conversion between torchvision's lists, one tensor per image, and padded batches."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from boxmend.detector import Proposals, RoiSample, Targets
from boxmend.methods.table import BatchAnnotations, Outcome

TargetDict = dict[str, Tensor]
REQUIRED = ("boxes", "labels", "rows")  # keys of a target
PER_ANNOTATION = (*REQUIRED, "area", "iscrowd", "masks", "keypoints")  # torchvision's names


class Record(NamedTuple):
    """The outcome for each annotation of a batch, image by image; all on the device.

    The columns are those of the ledger. Labels start at 1, boxes are in the coordinates of the
    targets. Crowd annotations are included; they are UNJUDGED and not kept.
    """

    rows: Tensor  # [n]
    verdict: Tensor  # [n] a `boxmend.runs.judgement.Judgement`
    loss: Tensor  # [n]; NaN where it was not measured, as in the next two columns
    threshold: Tensor  # [n]
    confidence: Tensor  # [n]
    num_candidates: Tensor  # [n]
    old_labels: Tensor  # [n]
    new_labels: Tensor  # [n]
    matched_boxes: Tensor  # [n, 4]
    final_boxes: Tensor  # [n, 4]
    is_kept: Tensor  # [n] the annotation trains the second stage as an object


def to_annotations(
    targets: Sequence[TargetDict], sizes: Sequence[tuple[int, int]]
) -> BatchAnnotations:
    """Pad targets with labels from 1 to annotations with labels from 0; crowds are ignored."""
    boxes, labels, rows = (pad([target[name] for target in targets]) for name in REQUIRED)
    is_real = _mask([target["labels"] for target in targets])
    crowds = [target.get("iscrowd", torch.zeros_like(target["labels"])) for target in targets]
    is_ignored = is_real & pad(crowds).bool()
    return BatchAnnotations(
        boxes=boxes.float(),
        labels=torch.where(is_real, labels.long() - 1, 0),
        is_box=is_real & ~is_ignored,
        is_ignored=is_ignored,
        rows=torch.where(is_real, rows.long(), -1),
        sizes=torch.tensor(sizes, device=boxes.device),
    )


def to_proposals(boxes: Sequence[Tensor], objectness: Sequence[Tensor]) -> Proposals:
    """Pad boxes [n, 4] and their objectness [n]."""
    is_inexact = torch.zeros(len(boxes), dtype=torch.bool, device=boxes[0].device)
    return Proposals(pad(boxes).float(), pad(objectness).float(), _mask(objectness), is_inexact)


def to_rois(labels: Sequence[Tensor], matched: Sequence[Tensor]) -> RoiSample:
    """Pad sampled RoIs with labels [n] from 1, 0 for background; boxes and deltas are zero."""
    columns = pad(labels)  # [B, S]
    zeros = torch.zeros(*columns.shape, 4, device=columns.device)
    return RoiSample(
        boxes=zeros,
        matched=pad(matched),
        is_sampled=_mask(labels),
        is_positive=columns > 0,
        labels=(columns - 1).clamp(min=0),
        deltas=zeros,
    )


def to_lists(
    targets: Sequence[TargetDict], refined: Targets, places: Sequence[Tensor]
) -> list[TargetDict]:
    """Return the targets with refined boxes and labels, only for the annotations at `places`."""
    lists = []
    for image, (target, rows) in enumerate(zip(targets, places, strict=True)):
        result = {k: v[rows] if k in PER_ANNOTATION else v for k, v in target.items()}
        result["boxes"] = refined.boxes[image, rows].to(target["boxes"].dtype)
        result["labels"] = refined.labels[image, rows] + 1
        if refined.soft is not None:
            result["soft"] = refined.soft[image, rows]
        lists.append(result)
    return lists


def to_record(
    targets: Sequence[TargetDict], annotations: BatchAnnotations, outcome: Outcome
) -> Record:
    """Convert a method's outcome for padded annotations to flat columns."""
    counts = [len(target["labels"]) for target in targets]

    def flat(column: Tensor) -> Tensor:
        whole = column.expand(annotations.labels.shape) if column.dim() < 2 else column
        return torch.cat([rows[:count] for rows, count in zip(whole, counts, strict=True)])

    return Record(
        rows=flat(annotations.rows),
        verdict=flat(outcome.verdict),
        loss=flat(outcome.loss),
        threshold=flat(outcome.threshold),
        confidence=flat(outcome.confidence),
        num_candidates=flat(outcome.num_candidates),
        old_labels=flat(annotations.labels) + 1,
        new_labels=flat(outcome.labels) + 1,
        matched_boxes=flat(outcome.matched),
        final_boxes=flat(outcome.boxes),
        is_kept=flat(outcome.is_kept),
    )


def pad(values: Sequence[Tensor]) -> Tensor:
    """Stack B tensors [n, ...] into one [B, A, ...] with zeros at the end; A is at least 1."""
    longest = max(1, *(len(tensor) for tensor in values))
    whole = values[0].new_zeros(len(values), longest, *values[0].shape[1:])
    for row, tensor in zip(whole, values, strict=True):
        row[: len(tensor)] = tensor
    return whole


def take_rows(values: Tensor, rows: Tensor) -> Tensor:
    """Return rows [n] of values; zeros if there are no values, which torchvision matches as 0."""
    if not len(values):
        return values.new_zeros(len(rows), *values.shape[1:])
    return values[rows]


def _mask(values: Sequence[Tensor]) -> Tensor:
    """Return the mask [B, A] of the values that `pad` keeps."""
    return pad([torch.ones(len(rows), dtype=torch.bool, device=rows.device) for rows in values])
