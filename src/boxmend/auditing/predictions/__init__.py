"""Files of predictions of any detector, read into columns.

`read_predictions`, for an audit, takes many formats and infers from the annotations what a file
means by its images, classes and boxes. `read_coco_results`, for an evaluation, takes COCO results
alone, as they are documented, and refuses the rest. Both read a file into `RawDetections` first and
look images up in one `Catalogue`.
"""

from boxmend.auditing.predictions.reading import read_coco_results, read_predictions
from boxmend.auditing.predictions.resolved import Predictions, mark_seen_in_training

__all__ = ["Predictions", "mark_seen_in_training", "read_coco_results", "read_predictions"]
