"""Steps of DISCO: comparison with plain loops over bags, and which parameters get gradients."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from boxmend.detector import Detector, Features, RoiOutput, RoiSample, Targets
from boxmend.detector.coding import decode, encode
from boxmend.methods.outcomes import neutralise_padding, unchanged_outcome
from boxmend.methods.peers.bags import normal_numbers
from boxmend.methods.peers.disco import Disco, outputs_with_spread
from boxmend.methods.steps import draw_rois, rpn_losses, run_first_stage
from boxmend.methods.table import BatchAnnotations, MethodInputs, TrainingProgress, build
from boxmend.runs.ledger import Judgement
from boxmend.runs.settings import DiscoSettings
from tests.methods.method_batches import pad, random_batch
from tests.methods.peers.bag_scenes import (
    MIDDLE,
    START,
    lengths,
    lively,
    reached,
    tiny,
    total,
    without_annotations,
    work_on,
)

pytestmark = pytest.mark.usefixtures("one_thread")

LOSSES = ["rpn_objectness", "rpn_boxes", "roi_classes", "roi_boxes", "roi_bags", "roi_spread"]
LATER = DiscoSettings(correction_from=0.25)  # so that there is a time before
MOMENTS = pytest.mark.parametrize("progress", [START, MIDDLE], ids=["before", "correcting"])
KEEN = DiscoSettings(exponent=0.5, mean_box_max_weight=0.9)  # moves boxes although scores are low


@pytest.fixture
def annotations() -> BatchAnnotations:
    """Four annotations and an ignored one, three annotations, none."""
    return random_batch(9)[0]


class Bag(NamedTuple):
    """The results of plain loops for one annotation."""

    mean: Tensor  # [4]
    std: Tensor  # [4]
    score: float  # of the mean
    best: float
    best_decoded: float  # without the drawn ones
    number: int  # of RoIs
    box: Tensor  # [4] corrected


class Literal:
    """DISCO bag by bag, in plain loops, for a step of the same random numbers."""

    def __init__(self, detector: Detector, annotations: BatchAnnotations, settings: DiscoSettings):
        self.detector, self.annotations, self.settings = (
            detector,
            neutralise_padding(annotations),
            settings,
        )
        self.context = work_on(detector, self.annotations, MIDDLE)
        self.seen = run_first_stage(self.context)

    def outputs(self, image: int, boxes: Tensor) -> RoiOutput:
        """Run the head on boxes [n, 4] of one image."""
        maps = {name: one[image : image + 1] for name, one in self.seen.features.maps.items()}
        return self.detector.roi_outputs(self.seen.features._replace(maps=maps), boxes[None])

    def score(self, image: int, boxes: Tensor, label: int) -> Tensor:
        return self.outputs(image, boxes).logits.softmax(-1)[0, :, label + 1]

    def gaussian(self, boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        weights = (scores / self.settings.temperature).softmax(0)[:, None]
        mean = (weights * boxes).sum(0)
        return mean, (weights * (boxes - mean) ** 2).sum(0).sqrt()

    def inside(self, image: int, boxes: Tensor) -> Tensor:
        """Cut at the image, with sides of a pixel at least."""
        height, width = self.annotations.sizes[image].tolist()
        made = boxes.clone()
        for box in made:
            for low, high, limit in ((0, 2, width), (1, 3, height)):
                box[low] = min(max(float(box[low]), 0), limit - 1)
                box[high] = max(min(float(box[high]), limit), float(box[low]) + 1)
        return made

    def bag(self, image: int, label: int, box: Tensor, mine: Tensor, uniform: Tensor) -> Bag:
        """Takes the RoIs [n, 4] of a bag."""
        deltas = self.outputs(image, mine).deltas[0, :, label + 1]
        boxes = self.inside(image, decode(deltas, mine, self.detector.numbers.delta_weights))
        scores = self.score(image, boxes, label)
        mean, std = self.gaussian(boxes, scores)
        more = self.inside(image, mean + std * normal_numbers(uniform))
        boxes = torch.cat([boxes, more])
        scores = torch.cat([scores, self.score(image, more, label)])
        mean, std = self.gaussian(boxes, scores)
        score = float(self.score(image, mean[None], label))
        phi = min(score**self.settings.exponent, self.settings.mean_box_max_weight)
        corrected = phi * mean + (1 - phi) * box
        best, number = float(scores.max()), len(mine)
        return Bag(mean, std, score, best, float(scores[:number].max()), number, corrected)

    def bags(self, boxes: Tensor, rois: RoiSample, uniform: Tensor) -> dict[tuple[int, int], Bag]:
        collected = {}
        for image, place in self.annotations.is_box.nonzero().tolist():
            mine = rois.boxes[image][rois.is_positive[image] & (rois.matched[image] == place)]
            if len(mine):
                label = int(self.annotations.labels[image, place])
                own = uniform[image, place]
                collected[image, place] = self.bag(image, label, boxes[image, place], mine, own)
        return collected

    def step(self) -> tuple[dict[tuple[int, int], Bag], RoiSample, Targets]:
        """Both times: the bags of the second, its RoIs and what they were assigned to."""
        context, seen = self.context, self.seen
        targets = unchanged_outcome(self.annotations).roi
        rpn_losses(context, seen.raw, targets)
        shape = torch.Size((*self.annotations.labels.shape, self.settings.samples, 4))
        rois = draw_rois(context, seen.proposals, targets)
        boxes = self.annotations.boxes.clone()
        for (image, place), bag in self.bags(boxes, rois, context.draw(shape)).items():
            boxes[image, place] = bag.box
        targets = targets._replace(boxes=boxes)
        rois = draw_rois(context, seen.proposals, targets)
        return self.bags(boxes, rois, context.draw(shape)), rois, targets


def test_a_step_is_that_of_plain_loops_over_bags() -> None:
    annotations, proposals = random_batch(9)
    detector = lively("disco", proposals, box_loss="l1")
    settings = replace(KEEN, bag_loss_weight=2.0, spread_loss_weight=0.5)
    with torch.no_grad():
        outcome, losses = Disco(settings).losses(work_on(detector, annotations, MIDDLE))
        literal = Literal(detector, annotations, settings)
        bags, rois, targets = literal.step()
        output, spread = outputs_with_spread(detector, literal.seen.features, rois.boxes)
    assert len(bags) == 7
    assert max(bag.number for bag in bags.values()) > 3
    assert max(float(bag.std.max()) for bag in bags.values()) > 1
    assert any(bag.best > bag.best_decoded for bag in bags.values())
    close: Callable[..., Any] = pytest.approx
    for (image, place), bag in bags.items():
        assert outcome.matched[image, place].tolist() == close(bag.mean.tolist(), abs=2e-3)
        assert outcome.boxes[image, place].tolist() == close(bag.box.tolist(), abs=2e-3)
        assert outcome.confidence[image, place].item() == close(bag.score, rel=1e-4)
        assert outcome.verdict[image, place] == int(Judgement.UNJUDGED)
        assert outcome.num_candidates[image, place] == bag.number
    torch.testing.assert_close(outcome.roi.boxes, targets.boxes, rtol=1e-4, atol=1e-3)
    expected = -sum(math.log(bag.best) for bag in bags.values()) / len(bags)
    assert losses["roi_bags"].item() == close(2 * expected, rel=1e-4)

    boxes_loss = spread_loss = 0.0
    for image, row in rois.is_positive.nonzero().tolist():
        place = int(rois.matched[image, row])
        bag = bags[image, place]
        reference, label = rois.boxes[image, row], int(rois.labels[image, row])
        wanted = encode(bag.box, reference, detector.numbers.delta_weights)
        boxes_loss += float((output.deltas[image, row, label + 1] - wanted).abs().sum())
        for side, length in enumerate((bag.box[2:] - bag.box[:2]).repeat(2).tolist()):
            goal = math.log(max((float(bag.std[side]) / length) ** 2, 1e-6))
            spread_loss += abs(float(spread[image, row, side]) - goal)
    number = int(rois.is_sampled.sum())
    assert losses["roi_boxes"].item() == close(boxes_loss / number, rel=1e-3)
    assert losses["roi_spread"].item() == close(0.5 * spread_loss / number, rel=1e-3)


def test_boxes_move_twice_in_a_step_and_are_assigned_to_in_between(
    annotations: BatchAnnotations,
) -> None:
    outcome, _ = Disco(KEEN).losses(work_on(tiny("disco"), annotations, MIDDLE))
    has_bag = annotations.is_box & (outcome.num_candidates > 0)
    first, second = outcome.roi.boxes[has_bag], outcome.boxes[has_bag]
    assert (first - annotations.boxes[has_bag]).abs().amax(-1).min() > 0
    assert (second - first).abs().amax(-1).min() > 0
    assert torch.equal(outcome.rpn.boxes[has_bag], annotations.boxes[has_bag])


def test_without_confidence_a_step_trains_on_the_annotated_boxes(
    annotations: BatchAnnotations,
) -> None:
    detector = tiny("disco")
    outcome, losses = Disco(replace(KEEN, mean_box_max_weight=0.0)).losses(
        work_on(detector, annotations, MIDDLE)
    )
    is_box = annotations.is_box
    torch.testing.assert_close(outcome.boxes[is_box], annotations.boxes[is_box])
    torch.testing.assert_close(outcome.roi.boxes[is_box], annotations.boxes[is_box])
    assert losses["roi_spread"] > 0


def test_before_the_start_only_the_scores_of_bags_are_trained(
    annotations: BatchAnnotations,
) -> None:
    detector = tiny("disco")
    outcome, losses = Disco(LATER).losses(work_on(detector, annotations, START))
    assert torch.equal(outcome.boxes[annotations.is_box], annotations.boxes[annotations.is_box])
    assert torch.equal(outcome.roi.boxes[annotations.is_box], annotations.boxes[annotations.is_box])
    assert (outcome.verdict == int(Judgement.UNJUDGED)).all()
    assert losses["roi_spread"].item() == 0
    assert losses["roi_bags"] > 0
    usual = build("baseline", MethodInputs(15, 3)).losses(work_on(detector, annotations, START))[1]
    for name in usual:
        torch.testing.assert_close(losses[name], usual[name])


def test_the_phase_changes_with_the_start() -> None:
    def at(step: int) -> TrainingProgress:
        return TrainingProgress(epoch=0, step=step, num_steps=120, warm_up_steps_left=0)

    phases = [Disco(LATER).phase(at(step)) for step in range(120)]
    assert [step for step in range(1, 120) if phases[step] != phases[step - 1]] == [30]
    assert len({Disco().phase(at(step)) for step in range(120)}) == 1  # from the first step on


def test_means_are_over_all_processes(annotations: BatchAnnotations) -> None:
    class Doubled:
        """Simulate another process with the same values."""

        def all_gather(self, *tensors: Tensor) -> tuple[Tensor, ...]:
            return tensors

        def all_sum(self, tensor: Tensor, /) -> Tensor:
            return 2 * tensor

    detector, method = tiny("disco"), Disco(KEEN)
    _, alone = method.losses(work_on(detector, annotations, MIDDLE))
    method.exchange = Doubled()
    detector.sum_over_processes = Doubled().all_sum
    _, halved = method.losses(work_on(detector, annotations, MIDDLE))
    for name in LOSSES:
        torch.testing.assert_close(2 * halved[name], alone[name])


@MOMENTS
def test_losses_are_finite_and_always_have_the_same_names(
    annotations: BatchAnnotations, progress: TrainingProgress
) -> None:
    _, losses = Disco(LATER).losses(work_on(tiny("disco"), annotations, progress))
    assert list(losses) == LOSSES
    assert all(value.isfinite() and value.dim() == 0 for value in losses.values())


@MOMENTS
def test_bags_give_gradients_to_the_classifier_and_not_to_the_regression(
    annotations: BatchAnnotations, progress: TrainingProgress
) -> None:
    detector = tiny("disco")
    _, losses = Disco(LATER).losses(work_on(detector, annotations, progress))
    names = reached(losses["roi_bags"], detector.network)
    assert "roi_heads.box_predictor.first.cls_score.weight" in names
    assert "backbone.stem.0.weight" in names
    for name in names:
        assert "bbox_pred" not in name
        assert ".spread." not in name
        assert not name.startswith("rpn.")


def test_the_spread_trains_its_own_layer_and_the_layers_below(
    annotations: BatchAnnotations,
) -> None:
    detector = tiny("disco")
    _, losses = Disco().losses(work_on(detector, annotations, MIDDLE))
    names = reached(losses["roi_spread"], detector.network)
    assert {name for name in names if "box_predictor" in name} == {
        "roi_heads.box_predictor.spread.weight",
        "roi_heads.box_predictor.spread.bias",
    }
    assert "backbone.stem.0.weight" in names
    everything = reached(total(losses), detector.network)
    assert everything == {name for name, _ in detector.network.named_parameters()}


def test_only_the_second_time_has_gradients(annotations: BatchAnnotations) -> None:
    """The first time draws other RoIs, whose outputs would add to the gradients."""
    detector, method = tiny("disco"), Disco(KEEN)
    _, losses = method.losses(work_on(detector, annotations, MIDDLE))
    whole = lengths(total(losses), detector.network)

    calls, ordinary = 0, detector.roi_outputs

    def count_call(features: Features, boxes: Tensor) -> Any:
        nonlocal calls
        calls += torch.is_grad_enabled()
        return ordinary(features, boxes)

    detector.roi_outputs = count_call  # type: ignore[method-assign]
    _, losses = method.losses(work_on(detector, annotations, MIDDLE))
    assert calls == 2  # decoded boxes and drawn ones, beside the RoIs with their spread
    assert lengths(total(losses), detector.network) == pytest.approx(whole)


@MOMENTS
def test_padding_is_inert(annotations: BatchAnnotations, progress: TrainingProgress) -> None:
    detector, count = tiny("disco"), annotations.boxes.shape[1]
    settings = replace(KEEN, correction_from=0.25)
    outcome, losses = Disco(settings).losses(work_on(detector, annotations, progress))
    wider, same = Disco(settings).losses(work_on(detector, pad(annotations, by=3), progress))
    for name in LOSSES:
        torch.testing.assert_close(losses[name], same[name], rtol=1e-4, atol=1e-6)
    for name in ("boxes", "matched", "confidence", "loss", "verdict", "num_candidates", "labels"):
        one, other = getattr(outcome, name), getattr(wider, name)
        torch.testing.assert_close(one, other[:, :count], equal_nan=True, rtol=1e-4, atol=1e-3)
    assert not wider.is_kept[:, count:].any()


@MOMENTS
def test_an_ignored_annotation_is_unchanged_and_its_label_has_no_effect(
    annotations: BatchAnnotations, progress: TrainingProgress
) -> None:
    detector = tiny("disco")
    outcome, losses = Disco(LATER).losses(work_on(detector, annotations, progress))
    other = annotations._replace(
        labels=torch.where(annotations.is_ignored, 1 - annotations.labels % 2, annotations.labels)
    )
    _, same = Disco(LATER).losses(work_on(detector, other, progress))
    for name in LOSSES:
        assert torch.equal(losses[name], same[name])
    assert torch.equal(
        outcome.boxes[annotations.is_ignored], annotations.boxes[annotations.is_ignored]
    )
    assert torch.equal(
        outcome.roi.boxes[annotations.is_ignored], annotations.boxes[annotations.is_ignored]
    )
    assert outcome.roi.is_ignored[annotations.is_ignored].all()
    assert (outcome.verdict[annotations.is_ignored] == int(Judgement.UNJUDGED)).all()
    assert not outcome.is_kept[annotations.is_ignored].any()


@MOMENTS
@pytest.mark.parametrize("num_annotations", [1, 3])
def test_images_without_annotations_are_background(
    num_annotations: int, progress: TrainingProgress
) -> None:
    detector = tiny("disco")
    none = without_annotations(num_annotations=num_annotations)
    outcome, losses = Disco(LATER).losses(work_on(detector, none, progress))
    assert losses["roi_bags"].item() == losses["roi_spread"].item() == 0
    assert all(value.isfinite() for value in losses.values())
    assert outcome.boxes.isfinite().all()
    assert (outcome.verdict == int(Judgement.UNJUDGED)).all()
    total(losses).backward()  # type: ignore[no-untyped-call]
    grads = [
        parameter.grad for parameter in detector.network.parameters() if parameter.grad is not None
    ]
    assert all(one.isfinite().all() for one in grads)


def test_half_the_precision_gives_whole_boxes(annotations: BatchAnnotations) -> None:
    detector = tiny("disco")
    whole, _ = Disco(KEEN).losses(work_on(detector, annotations, MIDDLE))
    with torch.autocast("cpu", torch.bfloat16):
        half, losses = Disco(KEEN).losses(work_on(detector, annotations, MIDDLE))
    assert all(value.isfinite() and value.dtype == torch.float32 for value in losses.values())
    is_box = annotations.is_box
    assert half.boxes.dtype == torch.float32
    assert (half.boxes[is_box] - whole.boxes[is_box]).abs().median() < 0.5  # pixels of 100
