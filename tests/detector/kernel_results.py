"""Run by a test with TRITON_INTERPRET=1: kernels on the CPU against PyTorch's own operations.

Prints the largest difference of each.
"""

import torch
from torch import Tensor

from boxmend.detector import kernels
from boxmend.detector.boxes import pairwise_iou
from boxmend.detector.nms import suppress
from boxmend.detector.pooling import _places, level_of, pool
from tests.detector.detector_scenes import random_boxes

CANVAS = (64, 96)
STRIDES = (4, 8)


def levels() -> list[Tensor]:
    torch.manual_seed(5)
    return [
        torch.randn(2, 4, CANVAS[0] // stride, CANVAS[1] // stride).requires_grad_()
        for stride in STRIDES
    ]


def pooled_by_kernels(maps: list[Tensor], boxes: Tensor) -> Tensor:
    flat = boxes.flatten(0, 1)
    index = level_of(flat, STRIDES)
    local = flat / torch.tensor([float(stride) for stride in STRIDES])[index][:, None]
    images = torch.arange(len(boxes)).repeat_interleave(boxes.shape[1])
    cells = torch.cat([one.permute(0, 2, 3, 1).flatten(0, 2) for one in maps])
    return kernels.pool(cells, local, _places(maps, images, index), 3, 2)


def main() -> None:
    height, width = CANVAS
    edges = torch.tensor(
        [
            [0.0, 0, width, height],
            [width - 3, 0, width, height],
            [width - 0.5, height - 0.5, width, height],
            [0, 0, 0.002, 0.002],
            [width, height, width, height],
        ]
    )
    boxes = torch.stack(
        [torch.cat([random_boxes(6, CANVAS, seed, smallest=1), edges]) for seed in range(2)]
    )
    maps = levels()
    result, wanted = pooled_by_kernels(maps, boxes), pool(maps, boxes, CANVAS, size=3, samples=2)
    weights = torch.randn(wanted.shape)
    ours = torch.autograd.grad((result * weights).sum(), maps)
    theirs = torch.autograd.grad((wanted * weights).sum(), maps)
    print("pooled", float((result - wanted).abs().max()))
    print("gradient", max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)))

    map_with_grad = (
        torch.randn(2, 3, 5, 7).contiguous(memory_format=torch.channels_last).requires_grad_()
    )
    beside, shift = torch.randn(2, 3, 5, 7, requires_grad=True), torch.randn(3)
    for name, other in (("activated", None), ("with-shortcut", beside)):
        sum_of = map_with_grad + shift[:, None, None] + (0 if other is None else other)
        result, wanted = kernels.activate(map_with_grad, shift, other), torch.relu(sum_of)
        weights = torch.randn(wanted.shape)
        inputs = [map_with_grad] if other is None else [map_with_grad, other]
        pairs = zip(
            (result, *torch.autograd.grad((result * weights).sum(), inputs)),
            (wanted, *torch.autograd.grad((wanted * weights).sum(), inputs)),
            strict=True,
        )
        print(name, max(float((a - b).abs().max()) for a, b in pairs))

    many = torch.stack([random_boxes(70, CANVAS, seed, smallest=8) for seed in range(2)])
    groups = torch.arange(70).expand(2, 70) % 3
    expected = (pairwise_iou(many, many) > 0.3) & (groups[:, :, None] == groups[:, None])
    beats = kernels.suppressors(many, groups, 0.3, torch.float32)
    print("suppressors", float((beats - expected.triu(1).float()).abs().max()))
    plain = kernels.suppressors(many, None, 0.3, torch.float32)
    print(
        "ungrouped", float((plain - (pairwise_iou(many, many) > 0.3).triu(1).float()).abs().max())
    )
    print("some", float(beats.sum() > 10 and suppress(many, groups >= 0, overlap=0.3)[0].any()) - 1)


if __name__ == "__main__":
    main()
