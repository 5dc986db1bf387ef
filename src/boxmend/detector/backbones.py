"""The detectors by name: torchvision's backbones with a feature pyramid, and the tiny one."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models import (
    MobileNet_V2_Weights,
    MobileNet_V3_Large_Weights,
    ResNet18_Weights,
    ResNet50_Weights,
    WeightsEnum,
    mobilenet_v2,
    mobilenet_v3_large,
)
from torchvision.models.detection.backbone_utils import BackboneWithFPN, resnet_fpn_backbone
from torchvision.models.detection.faster_rcnn import FasterRCNN, FastRCNNPredictor, TwoMLPHead
from torchvision.ops import FrozenBatchNorm2d, MultiScaleRoIAlign

from boxmend.data.files.limits import describe_excess
from boxmend.detector.faster_rcnn import Detector
from boxmend.detector.heads import SeveralClassifiers, Spread, WholeHeads
from boxmend.detector.numbers import DetectorNumbers
from boxmend.detector.tiny import AgnosticPredictor, CoarsestAnchors, CoarsestHead, TinyBackbone
from boxmend.detector.weights import (
    download_weights,
    load_file,
    load_tensors,
    read_metadata,
    with_stored_heads,
)
from boxmend.errors import DataError, UsageError

Norm = Callable[[int], nn.Module]

TINY_NUMBERS = DetectorNumbers(
    rpn_levels=("1",),
    roi_levels=("0",),
    anchor_sizes=((20, 32, 48),),
    pool_size=5,
    pool_samples=1,
    representation=128,
    is_class_agnostic=True,
    pre_nms_training=300,
    post_nms_training=150,
    pre_nms_testing=300,
    post_nms_testing=150,
    rpn_samples=128,
    roi_samples=40,
)
SHIPPED_TINY = Path(__file__).with_name("tiny.safetensors")
PYRAMID_CHANNELS = 256
MOBILE_V3_EPS = 1e-3  # of the normalisations of the pretrained MobileNetV3


@dataclass(frozen=True)
class Architecture:
    """The parts of a detector with a name."""

    backbone: Callable[[Norm], nn.Module]
    stages: tuple[tuple[str, ...], ...]
    """Prefixes of the backbone's parameters by stage, from the image upwards."""
    frozen_stages: int
    """How many of the first stages are frozen when training starts from pretrained weights."""
    numbers: DetectorNumbers
    default: WeightsEnum | Path
    """Weights trained on ImageNet classification, or shipped with the package."""
    norm_eps: float = 1e-5


def _resnet(name: str, norm: Norm) -> nn.Module:
    backbone: nn.Module = resnet_fpn_backbone(
        backbone_name=name, weights=None, norm_layer=norm, trainable_layers=5
    )
    return backbone


def _mobile(
    make: Callable[..., nn.Module], blocks: tuple[int, ...], channels: tuple[int, ...], norm: Norm
) -> nn.Module:
    """Make a MobileNet with a feature pyramid on the last blocks of strides 4, 8, 16 and 32."""
    levels = {str(block): str(level) for level, block in enumerate(blocks)}
    body = make(weights=None, norm_layer=norm).features
    backbone: nn.Module = BackboneWithFPN(body, levels, list(channels), PYRAMID_CHANNELS)
    return backbone


def _stage_prefixes(*ends: int) -> tuple[tuple[str, ...], ...]:
    """Return the parameter prefixes of a MobileNet's stages, given the end of each stage."""
    starts = (0, *ends)
    return tuple(
        tuple(f"body.{block}." for block in range(start, end))
        for start, end in zip(starts, ends, strict=False)
    )


