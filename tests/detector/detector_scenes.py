"""Small batches for the detector's tests: smooth images of different sizes, padded annotations."""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.models.detection.image_list import ImageList

from boxmend.detector import (
    Detector,
    DetectorNumbers,
    Features,
    Proposals,
    RoiLosses,
    Targets,
    build,
)

CANVAS = (96, 128)
SIZES = torch.tensor([[96, 110], [70, 128], [81, 97]])  # height and width of three images
NUM_LABELS = 4
HOSTILE = float("nan")
SMALL = {  # fewer and narrower than by default, to be quick
    "resnet18": DetectorNumbers(
        representation=128,
        pre_nms_training=400,
        post_nms_training=300,
        pre_nms_testing=300,
        post_nms_testing=200,
        roi_samples=64,
    )
}


@lru_cache(maxsize=8)
def detector(name: str) -> Detector:
    """A random detector whose heads are scaled so that scores and boxes differ visibly."""
    torch.manual_seed(7)
    made = build(name, NUM_LABELS, numbers=SMALL.get(name))
    made.network.eval()
    with torch.no_grad():
        made.network.rpn.head.cls_logits.weight.mul_(8)
        made.network.rpn.head.bbox_pred.weight.mul_(3)
        made.network.roi_heads.box_predictor.cls_score.weight.mul_(3)
    return made


def images(seed: int = 0) -> Tensor:
    """Smooth images [3, 3, 96, 128] in 0..1, with invalid values outside of the images."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(len(SIZES), 3, 12, 16, generator=generator)
    smooth = F.interpolate(coarse, size=CANVAS, mode="bilinear")
    for image, (height, width) in zip(smooth, SIZES.tolist(), strict=True):
        image[:, height:], image[:, :, width:] = 55.0, -3.0
    return smooth


def image_list(batch: Tensor) -> list[Tensor]:
    """The same images as torchvision takes them, each of its own size."""
    return [
        image[:, :height, :width]
        for image, (height, width) in zip(batch, SIZES.tolist(), strict=True)
    ]


def bypass_resizing(network: Any) -> None:
    """Let torchvision normalise and pad, but leave the images' sizes alone."""
    network.transform.resize = lambda image, target=None: (image, target)


def torchvision_images(batch: Tensor) -> ImageList:
    """torchvision's container of already normalised images."""
    return ImageList(batch, [(height, width) for height, width in SIZES.tolist()])


def random_boxes(number: int, size: tuple[int, int], seed: int, smallest: float = 4) -> Tensor:
    """Boxes [number, 4] inside an image of (height, width), of all sizes and shapes."""
    generator = torch.Generator().manual_seed(seed)
    height, width = size
    u = torch.rand(number, 4, generator=generator)
    w = smallest + u[:, 2] * (width - smallest)
    h = smallest + u[:, 3] * (height - smallest)
    left, top = u[:, 0] * (width - w), u[:, 1] * (height - h)
    return torch.stack([left, top, left + w, top + h], dim=1)


def annotations(counts: tuple[int, ...] = (3, 5, 1), rows: int = 6, seed: int = 3) -> Targets:
    """Padded annotations whose padding holds NaN boxes, absurd labels and set ignore flags."""
    boxes = torch.full((len(counts), rows, 4), HOSTILE)
    labels = torch.full((len(counts), rows), 99)
    is_box = torch.zeros(len(counts), rows, dtype=torch.bool)
    for image, count in enumerate(counts):
        height, width = SIZES[image].tolist()
        boxes[image, :count] = random_boxes(count, (height, width), seed + image, smallest=12)
        generator = torch.Generator().manual_seed(seed + image)
        labels[image, :count] = torch.randint(NUM_LABELS, (count,), generator=generator)
        is_box[image, :count] = True
    return Targets(boxes, labels, is_box, ~is_box)


def torchvision_targets(targets: Targets) -> list[dict[str, Tensor]]:
    """The real rows as torchvision takes them, labels counted from one."""
    return [
        {"boxes": boxes[real], "labels": labels[real] + 1}
        for boxes, labels, real in zip(targets.boxes, targets.labels, targets.is_real, strict=True)
    ]


def uniform_keys(*shape: int, seed: int = 11) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def second_stage_losses(
    made: Detector, features: Features, proposals: Proposals, targets: Targets, keys: Tensor
) -> RoiLosses:
    """Sample RoIs by `keys` [B, P + A] and compute the second stage's losses on them."""
    rois = made.sample_rois(proposals, targets, keys)
    return made.roi_losses(made.roi_outputs(features, rois.boxes), rois, targets)
