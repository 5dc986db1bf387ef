"""A tiny detector of two heads, and a ramp that it sees in a way worked out by hand."""

import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn

from boxmend.detector import DETECTORS, Detector, Features, SecondStageOutput, build
from boxmend.methods.peers.ca_bbc import CaBbc
from boxmend.methods.protocol import BoxScorer, StepContext
from boxmend.methods.table import METHODS, BatchAnnotations, Rates, TrainingProgress
from boxmend.runs.settings import CaBbcSettings
from tests.methods.method_batches import NUM_LABELS

CANVAS = 128
RATES = Rates(label=0.4, box=0.4)
LOSSES = {"rpn_objectness", "rpn_boxes", "roi_classes", "roi_boxes"}
QUICK = CaBbcSettings(queue_length=4)


def two_heads(seed: int = 0, num_labels: int = NUM_LABELS) -> Detector:
    """Random weights, with heads that tell boxes apart visibly."""
    torch.manual_seed(seed)
    numbers = replace(DETECTORS["tiny"].numbers, **METHODS["ca-bbc"].detector)
    made = build("tiny", num_labels, numbers=numbers)
    with torch.no_grad():
        for head in made.network.roi_heads.box_predictor.heads:
            head[1].cls_score.weight.mul_(8)
            head[1].bbox_pred.weight.mul_(3)
    return made


def images(number: int = 3, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(number, 3, 16, 16, generator=generator)
    return nn.functional.interpolate(coarse, size=(CANVAS, CANVAS), mode="bilinear")


def work_on(
    detector: Detector, annotations: BatchAnnotations, progress: TrainingProgress, seed: int = 3
) -> StepContext:
    """A step with random numbers of its own seed."""
    generator = torch.Generator().manual_seed(seed)

    def draw(shape: torch.Size) -> Tensor:
        return torch.rand(shape, generator=generator)

    def score(features: Features, boxes: Tensor, /) -> SecondStageOutput:
        return detector.score(features, boxes, annotations.sizes)

    def scorer_on(features: Features) -> BoxScorer:
        return partial(score, features)

    return StepContext(
        detector, images(len(annotations.boxes)), annotations, progress, draw, scorer_on
    )


RAMP_BOX = [8.0, 4, 24, 16]
RAMP_SLOPES = [0.06328125, 0.2109375, 0.06328125, 0.2109375]
"""Of L at that box, a pixel. The ramp 3 x + 10 y (in cells of 4 pixels) is pooled to its value at
the middle, 37, and rises by 3/8 and 10/8 a pixel of a side. The first head sees v = ln 3 there, an
object with q = 3/4, the second is undecided: L = 2 (q - 1/2)^2 + 0.1 (1 - q + 1/2), so that
dL/dv = (4 (q - 1/2) - 0.1) q (1 - q) = 0.9 * 0.1875 = 0.16875; times 3/8 and 10/8."""


def ramp_detector() -> Detector:
    """The parts of a detector that `box_gradient` uses, for one class."""

    def each(pooled: Tensor) -> list[tuple[Tensor, Tensor]]:
        value = pooled.flatten(1) - 37 + math.log(3)  # [n, 1]
        nothing = torch.zeros_like(value)
        return [
            (torch.cat([nothing, value], 1), nothing),
            (torch.cat([nothing, nothing], 1), nothing),
        ]

    numbers = SimpleNamespace(roi_levels=("0",), pool_size=1, pool_samples=2)
    predictor = SimpleNamespace(each=each)
    network: Any = SimpleNamespace(roi_heads=SimpleNamespace(box_predictor=predictor))
    return cast(Detector, SimpleNamespace(numbers=numbers, network=network))


def ramp_features() -> Features:
    rows, columns = torch.arange(8.0), torch.arange(10.0)
    return Features({"0": (3 * columns + 10 * rows[:, None])[None, None]}, (32, 40))


def made(settings: CaBbcSettings = QUICK, rates: Rates = RATES) -> CaBbc:
    return CaBbc(settings, rates)
