"""Annotations in the dicts of Ultralytics' datasets: matched with a dataset, and exchanged."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from boxmend.data.dataset import Dataset
from boxmend.errors import DataError
from boxmend.integrations.ultralytics.labels import (
    TrainingLabels,
    find_images,
    to_pixels,
    to_shares,
)
from boxmend.repair.mender import IgnoreRegions, MendedAnnotations

WIDTH, HEIGHT = 100, 50


def make_dataset(folder: Path) -> Dataset:
    """Return three images with two, one and no annotations."""
    dataset = Dataset.from_arrays(
        image_ids=["a", "a", "b"],
        boxes=[[10, 10, 30, 30], [50, 0, 100, 50], [0, 0, 20, 10]],
        labels=[0, 1, 1],
        label_names=["cat", "dog"],
        images={name: str(folder / f"{name}.png") for name in "abc"},
    )
    dataset.images.widths[:], dataset.images.heights[:] = WIDTH, HEIGHT
    return dataset


def make_label(path: Path, *rows: tuple[float, ...]) -> dict[str, Any]:
    """Return the dict of an image; each row has class, center x, center y, width and height."""
    table = np.array(rows, np.float32).reshape(-1, 5)
    return {
        "im_file": str(path),
        "shape": (HEIGHT, WIDTH),
        "cls": table[:, :1],
        "bboxes": table[:, 1:],
        "segments": [np.zeros((3, 2))] * len(table),
        "normalized": True,
        "bbox_format": "xywh",
    }


def make_loader(folder: Path) -> Any:
    """Return the same annotations as Ultralytics has them, in another order of the images."""
    labels = [
        make_label(folder / "b.png", (1, 0.1, 0.1, 0.2, 0.2)),
        make_label(folder / "c.png"),
        make_label(folder / "a.png", (1, 0.75, 0.5, 0.5, 1), (0, 0.2, 0.4, 0.2, 0.4)),
    ]
    return SimpleNamespace(labels=labels)


def mend(dataset: Dataset, **columns: Any) -> MendedAnnotations:
    """Return the annotations of a dataset with other columns."""
    number = len(columns.get("labels", dataset.labels))
    values: dict[str, Any] = {
        "image_rows": dataset.image_rows,
        "boxes": dataset.boxes,
        "labels": dataset.labels,
        "weights": np.ones(number, np.float32),
        "confidences": np.ones(number, np.float32),
        "is_added": np.zeros(number, np.bool_),
        "make_soft_labels": lambda: np.zeros((number, 2), np.float32),
        "ignore": IgnoreRegions(np.zeros(0, int), np.zeros((0, 4)), np.zeros(0, np.float32)),
    }
    return MendedAnnotations(**values | columns)


def test_shares_are_centers_and_sizes_clipped_to_the_image() -> None:
    boxes = np.array([[10.0, 10, 30, 30], [-20, 20, 120, 60]])
    shares = to_shares(boxes, np.array([[WIDTH, HEIGHT]] * 2, float))
    np.testing.assert_allclose(shares, [[0.2, 0.4, 0.2, 0.4], [0.5, 0.7, 1, 0.6]])
    back = to_pixels(shares, np.array([WIDTH, HEIGHT], float))
    np.testing.assert_allclose(back, [[10, 10, 30, 30], [0, 20, 100, 50]])


def test_images_are_found_by_path_and_otherwise_by_name(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path)
    by_path = [str(tmp_path / "x" / ".." / "c.png"), str(tmp_path / "a.png")]
    assert find_images(by_path, dataset).tolist() == [2, 0]
    assert find_images(["/elsewhere/b.jpg", "/elsewhere/a.jpg"], dataset).tolist() == [1, 0]
    with pytest.raises(DataError, match=r"image /elsewhere/d\.jpg, which .* does not have"):
        find_images(["/elsewhere/b.jpg", "/elsewhere/d.jpg"], dataset)


def test_a_name_that_two_images_share_finds_neither(tmp_path: Path) -> None:
    dataset = Dataset.from_arrays(
        ["x", "y"],
        [[0, 0, 1, 1]] * 2,
        [0, 0],
        ["cat"],
        images={"x": str(tmp_path / "1" / "a.png"), "y": str(tmp_path / "2" / "a.png")},
    )
    assert find_images([str(tmp_path / "2" / "a.png")], dataset).tolist() == [1]
    with pytest.raises(DataError, match="does not have"):
        find_images(["/elsewhere/a.png"], dataset)


def test_mended_annotations_replace_those_of_the_same_image(tmp_path: Path) -> None:
    dataset, loader = make_dataset(tmp_path), make_loader(tmp_path)
    before = [dict(label) for label in loader.labels]
    labels = TrainingLabels(dataset, loader)
    boxes = dataset.boxes.copy()
    boxes[2] = [0, 0, 50, 50]
    labels.exchange(mend(dataset, boxes=boxes, labels=np.array([1, 1, 0])))
    b, c, a = loader.labels
    np.testing.assert_allclose(b["bboxes"], [[0.25, 0.5, 0.5, 1]])
    assert b["cls"].tolist() == [[0]]
    assert (c["bboxes"].shape, c["cls"].shape) == ((0, 4), (0, 1))
    np.testing.assert_allclose(a["bboxes"], [[0.2, 0.4, 0.2, 0.4], [0.75, 0.5, 0.5, 1]])
    assert a["cls"].tolist() == [[1], [1]]
    assert {label["bboxes"].dtype for label in loader.labels} == {np.dtype(np.float32)}
    assert [label["segments"] for label in loader.labels] == [[], [], []]
    assert before[0]["cls"].tolist() == [[1]]  # the arrays themselves did not change
    assert before[2]["bboxes"][0].tolist() == [0.75, 0.5, 0.5, 1]


def test_an_added_annotation_is_trained_on_and_one_of_weight_zero_is_not(tmp_path: Path) -> None:
    dataset, loader = make_dataset(tmp_path), make_loader(tmp_path)
    labels = TrainingLabels(dataset, loader)
    columns = {
        "image_rows": np.array([0, 0, 1, 2, -1]),
        "boxes": np.concatenate([dataset.boxes, [[0, 0, 100, 25], [0, 0, 9, 9]]]),
        "labels": np.array([0, 1, 1, 0, 0]),
        "weights": np.array([1, 0, 1, 1, 1], np.float32),
    }
    labels.exchange(mend(dataset, **columns))
    b, c, a = loader.labels
    assert [len(label["cls"]) for label in (a, b, c)] == [1, 1, 1]
    np.testing.assert_allclose(c["bboxes"], [[0.5, 0.25, 1, 0.5]])


def test_a_box_without_area_in_the_image_is_left_out(tmp_path: Path) -> None:
    dataset, loader = make_dataset(tmp_path), make_loader(tmp_path)
    boxes = dataset.boxes.copy()
    boxes[2] = [-9, 0, 0, 10]
    TrainingLabels(dataset, loader).exchange(mend(dataset, boxes=boxes))
    assert [len(label["cls"]) for label in loader.labels] == [0, 0, 2]


@pytest.mark.parametrize(
    "change",
    [
        lambda label: label | {"cls": label["cls"] * 0},  # another class
        lambda label: label | {"bboxes": label["bboxes"] + [0.1, 0, 0, 0]},  # elsewhere
        lambda label: label | {"cls": label["cls"][:1], "bboxes": label["bboxes"][:1]},  # fewer
    ],
)
def test_annotations_that_are_not_those_of_the_dataset_are_an_error(
    tmp_path: Path, change: Any
) -> None:
    dataset, loader = make_dataset(tmp_path), make_loader(tmp_path)
    loader.labels[2] = change(loader.labels[2])
    with pytest.raises(DataError, match=r"in 1 of 3 images; the first is .*a\.png. Delete .*cache"):
        TrainingLabels(dataset, loader)


def test_a_difference_below_a_pixel_and_a_repeated_annotation_are_none(tmp_path: Path) -> None:
    dataset, loader = make_dataset(tmp_path), make_loader(tmp_path)
    dataset = dataset.take(np.array([0, 0, 1, 2]))  # Ultralytics removes repeated ones
    loader.labels[2]["bboxes"] = loader.labels[2]["bboxes"] + np.float32(0.005)
    assert TrainingLabels(dataset, loader).num_left_out == 0


def test_images_that_the_training_leaves_out_are_counted(tmp_path: Path) -> None:
    dataset, loader = make_dataset(tmp_path), make_loader(tmp_path)
    del loader.labels[0]
    assert TrainingLabels(dataset, loader).num_left_out == 1


def test_an_unknown_size_comes_from_the_loader_or_is_an_error(tmp_path: Path) -> None:
    dataset, loader = make_dataset(tmp_path), make_loader(tmp_path)
    dataset.images.widths[1] = dataset.images.heights[1] = 0
    assert TrainingLabels(dataset, loader).num_left_out == 0
    del loader.labels[0]["shape"]
    with pytest.raises(DataError, match=r"size of the image .*b\.png is unknown"):
        TrainingLabels(dataset, loader)


def test_classes_carry_soft_labels_on_request(tmp_path: Path) -> None:
    dataset, loader = make_dataset(tmp_path), make_loader(tmp_path)
    soft = np.array([[0.5, 0.5], [0, 1], [0.25, 0.75]], np.float32)
    mended = mend(dataset, make_soft_labels=lambda: soft)
    labels = TrainingLabels(dataset, loader)
    labels.exchange(mended)
    assert loader.labels[0]["cls"].tolist() == [[1]]
    labels.exchange(mended, soft=True)
    assert loader.labels[0]["cls"].astype(int).tolist() == [[1]]
    assert 0 < loader.labels[0]["cls"][0, 0] % 1 < 0.01
    assert loader.labels[2]["cls"][1].tolist() == [1]
