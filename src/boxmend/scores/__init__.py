"""How good detections are: average precision against annotations that are taken for the truth."""

from boxmend.scores.coco import CocoScores, CocoTruth, coco_scores, detection_sizes
from boxmend.scores.voc import TrueBoxes, VocScores, average_precision

__all__ = [
    "CocoScores",
    "CocoTruth",
    "TrueBoxes",
    "VocScores",
    "average_precision",
    "coco_scores",
    "detection_sizes",
]
