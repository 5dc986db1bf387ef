"""Errors that a training plants into its annotations, and how readers of its ledger see them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from boxmend.data.boxes import compute_iou
from boxmend.data.dataset import Dataset
from boxmend.data.formats import load
from boxmend.data.noise import NoiseSettings, disturb
from boxmend.data.types import Box
from boxmend.errors import UsageError
from boxmend.runs.history import SETTLING_COLUMNS, read_history
from boxmend.runs.opening import open_run_with_history
from boxmend.runs.planting import (
    NO_ERRORS,
    PlantedErrors,
    has_planted_errors,
    plant_errors,
    remove_planted_share,
)
from boxmend.runs.settings import TrainSettings
from tests.fabricated_runs import (
    KEPT,
    NAMES,
    RELABELLED,
    Visit,
    dataset_of,
    drawn,
    images_of,
    probed_run,
)

BOX: Box = (20.0, 30.0, 60.0, 70.0)


def many(n: int = 100, names: Sequence[str] = NAMES) -> Dataset:
    return dataset_of(images_of([f"{k}.png" for k in range(n)]), range(n), [BOX] * n, names=names)


def list_changed(before: Dataset, after: Dataset) -> tuple[list[int], list[int]]:
    """The rows whose label, and those whose box differs."""
    has_other_box = (before.boxes != after.boxes).any(axis=1)
    labels = np.flatnonzero(before.labels != after.labels)
    return labels.tolist(), np.flatnonzero(has_other_box).tolist()


def test_half_of_the_errors_are_labels_and_the_others_boxes() -> None:
    dataset = many()
    labels, boxes = list_changed(dataset, plant_errors(dataset, 0.1, seed=3))
    assert (len(labels), len(boxes)) == (5, 5)
    assert not set(labels) & set(boxes)
    assert list_changed(dataset, many()) == ([], [])  # the dataset itself is as before


def test_planted_boxes_are_grossly_off_and_inside_their_image() -> None:
    dataset = many()
    planted = plant_errors(dataset, 0.2, seed=0)
    rows = list_changed(dataset, planted)[1]
    assert np.median(compute_iou(dataset.boxes[rows], planted.boxes[rows])) < 0.7
    assert (planted.boxes >= 0).all()
    assert (planted.boxes <= 100).all()


def test_the_same_seed_plants_the_same_errors_and_another_seed_others() -> None:
    dataset = many()
    first, again, other = (plant_errors(dataset, 0.1, seed=seed) for seed in (3, 3, 4))
    assert first.labels.tolist() == again.labels.tolist()
    assert first.boxes.tolist() == again.boxes.tolist()
    assert list_changed(dataset, first) != list_changed(dataset, other)


def test_noise_with_the_seed_of_the_training_moves_boxes_otherwise() -> None:
    """A user may have disturbed the dataset with that seed."""
    dataset = many(names=["van"])
    planted = plant_errors(dataset, 0.1, seed=3)
    rows = np.array(list_changed(dataset, planted)[1])
    noisy = disturb(dataset, NoiseSettings(gross_boxes=1, seed=3), eligible=rows).dataset
    assert (noisy.boxes[rows] != planted.boxes[rows]).any(axis=1).all()


def test_one_class_gets_boxes_only() -> None:
    dataset = many(names=["van"])
    labels, boxes = list_changed(dataset, plant_errors(dataset, 0.1, seed=0))
    assert (labels, len(boxes)) == ([], 10)


def test_crowds_and_difficult_objects_stay() -> None:
    dataset = many()
    is_crowd, is_difficult = np.zeros(100, np.bool_), np.zeros(100, np.bool_)
    is_crowd[:40], is_difficult[40:90] = True, True
    dataset = replace(dataset, is_crowd=is_crowd, is_difficult=is_difficult)
    labels, boxes = list_changed(dataset, plant_errors(dataset, 0.2, seed=0))
    assert len(labels + boxes) == 2  # of ten
    assert min(labels + boxes) >= 90


def test_a_share_of_less_than_one_annotation_is_refused() -> None:
    with pytest.raises(UsageError, match=r"probe is 0.004, which is less than one of 100"):
        plant_errors(many(), 0.004, seed=0)


@pytest.mark.parametrize("share", [-0.1, 0.3, float("nan")])
def test_a_share_beyond_the_range_is_refused(share: float) -> None:
    with pytest.raises(UsageError, match=r"probe is .*expected a share from 0 to 0.2, like 0.05"):
        TrainSettings(probe=share)


def test_a_rate_without_the_planted_share() -> None:
    # of 100 labels, 10 are planted and 18 of the other 90 are wrong: 28 in all
    assert remove_planted_share(0.28, 0.1) == pytest.approx(18 / 90)
    assert remove_planted_share(0.05, 0.1) == 0.0


def test_planted_errors_can_be_put_into_a_dataset() -> None:
    dataset = many(3)
    box = (1.0, 2.0, 3.0, 4.0)
    planted = PlantedErrors(np.array([1]), np.array([2]), np.array([box]))
    seen = planted.put_into(dataset)
    assert seen.labels.tolist() == [0, 2, 2]
    assert seen.boxes.tolist() == [list(BOX), list(box), list(BOX)]
    assert dataset.labels.tolist() == [0, 1, 2]


def test_visits_of_planted_errors_are_left_out_of_the_history(tmp_path: Path) -> None:
    """The training saw annotation 1 with another label, and annotation 2 with another box."""
    boxes: list[Box] = [BOX, (10.1, 20.3, 40.7, 60.2), BOX, BOX]  # rounded in a ledger
    address = drawn(tmp_path, "coco", boxes=boxes)
    visits = [Visit(0, row, RELABELLED, label=0, box=(0, 0, 90, 90)) for row in range(4)]
    seen_box = (50.5, 51.25, 90.0, 70.1)
    run = probed_run(tmp_path / "run", address, visits, labels={1: 2}, boxes={2: seen_box})
    opened = open_run_with_history(run)
    assert has_planted_errors(opened.run)
    assert opened.history.rows.tolist() == [0, 3]
    assert opened.history.steps.tolist() == [0, 0]
    planted = opened.history.planted
    assert (planted.rows.tolist(), planted.labels.tolist()) == ([1, 2], [2, 2])
    assert planted.boxes[0].tolist() == opened.dataset.boxes[1].tolist()
    assert planted.boxes[1] == pytest.approx(seen_box)


def test_planted_errors_settle_as_annotated(tmp_path: Path) -> None:
    visits = [Visit(0, row, RELABELLED, label=0, box=(0, 0, 90, 90)) for row in range(4)]
    labels = {1: 2}
    run = probed_run(tmp_path / "run", drawn(tmp_path, "coco"), visits, labels=labels)
    opened = open_run_with_history(run)
    settled = opened.settlement
    assert settled.labels.tolist() == [0, 1, 0, 0]  # not even back to 0 where 1 is annotated
    assert settled.is_moved.tolist() == [True, False, True, True]
    assert settled.num_judged.tolist() == [1, 0, 1, 1]
    assert settled.boxes[1].tolist() == opened.dataset.boxes[1].tolist()


def test_the_annotations_as_trained_have_no_planted_errors(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    run = probed_run(tmp_path / "run", address, [Visit(0, 1, KEPT)], labels={1: 2})
    opened = open_run_with_history(run)
    seen = opened.history.planted.put_into(opened.dataset)
    history = read_history(opened.run, seen, SETTLING_COLUMNS)
    assert history.rows.tolist() == [1]
    assert len(history.planted) == 0


def test_runs_without_a_probe_have_no_planted_errors(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    run = probed_run(tmp_path / "run", address, [Visit(0, 1, KEPT)])
    assert len(open_run_with_history(run).history.planted) == 0
    assert not len(NO_ERRORS)
    assert load(address).labels.tolist() == [0, 1, 2, 0]
