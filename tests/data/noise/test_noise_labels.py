"""Label noise against counts and labels worked out by hand."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from boxmend.data.noise.labels import apportion, relabel_by_matrix, relabel_pairs, relabel_symmetric
from boxmend.data.noise.streams import Stream, uniforms
from boxmend.errors import UsageError

rates = st.floats(0, 1)
labels_of_four = st.lists(st.integers(0, 3), max_size=80).map(lambda all: np.array(all, np.int64))


def keys_for(labels: NDArray[np.int64]) -> NDArray[np.float64]:
    return uniforms(0, Stream.LABEL_CHOICE, len(labels))


def test_symmetric_noise_relabels_the_smallest_keys_by_stepping_over_their_own_label() -> None:
    labels = np.array([0, 1, 2, 3, 1])
    keys = np.array([0.1, 0.2, 0.9, 0.3, 0.8])
    draws = np.array([0.0, 0.5, 0.0, 0.99, 0.0])  # of the 3 others: the first, second, -, last, -
    # rate 0.6 of 5 is 3: rows 0, 1 and 3. 0 -> first of (1, 2, 3), 1 -> second of (0, 2, 3),
    # 3 -> last of (0, 1, 2).
    assert relabel_symmetric(labels, keys, draws, 0.6, 4).tolist() == [1, 2, 2, 2, 1]


@given(labels_of_four, rates)
def test_symmetric_noise_changes_exactly_the_rounded_share(
    labels: NDArray[np.int64], rate: float
) -> None:
    draws = uniforms(0, Stream.LABEL_TARGET, len(labels))
    noisy = relabel_symmetric(labels, keys_for(labels), draws, rate, 4)
    assert (noisy != labels).sum() == round(rate * len(labels))
    assert set(noisy.tolist()) <= {0, 1, 2, 3}


def test_symmetric_noise_takes_every_other_label_equally_often() -> None:
    labels = np.full(30_000, 2)
    draws = uniforms(0, Stream.LABEL_TARGET, len(labels))
    times = np.bincount(relabel_symmetric(labels, keys_for(labels), draws, 1.0, 4), minlength=4)
    assert times[2] == 0
    assert times[[0, 1, 3]] == pytest.approx(10_000, abs=350)


def test_pair_noise_sends_each_label_to_the_next_and_the_last_to_the_first() -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2, 2])
    keys = np.array([0.4, 0.1, 0.3, 0.2, 0.9, 0.8, 0.5, 0.6, 0.7, 0.1])
    # half of each label: rows 1 and 3 of label 0, row 5 of label 1, rows 6 and 9 of label 2
    assert relabel_pairs(labels, keys, 0.5, 3).tolist() == [0, 1, 0, 1, 1, 2, 0, 2, 2, 0]


@given(labels_of_four, rates)
def test_pair_noise_changes_exactly_the_rounded_share_of_each_label(
    labels: NDArray[np.int64], rate: float
) -> None:
    noisy = relabel_pairs(labels, keys_for(labels), rate, 4)
    for label in range(4):
        before = labels == label
        assert (noisy[before] == (label + 1) % 4).sum() == round(rate * before.sum())
        assert set(noisy[before].tolist()) <= {label, (label + 1) % 4}


@pytest.mark.parametrize("num_labels", [0, 1])
def test_a_single_label_cannot_be_confused_with_another(num_labels: int) -> None:
    labels, keys = np.zeros(num_labels * 3, np.int64), np.zeros(num_labels * 3)
    with pytest.raises(UsageError, match=f"two labels, but the dataset has {num_labels}"):
        relabel_symmetric(labels, keys, keys, 0.4, num_labels)
    with pytest.raises(UsageError, match="pair label noise needs at least two labels"):
        relabel_pairs(labels, keys, 0.4, num_labels)


def test_a_confusion_matrix_gives_exact_counts_label_by_label() -> None:
    labels = np.array([0] * 10 + [1] * 5 + [2] * 3)
    confusion = {0: {1: 0.2, 2: 0.3}, 2: {0: 1.0}}
    noisy = relabel_by_matrix(labels, keys_for(labels), confusion, 3)
    assert Counter(noisy[:10].tolist()) == {0: 5, 1: 2, 2: 3}
    assert noisy[10:].tolist() == [1] * 5 + [0] * 3


def test_the_smallest_keys_are_those_that_a_matrix_confuses() -> None:
    labels = np.zeros(4, np.int64)
    keys = np.array([0.4, 0.2, 0.1, 0.3])
    assert relabel_by_matrix(labels, keys, {0: {1: 0.25, 2: 0.5}}, 3).tolist() == [0, 2, 1, 2]


def test_largest_remainders_are_rounded_up() -> None:
    # 0.43, 0.33 and 0.24 of 10: 4 + 3 + 2, and the tenth goes to the remainder 0.4
    assert apportion([0.43, 0.33, 0.24], 10) == [4, 3, 3]
    assert apportion([0.5, 0.5], 3) == [2, 1]
    assert apportion([0.29, 0.71], 100) == [29, 71]  # 0.29 * 100 is below 29 in floats
    assert apportion([1.0], 7) == [7]
    assert apportion([0.3, 0.7], 0) == [0, 0]


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=12), st.integers(0, 10**6))
def test_apportioned_counts_add_up_and_differ_from_the_exact_ones_by_less_than_one(
    weights: list[float], total: int
) -> None:
    shares = [weight / sum(weights) for weight in weights]
    counts = apportion(shares, total)
    assert sum(counts) == total
    assert all(abs(c - s * total) < 1 + 1e-6 for c, s in zip(counts, shares, strict=True))


def test_inputs_are_not_modified() -> None:
    labels, keys = np.array([0, 1, 2, 0]), np.array([0.1, 0.2, 0.3, 0.4])
    labels.setflags(write=False)
    keys.setflags(write=False)
    relabel_symmetric(labels, keys, keys, 1.0, 3)
    relabel_pairs(labels, keys, 1.0, 3)
    relabel_by_matrix(labels, keys, {0: {1: 1.0}}, 3)
    assert labels.tolist() == [0, 1, 2, 0]
