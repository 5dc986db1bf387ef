"""Detections and true boxes written row by row, for the tests of VOC's average precision."""

from collections.abc import Sequence

import numpy as np

from boxmend.data.detections import Detections
from boxmend.scoring.voc import TrueBoxes, VocScores, average_precision

BOX = (0.0, 0.0, 10.0, 10.0)
FAR = (500.0, 500.0, 510.0, 510.0)  # overlaps nothing else here

Detection = tuple[int, int, float, Sequence[float]]  # image, label, score, box
TrueBox = tuple[int, int, Sequence[float], bool]  # image, label, box, difficult


def place(k: int) -> tuple[float, float, float, float]:
    """The k-th of boxes that lie apart."""
    return (20.0 * k, 0.0, 20.0 * k + 10.0, 10.0)


def score(
    detections: Sequence[Detection], truth: Sequence[TrueBox], num_labels: int = 1
) -> VocScores:
    return average_precision(columns(detections), truth_columns(truth), num_labels=num_labels)


def columns(detections: Sequence[Detection]) -> Detections:
    return Detections(
        np.array([detection[0] for detection in detections], np.int64),
        np.array([detection[1] for detection in detections], np.int64),
        np.array([detection[2] for detection in detections], np.float64),
        np.array([detection[3] for detection in detections], np.float64).reshape(-1, 4),
    )


def truth_columns(truth: Sequence[TrueBox]) -> TrueBoxes:
    return TrueBoxes(
        np.array([one[0] for one in truth], np.int64),
        np.array([one[1] for one in truth], np.int64),
        np.array([one[2] for one in truth], np.float64).reshape(-1, 4),
        np.array([one[3] for one in truth], np.bool_),
    )
