"""CA-BBC: the step of a box by hand, and what comes of the annotations of a batch."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from boxmend.detector import Detector
from boxmend.methods import equations
from boxmend.methods.equations import dual_heads
from boxmend.methods.noise_estimator import NoiseEstimator
from boxmend.methods.peers.ca_bbc import CaBbc, box_gradient
from boxmend.methods.steps import run_first_stage
from boxmend.methods.table import BatchAnnotations, Method, Outcome, Rates, TrainingProgress
from boxmend.runs.judgement import Judgement
from boxmend.runs.settings import CaBbcSettings, MendSettings
from tests.methods.method_batches import LATER, WARM_UP, one_image, pad, random_batch
from tests.methods.peers.ca_bbc_scenes import (
    LOSSES,
    QUICK,
    RAMP_BOX,
    RAMP_SLOPES,
    made,
    ramp_detector,
    ramp_features,
    two_heads,
    work_on,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def ramp_image(*boxes: list[float]) -> BatchAnnotations:
    return one_image(list(boxes), [0] * len(boxes))._replace(sizes=torch.tensor([[32.0, 40]]))


def step_boxes(method: CaBbc, annotations: BatchAnnotations) -> Tensor:
    return method._step_boxes(ramp_detector(), ramp_features(), annotations)


def mend_batch(
    method: Method,
    detector: Detector,
    annotations: BatchAnnotations,
    progress: TrainingProgress = LATER,
) -> Outcome:
    return method.losses(work_on(detector, annotations, progress))[0]


def test_the_gradient_of_a_box_equals_the_hand_computed_one() -> None:
    annotations = ramp_image(RAMP_BOX)
    gradient = box_gradient(ramp_detector(), ramp_features(), annotations, 0.1)
    torch.testing.assert_close(gradient, torch.tensor([[RAMP_SLOPES]]))


def test_padding_boxes_have_no_gradient() -> None:
    annotations = ramp_image(RAMP_BOX, RAMP_BOX)
    annotations = annotations._replace(is_box=torch.tensor([[True, False]]))
    gradient = box_gradient(ramp_detector(), ramp_features(), annotations, 0.1)
    torch.testing.assert_close(gradient, torch.tensor([[RAMP_SLOPES, [0.0] * 4]]))


def test_a_typical_box_moves_by_alpha_and_its_other_sides_in_proportion() -> None:
    # 16 wide, 12 high: slopes in sides 16 * 0.06328 = 1.0125 and 12 * 0.21094 = 2.53125. The last
    # of a queue of one is typical, so y moves by -0.06 of 12 and x by -0.06 * 1.0125 / 2.53125 =
    # -0.024 of 16.
    moved = step_boxes(made(CaBbcSettings(queue_length=1)), ramp_image(RAMP_BOX))
    torch.testing.assert_close(moved, torch.tensor([[[7.616, 3.28, 23.616, 15.28]]]))


def test_the_median_of_recent_annotations_is_typical() -> None:
    method = made(CaBbcSettings(queue_length=4))
    state = method.state_dict()
    state["slopes"] = torch.tensor([0.1, 5.0625, 100, 7])
    method.load_state_dict(state)
    # pushed: 2.53125, so the queue is 5.0625, 100, 7, 2.53125; the second smallest is 5.0625,
    # twice the box's own: half the step
    moved = step_boxes(method, ramp_image(RAMP_BOX))
    torch.testing.assert_close(moved, torch.tensor([[[7.808, 3.64, 23.808, 15.64]]]))
    torch.testing.assert_close(method.slopes, torch.tensor([5.0625, 100, 7, 2.53125]))


def test_no_box_moves_until_half_the_queue_is_filled() -> None:
    method, annotations = made(CaBbcSettings(queue_length=4)), ramp_image(RAMP_BOX)
    assert step_boxes(method, annotations).tolist() == [[RAMP_BOX]]
    assert step_boxes(method, annotations).tolist() != [[RAMP_BOX]]


def test_a_step_in_pixels_is_alpha_times_the_slope_cut_off_at_a_tenth_of_the_box() -> None:
    # 10 * 0.06328 = 0.6328 to the left; 10 * 0.21094 = 2.1 upwards, but 0.1 * 12 = 1.2 at most
    moved = step_boxes(made(CaBbcSettings(step_unit="pixels", alpha=10)), ramp_image(RAMP_BOX))
    expected = torch.tensor([[[8 - 0.6328125, 4 - 1.2, 24 - 0.6328125, 16 - 1.2]]])
    torch.testing.assert_close(moved, expected)


def test_a_box_that_steps_out_of_the_image_is_cut_off() -> None:
    # its middle is (17/3, 2) in cells, where the ramp has 37 too, so it moves up and to the left;
    # 15.5 high, of which a tenth is 1.55
    left = 4 * 17 / 3 - 8
    annotations = ramp_image([left, 0.25, left + 16, 15.75])
    moved = step_boxes(made(CaBbcSettings(queue_length=1, alpha=0.1)), annotations)
    assert moved[0, 0, 1] == 0
    assert moved[0, 0, 3].item() == pytest.approx(15.75 - 1.55)


def test_where_heads_leave_no_slope_at_all_no_box_moves() -> None:
    features = ramp_features()._replace(maps={"0": torch.full((1, 1, 8, 10), 5.0)})
    method, annotations = made(CaBbcSettings(queue_length=1)), ramp_image(RAMP_BOX)
    assert method._step_boxes(ramp_detector(), features, annotations).tolist() == [[RAMP_BOX]]


@pytest.mark.parametrize(
    ("settings", "box", "alpha"),
    [
        (CaBbcSettings(), 0.2, 0.03),
        (CaBbcSettings(), 0.4, 0.06),
        (CaBbcSettings(), None, 0.06),  # unknown and without an estimator: as for 40 %
        (CaBbcSettings(step_unit="pixels"), 0.0, 0),
        (CaBbcSettings(step_unit="pixels"), 0.2, 100),
        (CaBbcSettings(step_unit="pixels"), 0.4, 200),
        (CaBbcSettings(alpha=0.01), 0.4, 0.01),
    ],
)
def test_the_length_of_a_step_follows_the_box_noise(
    settings: CaBbcSettings, box: float | None, alpha: float
) -> None:
    assert made(settings, Rates(box=box)).alpha == pytest.approx(alpha)


def test_the_soft_label_and_the_final_box_come_from_both_heads_at_the_corrected_box() -> None:
    detector, (annotations, _) = two_heads(), random_batch(9)
    outcome = mend_batch(
        made(replace(QUICK, queue_length=1, include_background=True)), detector, annotations
    )
    context = work_on(detector, annotations, LATER)
    with torch.no_grad():
        features = run_first_stage(context).features
        each = detector.head_outputs(features, outcome.matched)
        args = (outcome.matched, features.canvas, annotations.sizes)
        first, second = (detector.decode_output(one, *args) for one in each)
    labels = torch.where(annotations.is_box, annotations.labels, 0)
    soft = dual_heads.sharpened_labels(labels, first.probabilities, second.probabilities, 0.4)
    is_box = annotations.is_box
    assert outcome.roi.soft is not None
    torch.testing.assert_close(outcome.roi.soft[is_box], soft[is_box])
    wanted = soft[..., 1:].argmax(-1)
    assert torch.equal(outcome.labels[is_box], wanted[is_box])
    torch.testing.assert_close(outcome.confidence[is_box], soft[..., 1:].amax(-1)[is_box])
    boxes = equations.boxes_of_class((first.boxes + second.boxes) / 2, wanted)
    torch.testing.assert_close(outcome.boxes[is_box], boxes[is_box])
    mean = (first.probabilities + second.probabilities) / 2
    losses = equations.label_losses(mean, labels, is_box)
    torch.testing.assert_close(outcome.loss[is_box], losses[is_box])
    assert not torch.equal(outcome.matched[is_box], annotations.boxes[is_box])


def test_background_is_in_the_soft_label_only_by_a_setting() -> None:
    detector, (annotations, _) = two_heads(), random_batch(9)
    without = mend_batch(made(), detector, annotations).roi.soft
    with_it = mend_batch(
        made(replace(QUICK, include_background=True)), detector, annotations
    ).roi.soft
    assert without is not None
    assert with_it is not None
    assert (without[..., 0] == 0).all()
    assert (with_it[annotations.is_box][:, 0] > 0).all()
    torch.testing.assert_close(without.sum(-1), torch.ones(annotations.labels.shape))


@pytest.mark.parametrize("mixing", [0.0, 0.5])
def test_the_final_box_lies_between_the_corrected_one_and_the_regressions(mixing: float) -> None:
    detector, (annotations, _) = two_heads(), random_batch(9)
    whole = mend_batch(made(), detector, annotations)
    mixed = mend_batch(made(replace(QUICK, regression_share=mixing)), detector, annotations)
    expected = mixing * whole.boxes + (1 - mixing) * whole.matched
    torch.testing.assert_close(mixed.boxes, expected, atol=1e-4, rtol=1e-4)


def test_the_judgement_shows_which_labels_changed() -> None:
    detector, (annotations, _) = two_heads(), random_batch(9)
    outcome = mend_batch(made(replace(QUICK, temperature=0.05)), detector, annotations)
    changed = outcome.labels != annotations.labels
    is_box = annotations.is_box
    relabelled = outcome.verdict == int(Judgement.RELABELLED)
    assert torch.equal(relabelled[is_box], changed[is_box])
    assert (outcome.verdict[is_box & ~relabelled] == int(Judgement.KEPT)).all()
    assert outcome.threshold.isnan().all()
    assert not outcome.num_candidates.any()
    assert torch.equal(outcome.is_kept, is_box)


def test_boxes_known_to_be_right_are_unchanged() -> None:
    detector, (annotations, _) = two_heads(), random_batch(9)
    method = made(rates=Rates(label=0.4, box=0.0))
    outcome = mend_batch(method, detector, annotations)
    for boxes in (outcome.boxes, outcome.matched, outcome.roi.boxes, outcome.rpn.boxes):
        assert torch.equal(boxes[annotations.is_box], annotations.boxes[annotations.is_box])
    assert outcome.roi.soft is not None
    assert method.slopes.isinf().all()


def test_labels_known_to_be_right_are_unchanged() -> None:
    detector, (annotations, _) = two_heads(), random_batch(9)
    outcome = mend_batch(made(rates=Rates(label=0.0, box=0.4)), detector, annotations)
    assert torch.equal(outcome.labels[annotations.is_box], annotations.labels[annotations.is_box])
    assert outcome.roi.soft is None
    assert (outcome.verdict == int(Judgement.UNJUDGED)).all()
    assert not torch.equal(outcome.boxes[annotations.is_box], annotations.boxes[annotations.is_box])


def test_warm_up_trains_on_the_annotations_as_they_are() -> None:
    annotations, _ = random_batch(9)
    method = made()
    outcome, losses = method.losses(work_on(two_heads(), annotations, WARM_UP))
    is_real = annotations.is_box | annotations.is_ignored
    assert torch.equal(outcome.roi.boxes[is_real], annotations.boxes[is_real])
    assert torch.equal(outcome.roi.labels[is_real], annotations.labels[is_real])
    assert outcome.roi.soft is None
    assert (outcome.verdict == int(Judgement.UNJUDGED)).all()
    assert losses.keys() == LOSSES
    assert method.slopes.isinf().all()
    assert method.phase(WARM_UP) != method.phase(LATER)


def test_padding_is_inert() -> None:
    detector, (annotations, _) = two_heads(), random_batch(9)
    one, other = made(), made()
    outcome, wider = (
        mend_batch(one, detector, annotations),
        mend_batch(other, detector, pad(annotations, by=3)),
    )
    count = annotations.boxes.shape[1]
    for name in ("boxes", "matched", "labels", "verdict", "confidence", "loss", "is_kept"):
        narrow, wide = getattr(outcome, name), getattr(wider, name)
        torch.testing.assert_close(wide[:, :count], narrow, equal_nan=True)
    assert not wider.roi.is_box[:, count:].any()
    torch.testing.assert_close(one.slopes, other.slopes)
    for name, value in outcome.metrics.items():
        torch.testing.assert_close(wider.metrics[name], value)


def test_ignored_annotations_pass_through_and_leave_no_trace() -> None:
    detector, (annotations, _) = two_heads(), random_batch(9)
    one, other = made(), made()
    outcome = mend_batch(one, detector, annotations)
    mend_batch(
        other, detector, annotations._replace(is_ignored=torch.zeros_like(annotations.is_ignored))
    )
    ignored = annotations.is_ignored
    assert ignored.any()
    assert torch.equal(outcome.boxes[ignored], annotations.boxes[ignored])
    assert torch.equal(outcome.labels[ignored], annotations.labels[ignored])
    assert (outcome.verdict[ignored] == int(Judgement.UNJUDGED)).all()
    assert (outcome.roi.is_box & outcome.roi.is_ignored)[ignored].all()
    torch.testing.assert_close(one.slopes, other.slopes)


@pytest.mark.parametrize(("measured", "noise"), [(0.019, 0.0), (0.021, 0.021)])
def test_an_estimate_below_two_percent_switches_the_step_off(measured: float, noise: float) -> None:
    watch = NoiseEstimator(4, 3, MendSettings(), Rates(label=0.0))
    method = CaBbc(QUICK, Rates(label=0.0), estimator=watch)
    bounds = torch.tensor([0.01, 0.03], dtype=torch.float64)
    method.load_state_dict({**method.state_dict(), "box_noise": measured, "box_bounds": bounds})
    assert method.box_noise == pytest.approx(noise)
