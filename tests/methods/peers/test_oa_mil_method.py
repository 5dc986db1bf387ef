"""OA-MIL: a whole step by numbers worked out by hand, and steps of the tiny detector."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from boxmend.detector import Detector, RoiSample
from boxmend.detector.boxes import clip
from boxmend.detector.coding import decode
from boxmend.errors import UsageError
from boxmend.methods.peers.oa_mil import OaMil
from boxmend.methods.steps import draw_rois, run_first_stage
from boxmend.methods.table import BatchAnnotations, MethodInputs, TrainingProgress, build
from boxmend.runs.ledger import Judgement
from boxmend.runs.settings import MendSettings, OaMilSettings
from tests.methods.method_batches import NAN, one_image, pad, random_batch
from tests.methods.peers.bag_scenes import (
    LATE,
    MIDDLE,
    START,
    Scripted,
    lively,
    reached,
    tiny,
    total,
    without_annotations,
    work_on,
)

pytestmark = pytest.mark.usefixtures("one_thread")

LOSSES = ["rpn_objectness", "rpn_boxes", "roi_classes", "roi_boxes", "roi_bags"]
MOMENTS = pytest.mark.parametrize(
    "progress", [START, MIDDLE, LATE], ids=["before", "selecting", "extending"]
)
BOXES = [[10.0, 10, 30, 30], [50.0, 50, 70, 70], [80.0, 80, 90, 90]]
LABELS = [1, 0, 1]
# Annotation 0 of label 1 has two RoIs, annotation 1 of label 0 one, annotation 2 none; the last RoI
# is background.
ROIS = RoiSample(
    boxes=torch.tensor([[[10.0, 10, 30, 30], [12, 10, 32, 30], [50, 50, 70, 70], [0, 0, 9, 9]]]),
    matched=torch.tensor([[0, 0, 1, 0]]),
    is_sampled=torch.ones(1, 4, dtype=torch.bool),
    is_positive=torch.tensor([[True, True, True, False]]),
    labels=torch.tensor([[1, 1, 0, 0]]),
    deltas=torch.tensor([[[0.0, 0, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]]),
)
STILL = [0.0, 0, 0, 0]
EVEN = [1 / 3] * 3
# The first pass moves the RoIs to (12, ..) and (16, ..), 2 px a delta, and leaves the third.
FIRST = [
    (EVEN, [1.0, 0, 0, 0]),
    (EVEN, [2.0, 0, 0, 0]),
    (EVEN, STILL),
    (EVEN, STILL),
]
# Scores of the labels at the moved boxes: 0.6, 0.8 and 0.5.
SECOND = [
    ([0.1, 0.3, 0.6], [1.0, 0, 0, 0]),
    ([0.1, 0.1, 0.8], [-1.0, 0, 0, 0]),
    ([0.4, 0.5, 0.1], STILL),
]


@pytest.fixture
def annotations() -> BatchAnnotations:
    """Four annotations and an ignored one, three annotations, none."""
    return random_batch(9)[0]


def make_scripted(*answers: list[tuple[list[float], list[float]]]) -> Scripted:
    return Scripted(ROIS, [FIRST, *answers])


def make_method(**changes: Any) -> OaMil:
    return OaMil(replace(OaMilSettings(gamma=2.0), **changes))


def test_the_best_box_of_a_bag_moves_the_target_of_regression() -> None:
    detector = make_scripted(SECOND)
    outcome, losses = make_method().losses(work_on(detector, one_image(BOXES, LABELS), MIDDLE))
    # Annotation 0: the second RoI is best, phi = 0.8^2 = 0.64, so x goes from 10 to 10 + 0.64 * 6.
    # Annotation 1: its only box is the given one. Annotation 2: no bag.
    expected = torch.tensor([[[13.84, 10, 33.84, 30], BOXES[1], BOXES[2]]])
    torch.testing.assert_close(outcome.boxes, expected)
    chosen = torch.tensor([[[16.0, 10, 36, 30], BOXES[1], BOXES[2]]])
    torch.testing.assert_close(outcome.matched, chosen)
    torch.testing.assert_close(outcome.confidence[0, :2], torch.tensor([0.8, 0.5]))
    assert outcome.num_candidates.tolist() == [[2, 1, 0]]
    assert outcome.verdict.tolist() == [[Judgement.UNJUDGED] * 3]
    # Wanted deltas: 3.84 / 2 = 1.92 where the delta is 1, 1.84 / 2 = 0.92 where it is 2; of 4 RoIs.
    assert losses["roi_boxes"].item() == pytest.approx((0.92 + 1.08) / 4)
    # 1 - S: 0.2 for class 1, 0.5 for class 0; their mean 0.35, times lambda
    assert losses["roi_bags"].item() == pytest.approx(0.035)
    assert losses["roi_classes"].item() == pytest.approx(math.log(3))
    assert [one.shape[1] for one in detector.asked] == [4, 3]  # background is not asked again


def test_theta_is_the_most_that_a_box_moves() -> None:
    detector = make_scripted(SECOND)
    outcome, _ = make_method(theta=0.5).losses(work_on(detector, one_image(BOXES, LABELS), MIDDLE))
    assert outcome.boxes[0, 0].tolist() == pytest.approx([13, 10, 33, 30])


def test_assignment_classes_and_the_first_stage_stay_with_the_given_boxes() -> None:
    annotations = one_image(BOXES, LABELS)
    outcome, _ = make_method().losses(work_on(make_scripted(SECOND), annotations, MIDDLE))
    for targets in (outcome.rpn, outcome.roi):
        assert torch.equal(targets.boxes, annotations.boxes)
        assert torch.equal(targets.labels, annotations.labels)
        assert targets.is_real.all()


def test_before_selection_only_the_scores_of_bags_are_trained() -> None:
    annotations = one_image(BOXES, LABELS)
    outcome, losses = make_method().losses(work_on(make_scripted(SECOND), annotations, START))
    assert torch.equal(outcome.boxes, annotations.boxes)
    assert (outcome.verdict == int(Judgement.UNJUDGED)).all()
    # as sampled: 0 where the delta is 1, -1 where it is 2
    assert losses["roi_boxes"].item() == pytest.approx((1 + 3) / 4)
    assert losses["roi_bags"].item() == pytest.approx(0.035)


# Extension. Scores 0.7 and 0.1 (class 1) and 0.9 (class 0): 1 - S = (0.3 + 0.1) / 2 = 0.2; then
# 0.4, 0.9 and 0.3: (0.1 + 0.7) / 2 = 0.4. Without: 0.35 as above.
THIRD = [([0.2, 0.1, 0.7], [3.0, 0, 0, 0]), ([0.8, 0.1, 0.1], STILL), ([0.1, 0.9, 0.0], STILL)]
FOURTH = [([0.5, 0.1, 0.4], STILL), ([0.1, 0.0, 0.9], STILL), ([0.6, 0.3, 0.1], STILL)]


@pytest.mark.parametrize(
    ("changes", "loss"),
    [
        ({"extension": "refine"}, 0.1 * (0.35 + (0.2 + 0.4) / 2)),
        ({"extension": "refine", "extension_weight": 0.5}, 0.1 * (0.35 + 0.15)),
        ({"extension": "random"}, 0.1 * (0.35 + 0.2 + 0.4) / 3),
        ({"extension": "random", "bag_loss_weight": 2.0}, 2 * (0.35 + 0.2 + 0.4) / 3),
        ({"extension_weight": 0.0}, 0.035),
    ],
)
def test_extended_bags_count_beside_the_first(changes: dict[str, Any], loss: float) -> None:
    detector = make_scripted(SECOND, THIRD, FOURTH)
    method = make_method(extension_rounds=2, **changes)
    outcome, losses = method.losses(work_on(detector, one_image(BOXES, LABELS), LATE))
    assert losses["roi_bags"].item() == pytest.approx(loss)
    assert not detector.answers
    # the first round alone chooses, although a later one has a box of score 0.9
    assert outcome.boxes[0, 0, 0].item() == pytest.approx(13.84)
    assert outcome.confidence[0, 0].item() == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("kind", "second", "third"),
    [
        # RoI 0 is at 10, its box of the first round at 12: deltas 1, then 1, then 3, 2 px each
        ("refine", [14.0, 14.0], [20.0, 14.0]),
        ("random", [12.0, 10.0], [16.0, 12.0]),
    ],
)
def test_a_round_starts_from_the_last_boxes_or_from_the_rois(
    kind: str, second: list[float], third: list[float]
) -> None:
    detector = make_scripted(SECOND, THIRD, FOURTH)
    method = make_method(extension_rounds=2, extension=kind)
    method.losses(work_on(detector, one_image(BOXES, LABELS), LATE))
    first_x = [one[0, :2, 0].tolist() for one in detector.asked]
    assert first_x[1] == pytest.approx([12, 16])
    assert first_x[2] == pytest.approx(second)
    assert first_x[3] == pytest.approx(third)


def test_without_extensions_late_steps_are_like_others() -> None:
    detector = make_scripted(SECOND)
    method = make_method(extension_rounds=0)
    _, losses = method.losses(work_on(detector, one_image(BOXES, LABELS), LATE))
    assert losses["roi_bags"].item() == pytest.approx(0.035)


def at(step: int) -> TrainingProgress:
    return TrainingProgress(
        epoch=step // 10, step=step, num_steps=120, warm_up_steps_left=0, num_epochs=12
    )


def test_phases_change_with_the_second_and_the_ninth_of_twelve_epochs() -> None:
    method = OaMil()
    phases = [method.phase(at(step)) for step in range(120)]
    changes = [step for step in range(1, 120) if phases[step] != phases[step - 1]]
    assert changes == [10, 80]
    assert len(set(phases)) == 3


def test_a_batch_is_divided_by_the_counts_of_all_processes() -> None:
    class Doubled:
        """Simulate another process with the same values."""

        def all_gather(self, *tensors: Tensor) -> tuple[Tensor, ...]:
            return tensors

        def all_sum(self, tensor: Tensor, /) -> Tensor:
            return 2 * tensor

    method = make_method()
    method.exchange = Doubled()
    _, losses = method.losses(work_on(make_scripted(SECOND), one_image(BOXES, LABELS), MIDDLE))
    assert losses["roi_bags"].item() == pytest.approx(0.035 / 2)


def literal_bag_loss(
    detector: Detector, annotations: BatchAnnotations, progress: TrainingProgress
) -> tuple[float, Tensor]:
    """Bag by bag in plain loops: the loss with lambda 1 and without extension, and the boxes."""
    context = work_on(detector, annotations, progress)
    seen = run_first_stage(context)
    context.draw(seen.raw.objectness.shape)
    annotations = annotations._replace(
        boxes=annotations.boxes.nan_to_num(), labels=annotations.labels.clamp(min=0)
    )
    targets = OaMil().losses(work_on(detector, annotations, progress))[0].roi
    rois = draw_rois(context, seen.proposals, targets)
    most = int(detector.numbers.roi_samples * detector.numbers.roi_positive_share)
    assert not rois.is_positive[:, most:].any()
    output = detector.roi_outputs(seen.features, rois.boxes)
    scores: dict[int, list[float]] = {}
    boxes = annotations.boxes.clone()
    for image, place in annotations.is_box.nonzero().tolist():
        label = int(annotations.labels[image, place])
        mine = (rois.is_positive & (rois.matched == place))[image].nonzero()[:, 0]
        if not len(mine):
            continue
        deltas = output.deltas[image, mine, label + 1]
        own = decode(deltas, rois.boxes[image, mine], detector.numbers.delta_weights)
        own = clip(own[None], annotations.sizes[image : image + 1])
        alone = seen.features._replace(
            maps={name: one[image : image + 1] for name, one in seen.features.maps.items()}
        )
        result = detector.roi_outputs(alone, own).logits.softmax(-1)[0, :, label + 1]
        best, score = own[0, result.argmax()], float(result.max())
        scores.setdefault(label, []).append(score)
        phi = min(score**0.5, 0.85)
        boxes[image, place] = phi * best + (1 - phi) * annotations.boxes[image, place]
    means = [sum(one) / len(one) for one in scores.values()]
    return 1 - sum(means) / len(means), boxes


def test_a_step_is_that_of_plain_loops_over_bags() -> None:
    annotations, proposals = random_batch(9)
    detector = lively("oa-mil", proposals)
    method = make_method(bag_loss_weight=1.0, gamma=0.5)
    with torch.no_grad():
        outcome, losses = method.losses(work_on(detector, annotations, MIDDLE))
        loss, boxes = literal_bag_loss(detector, annotations, MIDDLE)
    assert losses["roi_bags"].item() == pytest.approx(loss, rel=1e-5)
    is_box = annotations.is_box
    torch.testing.assert_close(outcome.boxes[is_box], boxes[is_box], rtol=1e-4, atol=1e-3)
    assert (outcome.boxes[is_box] - annotations.boxes[is_box]).abs().max() > 1
    assert outcome.num_candidates[is_box].max() > 3


@MOMENTS
def test_losses_are_finite_and_always_have_the_same_names(
    annotations: BatchAnnotations, progress: TrainingProgress
) -> None:
    _, losses = OaMil().losses(work_on(tiny("oa-mil"), annotations, progress))
    assert list(losses) == LOSSES
    assert all(value.isfinite() and value.dim() == 0 for value in losses.values())
    assert losses["roi_bags"] > 0


@MOMENTS
def test_bags_give_gradients_to_the_classifier_and_not_to_the_regression(
    annotations: BatchAnnotations, progress: TrainingProgress
) -> None:
    detector = tiny("oa-mil")
    _, losses = OaMil().losses(work_on(detector, annotations, progress))
    names = reached(losses["roi_bags"], detector.network)
    assert "roi_heads.box_predictor.cls_score.weight" in names
    assert "backbone.stem.0.weight" in names
    assert not any("bbox_pred" in name or name.startswith("rpn.") for name in names)
    everything = reached(total(losses), detector.network)
    assert everything == {name for name, _ in detector.network.named_parameters()}


def test_the_new_target_changes_the_regression_and_not_the_classification(
    annotations: BatchAnnotations,
) -> None:
    detector, method = tiny("oa-mil"), make_method(gamma=0.0)
    _, before = method.losses(work_on(detector, annotations, START))
    _, after = method.losses(work_on(detector, annotations, MIDDLE))
    for name in LOSSES:
        assert torch.equal(before[name], after[name]) is (name != "roi_boxes"), name


@MOMENTS
def test_padding_is_inert(annotations: BatchAnnotations, progress: TrainingProgress) -> None:
    detector, count = tiny("oa-mil"), annotations.boxes.shape[1]
    outcome, losses = OaMil().losses(work_on(detector, annotations, progress))
    wider, same = OaMil().losses(work_on(detector, pad(annotations, by=3), progress))
    for name in LOSSES:
        torch.testing.assert_close(losses[name], same[name])
    for name in ("boxes", "matched", "confidence", "loss", "verdict", "num_candidates", "labels"):
        one, other = getattr(outcome, name), getattr(wider, name)
        torch.testing.assert_close(one, other[:, :count], equal_nan=True)
    assert not wider.is_kept[:, count:].any()


@MOMENTS
def test_an_ignored_annotation_is_unchanged_and_its_label_has_no_effect(
    annotations: BatchAnnotations, progress: TrainingProgress
) -> None:
    detector = tiny("oa-mil")
    outcome, losses = OaMil().losses(work_on(detector, annotations, progress))
    other = annotations._replace(
        labels=torch.where(annotations.is_ignored, 1 - annotations.labels % 2, annotations.labels)
    )
    _, same = OaMil().losses(work_on(detector, other, progress))
    for name in LOSSES:
        assert torch.equal(losses[name], same[name])
    assert torch.equal(
        outcome.boxes[annotations.is_ignored], annotations.boxes[annotations.is_ignored]
    )
    assert (outcome.verdict[annotations.is_ignored] == int(Judgement.UNJUDGED)).all()
    assert (outcome.num_candidates[annotations.is_ignored] == 0).all()
    assert not outcome.is_kept[annotations.is_ignored].any()


@MOMENTS
@pytest.mark.parametrize("num_annotations", [1, 3])
def test_images_without_annotations_are_background(
    num_annotations: int, progress: TrainingProgress
) -> None:
    detector = tiny("oa-mil")
    none = without_annotations(num_annotations=num_annotations)
    outcome, losses = OaMil().losses(work_on(detector, none, progress))
    assert losses["roi_bags"].item() == 0
    assert all(value.isfinite() for value in losses.values())
    assert outcome.boxes.isfinite().all()
    assert (outcome.verdict == int(Judgement.UNJUDGED)).all()
    total(losses).backward()  # type: ignore[no-untyped-call]
    grads = [
        parameter.grad for parameter in detector.network.parameters() if parameter.grad is not None
    ]
    assert all(one.isfinite().all() for one in grads)


@MOMENTS
def test_half_the_precision_gives_whole_boxes(
    annotations: BatchAnnotations, progress: TrainingProgress
) -> None:
    detector = tiny("oa-mil")
    whole, _ = make_method(gamma=0.5).losses(work_on(detector, annotations, progress))
    with torch.autocast("cpu", torch.bfloat16):
        half, losses = make_method(gamma=0.5).losses(work_on(detector, annotations, progress))
    assert all(value.isfinite() and value.dtype == torch.float32 for value in losses.values())
    is_box = annotations.is_box
    assert (half.boxes[is_box] - whole.boxes[is_box]).abs().median() < 0.5  # pixels of 100
    assert half.boxes.dtype == torch.float32


def test_it_has_no_state() -> None:
    method = build("oa-mil", MethodInputs(8, 3, settings=OaMilSettings(bag_loss_weight=0.2)))
    assert isinstance(method, OaMil)
    assert method.settings.bag_loss_weight == 0.2
    assert method.state_dict() == {}
    method.load_state_dict({})


def test_settings_of_another_method_are_refused() -> None:
    with pytest.raises(UsageError, match="oa-mil takes OaMilSettings, not MendSettings"):
        build("oa-mil", MethodInputs(1, 1, settings=MendSettings()))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("bag_loss_weight", -0.1), ("gamma", math.inf), ("theta", 1.1), ("selection_from", NAN)),
        *(("extension_from", 2.0), ("extension_rounds", -1), ("extension", "both")),
        ("extension_weight", -1.0),
    ],
)
def test_settings_out_of_range_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=rf"oa_mil\.{name} is "):
        OaMilSettings(**{name: value})
