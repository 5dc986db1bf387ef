"""Steps of NOTE-RCNN on the tiny detector: what each classifier learns from, and what does not."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from boxmend.detector import DETECTORS, Detector, Targets, build
from boxmend.detector.boxes import pairwise_iou
from boxmend.methods.peers.note_rcnn import NoteRcnn
from boxmend.methods.protocol import Losses, SingleProcess
from boxmend.methods.steps import draw_rois, rpn_losses, run_first_stage
from boxmend.methods.table import BatchAnnotations, MethodInputs, TrainingProgress
from boxmend.methods.table import build as build_method
from boxmend.runs.ledger import Judgement
from boxmend.runs.settings import NoteRcnnSettings
from tests.methods.method_batches import WAITS, Watch, pad, random_batch
from tests.methods.peers.note_rcnn_scenes import (
    APART,
    LOSSES,
    NUM_LABELS,
    PLAIN,
    ROWS,
    detector_of_three,
    empty,
    method,
    norms,
    with_seeds,
    work_on,
)

pytestmark = pytest.mark.usefixtures("one_thread")

ALL = tuple(range(ROWS))
STAGES = pytest.mark.parametrize("progress", [PLAIN, APART], ids=["plain", "apart"])
NOTHING_MASKED = NoteRcnnSettings(mask_min_iou=1.0, mask_max_background=0.0)


@pytest.fixture
def annotations() -> BatchAnnotations:
    """Four annotations and an ignored one, three annotations, none; rows 0 to 3 and 5 to 7."""
    return random_batch(9)[0]


def backward(losses: Losses) -> None:
    sum(losses.values(), torch.zeros(())).backward()  # type: ignore[no-untyped-call]


def test_plain_training_is_that_of_a_detector_with_one_classifier(
    annotations: BatchAnnotations,
) -> None:
    three, progress = detector_of_three(), PLAIN
    one = build("tiny", NUM_LABELS, numbers=DETECTORS["tiny"].numbers)
    own = {
        key.replace("box_predictor.first", "box_predictor"): value
        for key, value in three.network.state_dict().items()
        if not key.startswith(("twin.", "roi_heads.box_predictor.more"))
    }
    one.network.load_state_dict(own)
    usual = build_method("baseline", MethodInputs(ROWS, NUM_LABELS))
    _, plain = usual.losses(work_on(one, annotations, progress))
    _, losses = method().losses(work_on(three, annotations, progress))
    for name in plain:
        torch.testing.assert_close(losses[name], plain[name])
    backward(plain)
    backward(losses)
    expected = {name: value.grad for name, value in one.network.named_parameters()}
    checked = 0
    for name, value in three.network.named_parameters():
        if not name.startswith(("twin.", "roi_heads.box_predictor.more")):
            theirs = expected[name.replace("box_predictor.first", "box_predictor")]
            torch.testing.assert_close(value.grad, theirs)
            checked += 1
    assert checked == len(expected)
    followers = norms(three.network.roi_heads.box_predictor.more)
    assert len(followers) == 4  # weights and biases of both
    assert min(followers.values()) > 0


def test_the_last_loss_of_each_annotation_is_stored_and_in_the_ledger(
    annotations: BatchAnnotations,
) -> None:
    made, detector = method(), detector_of_three()
    context = work_on(detector, annotations, PLAIN)
    outcome, _ = made.losses(context)
    with torch.no_grad():
        features = detector.features(context.images, annotations.sizes)
        scores = detector.score(
            features, annotations.boxes.nan_to_num(), annotations.sizes
        ).probabilities
    state, number = made.state_dict(), 0
    for image, place in annotations.is_box.nonzero().tolist():
        row, label = int(annotations.rows[image, place]), int(annotations.labels[image, place])
        expected = -math.log(float(scores[image, place, 1 + label]))
        assert float(state["losses"][row]) == pytest.approx(expected, rel=1e-5)
        assert float(outcome.loss[image, place]) == pytest.approx(expected, rel=1e-5)
        assert int(state["labels"][row]) == label
        number += 1
    assert number == 7 == int(state["losses"].isfinite().sum())
    assert (outcome.verdict == int(Judgement.UNJUDGED)).all()
    before = state["losses"].clone()
    moved = annotations._replace(
        labels=torch.where(annotations.is_box, (annotations.labels + 1) % 3, annotations.labels)
    )
    made.losses(work_on(detector, moved, PLAIN))
    assert (made.state_dict()["losses"] != before)[before.isfinite()].all()


def test_losses_of_other_processes_are_stored_too(annotations: BatchAnnotations) -> None:
    class Another(SingleProcess):
        def all_gather(self, *tensors: Tensor) -> tuple[Tensor, ...]:
            theirs = (torch.tensor([10, 12]), torch.tensor([0.5, 0.25]), torch.tensor([2, 1]))
            return tuple(torch.cat(pair) for pair in zip(tensors, theirs, strict=True))

    made = method()
    made.exchange = Another()
    made.losses(work_on(detector_of_three(), annotations, PLAIN))
    state = made.state_dict()
    assert state["losses"][[10, 12]].tolist() == [0.5, 0.25]
    assert state["labels"][[10, 12]].tolist() == [2, 1]
    assert int(state["losses"].isfinite().sum()) == 7 + 2


def test_neither_seeds_nor_the_others_are_judged(annotations: BatchAnnotations) -> None:
    outcome, _ = with_seeds(0, 2, 6).losses(work_on(detector_of_three(), annotations, APART))
    assert (outcome.verdict == int(Judgement.UNJUDGED)).all()
    assert torch.equal(outcome.is_kept, annotations.is_box)
    assert torch.equal(outcome.labels[annotations.is_box], annotations.labels[annotations.is_box])
    assert torch.equal(outcome.boxes[annotations.is_box], annotations.boxes[annotations.is_box])
    for column in (outcome.loss, outcome.confidence):
        assert torch.equal(column.isfinite(), annotations.is_box)
    assert (outcome.confidence[annotations.is_box] < 1).all()


def test_the_memory_rests_once_seeds_are_chosen(annotations: BatchAnnotations) -> None:
    made = with_seeds(1)
    before = made.state_dict()
    made.losses(work_on(detector_of_three(), annotations, APART))
    for key, value in made.state_dict().items():
        torch.testing.assert_close(torch.as_tensor(value), torch.as_tensor(before[key]))


@torch.no_grad()
def one_by_one(
    detector: Detector, made: NoteRcnn, annotations: BatchAnnotations, seeds: set[int]
) -> dict[str, float]:
    """Compute the losses of the second stage as the description defines them, RoI by RoI."""
    context, settings = work_on(detector, annotations, APART), made.settings
    is_real = annotations.is_box | annotations.is_ignored
    boxes = annotations.boxes.nan_to_num(nan=1.0)
    targets = Targets(boxes, annotations.labels.clamp(min=0), is_real, annotations.is_ignored)
    seen = run_first_stage(context)
    rpn_losses(context, seen.raw, targets)  # draws first
    rois = draw_rois(context, seen.proposals, targets)
    mixed, seed, distilled = detector.head_outputs(seen.features, rois.boxes)
    twin = detector.twin
    frozen = twin.roi_outputs(twin.features(context.images, annotations.sizes), rois.boxes).logits
    overlaps = pairwise_iou(boxes, rois.boxes)
    sums = dict.fromkeys(("roi_classes", "roi_seed", "roi_distilled", "roi_boxes"), 0.0)
    number, kinds = 0, set[tuple[bool, ...]]()
    for image, place in rois.is_sampled.nonzero().tolist():
        number += 1
        is_object = bool(rois.is_positive[image, place])
        row = int(annotations.rows[image, int(rois.matched[image, place])]) if is_object else -1
        column = int(rois.labels[image, place]) + 1 if is_object else 0
        own = {int(one) for one in annotations.rows[image][annotations.is_box[image]]}
        near = overlaps[image, :, place][is_real[image]]
        is_far = not (near >= settings.mask_min_iou).any()
        is_sure = float(frozen[image, place].softmax(-1)[0]) > settings.mask_max_background
        kinds.add((is_object, row in seeds, own <= seeds, is_far, is_sure))
        if is_object or own <= seeds or (is_far and is_sure):
            sums["roi_classes"] -= float(mixed.logits[image, place].log_softmax(-1)[column])
        if row in seeds or (not is_object and own <= seeds):
            sums["roi_seed"] -= float(seed.logits[image, place].log_softmax(-1)[column])
        p, q = (
            (one[image, place] / settings.temperature).softmax(-1)
            for one in (frozen, distilled.logits)
        )
        weight = settings.distillation_weight * settings.temperature**2
        sums["roi_distilled"] += weight * float((p * (p / q).log()).sum())
        if row in seeds:
            off = mixed.deltas[image, place, column] - rois.deltas[image, place]
            for one in off.abs().tolist():  # smooth L1 of beta 1/9
                sums["roi_boxes"] += one * one * 4.5 if one < 1 / 9 else one - 1 / 18
    assert len(kinds) >= 6  # the scene has nearly all cases
    return {name: value / number for name, value in sums.items()}


@pytest.mark.parametrize("seeds", [{0, 1, 2, 3}, {0, 5, 7}, set[int]()])
def test_the_losses_equal_those_computed_roi_by_roi(
    seeds: set[int], annotations: BatchAnnotations
) -> None:
    detector = detector_of_three()
    with torch.no_grad():  # a frozen model that is at times sure of background
        detector.network.twin.roi_heads.box_predictor.first.cls_score.weight.mul_(12)
    made = with_seeds(
        *seeds, settings=NoteRcnnSettings(mask_max_background=0.3, distillation_weight=0.7)
    )
    _, losses = made.losses(work_on(detector, annotations, APART))
    expected = one_by_one(detector, made, annotations, seeds)
    for name, value in expected.items():
        assert losses[name].item() == pytest.approx(value, rel=1e-4, abs=1e-6), name


def test_without_masks_and_with_all_seeds_the_losses_are_those_of_faster_rcnn(
    annotations: BatchAnnotations,
) -> None:
    detector, made = detector_of_three(), with_seeds(*ALL, settings=NOTHING_MASKED)
    _, apart = made.losses(work_on(detector, annotations, APART))
    _, plain = made.losses(work_on(detector, annotations, PLAIN))
    for name in set(LOSSES) - {"roi_distilled"}:
        torch.testing.assert_close(apart[name], plain[name])


def test_below_the_classifiers_their_mean_is_followed(annotations: BatchAnnotations) -> None:
    detector = detector_of_three()
    predictor = detector.network.roi_heads.box_predictor
    predictor.more[0].load_state_dict(predictor.first.cls_score.state_dict())
    below = list(detector.network.roi_heads.box_head.parameters())
    made = with_seeds(*ALL, settings=NOTHING_MASKED)

    def gradients(
        progress: TrainingProgress, of: list[torch.nn.Parameter], *names: str
    ) -> list[Tensor]:
        _, losses = made.losses(work_on(detector, annotations, progress))
        return list(torch.autograd.grad(torch.stack([losses[name] for name in names]).sum(), of))

    usual = gradients(PLAIN, below, "roi_classes")
    together = gradients(APART, below, "roi_classes", "roi_seed")  # two that learn the same
    for one, both in zip(usual, together, strict=True):
        assert one.abs().max() > 0
        torch.testing.assert_close(both, one * 2 / 3)
    boxes = gradients(PLAIN, below, "roi_boxes")
    for one, later in zip(boxes, gradients(APART, below, "roi_boxes"), strict=True):
        torch.testing.assert_close(later, one)
    own = [*predictor.first.cls_score.parameters()]
    usual = gradients(PLAIN, own, "roi_classes")
    for one, later in zip(usual, gradients(APART, own, "roi_classes"), strict=True):
        torch.testing.assert_close(later, one)


def test_without_seeds_the_seed_classifier_and_the_boxes_get_no_gradient(
    annotations: BatchAnnotations,
) -> None:
    detector = detector_of_three()
    two = BatchAnnotations(
        *(part[:2] for part in annotations)
    )  # an image without annotations teaches background
    _, losses = with_seeds().losses(work_on(detector, two, APART))
    assert losses["roi_seed"] == 0
    assert losses["roi_boxes"] == 0
    backward(losses)
    predictor = detector.network.roi_heads.box_predictor
    assert set(norms(predictor.more[0]).values()) == {0.0}
    assert set(norms(predictor.first.bbox_pred).values()) == {0.0}
    assert min(norms(predictor.first.cls_score).values()) > 0
    assert min(norms(predictor.more[1]).values()) > 0


def test_an_image_without_annotations_is_background_for_the_seed_classifier(
    annotations: BatchAnnotations,
) -> None:
    _, losses = with_seeds().losses(work_on(detector_of_three(), annotations, APART))
    assert losses["roi_seed"] > 0


@STAGES
def test_gradients_reach_all_trained_parameters_and_never_the_twin(
    progress: TrainingProgress, annotations: BatchAnnotations
) -> None:
    detector = detector_of_three()
    made = with_seeds(*ALL)
    _, losses = made.losses(work_on(detector, annotations, progress))
    assert tuple(losses) == LOSSES
    assert all(value.isfinite() and value.dim() == 0 for value in losses.values())
    backward(losses)
    result = norms(detector.network)
    trained = {name for name, one in detector.network.named_parameters() if one.requires_grad}
    assert result.keys() == trained
    assert not any(name.startswith("twin.") for name in trained)
    still = {name for name, norm in result.items() if norm == 0}
    assert not still
    assert all(math.isfinite(norm) for norm in result.values())


@STAGES
def test_gradients_reach_the_same_in_half_the_precision(
    progress: TrainingProgress, annotations: BatchAnnotations
) -> None:
    detector = detector_of_three()
    with torch.autocast("cpu", torch.bfloat16):
        outcome, losses = with_seeds(*ALL).losses(work_on(detector, annotations, progress))
    backward(losses)
    assert all(value.isfinite() and value.dtype == torch.float32 for value in losses.values())
    assert outcome.loss.dtype == torch.float32
    assert min(norms(detector.network).values()) > 0


def test_the_plain_stages_model_is_frozen_when_the_stage_is_over() -> None:
    detector, made = detector_of_three(), with_seeds()
    twin = detector.network.twin
    addresses = {key: one.data_ptr() for key, one in twin.state_dict().items()}

    def is_alike() -> list[bool]:
        own = detector.network.state_dict()
        return [torch.equal(own[key], value) for key, value in twin.state_dict().items()]

    made.begin_epoch(0, detector)
    assert not all(is_alike())
    made.begin_epoch(1, detector)  # 1 of 3 epochs is plain
    assert all(is_alike())
    assert addresses == {key: one.data_ptr() for key, one in twin.state_dict().items()}
    with torch.no_grad():
        detector.network.roi_heads.box_predictor.more[0].bias.add_(1)
    made.begin_epoch(2, detector)
    assert not all(is_alike())


def test_a_classifier_equal_to_the_frozen_model_has_no_distillation_loss(
    annotations: BatchAnnotations,
) -> None:
    detector, made = detector_of_three(), with_seeds()
    predictor = detector.network.roi_heads.box_predictor
    for one in predictor.more:
        one.load_state_dict(predictor.first.cls_score.state_dict())
    made.begin_epoch(1, detector)
    _, losses = made.losses(work_on(detector, annotations, APART))
    assert losses["roi_distilled"].abs() < 1e-6
    assert losses["roi_classes"] > 0.1


@STAGES
def test_padding_is_inert(progress: TrainingProgress, annotations: BatchAnnotations) -> None:
    detector, one, other = detector_of_three(), with_seeds(0, 5), with_seeds(0, 5)
    context = work_on(detector, annotations, progress)
    wide = work_on(detector, pad(annotations, by=3), progress)
    keys = {shape: torch.rand(shape) for shape in [(3, 150 + 5), (3, 150 + 8)]}
    keys[3, 158][:, :155] = keys[3, 155]

    def fix_work(work_: Any) -> Any:
        draw = work_.draw
        return replace(work_, draw=lambda shape: keys.get(tuple(shape), draw(shape)))

    outcome, losses = one.losses(fix_work(context))
    wider, same = other.losses(fix_work(wide))
    for name in LOSSES:
        torch.testing.assert_close(same[name], losses[name])
    assert wider.loss[:, -3:].isnan().all()
    torch.testing.assert_close(wider.loss[:, :-3], outcome.loss, equal_nan=True)
    for key, value in one.state_dict().items():
        torch.testing.assert_close(
            torch.as_tensor(value), torch.as_tensor(other.state_dict()[key]), equal_nan=True
        )


def test_an_ignored_annotation_is_neither_stored_nor_a_seed(
    annotations: BatchAnnotations,
) -> None:
    detector, made = detector_of_three(), with_seeds(*ALL)
    both = annotations._replace(
        is_box=annotations.is_box | annotations.is_ignored
    )  # what is both, is ignored
    outcome, _ = made.losses(work_on(detector, both, APART))
    assert annotations.is_ignored[0, 4]
    assert int(outcome.verdict[0, 4]) == int(Judgement.UNJUDGED)
    assert outcome.loss[0, 4].isnan()
    assert not outcome.is_kept[0, 4]
    assert outcome.rpn.is_ignored[0, 4]
    made.losses(work_on(detector, both, PLAIN))
    assert made.state_dict()["losses"][4].isinf()


@STAGES
@pytest.mark.parametrize("num_annotations", [0, 1])
def test_batches_without_annotations_go_through(
    progress: TrainingProgress, num_annotations: int
) -> None:
    made = with_seeds(*ALL)
    before = made.state_dict()["losses"]
    outcome, losses = made.losses(work_on(detector_of_three(), empty(2, num_annotations), progress))
    assert all(value.isfinite() for value in losses.values())
    assert losses["roi_boxes"] == 0
    assert outcome.boxes.shape == (2, num_annotations, 4)
    assert torch.equal(made.state_dict()["losses"], before)


@STAGES
def test_nothing_waits_for_the_device(
    progress: TrainingProgress, annotations: BatchAnnotations
) -> None:
    made, context = with_seeds(0), work_on(detector_of_three(), annotations, progress)
    with Watch() as watch:
        made.losses(context)
    assert watch.seen
    assert watch.seen.isdisjoint(WAITS)


@STAGES
def test_no_argument_is_changed(progress: TrainingProgress, annotations: BatchAnnotations) -> None:
    before = [part.clone() for part in annotations]
    with_seeds(0).losses(work_on(detector_of_three(), annotations, progress))
    for old, new in zip(before, annotations, strict=True):
        torch.testing.assert_close(old, new, rtol=0, atol=0, equal_nan=True)
