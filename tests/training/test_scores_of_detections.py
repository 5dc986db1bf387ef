"""Average precision of detections against a dataset whose classes have another order."""

from pathlib import Path

import numpy as np
import pytest

from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.training.validation import score
from tests.training.small_runs import drawn

BOX = (10.0, 10.0, 50.0, 50.0)
KNOWN = ("star", "disc", "square")  # of the detector; the dataset has disc, square, star


@pytest.fixture
def truth(tmp_path: Path) -> Dataset:
    """A disc, a square and a star, each in an image of its own."""
    return drawn(tmp_path / "data", [(0, BOX), (1, BOX), (2, BOX)])


def make_detections(*pairs: tuple[int, int]) -> Detections:
    """Perfect boxes, (image row, label of the detector)."""
    rows, labels = np.array(pairs).T
    return Detections(rows, labels, np.linspace(0.9, 0.5, len(pairs)), np.array([BOX] * len(pairs)))


def test_classes_are_matched_by_name(truth: Dataset) -> None:
    scores = score(make_detections((0, 1), (1, 2), (2, 0)), truth, KNOWN)
    assert scores.ap_area.tolist() == [1, 1, 1]
    scores = score(make_detections((0, 0), (1, 1), (2, 2)), truth, KNOWN)
    assert scores.ap_area.tolist() == [0, 0, 0]


def test_classes_that_the_detector_does_not_know_are_not_asked_for(truth: Dataset) -> None:
    scores = score(make_detections((1, 1)), truth, ("disc", "square"))
    assert scores.num_truth.tolist() == [1, 1]
    assert scores.ap_area.tolist() == [0, 1]


@pytest.mark.parametrize("column", ["is_difficult", "is_crowd"])
def test_difficult_and_crowded_objects_are_not_asked_for(truth: Dataset, column: str) -> None:
    getattr(truth, column)[1] = True
    scores = score(make_detections((0, 1), (1, 2), (2, 0)), truth, KNOWN)
    assert scores.num_truth.tolist() == [1, 1, 0]
    assert scores.num_difficult.tolist() == [0, 0, 1]
    np.testing.assert_array_equal(scores.ap_area, [1, 1, np.nan])
