"""Small batches for the tests of a user's own loop: a detector of ours, and a model by hand."""

from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models.detection._utils import BoxCoder
from torchvision.models.detection.image_list import ImageList

from boxmend.detector import Detector, Features, Proposals, build

NUM_LABELS = 3
NUM_ANNOTATIONS = 9
SIZES = [(96, 96), (80, 64)]  # heights and widths
Target = dict[str, Tensor]


def targets() -> list[Target]:
    """Three annotations of the first image, one of the second; labels from 1."""
    return [
        {
            "boxes": torch.tensor([[10.0, 10, 50, 50], [30, 20, 90, 80], [60, 60, 80, 95]]),
            "labels": torch.tensor([1, 3, 2]),
            "rows": torch.tensor([4, 0, 7]),
        },
        {
            "boxes": torch.tensor([[5.0, 5, 45, 60]]),
            "labels": torch.tensor([2]),
            "rows": torch.tensor([2]),
        },
    ]


def lively_detector(name: str) -> Detector:
    """A random detector whose heads are scaled so that scores and boxes differ visibly."""
    torch.manual_seed(5)
    made = build(name, NUM_LABELS)
    with torch.no_grad():
        made.network.rpn.head.cls_logits.weight.mul_(8)
        made.network.roi_heads.box_predictor.cls_score.weight.mul_(4)
    made.network.train()
    return made


def seen(made: Detector) -> tuple[ImageList, Features, Proposals]:
    """Images, features and proposals of a batch, the images padded with zeros."""
    coarse = torch.rand(2, 3, 12, 12, generator=torch.Generator().manual_seed(1))
    images = nn.functional.interpolate(coarse, size=(96, 96), mode="bilinear")
    images[1, :, 80:], images[1, :, :, 64:] = 0, 0
    sizes = torch.tensor(SIZES)
    with torch.no_grad():
        features = made.features(images, sizes)
        proposals = made.proposals(made.rpn(features), sizes)
    return ImageList(images, SIZES), features, proposals


def listed(proposals: Proposals) -> tuple[list[Tensor], list[Tensor]]:
    """Proposals as torchvision has them."""
    masks = proposals.is_proposal
    boxes = [one[mask] for one, mask in zip(proposals.boxes, masks, strict=True)]
    scores = [one[mask] for one, mask in zip(proposals.objectness, masks, strict=True)]
    return boxes, scores


class BoxesThemselves(nn.Module):
    """Pools nothing: what the heads see of a box are its coordinates."""

    def forward(self, features: Any, boxes: list[Tensor], sizes: Any) -> Tensor:
        return torch.cat(boxes)


class ByWidth(nn.Module):
    """Takes boxes up to 30 pixels wide for class 2, wider ones for class 3; moves none."""

    def __init__(self, num_labels: int = NUM_LABELS) -> None:
        super().__init__()
        self.width = nn.Parameter(torch.tensor(30.0))
        self.num_labels = num_labels

    def forward(self, boxes: Tensor) -> tuple[Tensor, Tensor]:
        is_wide = boxes[:, 2] - boxes[:, 0] > self.width
        logits = torch.zeros(len(boxes), 1 + self.num_labels)
        logits[:, 2] = torch.where(is_wide, 0.0, 6.0)
        logits[:, 3] = torch.where(is_wide, 6.0, 0.0)
        return logits, torch.zeros(len(boxes), 4 * (1 + self.num_labels))


class RoiHeadsByHand(nn.Module):
    def __init__(self, head: nn.Module, predictor: nn.Module) -> None:
        super().__init__()
        self.box_roi_pool = BoxesThemselves()
        self.box_head = head
        self.box_predictor = predictor
        self.box_coder = BoxCoder((10.0, 10.0, 5.0, 5.0))


class ModelByHand(nn.Module):
    """The parts of a two-stage model that a Refiner uses."""

    def __init__(self, head: nn.Module | None = None, predictor: nn.Module | None = None) -> None:
        super().__init__()
        self.roi_heads = RoiHeadsByHand(head or nn.Identity(), predictor or ByWidth())


def blank(sizes: list[tuple[int, int]] = SIZES) -> ImageList:
    return ImageList(torch.zeros(len(sizes), 3, 96, 96), sizes)


def no_proposals(number: int = 2) -> tuple[list[Tensor], list[Tensor]]:
    return [torch.zeros(0, 4)] * number, [torch.zeros(0)] * number
