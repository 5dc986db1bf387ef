"""A scorer for the user's own model: its second stage on arbitrary boxes, as in testing."""

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
"""The output of a backbone: one feature map, or several by name."""


def make_scorer(heads: Any, images: ImageList, features: Maps, num_labels: int) -> BoxScorer:
    """Make a scorer of torchvision's RoIHeads over the features of a batch."""
    maps = {"0": features} if isinstance(features, Tensor) else dict(features)
    height, width = images.tensors.shape[-2:]
    sizes = torch.tensor(images.image_sizes, device=images.tensors.device)

    def score(boxes: Tensor, /) -> SecondStageOutput:
        lists = list(clamp_to_canvas(boxes.float(), (height, width)))  # B of [K, 4]
        with _evaluation_mode(heads.box_head, heads.box_predictor):
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
            f"the model scores {width} classes including background, but num_labels is "
            f"{num_labels}, which needs {1 + num_labels}; pass the model's number of classes"
        )


@contextmanager
def _evaluation_mode(*parts: nn.Module) -> Iterator[None]:
    """Put modules into evaluation mode, and restore the mode of each afterwards."""
    modules = [module for part in parts for module in part.modules()]
    modes = [module.training for module in modules]
    try:
        for module in modules:
            module.training = False
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
