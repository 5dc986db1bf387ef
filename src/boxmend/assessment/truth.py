"""The truth about the annotations of a dataset, row by row."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from boxmend.dataset import Dataset


@dataclass(frozen=True, eq=False)
class KnownTruth:
    """What the annotations of a dataset should be, in its order and by its label names."""

    labels: NDArray[np.int64]  # [n] UNKNOWN where there is no object, or a label it does not know
    boxes: NDArray[np.float64]  # [n, 4] NaN where there is no object
    is_spurious: NDArray[np.bool_]  # [n] annotations of nothing
    image_rows: NDArray[np.int64]  # [m] of all true boxes, also of those without an annotation
    image_boxes: NDArray[np.float64]  # [m, 4]

    def is_wrong(self, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[n] Whether each of these labels, given row by row, differs from the true one."""
        is_wrong: NDArray[np.bool_] = labels != self.labels
        return is_wrong


def known_truth(source: str | Path, dataset: Dataset) -> KnownTruth:
    """Read the truth of a dataset from `truth.parquet`, or from the clean dataset at an address."""
    raise NotImplementedError
