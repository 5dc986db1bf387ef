"""How good detections are: average precision against annotations that are taken for the truth."""

from boxmend.scores.voc import Detections, TrueBoxes, VocScores, average_precision

__all__ = ["Detections", "TrueBoxes", "VocScores", "average_precision"]
