"""Steps of CA-BBC: gradients of the two heads, precision and state."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from boxmend.detector import Detector, RoiOutput, RoiSample, Targets
from boxmend.errors import UsageError
from boxmend.methods import equations
from boxmend.methods.peers.ca_bbc import CaBbc, box_gradient, losses_by_head, soft_box_loss
from boxmend.methods.protocol import SingleProcess
from boxmend.methods.steps import FirstStage, detach_features, run_first_stage
from boxmend.methods.table import (
    BatchAnnotations,
    Method,
    MethodInputs,
    Outcome,
    PublishedSettings,
    Rates,
    TrainingProgress,
    build,
)
from boxmend.runs.settings import CaBbcSettings
from tests.methods.method_batches import LATER, NUM_LABELS, WAITS, WARM_UP, Watch, random_batch
from tests.methods.peers.ca_bbc_scenes import LOSSES, QUICK, RATES, made, two_heads, work_on

pytestmark = pytest.mark.usefixtures("one_thread")


def mend_batch(
    method: Method,
    detector: Detector,
    annotations: BatchAnnotations,
    progress: TrainingProgress = LATER,
) -> Outcome:
    return method.losses(work_on(detector, annotations, progress))[0]


@pytest.mark.parametrize("progress", [WARM_UP, LATER], ids=["warm-up", "later"])
@pytest.mark.parametrize("num_annotations", [0, 1])
def test_images_without_annotations_work(num_annotations: int, progress: TrainingProgress) -> None:
    shape = (2, num_annotations)
    no = torch.zeros(shape, dtype=torch.bool)
    rows, sizes = torch.full(shape, -1), torch.full((2, 2), 100.0)
    annotations = BatchAnnotations(torch.full((*shape, 4), torch.nan), rows, no, no, rows, sizes)
    detector = two_heads()
    outcome, losses = made().losses(work_on(detector, annotations, progress))
    total = torch.stack(list(losses.values())).sum()
    total.backward()  # type: ignore[no-untyped-call]
    assert total.isfinite()
    assert outcome.boxes.shape == (*shape, 4)
    assert outcome.metrics["box_step"] == 0


@pytest.mark.parametrize("progress", [WARM_UP, LATER], ids=["warm-up", "later"])
def test_both_heads_and_all_layers_below_get_gradients(progress: TrainingProgress) -> None:
    detector, (annotations, _) = two_heads(), random_batch(9)
    outcome, losses = made(replace(QUICK, queue_length=1)).losses(
        work_on(detector, annotations, progress)
    )
    assert losses.keys() == LOSSES
    assert all(value.isfinite() and value > 0 for value in losses.values())
    parts = [outcome.boxes, outcome.matched, outcome.confidence, outcome.roi.boxes]
    assert not any(part.requires_grad for part in parts)
    network = detector.network
    assert all(
        parameter.grad is None for parameter in network.parameters()
    )  # the box step left nothing there
    torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
    gradients = {name: one.grad for name, one in network.named_parameters() if one.requires_grad}
    assert all(g is not None and g.isfinite().all() for g in gradients.values())
    heads = network.roi_heads.box_predictor.heads
    for part in (*heads, network.rpn, network.backbone):
        assert any(
            parameter.grad is not None and parameter.grad.any() for parameter in part.parameters()
        )
    first, second = (head[0].fc6.weight.grad for head in heads)
    assert not torch.equal(first, second)


class DrawnRois(Detector):
    """Record the boxes that are pooled."""

    seen: list[Tensor]

    def pool(self, features: Any, boxes: Tensor) -> Tensor:
        self.seen.append(boxes)
        return super().pool(features, boxes)


def test_each_head_trains_on_its_own_rois() -> None:
    plain, (annotations, _) = two_heads(), random_batch(9)
    detector = DrawnRois(plain.name, plain.network, plain.num_labels, plain.numbers)
    detector.seen = []
    made().losses(work_on(detector, annotations, WARM_UP))
    first, second = detector.seen[-1].chunk(2, dim=1)
    assert first.shape == second.shape == (3, detector.numbers.roi_samples, 4)
    assert not torch.equal(first, second)


def second_stage(
    detector: Detector, annotations: BatchAnnotations, targets: Targets
) -> dict[str, Tensor]:
    context = work_on(detector, annotations, LATER)
    with torch.no_grad():
        seen = run_first_stage(context)
        clean = FirstStage(detach_features(seen.features), seen.raw, seen.proposals)
        return losses_by_head(context, clean, targets)


def test_a_certain_soft_label_has_the_gradient_of_the_label() -> None:
    annotations, _ = random_batch(9)
    boxes, labels = annotations.boxes.nan_to_num(), annotations.labels.clamp(min=0)
    hard = Targets(boxes, labels, annotations.is_box, torch.zeros_like(annotations.is_box))
    certain = torch.eye(1 + NUM_LABELS)[labels + 1]
    one = second_stage(two_heads(), annotations, hard)
    other = second_stage(two_heads(), annotations, hard._replace(soft=certain))
    for name in ("roi_classes", "roi_boxes"):
        torch.testing.assert_close(one[name], other[name])


@pytest.mark.parametrize(("kind", "expected"), [("l1", 0.475), ("smooth_l1", 0.4513889)])
def test_the_regression_loss_weighs_every_class_by_the_soft_label(
    kind: str, expected: float
) -> None:
    # Two classes; the one positive wants (0, 0, 0, 1). Class 0 says (0.5, 0, 0, 1), class 1 says
    # (0, 0, 0, 3): sums of |d| 0.5 and 2; with beta = 1/9 each is 1/18 less: 0.4444 and 1.9444.
    # soft (0.1, 0.5, 0.35): 0.5 * 0.5 + 0.35 * 2 = 0.95; 0.5 * 0.44444 + 0.35 * 1.94444 = 0.90278;
    # over 2 sampled RoIs.
    detector = two_heads(num_labels=2)
    detector.numbers = replace(detector.numbers, box_loss=kind)
    deltas = torch.full((1, 3, 3, 4), 7.0)
    deltas[0, 0, 1] = torch.tensor([0.5, 0, 0, 1])
    deltas[0, 0, 2] = torch.tensor([0.0, 0, 0, 3])
    deltas[0, 2] = torch.nan  # padding
    rois = RoiSample(
        boxes=torch.zeros(1, 3, 4),
        matched=torch.tensor([[1, 0, 0]]),
        is_sampled=torch.tensor([[True, True, False]]),
        is_positive=torch.tensor([[True, False, False]]),
        labels=torch.zeros(1, 3, dtype=torch.int64),
        deltas=torch.tensor([[[0.0, 0, 0, 1], [0] * 4, [0] * 4]]),
    )
    yes = torch.ones(1, 2, dtype=torch.bool)
    soft = torch.tensor([[[1.0, 0, 0], [0.1, 0.5, 0.35]]])
    targets = Targets(torch.zeros(1, 2, 4), torch.zeros(1, 2).long(), yes, ~yes, soft)
    result = soft_box_loss(detector, RoiOutput(torch.zeros(1, 3, 3), deltas), rois, targets)
    assert result.item() == pytest.approx(expected, abs=1e-5)
    detector.sum_over_processes = lambda number: 2 * number  # another process has as many RoIs
    result = soft_box_loss(detector, RoiOutput(torch.zeros(1, 3, 3), deltas), rois, targets)
    assert result.item() == pytest.approx(expected / 2, abs=1e-5)


class Behind(SingleProcess):
    """Another process whose annotations come first, with slopes ten times as large."""

    def all_gather(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        slopes, is_box = tensors
        return torch.cat([10 * slopes, slopes]), torch.cat([is_box, is_box])


def test_slopes_are_those_of_all_processes() -> None:
    detector, (annotations, _) = two_heads(), random_batch(9)
    alone, one_of_two = made(CaBbcSettings(queue_length=64)), made(CaBbcSettings(queue_length=64))
    one_of_two.exchange = Behind()
    for method in (alone, one_of_two):
        mend_batch(method, detector, annotations)
    number = int((annotations.is_box & ~annotations.is_ignored).sum())
    own = alone.slopes[-number:]
    assert (own > 0).any()
    torch.testing.assert_close(one_of_two.slopes[-2 * number :], torch.cat([10 * own, own]))
    assert one_of_two.slopes[: -2 * number].isinf().all()


def test_half_precision_changes_little_about_the_step() -> None:
    detector, (annotations, _) = two_heads(), random_batch(11)
    method = made(replace(QUICK, queue_length=1))
    whole = mend_batch(method, detector, annotations)
    with torch.autocast("cpu", torch.bfloat16):
        half, losses = method.losses(work_on(detector, annotations, LATER))
    is_box = annotations.is_box
    assert all(value.isfinite() for value in losses.values())
    torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
    for head in detector.network.roi_heads.box_predictor.heads:
        assert all(
            parameter.grad is not None and parameter.grad.any() for parameter in head.parameters()
        )
    assert half.matched.dtype == torch.float32
    steps = (whole.matched - annotations.boxes)[is_box].abs()
    assert steps.max() > 3  # pixels
    for result, expected in ((half.matched, whole.matched), (half.boxes, whole.boxes)):
        off = (result - expected)[is_box].abs()
        assert off.max() < 0.75
        assert off.mean() < 0.15


def test_the_gradient_of_a_box_has_full_precision_in_any_step() -> None:
    detector, (annotations, _) = two_heads(), random_batch(9)
    annotations = annotations._replace(boxes=annotations.boxes.nan_to_num())
    features = detach_features(run_first_stage(work_on(detector, annotations, LATER)).features)
    whole = box_gradient(detector, features, annotations, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        half = box_gradient(detector, features, annotations, 0.1)
    assert whole[annotations.is_box].all()
    assert torch.equal(whole, half)


@pytest.mark.parametrize("progress", [WARM_UP, LATER], ids=["warm-up", "later"])
def test_nothing_waits_for_the_device(progress: TrainingProgress) -> None:
    detector, (annotations, _) = two_heads(), random_batch(9)
    method = build("ca-bbc", MethodInputs(15, NUM_LABELS))
    method.losses(work_on(detector, annotations, progress))  # what is made once
    with Watch() as watch:
        method.losses(work_on(detector, annotations, progress))
    assert watch.seen
    assert watch.seen.isdisjoint(WAITS)


@pytest.mark.parametrize("rates", [RATES, Rates()], ids=["known", "estimated"])
def test_a_method_resumes_from_its_state(rates: Rates) -> None:
    detector = two_heads()
    first, second = (build("ca-bbc", MethodInputs(15, NUM_LABELS, rates, QUICK)) for _ in range(2))
    for seed in range(2):
        mend_batch(first, detector, random_batch(seed)[0])
    first.end_epoch(2, is_warm_up=False)
    second.load_state_dict(first.state_dict())
    annotations, _ = random_batch(5)
    one, other = mend_batch(first, detector, annotations), mend_batch(second, detector, annotations)
    assert torch.equal(one.boxes, other.boxes)
    assert torch.equal(one.matched, other.matched)
    assert first.end_epoch(3, is_warm_up=False) == second.end_epoch(3, is_warm_up=False)


def test_a_state_is_a_snapshot() -> None:
    detector, method = two_heads(), made()
    state = method.state_dict()
    mend_batch(method, detector, random_batch(5)[0])
    assert state["slopes"].isinf().all()
    assert not method.state_dict()["slopes"].isinf().any()


def test_the_queue_keeps_its_memory_address() -> None:
    method, detector = made(), two_heads()
    place = method.slopes.data_ptr()
    mend_batch(method, detector, random_batch(1)[0])
    method.load_state_dict(method.state_dict())
    assert method.slopes.data_ptr() == place
    assert method.slopes.isfinite().all()


def test_a_state_of_another_length_is_refused() -> None:
    with pytest.raises(UsageError, match=r"a queue of 128 slopes, but ca_bbc\.queue_length is 4"):
        made().load_state_dict(made(CaBbcSettings()).state_dict())


def test_an_unknown_box_noise_is_estimated_and_sets_the_step() -> None:
    method, known = (
        build("ca-bbc", MethodInputs(15, NUM_LABELS, rates)) for rates in (Rates(), RATES)
    )
    assert isinstance(method, CaBbc)
    assert isinstance(known, CaBbc)
    assert known.estimator is None
    assert method.estimator is not None
    assert method.alpha == pytest.approx(0.06)
    for noise, alpha in ((0.2, 0.03), (0.01, 0.0)):  # next to none counts as none
        state = method.state_dict()
        state |= {"box_noise": noise, "box_bounds": torch.tensor([0.0, 0.3])}
        method.load_state_dict(state)
        assert method.alpha == pytest.approx(alpha)


def test_estimates_are_made_once_per_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    method = build("ca-bbc", MethodInputs(15, NUM_LABELS))
    assert isinstance(method, CaBbc)
    assert method.estimator is not None
    result = equations.BoxNoise(0.3, 0.1)
    monkeypatch.setattr("boxmend.methods.equations.fit_box_noise", lambda *arguments: result)
    mend_batch(method, two_heads(), random_batch(1)[0])
    assert method.end_epoch(0, is_warm_up=False).keys() >= {"box_noise", "label_noise"}
    assert method.alpha == pytest.approx(0.045)
    assert "box_noise" in method.report()


def test_settings_of_another_kind_are_refused() -> None:
    with pytest.raises(UsageError, match="ca-bbc takes CaBbcSettings, not PublishedSettings"):
        build("ca-bbc", MethodInputs(1, 1, settings=PublishedSettings()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objectness_weight": -1.0}, "ca_bbc.objectness_weight is -1.0"),
        ({"alpha": float("nan")}, "ca_bbc.alpha is nan"),
        ({"max_shift": 1.5}, "ca_bbc.max_shift is 1.5"),
        ({"regression_share": -0.1}, "ca_bbc.regression_share is -0.1"),
        ({"temperature": 0.0}, "ca_bbc.temperature is 0.0"),
        ({"queue_length": 0}, "ca_bbc.queue_length is 0"),
        ({"step_unit": "metres"}, "ca_bbc.step_unit is 'metres'"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CaBbcSettings(**changes)
