"""The second stage's losses by hand: which targets go before which, and what a RoI weighs."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from boxmend.detector import DETECTORS, Detector, Proposals, Targets, build
from boxmend.detector.faster_rcnn import RoiOutput, RoiSample

NAN = float("nan")
NO = torch.tensor([False])
LN2, LN4, LN5 = math.log(2), math.log(4), math.log(5)

# Two classes, three RoIs: an object of annotation 1 (label 0, column 1), background, padding.
LOGITS = [[[0.0, LN2, 0.0], [math.log(3), 0.0, 0.0], [NAN, NAN, NAN]]]
# probabilities 1/4 2/4 1/4 and 3/5 1/5 1/5
ROIS = RoiSample(
    boxes=torch.tensor([[[0.0, 0, 8, 8], [8, 8, 9, 9], [NAN] * 4]]),
    matched=torch.tensor([[1, 0, 0]]),
    is_sampled=torch.tensor([[True, True, False]]),
    is_positive=torch.tensor([[True, False, False]]),
    labels=torch.tensor([[0, 0, 0]]),
    deltas=torch.tensor([[[0.0, 0, 0, 0.25], [0, 0, 0, 0], [0, 0, 0, 0]]]),
)
WANTED = torch.tensor([[[0.0, 0.25, 0.75], [0.5, 0.5, 0.0], [NAN, NAN, NAN]]])


@pytest.fixture(scope="module")
def detector() -> Detector:
    return build("tiny", 2, numbers=replace(DETECTORS["tiny"].numbers, box_loss="l1"))


def output(logits: Tensor | None = None) -> RoiOutput:
    """Deltas that are absurd in every column but that of label 0."""
    deltas = torch.full((1, 3, 3, 4), 100.0)
    deltas[0, 0, 1] = torch.tensor([0.5, 0, 0, 0])
    return RoiOutput(torch.tensor(LOGITS) if logits is None else logits, deltas)


def targets(soft: Tensor | None = None, weights: Tensor | None = None) -> Targets:
    """Two annotations, of which the second has a RoI."""
    is_box = torch.tensor([[True, True]])
    boxes = torch.tensor([[[0.0, 0, 4, 4], [0, 0, 8, 8]]])
    return Targets(boxes, torch.tensor([[1, 0]]), is_box, ~is_box, soft, weights)


SOFT = torch.tensor([[[0.0, 1, 0], [0, 0.5, 0.5]]])  # of the first, background is near


def test_labels_are_the_targets_by_default(detector: Detector) -> None:
    losses = detector.roi_losses(output(), ROIS, targets())
    # -log 2/4 for the object, -log 3/5 for the background
    torch.testing.assert_close(losses.classification, torch.tensor((LN2 + math.log(5 / 3)) / 2))


def test_soft_targets_of_the_annotation_go_before_its_label(detector: Detector) -> None:
    losses = detector.roi_losses(output(), ROIS, targets(SOFT))
    expected = (0.5 * LN2 + 0.5 * LN4 + math.log(5 / 3)) / 2
    torch.testing.assert_close(losses.classification, torch.tensor(expected))


@pytest.mark.parametrize("soft", [None, SOFT], ids=["labels", "soft labels"])
def test_class_targets_go_before_labels_and_soft_labels(
    soft: Tensor | None, detector: Detector
) -> None:
    logits = torch.tensor(LOGITS, requires_grad=True)
    losses = detector.roi_losses(output(logits), ROIS, targets(soft), WANTED)
    # the background RoI, too, trains on its class target: halves of -log 3/5 and -log 1/5
    expected = (0.25 * LN2 + 0.75 * LN4 + 0.5 * math.log(5 / 3) + 0.5 * LN5) / 2
    torch.testing.assert_close(losses.classification, torch.tensor(expected))
    (gradient,) = torch.autograd.grad(losses.classification, logits)
    # (p - t) / 2, and nothing for what was not sampled
    by_hand = [[[0.125, 0.125, -0.25], [0.05, -0.15, 0.1], [0, 0, 0]]]
    torch.testing.assert_close(gradient, torch.tensor(by_hand))


def test_weights_of_the_annotation_hold_for_class_targets_too(detector: Detector) -> None:
    weights = torch.tensor([[NAN, 0.5]])  # the first is of no RoI
    losses = detector.roi_losses(output(), ROIS, targets(weights=weights), WANTED)
    expected = (0.5 * (0.25 * LN2 + 0.75 * LN4) + 0.5 * math.log(5 / 3) + 0.5 * LN5) / 2
    torch.testing.assert_close(losses.classification, torch.tensor(expected))


def test_boxes_are_compared_in_the_regression_of_the_label(
    detector: Detector,
) -> None:
    plain = detector.roi_losses(output(), ROIS, targets())
    soft = detector.roi_losses(output(), ROIS, targets(SOFT), WANTED)
    assert plain.boxes == soft.boxes == (0.5 + 0.25) / 2


def test_class_targets_count_without_annotations_too(detector: Detector) -> None:
    none = torch.zeros(1, 0, dtype=torch.bool)
    nothing = Targets(
        torch.zeros(1, 0, 4), none.long(), none, none, torch.zeros(1, 0, 3), torch.zeros(1, 0)
    )
    rois = ROIS._replace(is_positive=ROIS.is_positive & False)
    losses = detector.roi_losses(output(), rois, nothing, WANTED)
    expected = (0.25 * LN2 + 0.75 * LN4 + 0.5 * math.log(5 / 3) + 0.5 * LN5) / 2
    torch.testing.assert_close(losses.classification, torch.tensor(expected))
    assert losses.boxes == 0


def test_regression_targets_are_the_deltas_from_rois_to_box_targets(detector: Detector) -> None:
    """RoIs are sampled by the boxes; their deltas lead to the box targets."""
    targeted = targets()
    nothing = Proposals(torch.zeros(1, 0, 4), torch.zeros(1, 0), torch.zeros(1, 0).bool(), NO)
    keys = torch.rand(1, 2, generator=torch.Generator())
    plain = detector.sample_rois(nothing, targeted, keys)
    box_targets = targeted.boxes + torch.tensor([-2.0, 0, 2, 0])  # wider by 4, the centre stays
    aimed = detector.sample_rois(nothing, targeted._replace(box_targets=box_targets), keys)
    assert torch.equal(plain.boxes, aimed.boxes)
    assert not plain.deltas.any()
    side = aimed.boxes[..., 2] - aimed.boxes[..., 0]
    weight = detector.numbers.delta_weights[2]
    wanted = torch.where(aimed.is_positive, weight * ((side + 4) / side).log(), 0)
    torch.testing.assert_close(aimed.deltas[..., 2], wanted)
    assert not aimed.deltas[..., [0, 1, 3]].any()


def test_annotations_may_set_another_box_loss(detector: Detector) -> None:
    # differences of 0.5 and 0.25, over two RoIs: l1, and d^2 / 4 of beta 2
    for beta, expected in ((None, 0.375), (2.0, 0.0390625)):
        losses = detector.roi_losses(output(), ROIS, targets()._replace(beta=beta))
        torch.testing.assert_close(losses.boxes, torch.tensor(expected))
