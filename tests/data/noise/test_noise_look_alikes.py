"""Labels of look-alikes against counts worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmend.data.detections import Detections
from boxmend.data.noise import NoiseSettings, disturb
from boxmend.data.noise.look_alikes import relabel_look_alikes, weigh_confusions, weigh_pairs
from boxmend.errors import UsageError
from tests.data.noise.noise_data import build, many

NAMES = ("car", "van", "truck")


def test_pairs_have_a_weight_of_one_in_both_directions() -> None:
    assert weigh_pairs(["car/truck"], NAMES).tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


def test_names_with_slashes_are_split_where_both_parts_are_labels() -> None:
    names = ("a/b", "c", "b/c")
    assert weigh_pairs(["a/b/c"], names).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("pair", ["car", "car/bus", "car/car", "/van", "", 7])
def test_a_pair_that_is_not_two_labels_is_refused_with_an_example(pair: str) -> None:
    with pytest.raises(UsageError, match="expected two labels of the dataset, like car/van"):
        weigh_pairs([pair], NAMES)


def test_the_smallest_keys_of_each_class_change_in_proportion_to_its_size() -> None:
    labels = np.array([0, 0, 0, 0, 0, 0, 1, 1, 2, 2])
    keys = np.array([0.6, 0.5, 0.1, 0.4, 0.2, 0.3, 0.9, 0.8, 0.0, 0.0])
    # 4 wrong labels among 6 cars and 2 vans: 3 cars (half of them) and 1 van.
    noisy = relabel_look_alikes(labels, keys, weigh_pairs(["car/van"], NAMES), 4)
    assert noisy.tolist() == [0, 0, 1, 0, 1, 1, 1, 0, 2, 2]


def test_what_half_of_a_class_cannot_hold_goes_to_the_other_classes() -> None:
    # Size times weight is 36, 4 and 4. Of 4 wrong labels class 0 would get 3.3, and may have 2;
    # the other 2 go to classes 1 and 2 in equal parts.
    weights = np.array([[0, 9.0, 0], [1.0, 0, 0], [0, 0.5, 0]])
    labels = np.repeat([0, 1, 2], [4, 4, 8])
    noisy = relabel_look_alikes(labels, np.arange(16) / 16, weights, 4)
    assert noisy.tolist() == [1, 1, 0, 0, 0, 1, 1, 1, 1, *[2] * 7]


def test_too_many_wrong_labels_are_refused_with_the_number_that_there_may_be() -> None:
    labels = np.repeat([0, 1, 2], [5, 4, 9])
    weights = weigh_pairs(["car/van"], NAMES)
    assert (relabel_look_alikes(labels, np.zeros(18), weights, 4) != labels).sum() == 4
    with pytest.raises(UsageError, match=r"asks for 5 wrong labels, .* look-alike are 4;"):
        relabel_look_alikes(labels, np.zeros(18), weights, 5)


@given(st.lists(st.integers(0, 2), max_size=60), st.integers(0, 30), st.integers(0, 2**32))
def test_the_count_is_exact_wherever_it_is_possible(
    classes: list[int], count: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    labels, weights = np.array(classes, np.int64), random.random((3, 3)) * (1 - np.eye(3))
    most = int((np.bincount(labels, minlength=3) // 2).sum())
    count = min(count, most)
    noisy = relabel_look_alikes(labels, random.random(len(labels)), weights, count)
    assert (noisy != labels).sum() == count


def test_confusions_are_the_mean_score_of_the_best_detection_of_each_other_class() -> None:
    dataset = build([[0, 0, 100, 100]] * 3 + [[500, 500, 600, 600]], [0, 0, 1, 1], num_images=4)
    detections = Detections(
        image_rows=np.array([0, 0, 0, 1, 2, 3, 3]),
        labels=np.array([1, 1, 0, 2, 0, 2, 2]),
        scores=np.array([0.5, 0.8, 0.9, 0.4, 0.05, 0.3, 0.9]),
        boxes=np.array(
            [
                *([[0, 0, 100, 100.0]] * 3),
                [0, 0, 100, 50],  # an IoU of 0.5 is enough
                [0, 0, 100, 100],  # too faint
                [500, 500, 600, 600],
                [500, 500, 600, 549],  # an IoU of 0.49
            ]
        ),
    )
    weights = weigh_confusions(dataset, np.arange(4), detections)
    # Two cars: 0.8 as van in one, 0.4 as truck in the other. Two vans: 0.3 as truck in one.
    assert weights == pytest.approx(np.array([[0, 0.4, 0.2], [0, 0, 0.15], [0, 0, 0]]))


def test_a_detection_of_a_neighbouring_object_of_its_class_is_no_confusion() -> None:
    # A car and a van that overlap by 0.6; the detector sees the van.
    dataset = build([[0, 0, 100, 100], [0, 0, 100, 60]], [0, 1], num_images=1)
    seen = Detections(np.array([0]), np.array([1]), np.array([0.9]), np.array([[0, 0, 100, 70.0]]))
    assert weigh_confusions(dataset, np.arange(2), seen).tolist() == np.zeros((3, 3)).tolist()
    dataset.is_crowd[1] = True
    assert weigh_confusions(dataset, np.arange(1), seen).tolist() == np.zeros((3, 3)).tolist()


def test_look_alikes_come_besides_other_label_noise_and_counts_are_exact() -> None:
    clean = many(300)
    pairs = ("label0/label1",)
    both = disturb(
        clean,
        NoiseSettings(labels="symmetric:0.1", look_alikes=0.05, look_alike_pairs=pairs, seed=2),
    )
    symmetric = disturb(clean, NoiseSettings(labels="symmetric:0.1", seed=2)).dataset.labels
    assert both.counts["labels_changed"] == 30 + 15
    is_symmetric = symmetric != clean.labels
    assert both.dataset.labels[is_symmetric].tolist() == symmetric[is_symmetric].tolist()
    is_look_alike = (both.dataset.labels != clean.labels) & ~is_symmetric
    assert is_look_alike.sum() == 15
    assert (clean.labels + both.dataset.labels)[is_look_alike].tolist() == [1] * 15  # 0 <-> 1
    assert both.truth.label_changed.sum() == 45
    assert both.truth.labels.tolist() == clean.labels.tolist()


def test_look_alikes_without_pairs_follow_the_detector() -> None:
    clean = many(60)
    is_van = clean.labels == 1
    seen = Detections(
        clean.image_rows[is_van], np.full(20, 2), np.full(20, 0.7), clean.boxes[is_van]
    )
    settings = NoiseSettings(look_alikes=0.1)
    noisy = disturb(clean, settings, seen)
    is_changed = noisy.dataset.labels != clean.labels
    assert is_changed.sum() == 6
    assert set(clean.labels[is_changed]) == {1}
    assert set(noisy.dataset.labels[is_changed]) == {2}
    with pytest.raises(UsageError, match="give them by --predictions"):
        disturb(clean, settings)
