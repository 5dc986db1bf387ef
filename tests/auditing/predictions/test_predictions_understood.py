"""What files of predictions mean by images, classes and boxes, found out by the annotations."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxmend.auditing.predictions import ResolvedPredictions, read_predictions
from boxmend.data.dataset import Dataset
from boxmend.errors import DataError
from tests.auditing.predictions.prediction_worlds import (
    HEIGHT,
    WIDTH,
    annotated_boxes,
    as_json,
    coco,
    expected_boxes,
    results,
    shares,
    yolo,
)

Sides = list[float]


def by_hand(found: ResolvedPredictions, dataset: Dataset) -> None:
    """Every annotation was found, with its label and one pixel off."""
    order = np.lexsort((found.scores, found.image_rows))
    assert np.allclose(found.boxes[order], expected_boxes(), atol=1e-6)
    assert found.labels[order].tolist() == dataset.labels.tolist()
    assert found.image_rows[order].tolist() == dataset.image_rows.tolist()


def test_coco_results_are_read_as_they_are(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    found = read_predictions([as_json(tmp_path / "found.json", results())], dataset)
    by_hand(found, dataset)
    assert found.notes == []
    assert found.class_scores is None
    assert set(found.folds.tolist()) == {-1}
    assert found.scores.max() == 0.559
    # By image, the best of each first.
    assert found.image_rows.tolist() == sorted(found.image_rows.tolist())
    assert found.scores[:2].tolist() == [0.501, 0.5]


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((0, 1, 2), "numbers from 0 in the order of the classes"),
        ((1, 2, 3), "numbers from 1 in the order of the classes"),
        ((0, 2, 1), "numbers from 0 in the order of the category ids"),
        ((1, 3, 2), "numbers from 1 in the order of the category ids"),
    ],
)
def test_another_numbering_of_classes_is_found_out_and_told(
    tmp_path: Path, numbers: tuple[int, ...], words: str
) -> None:
    dataset = coco(tmp_path)
    found = read_predictions([as_json(tmp_path / "found.json", results(numbers))], dataset)
    by_hand(found, dataset)
    assert len(found.notes) == 1
    assert f"are read as {words}, not the category ids of the data, since 100%" in found.notes[0]


@pytest.mark.parametrize(("first", "num_notes"), [(0, 0), (1, 1)])
def test_yolo_datasets_count_from_0_unless_labels_say_otherwise(
    tmp_path: Path, first: int, num_notes: int
) -> None:
    dataset = yolo(tmp_path / "data")
    entries = results((first, first + 1, first + 2))
    for entry in entries:  # Ultralytics tells 000003.png as 3
        entry["image_id"] -= 100
    found = read_predictions([as_json(tmp_path / "found.json", entries)], dataset)
    by_hand(found, dataset)
    assert len(found.notes) == num_notes


def test_numbers_of_files_are_told_from_ids_by_what_overlaps(tmp_path: Path) -> None:
    dataset = coco(tmp_path, 150)  # ids 100 to 249, files 0 to 149: both are possible for most
    entries = results(num_images=150)
    for entry in entries:
        entry["image_id"] -= 100
    found = read_predictions([as_json(tmp_path / "found.json", entries)], dataset)
    assert sorted(found.image_rows.tolist()) == sorted(dataset.image_rows.tolist())
    assert any("are read as the numbers in file names, not as ids" in one for one in found.notes)


def corners(box: Sides) -> Sides:
    x, y, width, height = box
    return [x, y, x + width, y + height]


FORMATS: dict[str, Callable[[Sides], Sides]] = {
    "two corners x1, y1, x2, y2 in pixels": corners,
    "two corners y1, x1, y2, x2 in pixels": lambda box: [corners(box)[k] for k in (1, 0, 3, 2)],
    "centre x, centre y, width and height in pixels": lambda box: [
        box[0] + box[2] / 2,
        box[1] + box[3] / 2,
        *box[2:],
    ],
    "centre x, centre y, width and height in shares of the image": shares,
    "x, y, width and height in shares of the image": lambda box: [
        side / (WIDTH, HEIGHT)[k % 2] for k, side in enumerate(box)
    ],
    "two corners x1, y1, x2, y2 in shares of the image": lambda box: [
        side / (WIDTH, HEIGHT)[k % 2] for k, side in enumerate(corners(box))
    ],
}


@pytest.mark.parametrize("words", FORMATS)
def test_boxes_in_another_format_are_converted_and_told(tmp_path: Path, words: str) -> None:
    dataset = coco(tmp_path)
    entries = [one | {"bbox": FORMATS[words](one["bbox"])} for one in results()]
    found = read_predictions([as_json(tmp_path / "found.json", entries)], dataset)
    by_hand(found, dataset)
    assert len(found.notes) == 1
    assert f"are read as {words}, not x, y, width and height in pixels" in found.notes[0]


def test_boxes_of_poor_detectors_stay_in_the_format_they_should_have(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    rng = np.random.default_rng(0)
    entries = results()
    for entry in entries:  # off by a third of the sides
        x, y, width, height = entry["bbox"]
        moves = rng.uniform(-0.3, 0.3, 2) * (width, height)
        entry["bbox"] = [x + moves[0], y + moves[1], width, height]
    found = read_predictions([as_json(tmp_path / "found.json", entries)], dataset)
    assert found.notes == []
    assert np.allclose(
        sorted((found.boxes[:, 2] - found.boxes[:, 0]).tolist()),
        sorted((annotated_boxes()[0][:, 2] + 1).tolist()),
    )


def test_boxes_that_fit_in_no_format_are_refused(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    entries = [one | {"bbox": [170, 80, 4, 4]} for one in results()]
    with pytest.raises(DataError, match="hardly overlap the annotations in any known format"):
        read_predictions([as_json(tmp_path / "found.json", entries)], dataset)


def test_shares_need_the_size_of_images(tmp_path: Path) -> None:
    dataset = coco(tmp_path, width=0, height=0)
    folder = tmp_path / "labels"
    folder.mkdir()
    (folder / "000003.txt").write_text("0 0.5 0.5 0.25 0.5 0.9\n")
    with pytest.raises(
        DataError, match=r"000003\.txt: line 1: .* 000003\.jpg, whose size is unknown"
    ):
        read_predictions([folder], dataset)


def test_names_of_classes_go_before_numbers_and_are_read_generously(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    names = ("Cat", "dog", "traffic_light")
    entries = [
        one | {"category_id": 77, "category_name": names[label]}
        for one, label in zip(results(), dataset.labels.tolist(), strict=True)
    ]
    found = read_predictions([as_json(tmp_path / "found.json", entries)], dataset)
    by_hand(found, dataset)
    assert found.notes == []


def test_other_classes_are_passed_over_if_few_and_refused_if_many(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    bird: dict[str, Any] = results()[0] | {"category_name": "bird"}
    found = read_predictions([as_json(tmp_path / "few.json", [*results(), bird])], dataset)
    by_hand(found, dataset)
    assert found.notes == [
        "1 of 61 detections are skipped, since they are of classes that the data do not have: bird"
    ]
    with pytest.raises(DataError, match=r"61 of 121 detections .* do not have: bird; the classes"):
        read_predictions([as_json(tmp_path / "many.json", results() + [bird] * 61)], dataset)


def test_numbers_of_other_classes_are_refused(tmp_path: Path) -> None:
    dataset = coco(tmp_path, 60)
    right = dict(zip((3, 9, 5), (9, 5, 3), strict=True))
    entries = [one | {"category_id": right[one["category_id"]]} for one in results(num_images=60)]
    with pytest.raises(DataError, match="the classes are not those of the data"):
        read_predictions([as_json(tmp_path / "found.json", entries)], dataset)


def test_few_boxes_do_not_tell_a_numbering(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    few = results((0, 1, 2))[:4]
    with pytest.raises(DataError, match=r"too few boxes overlap .* category_name"):
        read_predictions([as_json(tmp_path / "found.json", few)], dataset)
    named = as_json(tmp_path / "own.json", results()[:4])
    found = read_predictions([named], dataset)
    assert len(found) == 4
    assert "are read as the category ids of the data; too few boxes" in found.notes[0]


def test_other_images_are_passed_over_or_refused(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    elsewhere = [one | {"image_id": f"elsewhere-{k}"} for k, one in enumerate(results()[:4])]
    found = read_predictions([as_json(tmp_path / "few.json", results() + elsewhere)], dataset)
    by_hand(found, dataset)
    assert len(found.notes) == 1
    assert found.notes[0].startswith("4 of 34 images in ")
    assert "skipped, such as 'elsewhere-0', 'elsewhere-1'" in found.notes[0]
    for name, entries in (("all", elsewhere), ("most", elsewhere + results()[:2])):
        with pytest.raises(DataError, match="are not in the data, such as 'elsewhere-0'"):
            read_predictions([as_json(tmp_path / f"{name}.json", entries)], dataset)


def test_images_without_detections_are_counted(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    found = read_predictions([as_json(tmp_path / "found.json", results()[:50])], dataset)
    assert found.notes == ["5 of 30 images have no detection"]


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([0.5, -2.0, 3.1], "below 0 look like logits"),
        ([50.0, 99.5, 12.0], "look like percentages: divide them by 100"),
        ([0.5, 0.7, 700.0], "give probabilities"),
    ],
)
def test_scores_outside_of_0_to_1_are_refused_by_what_they_look_like(
    tmp_path: Path, scores: list[float], message: str
) -> None:
    dataset = coco(tmp_path)
    entries = [one | {"score": scores[k % 3]} for k, one in enumerate(results())]
    with pytest.raises(DataError, match=rf"detection \d .*between 0 and 1; .*{message}"):
        read_predictions([as_json(tmp_path / "found.json", entries)], dataset)


def test_scores_may_leave_the_range_by_rounding(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    entries = [one | {"score": 1.0000001} for one in results()]
    found = read_predictions([as_json(tmp_path / "found.json", entries)], dataset)
    assert set(found.scores.tolist()) == {1.0}


def test_a_negative_size_is_refused_by_place(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    entries = results()
    entries[7]["bbox"][2] = -5
    with pytest.raises(DataError, match=r"detection 7 .*has a negative width or height"):
        read_predictions([as_json(tmp_path / "found.json", entries)], dataset)
