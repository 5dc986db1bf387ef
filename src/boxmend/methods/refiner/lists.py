"""Between torchvision's lists, one tensor an image, and the padded batches of methods."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from boxmend.detector import Proposals, RoiSample, Targets
from boxmend.methods.table import BatchAnnotations, Outcome

TargetDict = dict[str, Tensor]
NEEDED = ("boxes", "labels", "rows")
PER_ANNOTATION = (*NEEDED, "area", "iscrowd", "masks", "keypoints")  # as torchvision names them


class Record(NamedTuple):
    """What was done with each annotation of a batch, image by image; all on the device.

    The columns are those of the ledger. Labels count from 1, boxes are in the frame of the
    targets. Crowds are there, too, unjudged and not kept.
    """

    rows: Tensor  # [n]
    verdict: Tensor  # [n] a `boxmend.runs.judgement.Judgement`
    loss: Tensor  # [n]; NaN where it was not measured, as in the next two
    threshold: Tensor  # [n]
    confidence: Tensor  # [n]
    num_candidates: Tensor  # [n]
    old_labels: Tensor  # [n]
    new_labels: Tensor  # [n]
    matched_boxes: Tensor  # [n, 4]
    final_boxes: Tensor  # [n, 4]
    is_kept: Tensor  # [n] trained on as an object


def as_given(targets: Sequence[TargetDict], sizes: Sequence[tuple[int, int]]) -> BatchAnnotations:
    """Pad targets with labels from 1 to annotations with labels from 0; crowds are ignored."""
    boxes, labels, rows = (pad([one[name] for one in targets]) for name in NEEDED)
    is_real = _mask([one["labels"] for one in targets])
    crowds = [one.get("iscrowd", torch.zeros_like(one["labels"])) for one in targets]
    is_ignored = is_real & pad(crowds).bool()
    return BatchAnnotations(
        boxes=boxes.float(),
        labels=torch.where(is_real, labels.long() - 1, 0),
        is_box=is_real & ~is_ignored,
        is_ignored=is_ignored,
        rows=torch.where(is_real, rows.long(), -1),
        sizes=torch.tensor(sizes, device=boxes.device),
    )


def as_proposals(boxes: Sequence[Tensor], objectness: Sequence[Tensor]) -> Proposals:
    """Pad boxes [n, 4] and their objectness [n]."""
    is_inexact = torch.zeros(len(boxes), dtype=torch.bool, device=boxes[0].device)
    return Proposals(pad(boxes).float(), pad(objectness).float(), _mask(objectness), is_inexact)


def as_rois(labels: Sequence[Tensor], matched: Sequence[Tensor]) -> RoiSample:
    """Pad sampled RoIs, labels [n] from 1 with 0 for background; of their boxes nothing is told."""
    columns = pad(labels)  # [B, S]
    nothing = torch.zeros(*columns.shape, 4, device=columns.device)
    return RoiSample(
        boxes=nothing,
        matched=pad(matched),
        is_sampled=_mask(labels),
        is_positive=columns > 0,
        labels=(columns - 1).clamp(min=0),
        deltas=nothing,
    )


def as_lists(
    targets: Sequence[TargetDict], refined: Targets, places: Sequence[Tensor]
) -> list[TargetDict]:
    """Give the targets with refined boxes and labels, without what is not at `places`."""
    lists = []
    for image, (target, rows) in enumerate(zip(targets, places, strict=True)):
        kept = {k: v[rows] if k in PER_ANNOTATION else v for k, v in target.items()}
        kept["boxes"] = refined.boxes[image, rows].to(target["boxes"].dtype)
        kept["labels"] = refined.labels[image, rows] + 1
        if refined.soft is not None:
            kept["soft"] = refined.soft[image, rows]
        lists.append(kept)
    return lists


def as_record(
    targets: Sequence[TargetDict], annotations: BatchAnnotations, outcome: Outcome
) -> Record:
    """Put what a method tells about padded annotations into flat columns."""
    counts = [len(one["labels"]) for one in targets]

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
    """Put B tensors [n, ...] into one [B, A, ...], zero at the end; A is at least 1."""
    longest = max(1, *(len(one) for one in values))
    whole = values[0].new_zeros(len(values), longest, *values[0].shape[1:])
    for row, one in zip(whole, values, strict=True):
        row[: len(one)] = one
    return whole


def take_rows(values: Tensor, rows: Tensor) -> Tensor:
    """Take rows [n] of values; zeros where there are none, which torchvision matches with row 0."""
    if not len(values):
        return values.new_zeros(len(rows), *values.shape[1:])
    return values[rows]


def _mask(values: Sequence[Tensor]) -> Tensor:
    """[B, A], true where `padded` puts a value."""
    return pad([torch.ones(len(one), dtype=torch.bool, device=one.device) for one in values])
