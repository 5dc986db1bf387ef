"""The opinion of a user's own model: its second stage on given boxes, as at test time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models.detection.image_list import ImageList

from boxmend.detector import SecondStageOutput
from boxmend.detector.boxes import clamp_to_canvas, clip
from boxmend.errors import UsageError
from boxmend.methods.table import BoxScorer

Maps = Tensor | Mapping[str, Tensor]
"""Features as a backbone gives them: one map, or several by name."""


def make_scorer(heads: Any, images: ImageList, features: Maps, num_labels: int) -> BoxScorer:
    """Make a scorer of torchvision's RoIHeads over the features of a batch."""
    maps = {"0": features} if isinstance(features, Tensor) else dict(features)
    height, width = images.tensors.shape[-2:]
    sizes = torch.tensor(images.image_sizes, device=images.tensors.device)

    def score(boxes: Tensor, /) -> SecondStageOutput:
        lists = list(clamp_to_canvas(boxes.float(), (height, width)))  # B of [K, 4]
        with _in_evaluation_mode(heads.box_head, heads.box_predictor):
            pooled = heads.box_roi_pool(maps, lists, images.image_sizes)
            logits, deltas = heads.box_predictor(heads.box_head(pooled))
        _check_width(logits.shape[-1], num_labels)
        shape = (*boxes.shape[:2], 1 + num_labels)
        regressed = heads.box_coder.decode(deltas.float(), lists).view(*shape, 4)
        logits = logits.float().view(shape)
        return SecondStageOutput(logits, logits.softmax(-1), clip(regressed[:, :, 1:], sizes))

    return score


def _check_width(width: int, num_labels: int) -> None:
    if width != 1 + num_labels:
        raise UsageError(
            f"the model scores {width} classes with background, but num_labels is {num_labels}, "
            f"which makes {1 + num_labels}"
        )


@contextmanager
def _in_evaluation_mode(*parts: nn.Module) -> Iterator[None]:
    """Keep dropout and normalisations of modules still, whatever mode each of them is in."""
    modules = [module for part in parts for module in part.modules()]
    modes = [module.training for module in modules]
    try:
        for module in modules:
            module.training = False
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
