"""Steps of co-teaching on the tiny detector: targets of both networks, and the ledger."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from boxmend.detector import DETECTORS, Detector, build
from boxmend.errors import UsageError
from boxmend.methods.peers.co_teaching import CoTeaching, forget_rate
from boxmend.methods.protocol import Losses, StepContext
from boxmend.methods.table import (
    METHODS,
    BatchAnnotations,
    MendSettings,
    MethodInputs,
    Outcome,
    Rates,
    TrainingProgress,
)
from boxmend.methods.table import build as build_method
from boxmend.runs.judgement import Judgement
from boxmend.runs.settings import CoTeachingSettings
from tests.methods.method_batches import NUM_LABELS, WAITS, Watch, pad, random_batch

pytestmark = pytest.mark.usefixtures("one_thread")

CANVAS = 128
FIRST = TrainingProgress(epoch=0, step=0, num_steps=30, warm_up_steps_left=0, num_epochs=3)
LAST = TrainingProgress(epoch=2, step=25, num_steps=30, warm_up_steps_left=0, num_epochs=3)
OF_A = {"rpn_objectness", "rpn_boxes", "roi_classes", "roi_boxes"}
OF_B = {f"{name}_b" for name in OF_A}


@cache
def two_networks(num_rois: int = 40) -> Detector:
    """Random weights; of the RoIs of an image a quarter may be positive."""
    torch.manual_seed(0)
    asked = {**METHODS["co-teaching"].detector, "roi_samples": num_rois}
    made = build("tiny", NUM_LABELS, numbers=replace(DETECTORS["tiny"].numbers, **asked))
    made.network.train()
    return made


def step(annotations: BatchAnnotations, progress: TrainingProgress = LAST) -> StepContext:
    """A step whose random numbers for the first columns are the same for any number of columns."""
    generator, detector = torch.Generator().manual_seed(3), two_networks()
    coarse = torch.rand(len(annotations.boxes), 3, 16, 16, generator=generator)

    def draw(shape: torch.Size) -> Tensor:
        return torch.rand(shape[0], 5000, generator=generator)[:, : shape[1]]

    return StepContext(
        detector=detector,
        images=nn.functional.interpolate(coarse, size=(CANVAS, CANVAS)),
        annotations=annotations,
        progress=progress,
        draw=draw,
        scorer_on=lambda features: lambda boxes: detector.score(features, boxes, annotations.sizes),
    )


def batch(seed: int = 9, num_annotations: int = 5) -> BatchAnnotations:
    return random_batch(seed, num_annotations=num_annotations)[0]


def with_limits(limit_a: float = torch.inf, limit_b: float = torch.inf) -> CoTeaching:
    """Return a method whose recent losses are all equal, so that they are the limits."""
    method = build_method("co-teaching", MethodInputs(15, NUM_LABELS, Rates(label=0.4, box=0.4)))
    assert isinstance(method, CoTeaching)
    queues = {"queue_a": torch.full((128,), limit_a), "queue_b": torch.full((128,), limit_b)}
    method.load_state_dict(queues)
    return method


def gradients(loss: Tensor) -> dict[str, Tensor]:
    """Return the gradient of each parameter that has one."""
    named = [(key, one) for key, one in two_networks().network.named_parameters()]
    gradients = torch.autograd.grad(loss, [one for _, one in named], allow_unused=True)
    return {
        key: one
        for (key, _), one in zip(named, gradients, strict=True)
        if one is not None and one.abs().sum() > 0
    }


def assert_same_losses(one: Losses, other: Losses) -> None:
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("progress", [FIRST, LAST], ids=["first", "last"])
def test_losses_are_finite_scalars_of_the_same_names(progress: TrainingProgress) -> None:
    _, losses = with_limits(2, 2).losses(step(batch(), progress))
    assert losses.keys() == OF_A | OF_B
    assert all(loss.isfinite() and loss.dim() == 0 and loss > 0 for loss in losses.values())


def test_each_network_trains_only_on_its_own_losses() -> None:
    _, losses = with_limits(2, 2).losses(step(batch()))
    of_a = gradients(sum((losses[name] for name in OF_A), torch.zeros(())))
    of_b = gradients(sum((losses[name] for name in OF_B), torch.zeros(())))
    assert not any(key.startswith("twin.") for key in of_a)
    assert all(key.startswith("twin.") for key in of_b)
    assert {f"twin.{key}" for key in of_a} == set(of_b)  # the same parts of both
    for part in ("backbone.stem", "rpn.head.bbox_pred", "box_predictor.cls_score"):
        assert any(part in key for key in of_a)


@pytest.mark.parametrize(("judge", "learner"), [("a", "_b"), ("b", "")])
def test_annotations_that_one_network_drops_do_not_train_the_other(
    judge: str, learner: str
) -> None:
    annotations = batch()
    all_kept = with_limits().losses(step(annotations))[1]
    losses = with_limits(**{f"limit_{judge}": 0.0}).losses(step(annotations))[
        1
    ]  # it drops everything
    assert losses[f"roi_boxes{learner}"] == 0
    assert losses[f"roi_classes{learner}"] != all_kept[f"roi_classes{learner}"]
    assert losses[f"roi_classes{learner}"] > 0  # of the background
    changed = {f"roi_boxes{learner}", f"roi_classes{learner}"}
    for name in all_kept.keys() - changed:
        assert losses[name] == all_kept[name]


def test_without_dropping_it_is_faster_rcnn_twice() -> None:
    """Nothing is dropped while too few losses are known, or in the first epoch."""
    annotations, detector = batch(), two_networks()
    losses = with_limits().losses(step(annotations))[1]
    assert_same_losses(losses, with_limits(0, 0).losses(step(annotations, FIRST))[1])
    context = step(annotations)
    targets = with_limits().losses(step(annotations))[0].rpn
    for suffix, one in (("", detector), ("_b", detector.twin)):
        features = one.features(context.images, annotations.sizes)
        raw = one.rpn(features)
        proposals = one.proposals(raw, annotations.sizes)
        rpn = one.rpn_losses(raw, targets, context.draw(raw.objectness.shape))
        number = proposals.boxes.shape[1] + 5
        rois = one.sample_rois(proposals, targets, context.draw(torch.Size((3, number))))
        roi = one.roi_losses(one.roi_outputs(features, rois.boxes), rois, targets)
        assert losses[f"rpn_objectness{suffix}"] == rpn.objectness
        assert losses[f"rpn_boxes{suffix}"] == rpn.boxes
        torch.testing.assert_close(losses[f"roi_classes{suffix}"], roi.classification)
        torch.testing.assert_close(losses[f"roi_boxes{suffix}"], roi.boxes)


def test_the_ledger_has_the_judgement_that_the_detector_trained_on() -> None:
    annotations = batch()
    outcome, _ = with_limits(limit_b=2.0).losses(step(annotations))
    is_judged = outcome.verdict != int(Judgement.UNJUDGED)
    assert is_judged.sum() >= 5
    assert torch.equal(is_judged, annotations.is_box & outcome.loss.isfinite())
    is_out = outcome.verdict == int(Judgement.DISCARDED)
    assert 0 < is_out.sum() < is_judged.sum()
    assert torch.equal(is_out, outcome.loss > outcome.threshold)
    assert (outcome.threshold[is_judged] == 2.0).all()
    assert torch.equal(is_out[is_judged], ~outcome.is_kept[is_judged])
    assert torch.equal(outcome.rpn.is_real, annotations.is_box)
    assert torch.equal(outcome.roi.is_real, outcome.is_kept)
    assert torch.equal(
        outcome.roi.is_ignored & annotations.is_box, annotations.is_box & ~outcome.is_kept
    )
    assert outcome.metrics["dropped"] == (annotations.is_box & ~outcome.is_kept).sum() / 7
    assert outcome.metrics["dropped_b"] == 0
    assert outcome.metrics["threshold"] == 2.0


def test_annotations_that_only_the_peer_has_sampled_are_kept() -> None:
    """Two positive RoIs in an image of four annotations; what is drawn exceeds a limit of 0."""
    annotations, method = batch(), with_limits(0, 0)
    outcome, _ = method.losses(replace(step(annotations), detector=two_networks(8)))
    number = int(annotations.is_box.sum())
    by_a, by_b = (int((queue > 0).sum()) for queue in method.state_dict().values())
    assert by_b == outcome.loss.isfinite().sum() < number
    is_kept = outcome.is_kept[annotations.is_box]
    assert 0 < is_kept.sum() < number
    assert not (outcome.is_kept & outcome.loss.isfinite()).any()
    # Each drops what it has drawn, and both drop what neither has.
    by_neither = [
        round(number * float(outcome.metrics[name])) - drawn
        for name, drawn in (("dropped", by_b), ("dropped_b", by_a))
    ]
    assert by_neither[0] == by_neither[1] == number - by_b - is_kept.sum()


def test_labels_and_boxes_are_unchanged() -> None:
    annotations = batch()
    outcome, _ = with_limits(2, 2).losses(step(annotations))
    is_real = annotations.is_box | annotations.is_ignored
    assert torch.equal(outcome.labels[is_real], annotations.labels[is_real])
    for boxes in (outcome.boxes, outcome.matched):
        assert torch.equal(boxes[is_real], annotations.boxes[is_real])
    assert outcome.confidence.isnan().all()
    assert (outcome.num_candidates == 0).all()


def test_the_first_epoch_judges_no_annotation_but_records_losses() -> None:
    annotations = batch()
    outcome, _ = with_limits(0, 0).losses(step(annotations, FIRST))
    assert (outcome.verdict == int(Judgement.UNJUDGED)).all()
    assert torch.equal(outcome.is_kept, annotations.is_box)
    assert outcome.threshold.isnan().all()
    assert outcome.loss[annotations.is_box].isfinite().sum() >= 5
    assert all(value.isfinite() for value in outcome.metrics.values())  # the log has no infinity


def test_a_forget_rate_of_zero_judges_no_annotation() -> None:
    method = CoTeaching(CoTeachingSettings(), Rates(0.0, 0.0))
    method.load_state_dict({"queue_a": torch.zeros(128), "queue_b": torch.zeros(128)})
    outcome, _ = method.losses(step(batch()))
    assert (outcome.verdict == int(Judgement.UNJUDGED)).all()


def test_each_network_stores_its_own_losses_with_the_latest_last() -> None:
    annotations, method = batch(), with_limits(5, 7)
    outcome, _ = method.losses(step(annotations))
    of_a, of_b = method.state_dict().values()
    own_losses = outcome.loss[annotations.is_box & outcome.loss.isfinite()]
    assert torch.equal(
        of_b[-len(own_losses) :], own_losses
    )  # of images and, within them, of annotations
    assert (of_b[: -len(own_losses)] == 7).all()
    new = of_a[of_a != 5]
    assert 5 <= len(new) <= int(annotations.is_box.sum())
    assert not torch.equal(new, own_losses)


@pytest.mark.parametrize(("share", "place"), [(0.4, 75), (0.5, 63), (0.0001, 126)])
def test_the_limit_is_the_entry_of_the_sorted_queue_that_the_share_leaves(
    share: float, place: int
) -> None:
    """Number floor(R N), counted from 1: 76 at R = 0.6, 64 at 0.5, 127 at 0.9999."""
    method = CoTeaching(CoTeachingSettings(forget_rate=share, ramp_share=0))
    entries = torch.arange(128.0)
    method.load_state_dict({"queue_a": entries.flip(0), "queue_b": entries})
    outcome, _ = method.losses(step(batch()))
    assert outcome.metrics["threshold"] == outcome.metrics["threshold_b"] == place


def test_padding_is_inert() -> None:
    annotations = batch()
    one, other = with_limits(2, 2), with_limits(2, 2)
    outcome, losses = one.losses(step(annotations))
    wider, same = other.losses(step(pad(annotations, by=3)))
    assert_same_losses(losses, same)
    for key, value in one.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[key])
    assert torch.equal(wider.verdict[:, :5], outcome.verdict)
    assert not wider.rpn.is_box[:, 5:].any()
    assert not wider.roi.is_box[:, 5:].any()
    assert not wider.is_kept[:, 5:].any()


def test_ignored_annotations_are_untouched_and_leave_no_trace() -> None:
    annotations = batch()
    one, other = with_limits(0, 0), with_limits(0, 0)
    outcome, _ = one.losses(step(annotations))
    other.losses(step(annotations._replace(is_ignored=annotations.is_ignored & False)))
    for key, value in one.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[key])
    row = annotations.is_ignored
    assert (outcome.verdict[row] == int(Judgement.UNJUDGED)).all()
    assert outcome.loss[row].isnan().all()
    assert not outcome.is_kept[row].any()
    for targets in (outcome.rpn, outcome.roi):
        assert (targets.is_box & targets.is_ignored)[row].all()
        assert torch.equal(targets.boxes[row], annotations.boxes[row])


@pytest.mark.parametrize("num_annotations", [0, 1])
@pytest.mark.parametrize("progress", [FIRST, LAST], ids=["first", "last"])
def test_images_without_annotations_are_background(
    num_annotations: int, progress: TrainingProgress
) -> None:
    annotations = batch(num_annotations=1)
    none = annotations._replace(
        is_box=annotations.is_box & False, is_ignored=annotations.is_ignored & False
    )
    cut = {
        name: part[:, :num_annotations] for name, part in none._asdict().items() if name != "sizes"
    }
    none = none._replace(**cut)
    method = with_limits(2, 2)
    outcome, losses = method.losses(step(none, progress))
    assert outcome.boxes.shape == (3, num_annotations, 4)
    assert all(loss.isfinite() for loss in losses.values())
    assert losses["roi_boxes"] == losses["roi_boxes_b"] == 0
    assert losses["roi_classes"] > 0
    assert (method.state_dict()["queue_a"] == 2).all()
    assert all(value.isfinite() for value in outcome.metrics.values())


@pytest.mark.parametrize("progress", [FIRST, LAST], ids=["first", "last"])
def test_nothing_waits_for_the_device(progress: TrainingProgress) -> None:
    for method in (with_limits(2, 2), with_rates(0.4, 0.4)):
        with Watch() as watch:
            method.losses(step(batch(), progress))
        assert "aten.sort" in watch.seen
        assert watch.seen.isdisjoint(WAITS)


def estimating() -> CoTeaching:
    """Return a method without known rates."""
    method = build_method("co-teaching", MethodInputs(15, NUM_LABELS))
    assert isinstance(method, CoTeaching)
    return method


def with_rates(label: float, box: float) -> CoTeaching:
    """Return a method that has estimated these rates."""
    method = estimating()
    result = torch.tensor([0.0, 0.5])
    bounds = {"label_bounds": result, "box_bounds": result}
    rates = {"rate": label, "box_noise": box}
    method.load_state_dict({**method.state_dict(), **bounds, **rates})
    return method


@pytest.mark.parametrize(
    ("label", "box", "tau"),
    [(0.352, 0.1, 0.4), (0.01, 0.3, 0.2), (0.0, 0.01, 0.0), (0.0264, 0.0, 0.03)],
)
def test_the_forget_rate_follows_the_estimates(label: float, box: float, tau: float) -> None:
    """Of the wrong labels, 0.12 are memorised: 0.352 / 0.88 = 0.4. Below 0.02 noise counts as 0."""
    assert with_rates(label, box).tau == pytest.approx(tau)


def test_the_forget_rate_is_a_fifth_before_the_first_estimate() -> None:
    assert estimating().tau == 0.2
    assert CoTeaching(CoTeachingSettings()).end_epoch(0, is_warm_up=False) == {}


def test_unknown_noise_is_estimated_and_the_estimate_is_in_the_state() -> None:
    first, second = estimating(), estimating()
    for seed in range(3):
        first.losses(step(batch(seed), FIRST))
    figures = first.end_epoch(0, is_warm_up=False)
    assert figures.keys() >= {"label_noise", "label_noise_low", "label_noise_high", "box_noise"}
    assert first.tau == forget_rate(None, Rates(figures["label_noise"], figures["box_noise"]))
    assert first.report()["label_noise"] == figures["label_noise"]
    second.load_state_dict(first.state_dict())
    assert second.tau == first.tau
    assert second.estimator is not None
    assert second.estimator.figures() == figures


def test_its_estimates_ignore_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    method, calls = estimating(), list[tuple[int, bool]]()
    assert method.estimator is not None
    monkeypatch.setattr(method.estimator, "end_epoch", lambda *arguments: calls.append(arguments))
    method.end_epoch(2, is_warm_up=True)
    assert calls == [(2, False)]


@pytest.mark.parametrize(
    ("settings", "rates"),
    [(CoTeachingSettings(forget_rate=0.3), Rates()), (CoTeachingSettings(), Rates(0.4, None))],
)
def test_estimates_are_made_only_if_a_setting_needs_them(
    settings: CoTeachingSettings, rates: Rates
) -> None:
    method = build_method("co-teaching", MethodInputs(15, NUM_LABELS, rates, settings))
    assert isinstance(method, CoTeaching)
    assert method.estimator is None
    assert set(method.state_dict()) == {"queue_a", "queue_b"}


def tensors(outcome: Outcome) -> list[Tensor]:
    return [part for part in outcome if isinstance(part, Tensor)]


def test_a_state_is_a_snapshot_and_a_method_resumes_from_it() -> None:
    first, second = with_limits(2, 3), with_limits()
    first.losses(step(batch(4)))
    state = first.state_dict()
    kept = {key: value.clone() for key, value in state.items()}
    second.load_state_dict(state)
    one, other = first.losses(step(batch(5))), second.losses(step(batch(5)))
    assert_same_losses(one[1], other[1])
    for mine, theirs in zip(tensors(one[0]), tensors(other[0]), strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True)
    for key, value in kept.items():
        assert torch.equal(value, state[key])
        assert not torch.equal(value, first.state_dict()[key])
        assert torch.equal(first.state_dict()[key], second.state_dict()[key])


def test_a_recorded_step_keeps_the_memory_addresses_of_the_queues() -> None:
    method = with_limits()
    places = [queue.data_ptr() for queue in method.queues]
    method.losses(step(batch()))
    method.load_state_dict(method.state_dict())
    assert [queue.data_ptr() for queue in method.queues] == places


def test_queues_of_another_length_are_refused() -> None:
    method = CoTeaching(CoTeachingSettings(queue_length=7))
    with pytest.raises(
        UsageError, match=r"queues of 128 losses, but co_teaching\.queue_length is 7"
    ):
        method.load_state_dict(with_limits().state_dict())


def test_no_argument_is_changed() -> None:
    annotations = batch()
    before = [part.clone() for part in annotations]
    with_limits(2, 2).losses(step(annotations))
    for old, new in zip(before, annotations, strict=True):
        torch.testing.assert_close(old, new, rtol=0, atol=0, equal_nan=True)


def test_network_b_is_kept_and_scored_too() -> None:
    models = with_limits().models(two_networks())
    assert list(models) == ["b"]
    assert models["b"].network is two_networks().network.twin


def test_settings_of_another_method_are_refused() -> None:
    with pytest.raises(UsageError, match="co-teaching takes CoTeachingSettings, not MendSettings"):
        build_method("co-teaching", MethodInputs(1, 1, settings=MendSettings()))
