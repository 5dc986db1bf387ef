"""Predictions of any detector, in memory or in files, as columns.

`read_predictions`, for an audit, reads many formats, and infers the meaning of images, classes and
boxes from the annotations. `read_coco_results`, for an evaluation, reads only COCO results as they
are documented, and refuses everything else. Both first read a file into `RawDetections`, and then
look up its images in a `Catalogue`. `Predictions` holds arrays, which mean exactly what is
documented.
"""

from boxmend.auditing.predictions.arrays import Predictions
from boxmend.auditing.predictions.reading import read_coco_results, read_predictions
from boxmend.auditing.predictions.resolved import ResolvedPredictions, mark_seen_in_training

__all__ = [
    "Predictions",
    "ResolvedPredictions",
    "mark_seen_in_training",
    "read_coco_results",
    "read_predictions",
]