RESNET_STAGES = (
    ("body.conv1.", "body.bn1."),
    ("body.layer1.",),
    ("body.layer2.",),
    ("body.layer3.",),
    ("body.layer4.",),
)
DETECTORS = {
    "mobilenet_v2": Architecture(
        partial(_mobile, mobilenet_v2, (3, 6, 13, 18), (24, 32, 96, 1280)),
        _stage_prefixes(2, 4, 7, 14, 19),
        2,
        DetectorNumbers(),
        MobileNet_V2_Weights.IMAGENET1K_V1,
    ),
    "mobilenet_v3": Architecture(
        partial(_mobile, mobilenet_v3_large, (3, 6, 12, 16), (24, 40, 112, 960)),
        _stage_prefixes(2, 4, 7, 13, 17),
        2,
        DetectorNumbers(),
        MobileNet_V3_Large_Weights.IMAGENET1K_V1,
        MOBILE_V3_EPS,
    ),
    "resnet18": Architecture(
        partial(_resnet, "resnet18"),
        RESNET_STAGES,
        2,
        DetectorNumbers(),
        ResNet18_Weights.IMAGENET1K_V1,
    ),
    "resnet50": Architecture(
        partial(_resnet, "resnet50"),
        RESNET_STAGES,
        2,
        DetectorNumbers(),
        ResNet50_Weights.IMAGENET1K_V1,
    ),
    "tiny": Architecture(
        TinyBackbone,
        (("stem.",), ("stages.0.",), ("stages.1.",), ("stages.2.",)),
        1,
        TINY_NUMBERS,
        SHIPPED_TINY,
    ),
}


def build(
    name: str,
    num_labels: int,
    weights: str | Path | None = None,
    *,
    frozen_stages: int | None = None,
    frozen_norm: bool = True,
    numbers: DetectorNumbers | None = None,
) -> Detector:
    """Make the detector `name` for `num_labels` classes.

    `weights` is None (random), "default" (ImageNet classification from torchvision, or the shipped
    file for `tiny`), or a safetensors file of a backbone or of a whole detector with the same
    classes. The first `frozen_stages` of the backbone are not trained; None means 0 with random
    weights, otherwise the stages of strides 2 and 4 (for `tiny` the stem). With `frozen_norm` the
    statistics of normalisation are constants; without it they are those of each batch, for training
    a backbone from random weights.
    """
    if name not in DETECTORS:
        raise UsageError(f"unknown detector {name!r}; known: {', '.join(sorted(DETECTORS))}")
    if num_labels < 1:
        raise UsageError(f"num_labels is {num_labels}; a detector needs at least one class")
    if message := describe_excess("model_labels", num_labels):
        raise DataError(f"cannot build a detector with so many classes: {message}")
    used = _numbers_for(DETECTORS[name], weights) if numbers is None else numbers
    if frozen_stages is None:
        frozen_stages = 0 if weights is None else DETECTORS[name].frozen_stages
    detectors = [
        _build_network(name, num_labels, weights, frozen_norm, used) for _ in range(used.networks)
    ]
    for detector in detectors:
        freeze(detector, frozen_stages)
    first = Detector(name, detectors[0].network, num_labels, used)
    if used.networks > 1:
        first.network.twin = detectors[1].network
    return first


def _numbers_for(architecture: Architecture, weights: str | Path | None) -> DetectorNumbers:
    """Return the detector's own numbers, with the heads that a weights file names."""
    if weights is None or weights == "default":
        return architecture.numbers
    return with_stored_heads(architecture.numbers, read_metadata(Path(weights)), str(weights))


def _build_network(
    name: str,
    num_labels: int,
    weights: str | Path | None,
    frozen_norm: bool,
    numbers: DetectorNumbers,
) -> Detector:
    """Make a detector with one network."""
    architecture = DETECTORS[name]
    kind = FrozenBatchNorm2d if frozen_norm else nn.BatchNorm2d
    backbone = architecture.backbone(partial(kind, eps=architecture.norm_eps))
    detector = Detector(name, make_faster_rcnn(backbone, num_labels, numbers), num_labels, numbers)
    _fill(detector, architecture, weights, frozen_norm)
    return detector


def freeze(detector: Detector, stages: int) -> None:
    """Exclude exactly the backbone's first `stages` from training."""
    known = DETECTORS[detector.name].stages
    if not 0 <= stages <= len(known):
        raise UsageError(f"{detector.name} has {len(known)} stages to freeze, not {stages}")
    prefixes = tuple(prefix for stage in known[:stages] for prefix in stage)
    for key, parameter in detector.network.backbone.named_parameters():
        parameter.requires_grad_(not key.startswith(prefixes))


