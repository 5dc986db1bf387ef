"""Proposals by hand, then against torchvision's filter."""

import pytest
import torch
from torchvision.models.detection.rpn import concat_box_prediction_layers

from boxmend.detector import RpnOutput
from boxmend.detector.proposals import propose
from tests.detector.detector_scenes import CANVAS, SIZES, detector, images, torchvision_images

ANCHORS = [
    [0.0, 0, 10, 10],  # level 0
    [0.0, 0, 10, 11],  # overlaps the first by 10/11
    [20.0, 20, 30, 30],
    [60.0, 0, 70, 10],  # level 1; right of the image of width 50
    [0.0, 0, 10, 10],  # the first again, but on another level
]


def raw(logits: list[list[float]]) -> RpnOutput:
    deltas = torch.zeros(len(logits), 5, 4)
    return RpnOutput(torch.tensor(logits), deltas, torch.tensor(ANCHORS), (3, 2))


def test_proposals_are_the_best_distinct_boxes_of_all_levels() -> None:
    proposed = propose(raw([[2.0, 3, 0, 9, 1]]), torch.tensor([[40, 50]]), pre_nms=10, post_nms=10)
    # logit 9 lies outside the image; logit 3 suppresses 2; 1 is safe on its own level
    assert proposed.boxes[0, :3].tolist() == [ANCHORS[1], ANCHORS[4], ANCHORS[2]]
    assert proposed.is_proposal.tolist() == [[True, True, True, False, False]]
    expected = torch.tensor([3.0, 1, 0]).sigmoid()
    torch.testing.assert_close(proposed.objectness[0, :3], expected)
    assert proposed.boxes[0, 3:].tolist() == [[0] * 4] * 2
    assert proposed.objectness[0, 3:].tolist() == [0, 0]


def test_boxes_are_cut_off_at_each_images_own_size() -> None:
    both = raw([[0.0, -1, 1, 9, -9]] * 2)
    proposed = propose(both, torch.tensor([[40, 65], [25, 22]]), pre_nms=10, post_nms=10)
    assert proposed.boxes[0, 0].tolist() == [60, 0, 65, 10]
    assert proposed.boxes[1, 0].tolist() == [20, 20, 22, 25]


def test_each_level_sends_only_its_best_and_the_image_keeps_only_the_best() -> None:
    sizes = torch.tensor([[90, 90]])
    one_each = propose(raw([[2.0, 1, 3, 0, 4]]), sizes, pre_nms=1, post_nms=10)
    assert one_each.boxes[0].tolist() == [ANCHORS[4], ANCHORS[2]]
    cut = propose(raw([[2.0, 1, 3, 0, 4]]), sizes, pre_nms=10, post_nms=2)
    assert cut.boxes[0].tolist() == [ANCHORS[4], ANCHORS[2]]
    assert cut.is_proposal.all()


def test_a_suppression_without_rounds_enough_is_flagged_for_its_image() -> None:
    # 10 wide and 1 apart: overlap above 0.7 with the next box only (9/11), 8/12 with the one after
    boxes = torch.tensor([[float(x), 0, x + 10, 10] for x in (0, 1, 2, 3, 4, 30)])
    logits = torch.tensor([[4.0, 3, 2, 1, 0, 9], [4, 0, 3, 1, 2, 9]])
    sizes = torch.tensor([[50, 50], [50, 50]])
    output = RpnOutput(logits, torch.zeros(2, 6, 4), boxes, (5, 1))  # the second level is easy
    flagged = propose(output, sizes, pre_nms=9, post_nms=9, rounds=2)
    assert flagged.is_inexact.tolist() == [True, False]
    settled = propose(output, sizes, pre_nms=9, post_nms=9, rounds=4)
    assert settled.is_inexact.tolist() == [False, False]


@pytest.mark.parametrize("name", ["resnet18", "tiny"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("pre", "post"), [(700, 900), (60, 40)])
def test_proposals_equal_torchvisions(name: str, training: bool, pre: int, post: int) -> None:
    made = detector(name)
    rpn = made.network.rpn
    mode = "training" if training else "testing"
    features = made.features(images(), SIZES)
    output = made.rpn(features)
    proposed = propose(output, SIZES, pre_nms=pre, post_nms=post)

    listed = torchvision_images(torch.zeros(3, 3, *CANVAS))
    maps = list(features.maps.values())
    objectness, deltas = rpn.head(maps)
    anchors = rpn.anchor_generator(listed, maps)
    sizes = [level[0].numel() for level in objectness]
    objectness, deltas = concat_box_prediction_layers(objectness, deltas)
    decoded = rpn.box_coder.decode(deltas.detach(), anchors).view(3, -1, 4)
    before, counts = (rpn._pre_nms_top_n, rpn._post_nms_top_n), ({mode: pre}, {mode: post})
    rpn.training, (rpn._pre_nms_top_n, rpn._post_nms_top_n) = training, counts
    try:
        boxes, scores = rpn.filter_proposals(decoded, objectness, listed.image_sizes, sizes)
    finally:
        rpn.training, (rpn._pre_nms_top_n, rpn._post_nms_top_n) = False, before

    assert torch.equal(output.anchors, anchors[0])
    assert not proposed.is_inexact.any()
    for image in range(3):
        number = int(proposed.is_proposal[image].sum())
        assert number == len(boxes[image]) > 20
        assert proposed.is_proposal[image, :number].all()
        torch.testing.assert_close(proposed.boxes[image, :number], boxes[image])
        torch.testing.assert_close(proposed.objectness[image, :number], scores[image])


def test_no_gradient_flows_through_proposals() -> None:
    output = raw([[2.0, 3, 0, 9, 1]])
    tracked = output._replace(objectness=output.objectness.requires_grad_())
    proposed = propose(tracked, torch.tensor([[40, 50]]), pre_nms=10, post_nms=10)
    assert not proposed.objectness.requires_grad
