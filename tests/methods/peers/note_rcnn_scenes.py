"""A tiny detector of three classifiers with its twin, and batches for the tests of NOTE-RCNN."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from boxmend.detector import DETECTORS, Detector, Features, SecondStageOutput, build
from boxmend.methods.peers.note_rcnn import NoteRcnn
from boxmend.methods.protocol import BoxScorer, StepContext
from boxmend.methods.table import METHODS, BatchAnnotations, TrainingProgress
from boxmend.runs.settings import NoteRcnnSettings
from tests.methods.method_batches import SIZE

NUM_LABELS, ROWS, CANVAS, BATCHES = 3, 15, 128, 10
PLAIN = TrainingProgress(epoch=0, step=5, num_steps=3 * BATCHES, warm_up_steps_left=0, num_epochs=3)
APART = TrainingProgress(
    epoch=1, step=15, num_steps=3 * BATCHES, warm_up_steps_left=0, num_epochs=3
)
LOSSES = ("rpn_objectness", "rpn_boxes", "roi_classes", "roi_seed", "roi_distilled", "roi_boxes")


def detector_of_three(seed: int = 0) -> Detector:
    """Random weights; regressions differ from nothing, so that box losses have gradients."""
    torch.manual_seed(seed)
    asked = METHODS["note-rcnn"].detector
    made = build("tiny", NUM_LABELS, numbers=replace(DETECTORS["tiny"].numbers, **asked))
    method().prepare(made)
    return made


def method(settings: NoteRcnnSettings = NoteRcnnSettings()) -> NoteRcnn:  # noqa: B008  # frozen
    return NoteRcnn(ROWS, NUM_LABELS, settings)


def with_seeds(
    *rows: int,
    settings: NoteRcnnSettings = NoteRcnnSettings(),  # noqa: B008  # frozen
) -> NoteRcnn:
    """A method whose seeds are the annotations of these rows."""
    made = method(settings)
    state = made.state_dict()
    state["is_seed"][list(rows)] = True
    state["num_epochs"] = 3
    made.load_state_dict(state)
    return made


def images(number: int = 3, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(number, 3, 16, 16, generator=generator)
    return nn.functional.interpolate(coarse, size=(CANVAS, CANVAS), mode="nearest")


def work_on(
    detector: Detector,
    annotations: BatchAnnotations,
    progress: TrainingProgress,
    shown: Tensor | None = None,
) -> StepContext:
    """A step with random numbers of its own seed."""
    generator = torch.Generator().manual_seed(3)

    def draw(shape: torch.Size) -> Tensor:
        return torch.rand(shape, generator=generator)

    def score(features: Features, boxes: Tensor, /) -> SecondStageOutput:
        return detector.score(features, boxes, annotations.sizes)

    def scorer_on(features: Features) -> BoxScorer:
        return partial(score, features)

    shown = images(len(annotations.boxes)) if shown is None else shown
    return StepContext(detector, shown, annotations, progress, draw, scorer_on)


def empty(number: int = 2, num_annotations: int = 0) -> BatchAnnotations:
    """Images without annotations."""
    shape = (number, num_annotations)
    no = torch.zeros(shape, dtype=torch.bool)
    return BatchAnnotations(
        boxes=torch.full((*shape, 4), torch.nan),
        labels=torch.full(shape, -7),
        is_box=no,
        is_ignored=no,
        rows=torch.full(shape, -1),
        sizes=torch.full((number, 2), SIZE),
    )


def norms(module: nn.Module) -> dict[str, float]:
    """How long the gradients of the parameters are; those that have none are left out."""
    gradients = {name: one.grad for name, one in module.named_parameters()}
    return {name: float(grad.norm()) for name, grad in gradients.items() if grad is not None}
