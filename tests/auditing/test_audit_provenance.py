"""What is said of where predictions come from."""

import numpy as np
import pytest
from numpy.typing import NDArray

from boxmend.auditing.predictions import ResolvedPredictions
from boxmend.auditing.provenance import is_too_good, provenance_warnings
from tests.auditing.audit_scenes import Noise, scene

ONE = scene(Noise(), images=50)


def predictions(
    labels: NDArray[np.int64] | None = None,
    shift: float = 0.0,
    folds: NDArray[np.int64] | None = None,
) -> ResolvedPredictions:
    """The annotations themselves, with other labels, moved by a share of the width, or by folds."""
    dataset = ONE.dataset
    boxes = dataset.boxes.copy()
    boxes[:, [0, 2]] += shift * (boxes[:, 2] - boxes[:, 0])[:, None]
    n = len(dataset)
    return ResolvedPredictions(
        dataset.image_rows,
        dataset.labels if labels is None else labels,
        np.full(n, 0.99),
        boxes,
        None,
        np.full(n, -1) if folds is None else folds,
    )


def relabelled(number: int) -> NDArray[np.int64]:
    labels = ONE.dataset.labels.copy()
    labels[:number] = (labels[:number] + 1) % 5
    return labels


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (predictions(), True),
        (predictions(relabelled(5)), True),  # 195 of 200 agree: 97.5 %
        (predictions(relabelled(7)), False),  # 193 of 200: 96.5 %
        (predictions(shift=0.03), True),  # an IoU of 0.97 / 1.03 = 0.942
        (predictions(shift=0.04), False),  # of 0.96 / 1.04 = 0.923
    ],
)
def test_labels_and_edges_have_to_agree_to_look_like_those_of_training(
    found: ResolvedPredictions, expected: bool
) -> None:
    assert is_too_good(ONE.dataset, found) == expected


def test_predictions_are_known_to_be_of_unseen_images_only_if_all_have_a_fold() -> None:
    folds = np.zeros(200, np.int64)
    assert provenance_warnings(ONE.dataset, predictions(folds=folds), unseen=False) == []
    folds[7] = -1
    (said,) = provenance_warnings(ONE.dataset, predictions(folds=folds), unseen=False)
    assert said.startswith("WARNING: the predictions agree")
    assert provenance_warnings(ONE.dataset, predictions(folds=folds), unseen=True) == []
    (said,) = provenance_warnings(ONE.dataset, predictions(shift=0.1), unseen=False)
    assert said.startswith("WARNING: the detector may have been trained")