def make_faster_rcnn(backbone: Any, num_labels: int, numbers: DetectorNumbers) -> FasterRCNN:
    """Make torchvision's Faster R-CNN around a backbone, with the detector's hyperparameters."""
    channels: int = backbone.out_channels
    ratios = (numbers.anchor_ratios,) * len(numbers.rpn_levels)
    anchors = CoarsestAnchors(numbers.anchor_sizes, ratios)
    head = CoarsestHead(channels, anchors.num_anchors_per_location()[0], len(numbers.rpn_levels))
    box_head, box_predictor = _second_stage(channels, num_labels, numbers)
    return FasterRCNN(
        backbone,
        rpn_anchor_generator=anchors,
        rpn_head=head,
        rpn_pre_nms_top_n_train=numbers.pre_nms_training,
        rpn_pre_nms_top_n_test=numbers.pre_nms_testing,
        rpn_post_nms_top_n_train=numbers.post_nms_training,
        rpn_post_nms_top_n_test=numbers.post_nms_testing,
        rpn_nms_thresh=numbers.proposal_overlap,
        rpn_fg_iou_thresh=numbers.rpn_thresholds[1],
        rpn_bg_iou_thresh=numbers.rpn_thresholds[0],
        rpn_batch_size_per_image=numbers.rpn_samples,
        rpn_positive_fraction=numbers.rpn_positive_share,
        box_roi_pool=MultiScaleRoIAlign(
            list(numbers.roi_levels), numbers.pool_size, numbers.pool_samples
        ),
        box_head=box_head,
        box_predictor=box_predictor,
        box_fg_iou_thresh=numbers.roi_thresholds[1],
        box_bg_iou_thresh=numbers.roi_thresholds[0],
        box_batch_size_per_image=numbers.roi_samples,
        box_positive_fraction=numbers.roi_positive_share,
        bbox_reg_weights=numbers.delta_weights,
    )


def _second_stage(
    channels: int, num_labels: int, numbers: DetectorNumbers
) -> tuple[nn.Module, nn.Module]:
    """Make the layers between pooling and prediction, and the predictor."""
    width, columns = numbers.representation, 1 + num_labels
    kind = AgnosticPredictor if numbers.is_class_agnostic else FastRCNNPredictor

    def make_layers() -> nn.Module:
        head: nn.Module = TwoMLPHead(channels * numbers.pool_size**2, width)
        return head

    if numbers.box_heads > 1:
        heads = WholeHeads(
            lambda: nn.Sequential(make_layers(), kind(width, columns)), numbers.box_heads
        )
        return nn.Identity(), heads
    first, predictor = make_layers(), kind(width, columns)
    if numbers.classifiers > 1:
        predictor = SeveralClassifiers(predictor, width, columns, numbers.classifiers)
    if numbers.has_spread:
        predictor = Spread(predictor, width)
    return first, predictor


def _fill(
    detector: Detector, architecture: Architecture, weights: str | Path | None, frozen_norm: bool
) -> None:
    if weights is None:
        if frozen_norm:
            calibrate_norms(detector.network.backbone)
    elif weights != "default":
        load_file(detector, Path(weights))
    elif isinstance(architecture.default, Path):
        load_file(detector, architecture.default)
    else:
        tensors = download_weights(architecture.default)
        load_tensors(detector, tensors, {}, architecture.default.url)


@torch.no_grad()
def calibrate_norms(backbone: nn.Module) -> None:
    """Set the frozen normalisations of a random backbone to the statistics of synthetic images.

    Without that, activations grow from block to block and a deep network cannot train. The images
    contain noise of several scales, because white noise averages out in the higher blocks.
    """

    def measure(norm: FrozenBatchNorm2d, inputs: tuple[Tensor, ...]) -> None:
        variance, mean = torch.var_mean(inputs[0], dim=(0, 2, 3))
        norm.running_mean.copy_(mean)
        # A channel without variance here may have variance on real images.
        norm.running_var.copy_(torch.maximum(variance, 0.01 * variance.mean()))

    norms = [module for module in backbone.modules() if isinstance(module, FrozenBatchNorm2d)]
    hooks = [norm.register_forward_pre_hook(measure) for norm in norms]
    backbone(_noise_of_many_scales())
    for hook in hooks:
        hook.remove()


def _noise_of_many_scales(images: int = 4, side: int = 128) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(images, 3, side, side)
    for cells in (1, 4, 16, side):
        noise = torch.randn(images, 3, cells, cells, generator=generator)
        total = total + F.interpolate(noise, size=(side, side), mode="nearest") / 2
    return total  # unit spread
