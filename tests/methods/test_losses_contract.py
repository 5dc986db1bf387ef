"""The contract of training steps, for every method in `METHODS`, on a tiny detector."""

from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor

from boxmend.detector import DETECTORS, Detector, build
from boxmend.methods.protocol import Losses, Outcome, SingleProcess, StepContext
from boxmend.methods.table import (
    METHODS,
    BatchAnnotations,
    Method,
    MethodInputs,
    Rates,
    TrainingProgress,
)
from boxmend.methods.table import build as build_method
from tests.methods.method_batches import WAITS, Watch, pad

pytestmark = pytest.mark.usefixtures("one_thread")

NUM_LABELS, ROWS, STEPS, PASSES = 3, 7, 120, 12
KNOWN = Rates(label=0.4, box=0.4)
LEDGER = ("verdict", "loss", "threshold", "confidence", "labels", "matched", "boxes", "is_kept")
MOMENTS = (0, 15, 29, 30, 60, 100, 119)  # steps: all phases of all methods are among them


@pytest.fixture(params=sorted(METHODS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@lru_cache(maxsize=4)
def pattern(asked: tuple[tuple[str, Any], ...]) -> Detector:
    torch.manual_seed(0)
    numbers = replace(DETECTORS["tiny"].numbers, **dict(asked))
    return build("tiny", NUM_LABELS, numbers=numbers)


def detector_for(name: str) -> Detector:
    made = pattern(tuple(sorted(METHODS[name].detector.items())))
    made.network.zero_grad(set_to_none=True)
    return made


def at(step: int) -> TrainingProgress:
    return TrainingProgress.at(step * PASSES // STEPS, step, STEPS, 0.25, PASSES)


def batch() -> BatchAnnotations:
    """Two images: three objects and one ignored in the first, one object in the second."""
    boxes = torch.zeros(2, 4, 4)
    boxes[0] = torch.tensor([[4, 4, 40, 44], [30, 20, 80, 60], [50, 5, 90, 30], [2, 40, 30, 62]])
    boxes[1, 0] = torch.tensor([20, 10, 60, 50])
    is_box = torch.tensor([[True, True, True, False], [True, False, False, False]])
    is_ignored = torch.tensor([[False, False, False, True], [False] * 4])
    rows = torch.tensor([[0, 1, 2, 3], [5, -1, -1, -1]])
    labels = torch.tensor([[0, 1, 2, 0], [1, 0, 0, 0]])
    return BatchAnnotations(
        boxes, labels, is_box, is_ignored, rows, torch.tensor([[64.0, 96.0]] * 2)
    )


def work_on(detector: Detector, annotations: BatchAnnotations, step: int) -> StepContext:
    generator = torch.Generator().manual_seed(step)
    images = torch.rand(2, 3, 64, 96, generator=torch.Generator().manual_seed(1))

    def scorer_on(features: Any) -> Any:
        return lambda boxes: detector.score(features, boxes, annotations.sizes)

    return StepContext(
        detector=detector,
        images=images,
        annotations=annotations,
        progress=at(step),
        draw=lambda shape: torch.rand(shape, generator=generator),
        scorer_on=scorer_on,
    )


def ready(name: str, step: int, rates: Rates = KNOWN) -> tuple[Method, Detector]:
    """Return a method that has taken one step in each epoch before this step."""
    detector = detector_for(name)
    method = build_method(name, MethodInputs(ROWS, NUM_LABELS, rates))
    method.prepare(detector)
    for epoch in range(at(step).epoch + 1):
        method.begin_epoch(epoch, detector)
        if epoch < at(step).epoch:
            with torch.no_grad():
                method.losses(work_on(detector, batch(), epoch * STEPS // PASSES))
            method.end_epoch(epoch, is_warm_up=False)
    return method, detector


def take_step(name: str, step: int, annotations: BatchAnnotations) -> tuple[Outcome, Losses]:
    method, detector = ready(name, step)
    return method.losses(work_on(detector, annotations, step))


@pytest.mark.parametrize("step", MOMENTS)
def test_losses_are_finite_scalars_with_gradients(name: str, step: int) -> None:
    method, detector = ready(name, step)
    outcome, losses = method.losses(work_on(detector, batch(), step))
    assert all(value.dim() == 0 and value.isfinite() for value in losses.values())
    total = sum(losses.values(), torch.zeros(()))
    total.backward()  # type: ignore[no-untyped-call]
    predictor = detector.network.roi_heads
    gradients = [
        parameter.grad for parameter in predictor.parameters() if parameter.grad is not None
    ]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert any(gradient.abs().sum() > 0 for gradient in gradients)
    assert all(value.dim() == 0 for value in outcome.metrics.values())


def test_the_names_of_losses_and_figures_never_change(name: str) -> None:
    listed = [take_step(name, step, batch()) for step in (0, 60, 119)]
    names = {tuple(losses) for _, losses in listed}
    assert len(names) == 1


@pytest.mark.parametrize("step", [0, 60, 119])
def test_the_ledger_has_a_row_for_every_annotation(name: str, step: int) -> None:
    annotations = batch()
    outcome, _ = take_step(name, step, annotations)
    for column in LEDGER:
        value: Tensor = getattr(outcome, column)
        assert not value.requires_grad
        wanted = (
            annotations.boxes.shape if column in ("matched", "boxes") else annotations.labels.shape
        )
        value.expand(wanted)
    is_ignored = annotations.is_ignored
    assert torch.equal(outcome.boxes[is_ignored], annotations.boxes[is_ignored])
    assert torch.equal(outcome.labels[is_ignored], annotations.labels[is_ignored])
    assert not outcome.is_kept[is_ignored].any()
    assert outcome.boxes[annotations.is_box].isfinite().all()
    assert ((outcome.labels >= 0) & (outcome.labels < NUM_LABELS)).all()


@pytest.mark.parametrize("step", [60, 119])
def test_padding_changes_no_loss(name: str, step: int) -> None:
    """Keys are drawn per candidate, so padding needs keys that agree on the other candidates."""
    annotations = batch()
    wider = pad(annotations, by=3)
    collected = []
    for one in (annotations, wider):
        method, detector = ready(name, step)
        context = work_on(detector, one, step)
        wide = torch.Generator().manual_seed(5)
        numbers = torch.rand(2, 100_000, generator=wide)
        context = replace(context, draw=partial(_first, numbers))
        collected.append(method.losses(context))
    (first, losses), (second, others) = collected
    for key, value in losses.items():
        torch.testing.assert_close(value, others[key], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(first.boxes, second.boxes[:, :4], rtol=1e-4, atol=1e-3)


def _first(numbers: Tensor, shape: torch.Size) -> Tensor:
    """Return numbers that depend on the position but not on the number of positions."""
    size = torch.Size(shape)[1:].numel()
    return numbers[:, :size].reshape(shape)


@pytest.mark.parametrize("step", [0, 60, 119])
def test_images_without_objects_go_through(name: str, step: int) -> None:
    annotations = batch()
    none = annotations._replace(
        is_box=annotations.is_box & False, is_ignored=annotations.is_ignored & False
    )
    outcome, losses = take_step(name, step, none)
    assert all(value.isfinite() for value in losses.values())
    assert not outcome.is_kept.any()


class Doubled(SingleProcess):
    """Simulate another process with the same counts."""

    def all_sum(self, tensor: Tensor, /) -> Tensor:
        return 2 * tensor


@pytest.mark.parametrize("step", [0, 60, 119])
def test_losses_are_divided_by_the_counts_of_all_processes(name: str, step: int) -> None:
    """The losses of all processes add up to the mean of the whole batch."""
    _, whole = take_step(name, step, batch())
    method, detector = ready(name, step)
    method.exchange = Doubled()
    detector.sum_over_processes = Doubled().all_sum
    try:
        _, halves = method.losses(work_on(detector, batch(), step))
    finally:
        detector.sum_over_processes = SingleProcess().all_sum
    for key, value in whole.items():
        torch.testing.assert_close(2 * halves[key], value)


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("step", [60, 119])
def test_very_small_boxes_give_finite_values(name: str, step: int, half: bool) -> None:
    """Without extent, thinner than a pixel, the whole image, and a sliver in its corner."""
    annotations = batch()
    boxes = annotations.boxes.clone()
    boxes[0, :3] = torch.tensor([[10, 10, 10, 10], [10, 10, 10.001, 30], [0, 0, 96, 64.0]])
    boxes[1, 0] = torch.tensor([95.99, 63.99, 96, 64])
    method, detector = ready(name, step)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        outcome, losses = method.losses(work_on(detector, annotations._replace(boxes=boxes), step))
    assert all(value.isfinite() for value in losses.values())
    sum(losses.values(), torch.zeros(())).backward()  # type: ignore[no-untyped-call]
    gradients = [
        parameter.grad for parameter in detector.network.parameters() if parameter.grad is not None
    ]
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert outcome.boxes[annotations.is_box].isfinite().all()
    assert outcome.matched[annotations.is_box].isfinite().all()
    assert not any(value.isnan() for value in outcome.metrics.values())


@pytest.mark.parametrize("rates", [KNOWN, Rates()], ids=["known", "unknown"])
@pytest.mark.parametrize("step", [0, 60, 119])
def test_no_step_waits_for_the_device(name: str, step: int, rates: Rates) -> None:
    method, detector = ready(name, step, rates)
    context = work_on(detector, batch(), step)
    method.losses(context)  # what is made once and kept
    with Watch() as watch:
        method.losses(context)
    assert watch.seen
    assert watch.seen.isdisjoint(WAITS)


def test_a_method_continues_exactly_from_its_state(name: str) -> None:
    first, detector = ready(name, 60)
    second = build_method(name, MethodInputs(ROWS, NUM_LABELS, KNOWN))
    second.prepare(detector)
    second.load_state_dict(first.state_dict())
    for step in (60, 61):
        one, losses = first.losses(work_on(detector, batch(), step))
        other, others = second.losses(work_on(detector, batch(), step))
        assert all(torch.equal(value, others[key]) for key, value in losses.items())
        assert torch.equal(one.boxes, other.boxes)
        assert torch.equal(one.verdict, other.verdict)
    ours, its = first.state_dict(), second.state_dict()
    for key, value in ours.items():
        torch.testing.assert_close(value, its[key], rtol=0, atol=0, equal_nan=True)
