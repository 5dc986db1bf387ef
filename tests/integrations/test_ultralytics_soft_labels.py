"""Soft labels that pass through Ultralytics' loader as fractions of the class."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from boxmend.integrations.ultralytics.soft_labels import (
    MAX_CLASSES,
    STEPS,
    decode,
    encode,
    soften_targets,
)


def test_the_fraction_holds_the_second_class_and_the_probability_of_the_first() -> None:
    soft = np.array([[0.25, 0.0, 0.75], [0.0, 1.0, 0.0], [0.6, 0.3, 0.1]], np.float32)
    classes = encode(np.array([2, 1, 0]), soft)
    steps = 8  # 0.25 of 32
    assert classes[0] == 2 + (0 * STEPS + steps) / (MAX_CLASSES * STEPS)
    assert classes[1] == 1
    second, share = decode(torch.from_numpy(classes))
    assert second.tolist() == [0, 0, 1]
    assert share.tolist() == [0.75, 1.0, pytest.approx(2 / 3, abs=0.5 / STEPS)]


def test_a_label_that_is_not_the_most_probable_has_no_fraction() -> None:
    soft = np.array([[0.4, 0.6]], np.float32)
    assert encode(np.array([0]), soft).tolist() == [0]


def test_one_class_and_too_many_classes_stay_hard() -> None:
    assert encode(np.array([0]), np.ones((1, 1), np.float32)).tolist() == [0]
    soft = np.zeros((1, MAX_CLASSES + 1), np.float32)
    soft[0, 3:5] = 0.5
    assert encode(np.array([3]), soft).tolist() == [3]
    assert encode(np.zeros(0, np.int64), np.zeros((0, 3), np.float32)).shape == (0,)


@given(
    label=st.integers(0, MAX_CLASSES - 1),
    other=st.integers(0, MAX_CLASSES - 1),
    share=st.floats(0.5, 1.0),
)
def test_all_classes_survive_single_precision(label: int, other: int, share: float) -> None:
    soft = np.zeros((1, MAX_CLASSES), np.float32)
    soft[0, other] = 1 - share
    soft[0, label] = share if label != other else 1
    classes = encode(np.array([label]), soft)
    assert int(classes[0]) == label
    second, decoded = decode(torch.from_numpy(classes))
    if label != other:
        assert float(decoded) == pytest.approx(share, abs=0.5 / STEPS + 1e-6)
        assert float(decoded) == 1 or int(second) == other


def test_targets_share_the_score_of_an_anchor_between_two_classes() -> None:
    labels = torch.from_numpy(
        encode(np.array([2, 1]), np.array([[0.25, 0, 0.75], [0, 1, 0]], np.float32))
    )
    target_gt_idx = torch.tensor([[0, 1, 0]])
    fg_mask = torch.tensor([[1, 1, 0]])

    def get_targets(*arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scores = torch.tensor([[[0, 0, 1], [0, 1, 0], [0, 0, 0]]], dtype=torch.int8)
        return torch.tensor([[2, 1, 2]]), torch.zeros(1, 3, 4), scores

    criterion = SimpleNamespace(assigner=SimpleNamespace(get_targets=get_targets))
    soften_targets(criterion)
    once = criterion.assigner.get_targets
    soften_targets(criterion)
    assert criterion.assigner.get_targets is once
    _, _, soft = once(labels[None, :, None], torch.zeros(1, 2, 4), target_gt_idx, fg_mask)
    assert soft[0].tolist() == [[0.25, 0, 0.75], [0, 1, 0], [0, 0, 0]]
