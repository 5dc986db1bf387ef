"""Assignment by hand, and against torchvision's matcher."""

import pytest
import torch
from torchvision.models.detection._utils import Matcher
from torchvision.ops import box_iou

from boxmend.detector import Targets
from boxmend.detector.assignment import assign
from tests.detector.detector_scenes import annotations, random_boxes

NAN = float("nan")


def targets(boxes: list[list[float]], is_ignored: list[bool], padding: int = 1) -> Targets:
    """One image whose padding rows hold the first box again and claim nothing."""
    number = len(boxes)
    rows = torch.tensor([*boxes, *[boxes[0]] * padding])[None]
    is_box = torch.tensor([[True] * number + [False] * padding])
    ignored = torch.tensor([[*is_ignored, *[False] * padding]])
    return Targets(rows, torch.zeros(1, number + padding, dtype=torch.long), is_box, ignored)


A = [0.0, 0, 10, 10]
CANDIDATES = torch.tensor(
    [
        [
            [0.0, 0, 10, 10],  # IoU with A: 1
            [0.0, 0, 10, 7],  # 0.7
            [0.0, 0, 10, 6.9],  # 0.69
            [0.0, 0, 10, 3],  # 0.3
            [0.0, 0, 10, 2.9],  # 0.29
            [50.0, 50, 60, 60],  # 0
        ]
    ]
)


def test_thresholds_are_reached_from_above_and_missed_from_below() -> None:
    assignment = assign(CANDIDATES, targets([A], [False]), thresholds=(0.3, 0.7))
    assert assignment.is_positive.tolist() == [[True, True, False, False, False, False]]
    assert assignment.is_negative.tolist() == [[False, False, False, False, True, True]]
    assignment = assign(CANDIDATES, targets([A], [False]), thresholds=(0.5, 0.5))
    assert assignment.is_positive.tolist() == [[True, True, True, False, False, False]]
    assert assignment.is_negative.tolist() == [[False, False, False, True, True, True]]


def test_a_candidate_belongs_to_the_annotation_it_overlaps_most() -> None:
    both = targets([[0.0, 0, 10, 20], A, [50, 50, 60, 60]], [False] * 3)
    assignment = assign(CANDIDATES, both, thresholds=(0.3, 0.7))
    assert assignment.matched[0, [0, 1, 5]].tolist() == [1, 1, 2]
    assert assignment.is_positive[0, 5]


def test_the_best_candidates_of_an_annotation_are_positive_however_low() -> None:
    far = targets([[0.0, 0, 10, 100]], [False])  # IoU 0.1, 0.07, 0.069, ...
    assignment = assign(CANDIDATES, far, thresholds=(0.3, 0.7), low_quality=0.0)
    assert assignment.is_positive.tolist() == [[True] + [False] * 5]
    assert assignment.is_negative.tolist() == [[False] + [True] * 5]
    twice = torch.cat([CANDIDATES, CANDIDATES[:, :1]], dim=1)
    tied = assign(twice, far, thresholds=(0.3, 0.7), low_quality=0.0)
    assert tied.is_positive.tolist() == [[True] + [False] * 5 + [True]]
    bounded = assign(CANDIDATES, far, thresholds=(0.3, 0.7), low_quality=0.3)
    assert not bounded.is_positive.any()


def test_an_annotation_without_overlap_has_no_positives() -> None:
    lost = targets([[200.0, 200, 210, 210], [3, 3, 3, 3]], [False, False])
    assignment = assign(CANDIDATES, lost, thresholds=(0.3, 0.7), low_quality=0.0)
    assert not assignment.is_positive.any()
    assert assignment.is_negative.all()


def test_around_an_ignored_annotation_nothing_is_positive_or_negative() -> None:
    assignment = assign(CANDIDATES, targets([A], [True]), thresholds=(0.5, 0.5))
    assert not assignment.is_positive.any()
    # IoU 1, 0.7 and 0.69 reach 0.5; 0.3, 0.29 and 0 do not
    assert assignment.is_negative.tolist() == [[False, False, False, True, True, True]]
    exact = assign(CANDIDATES, targets([A], [True]), thresholds=(0.5, 0.5), ignore_from=0.69)
    assert exact.is_negative.tolist() == [[False, False, False, True, True, True]]


def test_a_positive_stays_positive_beside_an_ignored_annotation() -> None:
    assignment = assign(CANDIDATES, targets([A, A], [True, False]), thresholds=(0.5, 0.5))
    assert assignment.is_positive.tolist() == [[True, True, True, False, False, False]]
    assert assignment.matched[0, :3].tolist() == [1, 1, 1]


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_in_an_image_without_annotations_all_is_negative(rows: int) -> None:
    nothing = torch.zeros(1, rows, dtype=torch.bool)
    empty = Targets(torch.full((1, rows, 4), NAN), nothing.long(), nothing, ~nothing)
    assignment = assign(CANDIDATES, empty, thresholds=(0.3, 0.7), low_quality=0.0)
    assert not assignment.is_positive.any()
    assert assignment.is_negative.all()


def test_padding_candidates_are_ignored_and_claim_no_annotation() -> None:
    padded = torch.cat([CANDIDATES[:, 3:], torch.tensor([[A, [NAN] * 4]])], dim=1)
    is_candidate = torch.tensor([[True, True, True, False, False]])
    assignment = assign(
        padded,
        targets([A], [False]),
        thresholds=(0.3, 0.7),
        low_quality=0.0,
        is_candidate=is_candidate,
    )
    assert assignment.is_positive.tolist() == [
        [True, False, False, False, False]
    ]  # the best real one
    assert assignment.is_negative.tolist() == [[False, True, True, False, False]]


@pytest.mark.parametrize("thresholds", [(0.3, 0.7), (0.5, 0.5)])
@pytest.mark.parametrize("low_quality", [0.0, None])
def test_assignment_equals_torchvisions_matcher(
    thresholds: tuple[float, float], low_quality: float | None
) -> None:
    annotated = annotations()
    candidates = torch.stack([random_boxes(300, (90, 120), seed) for seed in range(3)])
    assignment = assign(candidates, annotated, thresholds=thresholds, low_quality=low_quality)
    matcher = Matcher(thresholds[1], thresholds[0], low_quality is not None)
    for image in range(3):
        real = annotated.boxes[image, annotated.is_box[image]]
        theirs = matcher(box_iou(real, candidates[image]))
        assert torch.equal(assignment.is_positive[image], theirs >= 0)
        assert torch.equal(assignment.is_negative[image], theirs == Matcher.BELOW_LOW_THRESHOLD)
        positive = assignment.is_positive[image]
        assert torch.equal(assignment.matched[image, positive], theirs[positive])


def test_a_batch_is_assigned_like_its_images_one_by_one() -> None:
    annotated = annotations()._replace(is_ignored=torch.tensor([[True] + [False] * 5] * 3))
    candidates = torch.stack([random_boxes(50, (90, 120), seed) for seed in range(3)])
    together = assign(candidates, annotated, thresholds=(0.3, 0.7), low_quality=0.0)
    for image in range(3):
        boxes, labels, *masks = (column[image : image + 1] for column in annotated[:4])
        one = Targets(boxes, labels, masks[0], masks[1])
        alone = assign(candidates[image : image + 1], one, thresholds=(0.3, 0.7), low_quality=0.0)
        for ours, single in zip(together, alone, strict=True):
            assert torch.equal(ours[image : image + 1], single)
