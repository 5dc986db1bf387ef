"""What a user's loop may get wrong, told at the door."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from boxmend.errors import UsageError
from boxmend.methods.refiner.lists import NEEDED, TargetDict

PARTS = ("box_roi_pool", "box_head", "box_predictor", "box_coder")  # of torchvision's RoIHeads


def check_sizes(**sizes: int) -> None:
    """Refuse numbers below 1."""
    for name, number in sizes.items():
        if number < 1:
            raise UsageError(f"{name} is {number}; expected 1 or more")


def second_stage_of(model: nn.Module) -> Any:
    """Give the model's second stage, or say what it lacks."""
    heads = getattr(model, "roi_heads", None)
    missing = [name for name in PARTS if not hasattr(heads, name)]
    if missing:
        lacking = "roi_heads" if heads is None else f"roi_heads.{missing[0]}"
        raise UsageError(
            f"{type(model).__name__} has no {lacking}; a Refiner needs a two-stage model built "
            "like torchvision's FasterRCNN (of a wrapped model, give the inner one)"
        )
    return heads


def check_lists(
    number: int,
    proposals: tuple[Sequence[Tensor], Sequence[Tensor]],
    targets: Sequence[TargetDict],
) -> None:
    """Refuse lists of other lengths than there are images, and targets that lack something."""
    boxes, objectness = proposals
    for name, one in (("proposals", boxes), ("objectness", objectness), ("targets", targets)):
        if len(one) != number or not number:
            raise UsageError(f"{len(one)} {name} for {number} images; expected one for each")
    for place, target in enumerate(targets):
        missing = [name for name in NEEDED if name not in target]
        if missing:
            raise UsageError(
                f"targets[{place}] has no {missing[0]!r}; each needs boxes [n, 4], labels [n] from "
                "1, and rows [n], the places of its annotations in the whole dataset, from 0"
            )
        count = len(target["labels"])
        shapes = [list(target[name].shape) for name in NEEDED]
        if shapes != [[count, 4], [count], [count]]:
            told = ", ".join(f"{name} {shape}" for name, shape in zip(NEEDED, shapes, strict=True))
            raise UsageError(f"targets[{place}]: {told}; expected [n, 4], [n] and [n]")


def check_values(targets: Sequence[TargetDict], num_annotations: int, num_labels: int) -> None:
    """Refuse labels, rows and boxes that cannot be; waits for the device once."""
    boxes, labels, rows = (torch.cat([one[name] for one in targets]) for name in NEEDED)
    is_box = (boxes[:, 2:] > boxes[:, :2]).all(-1) & boxes.isfinite().all(-1)
    is_label = (labels >= 1) & (labels <= num_labels)
    is_row = (rows >= 0) & (rows < num_annotations)
    if (is_box & is_label & is_row).all():
        return
    for place, target in enumerate(targets):
        columns = (target[name].tolist() for name in NEEDED)
        for box, label, row in zip(*columns, strict=True):
            where = f"targets[{place}]: the annotation of row {row} has"
            if not 0 <= row < num_annotations:
                raise UsageError(
                    f"targets[{place}]: row {row}; expected the annotation's place in the whole "
                    f"dataset, 0 to {num_annotations - 1}"
                )
            if not 1 <= label <= num_labels:
                expected = f"expected 1 to {num_labels}, for 0 is background"
                raise UsageError(f"{where} label {label}; {expected}")
            if not (all(map(math.isfinite, box)) and box[2] > box[0] and box[3] > box[1]):
                raise UsageError(f"{where} the box {box}, which has no extent; leave it out")
