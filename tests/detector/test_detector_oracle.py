"""The whole detector against torchvision's, which runs on the same parameters."""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import boxmend.detector
from boxmend.detector import Detector, Features, Proposals, Targets
from boxmend.detector.assignment import assign
from boxmend.detector.sampling import Sample, sample
from boxmend.errors import UsageError
from tests.detector.detector_scenes import (
    CANVAS,
    NUM_LABELS,
    SIZES,
    annotations,
    bypass_resizing,
    detector,
    image_list,
    images,
    second_stage_losses,
    torchvision_images,
    torchvision_targets,
    uniform_keys,
)

DETECTORS = ["resnet18", "tiny"]
ROOM = Path(boxmend.detector.__file__).parent
HOT = sorted(set(ROOM.glob("*.py")) - {ROOM / "weights.py"})


@contextmanager
def change_attributes(target: Any, **values: Any) -> Iterator[None]:
    """Set attributes for a while."""
    before = {name: getattr(target, name) for name in values}
    for name, value in values.items():
        object.__setattr__(target, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            object.__setattr__(target, name, value)


def as_masks(drawn: Sample, number: int, images: list[int]) -> Any:
    """A sampler for torchvision that returns what ours drew, for `number` rows an image."""

    def scatter(chosen: Tensor) -> list[Tensor]:
        masks = torch.zeros(len(images), number + 1, dtype=torch.uint8)
        rows = torch.where(chosen, drawn.rows, number)
        masks.scatter_(1, rows, 1)
        return [mask[:count] for mask, count in zip(masks, images, strict=True)]

    positive, negative = drawn.is_positive, drawn.is_sampled & ~drawn.is_positive
    return lambda labels: (scatter(positive), scatter(negative))


@pytest.mark.parametrize("name", DETECTORS)
def test_features_equal_torchvisions_and_ignore_what_lies_outside_the_images(name: str) -> None:
    made = detector(name)
    bypass_resizing(made.network)
    theirs, _ = made.network.transform(image_list(images()))
    assert theirs.tensors.shape[-2:] == CANVAS
    expected = made.network.backbone(theirs.tensors)
    features = made.features(images(), SIZES)
    assert features.maps.keys() == expected.keys()
    for level, values in expected.items():
        torch.testing.assert_close(features.maps[level], values)


def test_bytes_are_images_like_their_255th_parts() -> None:
    made = detector("tiny")
    as_bytes = (images().clamp(0, 1) * 255).round().byte()
    features = made.features(as_bytes, SIZES).maps
    expected = made.features(as_bytes.float() / 255, SIZES).maps
    torch.testing.assert_close(features, expected)


def test_a_canvas_that_is_no_multiple_of_32_is_refused() -> None:
    with pytest.raises(UsageError, match="96 x 120; expected multiples of 32"):
        detector("tiny").features(torch.zeros(1, 3, 96, 120), torch.tensor([[96, 120]]))


@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("seed", [0, 1])
def test_detections_equal_torchvisions(name: str, seed: int) -> None:
    made = detector(name)
    bypass_resizing(made.network)
    detections = made.detect(images(seed), SIZES)
    with torch.no_grad():
        expected = made.network(image_list(images(seed)))
    assert not detections.is_inexact.any()
    for image, one in enumerate(expected):
        number = int(detections.is_detection[image].sum())
        assert number == len(one["boxes"]) > 10
        assert detections.is_detection[image, :number].all()
        assert (detections.labels[image, :number] + 1).tolist() == one["labels"].tolist()
        torch.testing.assert_close(
            detections.boxes[image, :number], one["boxes"], atol=1e-3, rtol=1e-4
        )
        torch.testing.assert_close(
            detections.scores[image, :number], one["scores"], atol=1e-4, rtol=1e-4
        )


@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("counts", [(3, 5, 1), (0, 6, 2)])
def test_rpn_losses_equal_torchvisions_on_the_same_anchors(
    name: str, counts: tuple[int, ...]
) -> None:
    made = detector(name)
    targets = annotations(counts)
    features = made.features(images(), SIZES)
    raw = made.rpn(features)
    keys = uniform_keys(*raw.objectness.shape)
    result = made.rpn_losses(raw, targets, keys)

    numbers = made.numbers
    assigned = assign(
        raw.anchors[None], targets, thresholds=numbers.rpn_thresholds, low_quality=0.0
    )
    drawn = sample(
        assigned.is_positive,
        assigned.is_negative,
        keys,
        number=numbers.rpn_samples,
        positive_share=numbers.rpn_positive_share,
    )
    number = len(raw.anchors)
    rpn = made.network.rpn
    with change_attributes(rpn, training=True, fg_bg_sampler=as_masks(drawn, number, [number] * 3)):
        listed = torchvision_images(torch.zeros(3, 3, *CANVAS))
        _, expected = rpn(listed, features.maps, torchvision_targets(targets))
    assert drawn.is_positive.any(1).tolist() == [count > 0 for count in counts]
    torch.testing.assert_close(result.objectness, expected["loss_objectness"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(result.boxes, expected["loss_rpn_box_reg"], atol=1e-5, rtol=1e-5)


def roi_case(made: Detector, targets: Targets) -> tuple[Any, Proposals, Tensor]:
    features = made.features(images(), SIZES)
    proposals = made.proposals(made.rpn(features), SIZES)
    keys = uniform_keys(3, proposals.boxes.shape[1] + targets.boxes.shape[1])
    return features, proposals, keys


@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("counts", [(3, 5, 1), (0, 6, 2)])
def test_roi_losses_equal_torchvisions_on_the_same_rois(name: str, counts: tuple[int, ...]) -> None:
    made = detector(name)
    targets = annotations(counts)
    features, proposals, keys = roi_case(made, targets)
    # Padding in the middle of ours is not there in theirs: compare on whole rows of proposals.
    fewest = int(proposals.is_proposal.sum(1).min())
    boxes, objectness, is_proposal = (column[:, :fewest] for column in proposals[:3])
    proposals = Proposals(boxes, objectness, is_proposal, proposals.is_inexact)
    keys = keys[:, : fewest + targets.boxes.shape[1]]
    result = second_stage_losses(made, features, proposals, targets, keys)

    numbers = made.numbers
    assigned = assign(
        torch.cat([proposals.boxes, targets.boxes], dim=1),
        targets,
        thresholds=numbers.roi_thresholds,
        is_candidate=torch.cat([proposals.is_proposal, targets.is_box], dim=1),
    )
    drawn = sample(
        assigned.is_positive,
        assigned.is_negative,
        keys,
        number=numbers.roi_samples,
        positive_share=numbers.roi_positive_share,
    )
    rows = [fewest + count for count in counts]
    heads = made.network.roi_heads
    with change_attributes(
        heads, training=True, fg_bg_sampler=as_masks(drawn, keys.shape[1], rows)
    ):
        sizes = [(height, width) for height, width in SIZES.tolist()]
        _, expected = heads(
            features.maps, list(proposals.boxes), sizes, torchvision_targets(targets)
        )
    assert drawn.is_positive.sum() > 3
    torch.testing.assert_close(
        result.classification, expected["loss_classifier"], atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(result.boxes, expected["loss_box_reg"], atol=1e-5, rtol=1e-5)


def test_every_trained_parameter_gets_a_finite_gradient_despite_invalid_padding() -> None:
    made = detector("tiny")
    targets = annotations((2, 0, 3))
    features, proposals, keys = roi_case(made, targets)
    boxes = torch.where(proposals.is_proposal[..., None], proposals.boxes, float("nan"))
    boxes[:, -20:] = float("inf")
    is_proposal = proposals.is_proposal.clone()
    is_proposal[:, -20:] = False
    hostile = proposals._replace(boxes=boxes, is_proposal=is_proposal)
    raw = made.rpn(features)
    rpn = made.rpn_losses(raw, targets, uniform_keys(*raw.objectness.shape))
    roi = second_stage_losses(made, features, hostile, targets, keys)
    parameters = [p for p in made.network.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(torch.stack([*rpn, *roi]).sum(), parameters)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert sum(bool(gradient.any()) for gradient in gradients) == len(gradients)


@pytest.mark.parametrize("soft", [False, True])
def test_padding_rows_and_their_number_change_no_loss(soft: bool) -> None:
    made = detector("tiny")
    few, many = annotations((2, 0, 3), rows=3), annotations((2, 0, 3), rows=9)
    if soft:
        few, many = (
            padded._replace(soft=torch.rand(3, padded.boxes.shape[1], 1 + NUM_LABELS) * 0 + 0.2)
            for padded in (few, many)
        )
        assert many.soft is not None
        many.soft[~many.is_box] = float("nan")
    features, proposals, keys = roi_case(made, many)
    number = proposals.boxes.shape[1]
    long = second_stage_losses(made, features, proposals, many, keys)
    short = second_stage_losses(made, features, proposals, few, keys[:, : number + 3])
    torch.testing.assert_close(long, short)


def test_without_any_annotation_all_is_background() -> None:
    made = detector("tiny")
    none = annotations((0, 0, 0), rows=0)
    features, proposals, keys = roi_case(made, none)
    rois = made.sample_rois(proposals, none, keys)
    assert not rois.is_positive.any()
    assert rois.is_sampled.all()
    loss = second_stage_losses(made, features, proposals, none, keys)
    assert loss.boxes == 0
    assert loss.classification > 0
    raw = made.rpn(features)
    assert made.rpn_losses(raw, none, uniform_keys(*raw.objectness.shape)).boxes == 0


def test_rois_have_the_label_of_their_annotation_and_the_deltas_to_its_box() -> None:
    made = detector("tiny")
    targets = annotations((2, 0, 3))
    _, proposals, keys = roi_case(made, targets)
    keys[:, -6:] = 0.999  # the annotated boxes themselves come first
    rois = made.sample_rois(proposals, targets, keys)
    for image, count in enumerate((2, 0, 3)):
        own = rois.boxes[image, rois.is_positive[image]][:count]
        assert sorted(own.tolist()) == sorted(targets.boxes[image, :count].tolist())
    positive = rois.is_positive
    wanted = targets.labels.gather(1, rois.matched)
    assert torch.equal(rois.labels[positive], wanted[positive])
    assert (rois.deltas[~positive] == 0).all()
    assert (rois.labels[~positive] == 0).all()


def test_ignored_annotations_are_no_rois_and_their_surroundings_no_background() -> None:
    made = detector("tiny")
    targets = annotations((2, 0, 3))
    ignored = targets._replace(is_ignored=torch.ones_like(targets.is_box))
    _, proposals, keys = roi_case(made, targets)
    around = proposals._replace(boxes=proposals.boxes.clone())
    around.boxes[0, :5] = targets.boxes[0, 0]
    keys[:, :5] = 0.999
    assert made.sample_rois(around, targets, keys).is_positive[0].sum() >= 5
    rois = made.sample_rois(around, ignored, keys)
    assert not rois.is_positive.any()
    assert not (rois.boxes[0] == targets.boxes[0, 0]).all(-1).any()
    flat = ignored._replace(boxes=torch.full_like(targets.boxes, 7.0))  # overlaps not even itself
    keys[:, -6:] = 0.9999
    assert not (made.sample_rois(around, flat, keys).boxes == 7).all(-1).any()


def test_soft_targets_and_weights_reach_the_positive_rois_alone() -> None:
    made = detector("tiny")
    targets = annotations((2, 0, 3))
    features, proposals, keys = roi_case(made, targets)
    plain = second_stage_losses(made, features, proposals, targets, keys)
    one_hot = torch.nn.functional.one_hot(targets.labels.clamp(max=NUM_LABELS - 1) + 1, 5).float()
    torch.testing.assert_close(
        second_stage_losses(made, features, proposals, targets._replace(soft=one_hot), keys), plain
    )
    rois = made.sample_rois(proposals, targets, keys)
    output = made.roi_outputs(features, rois.boxes)
    each = torch.nn.functional.cross_entropy(
        output.logits.flatten(0, 1),
        torch.where(rois.is_positive, rois.labels + 1, 0).flatten(),
        reduction="none",
    ).view(3, -1)
    factor = torch.where(rois.is_positive, 0.25, 1.0)
    expected = (each * factor)[rois.is_sampled].mean()
    weighted = targets._replace(weights=torch.full_like(targets.boxes[..., 0], 0.25))
    result = second_stage_losses(made, features, proposals, weighted, keys)
    torch.testing.assert_close(result.classification, expected)
    torch.testing.assert_close(result.boxes, plain.boxes)


def test_scores_hold_probabilities_and_clipped_boxes_for_every_class() -> None:
    made = detector("resnet18")
    features = made.features(images(), SIZES)
    boxes = annotations((3, 5, 1)).boxes
    scores = made.score(features, boxes, SIZES)
    assert scores.logits.shape == (3, 6, 1 + NUM_LABELS)
    assert scores.boxes.shape == (3, 6, NUM_LABELS, 4)
    torch.testing.assert_close(scores.probabilities, scores.logits.softmax(-1))
    assert scores.boxes.isfinite().all()
    for image, (height, width) in enumerate(SIZES.tolist()):
        assert scores.boxes[image, ..., 2].max() <= width
        assert scores.boxes[image, ..., 3].max() <= height
    first = Features({name: level[:1] for name, level in features.maps.items()}, CANVAS)
    alone = made.score(first, boxes[:1, :3], SIZES[:1])
    torch.testing.assert_close(alone.logits[0], scores.logits[0, :3])
    assert not torch.equal(scores.boxes[:, :, 0], scores.boxes[:, :, 1])
    tiny = detector("tiny")
    agnostic = tiny.score(tiny.features(images(), SIZES), boxes, SIZES).boxes
    assert torch.equal(agnostic[:, :, 0], agnostic[:, :, 3])


def test_half_precision_leaves_boxes_and_losses_in_float32() -> None:
    made = detector("tiny")
    targets = annotations((2, 0, 3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features, proposals, keys = roi_case(made, targets)
        raw = made.rpn(features)
        losses = [
            *made.rpn_losses(raw, targets, uniform_keys(*raw.objectness.shape)),
            *second_stage_losses(made, features, proposals, targets, keys),
        ]
        scores = made.score(features, proposals.boxes, SIZES)
    assert features.maps["0"].dtype == torch.bfloat16
    assert {value.dtype for value in (*losses, *scores, proposals.boxes)} == {torch.float32}
    exact = made.rpn_losses(
        made.rpn(made.features(images(), SIZES)), targets, uniform_keys(*raw.objectness.shape)
    )
    torch.testing.assert_close(losses[0], exact.objectness, rtol=0.05, atol=0.05)


def test_no_input_of_the_detector_is_changed() -> None:
    made = detector("tiny")
    targets = annotations((2, 0, 3))
    batch, sizes = images(), SIZES.clone()
    before = SimpleNamespace(batch=batch.clone(), targets=[c.clone() for c in targets[:4]])
    features, proposals, keys = roi_case(made, targets)
    kept = keys.clone()
    second_stage_losses(made, features, proposals, targets, keys)
    made.detect(batch, sizes)
    assert torch.equal(batch, before.batch)
    assert torch.equal(keys, kept)
    assert torch.equal(sizes, SIZES)
    for column, original in zip(targets[:4], before.targets, strict=True):
        torch.testing.assert_close(column, original, equal_nan=True)


@pytest.mark.parametrize("path", HOT, ids=lambda path: path.name)
def test_no_source_in_the_step_asks_for_a_value_or_a_shape_that_depends_on_data(path: Path) -> None:
    calls = {
        node.func.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    waiting = {"item", "tolist", "cpu", "numpy", "nonzero", "unique", "masked_select", "argwhere"}
    assert calls.isdisjoint(waiting)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # which the test switches on
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_training_step_never_waits_for_the_device() -> None:
    made = detector("tiny")
    network = made.network.cuda()
    learning = list(network.parameters())
    boxes, labels, *masks = (column.cuda() for column in annotations((2, 0, 3))[:4])
    targets = Targets(boxes, labels, masks[0], masks[1])
    batch, sizes = images().cuda(), SIZES.cuda()
    number = 12 * 16 * 9
    anchor_keys, roi_keys = uniform_keys(3, number).cuda(), uniform_keys(3, 156).cuda()

    def step() -> Tensor:
        features = made.features(batch, sizes)
        raw = made.rpn(features)
        rpn = made.rpn_losses(raw, targets, anchor_keys)
        roi = second_stage_losses(made, features, made.proposals(raw, sizes), targets, roi_keys)
        total = torch.stack([*rpn, *roi]).sum()
        torch.autograd.grad(total, learning)
        made.detect(batch, sizes)
        return total

    try:
        step()  # caches fill
        torch.cuda.set_sync_debug_mode("error")
        assert step().requires_grad
    finally:
        torch.cuda.set_sync_debug_mode("default")
        network.cpu()
