"""Datasets from arrays, parts of datasets, their tables and their pictures."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import boxmend
from boxmend import BoxmendError, Dataset
from boxmend.data.images.showing import COLORS
from tests.fabricated_runs import bytes_of, drawn

BOXES = [[10, 10, 30, 50], [40, 20, 60, 40], [5, 5, 25, 15]]


class Tensor:
    """What a tensor on a GPU has: it is read only after `detach` and `cpu`."""

    def __init__(self, values: Any):
        self._values = values

    def detach(self) -> "Tensor":
        return self

    def cpu(self) -> Any:
        return np.array(self._values, np.float32)


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two photos, a.png and sub/b.png, which is the working folder."""
    (tmp_path / "sub").mkdir()
    for name, red in (("a.png", 40), ("sub/b.png", 41)):
        Image.new("RGB", (80, 60), (red, 50, 60)).save(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(**changes: Any) -> Dataset:
    arguments: dict[str, Any] = {
        "image_ids": ["a.png", "a.png", "sub/b.png"],
        "boxes": BOXES,
        "labels": ["cat", "dog", "cat"],
    }
    return Dataset.from_arrays(**(arguments | changes))


def test_arrays_become_a_dataset(photos: Path) -> None:
    dataset = made()
    assert dataset.label_names == ("cat", "dog")
    assert dataset.labels.tolist() == [0, 1, 0]
    assert dataset.image_ids.tolist() == ["a.png", "a.png", "sub/b.png"]
    assert dataset.boxes.tolist() == BOXES
    assert dataset.images.paths == [str(photos / "a.png"), str(photos / "sub/b.png")]
    assert dataset.images.sizes.tolist() == [[80, 60], [80, 60]]
    assert boxmend.check(dataset) == []


@pytest.mark.parametrize("format", ["coco", "voc", "yolo"])
def test_a_dataset_of_arrays_is_saved_in_any_format(photos: Path, format: str) -> None:
    dataset = made(image_ids=["a.png", "a.png", "sub/b.png"])
    if format == "voc":  # whose names have no folders
        dataset = made(
            image_ids=[1, 1, 2], images={1: photos / "a.png", 2: str(photos / "sub/b.png")}
        )
    dataset.save(photos / "out", format=format)
    again = boxmend.load(photos / "out" / ("data.yaml" if format == "yolo" else ""))
    np.testing.assert_allclose(again.boxes, BOXES, atol=1e-4)
    assert [again.label_names[label] for label in again.labels] == ["cat", "dog", "cat"]


def test_an_image_of_unknown_size_is_named(tmp_path: Path) -> None:
    dataset = made(image_ids=["gone.png"] * 3)
    with pytest.raises(BoxmendError, match=r"the dataset in memory.*gone.png"):
        dataset.save(tmp_path / "out", format="yolo")


def test_images_without_annotations_are_listed_by_images(photos: Path) -> None:
    dataset = made(image_ids=["a.png"] * 3, images=["sub/b.png", Path("a.png")])
    assert dataset.images.ids.tolist() == ["sub/b.png", "a.png"]
    assert dataset.image_rows.tolist() == [1, 1, 1]
    absolute = made(image_ids=[7, 7, 8], images={8: photos / "sub/b.png", 7: photos / "a.png"})
    assert absolute.images.ids.tolist() == [8, 7]
    assert absolute.images.file_names == ["sub/b.png", "a.png"]


def test_tensors_paths_and_whole_floats_are_accepted(photos: Path) -> None:
    dataset = made(
        image_ids=[Path("a.png")] * 3,
        boxes=Tensor(BOXES),
        labels=Tensor([1.0, 0.0, 1.0]),
        label_names=["cat", "dog"],
    )
    assert dataset.labels.tolist() == [1, 0, 1]
    assert dataset.boxes.tolist() == BOXES


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"boxes": [[1, 2, 3]] * 3}, r"boxes has shape \(3, 3\); expected \(n, 4\)"),
        ({"boxes": [*BOXES[:2], [5, 5, 5, 15]]}, r"boxes\[2\] is .*x1 < x2"),
        ({"boxes": [BOXES[0], [0, 0, np.nan, 9], BOXES[2]]}, r"boxes\[1\] is .*finite numbers"),
        ({"boxes": [["a", "b", "c", "d"]]}, "boxes has other values than numbers"),
        ({"labels": ["cat", "dog"]}, r"labels has shape \(2,\); expected \(3,\)"),
        ({"labels": [0, 99, 1], "label_names": ["cat", "dog"]}, r"labels\[1\] is 99; expected one"),
        ({"labels": [0, -1, 1], "label_names": ["cat", "dog"]}, r"labels\[1\] is -1"),
        ({"labels": [0, 0.5, 1], "label_names": ["cat", "dog"]}, r"labels\[1\] is 0.5"),
        ({"labels": ["cat", "emu", "cat"], "label_names": ["cat"]}, r"labels\[1\] is emu"),
        ({"labels": [0, 1, 0]}, "labels are indices, so label_names is needed"),
        ({"labels": ["cat", None, "cat"]}, r"labels\[1\] is None"),
        ({"label_names": ["cat", 7]}, r"label_names\[1\] is 7"),
        ({"label_names": 7}, r"label_names is 7; expected a list"),
        ({"labels": None}, r"labels has shape \(\); expected \(3,\)"),
        ({"image_ids": ["a.png"]}, r"image_ids has shape \(1,\)"),
        ({"image_ids": ["a.png", None, "a.png"]}, r"image_ids\[1\] is None"),
        ({"images": ["a.png"]}, r"image_ids\[2\] is sub/b.png; images has 1 images \('a.png'\)"),
        ({"images": ["a.png", "sub/b.png", "./a.png"]}, "images has .*a.png twice"),
        ({"images": [3]}, "images has 3; expected the paths"),
    ],
)
def test_a_wrong_argument_is_named_with_its_row(
    photos: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(BoxmendError, match=message):
        made(**changes)


def test_a_subset_has_the_chosen_images_labels_and_rows(tmp_path: Path) -> None:
    dataset = boxmend.load(drawn(tmp_path, "coco"))  # 2 images; van, truck, bus, van
    assert dataset.subset(image_ids=["b.png"]).images.ids.tolist() == [2]
    assert dataset.subset(image_ids=np.array([2])).annotation_ids.tolist() == [12, 13]
    part = dataset.subset(label_names=["van"])
    assert (len(part.images), part.annotation_ids.tolist()) == (2, [10, 13])
    assert part.label_names == dataset.label_names
    assert dataset.subset([1, -1]).annotation_ids.tolist() == [11, 13]
    assert dataset.subset(dataset.boxes[:, 0] < 20).annotation_ids.tolist() == [10, 12]
    both = dataset.subset([0, 1], image_ids=[1, 2], label_names=["truck", "bus"])
    assert both.annotation_ids.tolist() == [11]
    assert len(dataset) == 4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"image_ids": [1, 9]}, r"image_ids\[1\] is 9; the dataset has 2 images \(1, 2\)"),
        ({"image_ids": "a.png"}, r"image_ids is 'a.png'; expected a list, like \['a.png'\]"),
        ({"label_names": ["van", "tram"]}, r"label_names\[1\] is tram; expected one of the 3"),
        ({"rows": [0, 4]}, r"rows\[1\] is 4; the dataset has 4 annotations"),
        ({"rows": [True, False]}, r"rows has type bool and shape \(2,\)"),
        ({"rows": [0.5]}, "rows has type float64"),
    ],
)
def test_an_unknown_part_is_named(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    dataset = boxmend.load(drawn(tmp_path, "coco"))
    with pytest.raises(BoxmendError, match=message):
        dataset.subset(**wrong)


def test_a_subset_is_saved_as_its_files(tmp_path: Path) -> None:
    dataset = boxmend.load(drawn(tmp_path, "voc"))
    dataset.subset(image_ids=["a"]).save(tmp_path / "out")
    written = bytes_of(tmp_path / "out")
    assert written["Annotations/a.xml"] == (tmp_path / "data/Annotations/a.xml").read_bytes()
    assert "Annotations/b.xml" not in written


def test_annotations_are_a_table_with_names(tmp_path: Path) -> None:
    dataset = boxmend.load(drawn(tmp_path, "coco"))
    dataset.labels[0] = -1
    table = dataset.to_arrow()
    assert table["annotation_id"].to_pylist() == [10, 11, 12, 13]
    assert table["file_name"].to_pylist() == ["a.png", "a.png", "b.png", "b.png"]
    assert table["label"].to_pylist() == [None, "truck", "bus", "van"]
    assert table["x2"].to_pylist() == [30, 60, 25, 90]
    frame = dataset.to_pandas()
    assert frame["y1"].tolist() == [10, 20, 5, 50]
    assert frame["split"].tolist() == ["train"] * 4


def test_a_picture_has_a_box_where_the_annotation_is(photos: Path) -> None:
    dataset = made()
    picture = dataset.show("a.png", side=960)
    assert picture.size == (480, 360)  # a small image is enlarged six times
    assert picture.getpixel((60, 200)) == COLORS[0]  # left edge of the first box
    assert picture.getpixel((300, 120)) == COLORS[1]
    assert picture.getpixel((470, 350)) == (40, 50, 60)
    assert dataset.show("sub/b.png", side=40).size == (40, 30)


def test_an_image_that_cannot_be_shown_is_named(photos: Path) -> None:
    dataset = made(images=["a.png", "sub/b.png", "gone.png"])
    with pytest.raises(BoxmendError, match=r"gone.png: cannot be shown, since there is no file"):
        dataset.show("gone.png")
    with pytest.raises(BoxmendError, match=r"image_id\[0\] is c.png; the dataset has 3 images"):
        dataset.show("c.png")
    with pytest.raises(BoxmendError, match="side is 0; expected at least 16 pixels"):
        dataset.show("a.png", side=0)
    dataset.images.paths[0] = ""
    with pytest.raises(BoxmendError, match=r"the folder of the images is unknown; .*images="):
        dataset.show("a.png")


def test_a_dataset_is_described_in_a_few_lines(photos: Path) -> None:
    names = [f"label {k} <b>\n" for k in range(500)]
    dataset = made(labels=[3, 3, 499], label_names=names)
    text = repr(dataset)
    assert text.splitlines()[0] == "Dataset: 2 images, 3 annotations"
    assert len(text.splitlines()) == 3
    assert len(text) < 400
    html = dataset._repr_html_()
    assert "<b>" not in html
    assert "490 more rows" in html
    assert ">label 3 &lt;b&gt; </td><td" in html
    assert repr(dataset.images) == "Images: 2 (a.png, sub/b.png)"
