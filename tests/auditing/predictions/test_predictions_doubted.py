"""Predictions that can be read, but of other images, or of classes in another order."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import boxmend
from boxmend.auditing.predictions import box_formats, read_predictions
from boxmend.auditing.predictions.overlap import KnownAnnotations
from boxmend.auditing.predictions.results import read_results
from boxmend.errors import DataError
from tests.auditing.predictions.prediction_worlds import as_json, coco, results

NUM_IMAGES = 60


def test_chance_is_the_overlap_with_the_annotations_of_another_image() -> None:
    boxes = np.array([[0.0, 0, 10, 10], [0, 0, 10, 5], [50, 50, 60, 60]])
    known = KnownAnnotations(np.arange(3), np.array([0, 4, 4]), boxes, np.zeros(3, np.int64))
    result = np.array([[0.0, 0, 10, 10], [0, 0, 10, 2.5], [20, 20, 30, 30]])
    # The first is compared with image 4 (half), the others with image 0 (a quarter, nothing).
    chance = box_formats.chance_iou(np.array([0, 4, 4]), result, known)
    assert chance == pytest.approx((0.5 + 0.25 + 0) / 3)
    assert box_formats.chance_iou(np.array([4, 4]), result[:2], known) == 0


def test_a_fit_by_chance_is_refused_if_poor_and_reported_if_good(tmp_path: Path) -> None:
    path = read_results(as_json(tmp_path / "found.json", results()))
    with pytest.raises(
        DataError, match=r"other images .*0\.19 and 0\.20\); check that they belong"
    ):
        box_formats.ensure_own_images(path, iou=0.2, chance=0.19, num_checked=50)
    (note,) = box_formats.ensure_own_images(path, iou=0.52, chance=0.5, num_checked=50)
    assert "(mean best IoU 0.50 and 0.52); check that they belong" in note
    # A tenth of the way from 0.5 to 1 is 0.55; and few boxes tell nothing.
    assert box_formats.ensure_own_images(path, iou=0.56, chance=0.5, num_checked=50) == []
    assert box_formats.ensure_own_images(path, iou=0.2, chance=0.19, num_checked=49) == []


@pytest.mark.parametrize("places", [0, 17])
def test_predictions_under_the_names_of_other_images_are_refused(
    tmp_path: Path, places: int
) -> None:
    coco(tmp_path, NUM_IMAGES)
    corners = np.random.default_rng(0).integers(0, (150, 60), (2 * NUM_IMAGES, 2)).tolist()
    path = tmp_path / "instances_train.json"
    document = json.loads(path.read_text())
    entries = results(num_images=NUM_IMAGES)
    for annotation, entry, corner in zip(document["annotations"], entries, corners, strict=True):
        annotation["bbox"] = entry["bbox"] = [*corner, 50, 35]
        entry["image_id"] = 100 + (entry["image_id"] - 100 + places) % NUM_IMAGES
    dataset = boxmend.load(as_json(path, document))
    detections_file = as_json(tmp_path / "found.json", entries)
    if places == 0:
        assert read_predictions([detections_file], dataset).notes == []
    else:
        with pytest.raises(DataError, match=r"found\.json: the boxes overlap .* of other images"):
            read_predictions([detections_file], dataset)


def seen_as(tmp_path: Path, ids: Mapping[int, int]) -> list[str]:
    """The notes where a detector sees classes, by category id, as others."""
    dataset = coco(tmp_path, NUM_IMAGES)
    entries = results(num_images=NUM_IMAGES)
    for entry in entries:
        entry["category_id"] = ids.get(entry["category_id"], entry["category_id"])
    return read_predictions([as_json(tmp_path / "found.json", entries)], dataset).notes


def test_exchanged_classes_are_reported(tmp_path: Path) -> None:
    (note,) = seen_as(tmp_path, {3: 9, 9: 3})  # the ids of cat and dog
    warning = (
        "classes look exchanged, since the detector sees cat as dog (100%), dog as cat (100%)."
    )
    assert note.startswith(f"WARNING: {warning}")


def test_a_class_that_the_detector_does_not_know_is_not_exchanged(tmp_path: Path) -> None:
    assert seen_as(tmp_path, {3: 9}) == []


@pytest.mark.parametrize(("limit", "is_reported"), [(0.05, False), (0.1, True), (0.25, True)])
def test_a_list_without_low_scores_is_reported(
    tmp_path: Path, limit: float, is_reported: bool
) -> None:
    dataset = coco(tmp_path, 100)
    entries = results(num_images=100)
    for k, one in enumerate(entries):
        one["score"] = limit + (k % 50) / 100
    predictions = read_predictions([as_json(tmp_path / "found.json", entries)], dataset)
    assert predictions.cut == limit
    assert [note[:46] for note in predictions.notes] == (
        [f"WARNING: no detection has a score below {limit:.2g}, so the"[:46]] if is_reported else []
    )


def test_the_fold_that_was_cut_most_tells(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    entries = results()
    for k, one in enumerate(entries):
        one |= {"fold": k % 2, "score": (0.02, 0.3)[k % 2] + k / 1000}
    predictions = read_predictions([as_json(tmp_path / "found.json", entries)], dataset)
    assert predictions.cut == pytest.approx(0.301)
    assert predictions.take(predictions.folds == 0).cut == pytest.approx(0.02)
    assert predictions.take(predictions.folds == 7).cut == 0
