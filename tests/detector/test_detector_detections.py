"""The selection of detections by hand."""

import torch
from torch import Tensor

from boxmend.detector import SecondStageOutput
from boxmend.detector.detections import PaddedDetections, select

BOX, NEAR, FAR = [0.0, 0, 10, 10], [0.0, 0, 10, 9], [50.0, 50, 60, 60]


def scores(probabilities: list[list[float]], boxes: list[list[list[float]]]) -> SecondStageOutput:
    """One image; background takes what is left."""
    foreground = torch.tensor(probabilities)
    background = 1 - foreground.sum(-1, keepdim=True)
    both = torch.cat([background, foreground], dim=-1)[None]
    return SecondStageOutput(both.log(), both, torch.tensor(boxes)[None])


def choose(
    output: SecondStageOutput,
    is_proposal: Tensor | None = None,
    most: int = 100,
    candidates: int = 2000,
) -> PaddedDetections:
    real = torch.ones(output.boxes.shape[:2], dtype=torch.bool)
    return select(
        output,
        real if is_proposal is None else is_proposal,
        score_threshold=0.05,
        overlap=0.5,
        max_detections=most,
        nms_limits=(candidates, 20),
    )


TWO = scores([[0.6, 0.3], [0.7, 0.05], [0.04, 0.9]], [[BOX, BOX], [NEAR, NEAR], [FAR, FAR]])


def test_boxes_are_suppressed_within_their_class_and_ordered_by_score() -> None:
    result = choose(TWO)
    # Class 0: 0.7 NEAR suppresses 0.6 BOX; 0.04 is too low. Class 1: 0.9 FAR, 0.3 BOX; 0.05 itself
    # is not above the threshold.
    assert result.labels[0, :3].tolist() == [1, 0, 1]
    torch.testing.assert_close(result.scores[0, :3], torch.tensor([0.9, 0.7, 0.3]))
    assert result.boxes[0, :3].tolist() == [FAR, NEAR, BOX]
    assert result.is_detection[0].tolist() == [True] * 3 + [False] * 3
    assert result.boxes[0, 3:].eq(0).all()
    assert result.labels[0, 3:].eq(0).all()
    assert result.scores[0, 3:].eq(0).all()


def test_only_the_best_are_returned() -> None:
    result = choose(TWO, most=2)
    assert result.boxes.shape == (1, 2, 4)
    assert result.boxes[0].tolist() == [FAR, NEAR]


def test_padding_proposals_and_boxes_without_extent_are_no_detections() -> None:
    result = choose(TWO, is_proposal=torch.tensor([[True, False, False]]))
    assert result.boxes[0, :2].tolist() == [BOX, BOX]
    assert result.is_detection.sum() == 2
    flat = scores([[0.9, 0.0]], [[[5.0, 5, 5.009, 9], BOX]])
    assert not choose(flat).is_detection.any()


def test_too_few_candidates_are_flagged_only_when_it_matters() -> None:
    # The best three are FAR, NEAR and BOX of class 0, which NEAR suppresses; a fourth is left out.
    assert choose(TWO, candidates=3).is_inexact.tolist() == [True]
    assert choose(TWO, candidates=3, most=2).is_inexact.tolist() == [False]
    assert choose(TWO, candidates=4).is_inexact.tolist() == [False]
