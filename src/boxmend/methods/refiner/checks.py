"""Checks of the arguments that a custom training loop passes."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from boxmend.errors import UsageError
from boxmend.methods.refiner.lists import REQUIRED, TargetDict

PARTS = ("box_roi_pool", "box_head", "box_predictor", "box_coder")  # of torchvision's RoIHeads


def check_sizes(**sizes: int) -> None:
    """Raise a UsageError for numbers below 1."""
    for name, number in sizes.items():
        if number < 1:
            raise UsageError(f"{name} is {number}; expected 1 or more")


def second_stage_of(model: nn.Module) -> Any:
    """Return the model's second stage; raise a UsageError if it lacks a part."""
    heads = getattr(model, "roi_heads", None)
    missing = [name for name in PARTS if not hasattr(heads, name)]
    if missing:
        attribute = "roi_heads" if heads is None else f"roi_heads.{missing[0]}"
        raise UsageError(
            f"{type(model).__name__} has no {attribute}; a Refiner needs a two-stage model built "
            "like torchvision's FasterRCNN (for a wrapped model, pass the inner one)"
        )
    return heads


def check_lists(
    number: int,
    proposals: tuple[Sequence[Tensor], Sequence[Tensor]],
    targets: Sequence[TargetDict],
) -> None:
    """Raise a UsageError for lists of a wrong length and for incomplete targets."""
    boxes, objectness = proposals
    for name, values in (("proposals", boxes), ("objectness", objectness), ("targets", targets)):
        if len(values) != number or not number:
            raise UsageError(f"{len(values)} {name} for {number} images; expected one per image")
    for index, target in enumerate(targets):
        missing = [name for name in REQUIRED if name not in target]
        if missing:
            raise UsageError(
                f"targets[{index}] has no {missing[0]!r}; each target needs boxes [n, 4], labels "
                "[n] from 1, and rows [n], the indices of its annotations in the dataset, from 0"
            )
        count = len(target["labels"])
        shapes = [list(target[name].shape) for name in REQUIRED]
        if shapes != [[count, 4], [count], [count]]:
            pairs = zip(REQUIRED, shapes, strict=True)
            actual = ", ".join(f"{name} {shape}" for name, shape in pairs)
            raise UsageError(f"targets[{index}]: {actual}; expected [n, 4], [n] and [n]")


def check_values(targets: Sequence[TargetDict], num_annotations: int, num_labels: int) -> None:
    """Raise a UsageError for invalid labels, rows and boxes; waits for the device once."""
    boxes, labels, rows = (torch.cat([target[name] for target in targets]) for name in REQUIRED)
    is_box = (boxes[:, 2:] > boxes[:, :2]).all(-1) & boxes.isfinite().all(-1)
    is_label = (labels >= 1) & (labels <= num_labels)
    is_row = (rows >= 0) & (rows < num_annotations)
    if (is_box & is_label & is_row).all():
        return
    for index, target in enumerate(targets):
        columns = (target[name].tolist() for name in REQUIRED)
        for box, label, row in zip(*columns, strict=True):
            subject = f"targets[{index}]: the annotation of row {row} has"
            if not 0 <= row < num_annotations:
                raise UsageError(
                    f"targets[{index}]: row {row}; expected the annotation's index in the dataset, "
                    f"0 to {num_annotations - 1}"
                )
            if not 1 <= label <= num_labels:
                expected = f"expected 1 to {num_labels}, because 0 is background"
                raise UsageError(f"{subject} label {label}; {expected}")
            if not (all(map(math.isfinite, box)) and box[2] > box[0] and box[3] > box[1]):
                raise UsageError(f"{subject} the box {box}, which has no area; leave it out")
