"""Tiny and scripted detectors, and steps with them, for the tests of OA-MIL and DISCO."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from boxmend.detector import (
    DETECTORS,
    Detector,
    Features,
    Proposals,
    RoiOutput,
    RoiSample,
    RpnLosses,
    RpnOutput,
    SecondStageOutput,
    Targets,
    build,
)
from boxmend.methods.protocol import BoxScorer, Losses, StepContext
from boxmend.methods.table import METHODS, BatchAnnotations, TrainingProgress
from tests.methods.method_batches import NUM_LABELS, SIZE

CANVAS = 128
START, MIDDLE, LATE = (
    TrainingProgress(epoch=epoch, step=step, num_steps=120, warm_up_steps_left=0, num_epochs=12)
    for epoch, step in ((0, 0), (4, 45), (11, 115))
)


def tiny(name: str, seed: int = 0, **changes: Any) -> Detector:
    """The tiny detector that a method needs, with regressions that move boxes."""
    torch.manual_seed(seed)
    numbers = replace(DETECTORS["tiny"].numbers, **METHODS[name].detector, **changes)
    made = build("tiny", NUM_LABELS, numbers=numbers)
    for key, value in made.network.named_parameters():
        if key.endswith("bbox_pred.bias"):
            nn.init.normal_(value, std=0.5)
    return made


def lively(name: str, proposals: Proposals, **changes: Any) -> Detector:
    """A tiny detector with confident scores on these proposals: bags have several boxes."""
    made = tiny(name, roi_samples=120, **changes)
    for key, value in made.network.named_parameters():
        if key.endswith("cls_score.weight"):
            nn.init.normal_(value, std=1.0)
    made.proposals = lambda *_, **__: proposals  # type: ignore[method-assign]
    return made


def images(number: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand(number, 3, 16, 16, generator=generator)
    return nn.functional.interpolate(coarse, size=(CANVAS, CANVAS), mode="nearest")


def drawing(seed: int = 3) -> Callable[[torch.Size], Tensor]:
    """Random numbers that begin alike whatever the length of what is drawn."""
    generator = torch.Generator().manual_seed(seed)

    def draw(shape: torch.Size) -> Tensor:
        plenty = torch.rand(shape[0], 20_000, generator=generator)
        return plenty[:, : shape[1:].numel()].reshape(shape)

    return draw


def work_on(
    detector: Detector,
    annotations: BatchAnnotations,
    progress: TrainingProgress,
    shown: Tensor | None = None,
) -> StepContext:
    def scorer_on(features: Features) -> BoxScorer:
        def score(boxes: Tensor, /) -> SecondStageOutput:
            return detector.score(features, boxes, annotations.sizes)

        return score

    shown = images(len(annotations.boxes)) if shown is None else shown
    return StepContext(detector, shown, annotations, progress, drawing(), scorer_on)


def without_annotations(images: int = 2, num_annotations: int = 3) -> BatchAnnotations:
    no = torch.zeros(images, num_annotations, dtype=torch.bool)
    return BatchAnnotations(
        boxes=torch.full((images, num_annotations, 4), torch.nan),
        labels=torch.full((images, num_annotations), -7),
        is_box=no,
        is_ignored=no,
        rows=torch.full((images, num_annotations), -1),
        sizes=torch.full((images, 2), SIZE),
    )


def lengths(loss: Tensor, network: nn.Module) -> dict[str, float]:
    """How long the gradients of a loss are; those that there are none of are left out."""
    network.zero_grad(set_to_none=True)
    loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    gradients = {name: one.grad for name, one in network.named_parameters()}
    return {name: float(grad.norm()) for name, grad in gradients.items() if grad is not None}


def reached(loss: Tensor, network: nn.Module) -> set[str]:
    """Which parameters a loss has a gradient for."""
    return {name for name, length in lengths(loss, network).items() if length > 0}


def total(losses: Losses) -> Tensor:
    return torch.stack(list(losses.values())).sum()


class Scripted(Detector):
    """A detector of two classes with given RoIs and outputs, whose first stage has no losses.

    An output has for each RoI the probabilities of background and both classes, and the deltas of
    its class; the deltas of other classes are far out of range.
    """

    def __init__(self, rois: RoiSample, answers: list[list[tuple[list[float], list[float]]]]):
        numbers = replace(
            DETECTORS["tiny"].numbers, roi_samples=4, roi_positive_share=0.75, box_loss="l1"
        )
        super().__init__("scripted", None, 2, numbers)  # it has none
        self.rois, self.answers = rois, answers
        self.asked: list[Tensor] = []

    def features(self, images: Tensor, sizes: Tensor) -> Features:
        return Features({}, (CANVAS, CANVAS))

    def rpn(self, features: Features) -> RpnOutput:
        return RpnOutput(torch.zeros(1, 1), torch.zeros(1, 1, 4), torch.zeros(1, 4), (1,))

    def proposals(self, raw: RpnOutput, sizes: Tensor, *, training: bool = True) -> Proposals:
        no = torch.zeros(1, 1, dtype=torch.bool)
        return Proposals(torch.zeros(1, 1, 4), torch.zeros(1, 1), no, no[0])

    def rpn_losses(self, raw: RpnOutput, targets: Targets, keys: Tensor) -> RpnLosses:
        return RpnLosses(torch.zeros(()), torch.zeros(()))

    def sample_rois(self, proposals: Proposals, targets: Targets, keys: Tensor) -> RoiSample:
        return self.rois

    def roi_outputs(self, features: Features, boxes: Tensor) -> RoiOutput:
        self.asked.append(boxes.clone())
        answer = self.answers.pop(0)
        chances = torch.tensor([[chance for chance, _ in answer]])  # [1, K, 3]
        deltas = torch.full((1, len(answer), 3, 4), 77.0)
        for row, ((_, own), label) in enumerate(
            zip(answer, self.rois.labels[0].tolist(), strict=False)
        ):
            deltas[0, row, label + 1] = torch.tensor(own)
        return RoiOutput(chances.clamp(min=1e-9).log(), deltas)
