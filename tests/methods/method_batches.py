"""Small batches and made-up scorers for the tests of methods."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from boxmend.detector import Proposals, RoiSample, SecondStageOutput
from boxmend.methods.table import BatchAnnotations, TrainingProgress

WAITS = {"aten._local_scalar_dense", "aten.nonzero", "aten.masked_select", "aten.unique2"}
NAN = math.nan
NUM_LABELS = 3
SIZE = 100.0
WARM_UP = TrainingProgress(epoch=0, step=0, num_steps=100, warm_up_steps_left=25)
LATER = TrainingProgress(epoch=1, step=50, num_steps=100, warm_up_steps_left=0)


class TableScorer:
    """A scorer that returns the next of some tables at every call, whatever the boxes are."""

    def __init__(self, *tables: SecondStageOutput):
        self.tables = list(tables)
        self.asked: list[Tensor] = []

    def __call__(self, boxes: Tensor, /) -> SecondStageOutput:
        self.asked.append(boxes.clone())
        return self.tables.pop(0)


class WaveScorer:
    """A smooth made-up detector: scores and regressions from the coordinates of a box."""

    def __init__(self, num_labels: int = NUM_LABELS):
        generator = torch.Generator().manual_seed(7)
        self.frequencies = 0.02 + 0.2 * torch.rand(4, 1 + num_labels, generator=generator)
        self.moves = 6 * torch.rand(num_labels, 4, generator=generator) - 3

    def __call__(self, boxes: Tensor, /) -> SecondStageOutput:
        assert boxes.isfinite().all()  # padding goes no further than the method
        logits = 2.5 * torch.sin(boxes @ self.frequencies)
        regressed = (boxes[:, :, None] + self.moves).clamp(0, SIZE)
        return SecondStageOutput(logits, logits.softmax(-1), regressed)


def table(
    probabilities: list[list[float]], boxes: list[list[float]] | None = None
) -> SecondStageOutput:
    """Scores of one image; boxes [K, 4] are the regressions for every class."""
    chances = torch.tensor([probabilities])
    count, width = chances.shape[1:]
    if boxes is None:
        boxes = [[0.0, 0, 10, 10]] * count
    regressed = torch.tensor([boxes])[:, :, None].expand(1, count, width - 1, 4)
    return SecondStageOutput(chances.clamp(min=1e-9).log(), chances, regressed)


def one_image(
    boxes: list[list[float]], labels: list[int], rows: list[int] | None = None
) -> BatchAnnotations:
    count = len(boxes)
    return BatchAnnotations(
        boxes=torch.tensor([boxes]),
        labels=torch.tensor([labels]),
        is_box=torch.ones(1, count, dtype=torch.bool),
        is_ignored=torch.zeros(1, count, dtype=torch.bool),
        rows=torch.tensor([rows if rows is not None else list(range(count))]),
        sizes=torch.tensor([[SIZE, SIZE]]),
    )


def proposals_of(boxes: list[list[float]], objectness: list[float]) -> Proposals:
    count = len(boxes)
    is_proposal = torch.ones(1, count, dtype=torch.bool)
    is_inexact = torch.zeros(1, dtype=torch.bool)
    return Proposals(
        torch.tensor([boxes]).reshape(1, count, 4),
        torch.tensor([objectness]).reshape(1, count),
        is_proposal,
        is_inexact,
    )


NOTHING = proposals_of([], [])


def random_batch(
    seed: int, images: int = 3, num_annotations: int = 5
) -> tuple[BatchAnnotations, Proposals]:
    """Images with and without annotations, one of them ignored; padding holds NaN."""
    generator = torch.Generator().manual_seed(seed)

    def boxes(count: int) -> Tensor:
        low = 60 * torch.rand(images, count, 2, generator=generator)
        sides = 10 + 30 * torch.rand(images, count, 2, generator=generator)
        return torch.cat([low, low + sides], dim=-1)

    annotated = boxes(num_annotations)
    numbers = torch.tensor([num_annotations, max(num_annotations - 2, 0), 0])[:images]
    is_real = torch.arange(num_annotations) < numbers[:, None]
    is_ignored = torch.zeros_like(is_real)
    is_ignored[0, -1] = True
    labels = torch.randint(NUM_LABELS, (images, num_annotations), generator=generator)
    rows = torch.arange(images * num_annotations).view(images, num_annotations)
    moved = annotated[:, :, None] + 4 * torch.randn(
        images, num_annotations, 4, 4, generator=generator
    )
    offered = torch.cat([moved.flatten(1, 2), boxes(6)], dim=1).clamp(0, SIZE)
    count = offered.shape[1]
    is_proposal = torch.arange(count) < torch.tensor([count, count - 3, 0])[:images, None]
    annotations = BatchAnnotations(
        boxes=torch.where(is_real[..., None], annotated, NAN),
        labels=torch.where(is_real, labels, -7),
        is_box=is_real & ~is_ignored,
        is_ignored=is_ignored,
        rows=torch.where(is_real, rows, -1),
        sizes=torch.full((images, 2), SIZE),
    )
    objectness = torch.rand(images, count, generator=generator)
    return annotations, Proposals(
        torch.where(is_proposal[..., None], offered, NAN),
        torch.where(is_proposal, objectness, NAN),
        is_proposal,
        torch.zeros(images, dtype=torch.bool),
    )


def pad(annotations: BatchAnnotations, by: int) -> BatchAnnotations:
    """The same batch with hostile padding at the end of each image."""
    images = annotations.boxes.shape[0]
    no = torch.zeros(images, by, dtype=torch.bool)
    return BatchAnnotations(
        boxes=torch.cat([annotations.boxes, torch.full((images, by, 4), NAN)], dim=1),
        labels=torch.cat([annotations.labels, torch.full((images, by), 99)], dim=1),
        is_box=torch.cat([annotations.is_box, no], dim=1),
        is_ignored=torch.cat([annotations.is_ignored, no], dim=1),
        rows=torch.cat([annotations.rows, torch.full((images, by), -1)], dim=1),
        sizes=annotations.sizes,
    )


def rois_of(labels: list[int], is_positive: list[bool]) -> RoiSample:
    count = len(labels)
    return RoiSample(
        boxes=torch.zeros(1, count, 4),
        matched=torch.zeros(1, count, dtype=torch.int64),
        is_sampled=torch.ones(1, count, dtype=torch.bool),
        is_positive=torch.tensor([is_positive]),
        labels=torch.tensor([labels]),
        deltas=torch.zeros(1, count, 4),
    )


def noisy_evidence(rate: float, count: int = 3000, tau: float = 1.0) -> tuple[Tensor, Tensor]:
    """Evidence p [n, 4] such that p^tau are the true chances, and labels wrong at the rate."""
    generator = torch.Generator().manual_seed(0)
    chances = (4 * torch.randn(count, 4, generator=generator)).softmax(-1)
    truth = torch.multinomial(chances, 1, generator=generator)[:, 0]
    is_wrong = torch.rand(count, generator=generator) < rate
    moves = torch.randint(1, 4, (count,), generator=generator)
    labels = torch.where(is_wrong, (truth + moves) % 4, truth)
    return (chances.log() / tau).softmax(-1), labels


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Record operations that would wait for the device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(str(func.overloadpacket))
        masks = args[1] if "index" in str(func) and len(args) > 1 else ()
        if isinstance(masks, list | tuple):
            assert not any(isinstance(m, Tensor) and m.dtype == torch.bool for m in masks)
        return func(*args, **(kwargs or {}))
