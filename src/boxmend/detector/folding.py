"""ResNets with a feature pyramid, with frozen normalisations folded into the convolutions.

A frozen normalisation is y = s x + t with s = w / sqrt(v + eps) and t = b - m s, so that
norm(conv(x, W)) = conv(x, s W) + t. torchvision's module applies it to every activation in float32,
which takes longer than the convolutions. Here only weights are scaled, and activations keep the
working precision from the image to the pyramid.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.resnet import BasicBlock, Bottleneck
from torchvision.ops import FrozenBatchNorm2d

from boxmend.detector.gpu import kernels_for

STAGES = ("layer1", "layer2", "layer3", "layer4")


def is_foldable(backbone: nn.Module) -> bool:
    """Return whether a backbone is a ResNet with a feature pyramid and frozen normalisations."""
    if not isinstance(backbone, BackboneWithFPN):
        return False
    body: Any = backbone.body
    if list(body.return_layers) != list(STAGES) or not isinstance(body.bn1, FrozenBatchNorm2d):
        return False
    blocks = [block for stage in STAGES for block in body[stage]]
    return all(isinstance(block, BasicBlock | Bottleneck) for block in blocks)


def folded_maps(backbone: nn.Module, images: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    """Compute the maps of `backbone(images)`, in `dtype` throughout."""
    own: Any = backbone
    layout = torch.channels_last if images.is_cuda else torch.contiguous_format
    with torch.autocast(images.device.type, enabled=False):
        features = images.to(dtype, memory_format=layout)
        features = _activated_conv(features, own.body.conv1, own.body.bn1)
        features = own.body.maxpool(features)
        levels = []
        for stage in STAGES:
            for block in own.body[stage]:
                features = _block(features, block)
            levels.append(features)
        return _pyramid(own.fpn, levels, list(own.body.return_layers.values()))


def _block(features: Tensor, block: Any) -> Tensor:
    """Apply a residual block: two convolutions, or three in a bottleneck, plus the shortcut."""
    shortcut = features
    if block.downsample is not None:
        shortcut = _normalised_conv(features, *block.downsample)
    pairs = [(block.conv1, block.bn1), (block.conv2, block.bn2)]
    if isinstance(block, Bottleneck):
        pairs.append((block.conv3, block.bn3))
    for conv, norm in pairs[:-1]:
        features = _activated_conv(features, conv, norm)
    return _activated_conv(features, *pairs[-1], shortcut)


def _activated_conv(
    features: Tensor, conv: Any, norm: Any, shortcut: Tensor | None = None
) -> Tensor:
    """Apply convolution, normalisation, shortcut and ReLU."""
    kernels = kernels_for(features)
    if kernels is not None:
        weight, shift = _fold(conv, norm)
        out: Tensor = kernels.activate(_conv(features, conv, weight, None), shift, shortcut)
        return out
    features = _normalised_conv(features, conv, norm)
    return F.relu(features if shortcut is None else features.add_(shortcut), inplace=True)


def _normalised_conv(features: Tensor, conv: Any, norm: Any) -> Tensor:
    return _conv(features, conv, *_fold(conv, norm))


def _fold(conv: Any, norm: Any) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a convolution with its normalisation."""
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    return conv.weight * scale[:, None, None, None], norm.bias - norm.running_mean * scale


def _conv(features: Tensor, conv: Any, weight: Tensor, bias: Tensor | None) -> Tensor:
    layout = torch.channels_last if features.is_cuda else torch.contiguous_format
    return F.conv2d(
        features,
        weight.to(features.dtype, memory_format=layout),
        None if bias is None else bias.to(features.dtype),
        conv.stride,
        conv.padding,
        conv.dilation,
        conv.groups,
    )


def _pyramid(fpn: Any, levels: list[Tensor], names: list[str]) -> dict[str, Tensor]:
    """Compute the feature pyramid on levels from fine to coarse, plus a subsampled level."""
    above: Tensor | None = None
    maps = []
    for level in reversed(range(len(levels))):
        inner, outer = fpn.inner_blocks[level][0], fpn.layer_blocks[level][0]
        here = _conv(levels[level], inner, inner.weight, inner.bias)
        if above is not None:
            here = here + F.interpolate(above, size=here.shape[-2:], mode="nearest")
        maps.append(_conv(here, outer, outer.weight, outer.bias))
        above = here
    maps = maps[::-1]
    return {**dict(zip(names, maps, strict=True)), "pool": maps[-1][..., ::2, ::2].contiguous()}
