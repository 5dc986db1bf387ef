"""The second stage against numbers worked out on paper: pooling, probabilities, regression."""

import math
from dataclasses import replace

import pytest
import torch

from boxmend.detector import DETECTORS, Detector, build
from boxmend.detector.pooling import pool

NUM_LABELS = 2
SIZE = (64, 96)  # height and width of the one image
BOX = [20.0, 20, 40, 60]  # centre (30, 40), 20 x 40


def constant_detector() -> Detector:
    """Return a detector whose second stage gives the same output, its biases, for every box."""
    numbers = replace(DETECTORS["tiny"].numbers, is_class_agnostic=False)
    made = build("tiny", NUM_LABELS, numbers=numbers)
    predictor = made.network.roi_heads.box_predictor
    with torch.no_grad():
        for layer in (predictor.cls_score, predictor.bbox_pred):
            layer.weight.zero_()
        # s = 1 / 8, 2 / 8, 5 / 8 for background and the two classes
        predictor.cls_score.bias.copy_(torch.tensor([1.0, 2, 5]).log())
        # deltas are divided by 10, 10, 5, 5; those of background are never read
        nothing, moved = [99.0] * 4, [5.0, -2.5, 0, 0]  # by half a width, by -1/4 of a height
        grown = [0.0, 0, 5 * math.log(2), -5 * math.log(2)]  # twice as wide, half as high
        predictor.bbox_pred.bias.copy_(torch.tensor([*nothing, *moved, *grown]))
    return made


def test_a_ramp_is_pooled_to_the_centres_of_the_bins() -> None:
    # A level of stride 4 whose value is its column. The box spans the columns 1 to 4.5, so seven
    # bins are half a column wide, with centres 1.25, 1.75, ... 4.25; all rows are alike.
    level = torch.arange(8.0).expand(1, 1, 8, 8)
    pooled = pool([level], torch.tensor([[[4.0, 8, 18, 22]]]), (32, 32))
    expected = torch.tensor([1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4.25]).expand(1, 1, 7, 7)
    torch.testing.assert_close(pooled, expected)


def test_scores_are_the_softmax_and_boxes_the_decoded_deltas_of_each_class() -> None:
    made, sizes = constant_detector(), torch.tensor([SIZE])
    features = made.features(torch.zeros(1, 3, *SIZE), sizes)
    with torch.no_grad():
        scores = made.score(features, torch.tensor([[BOX]]), sizes)
    assert scores.probabilities[0, 0].tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8])
    # class 0: centre (30 + 10, 40 - 10), 20 x 40; class 1: centre (30, 40), 40 x 20
    expected = torch.tensor([[30.0, 10, 50, 50], [10.0, 30, 50, 50]])
    torch.testing.assert_close(scores.boxes[0, 0], expected)


def test_regressed_boxes_end_at_the_border_of_their_image() -> None:
    made, sizes = constant_detector(), torch.tensor([[45, 48]])  # smaller than the canvas
    features = made.features(torch.zeros(1, 3, *SIZE), sizes)
    with torch.no_grad():
        scores = made.score(features, torch.tensor([[BOX]]), sizes)
    expected = torch.tensor([[30.0, 10, 48, 45], [10.0, 30, 48, 45]])
    torch.testing.assert_close(scores.boxes[0, 0], expected)
