"""New YOLO datasets from datasets of other formats."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import boxmend
from boxmend.data.dataset import ADDED, UNKNOWN, Dataset, Images, Source
from boxmend.data.formats import load, yolo
from boxmend.data.formats.yolo.data_yaml import read_yaml
from boxmend.data.joining import join
from boxmend.errors import DataError


class Elsewhere(Source):
    """A source of a format that is not YOLO."""

    def document(self, row: int) -> Path:
        return self.path

    def attributes(self, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        return [{"pose": "Left", "truncated": 1} if row == 0 else {} for row in rows]

    def extras(self) -> dict[str, int]:
        return {"annotations.segmentation": 2}


def foreign(names: list[str], splits: list[str], group: int = 0) -> Dataset:
    """One annotation per image; labels, sizes and boxes by image number."""
    n = len(names)
    boxes = np.array([[k + 1, 2, k + 11, 22] for k in range(n)], np.float64).reshape(n, 4)
    labels = np.arange(n) % 2
    source = Elsewhere(
        "coco", Path("all.json"), ("cat", "no"), boxes.copy(), labels.copy(), group=group
    )
    images = Images(
        ids=np.arange(1, n + 1),
        file_names=names,
        paths=[""] * n,
        splits=splits,
        widths=np.full(n, 100),
        heights=np.full(n, 50),
        sources=np.zeros(n, np.int64),
        rows=np.arange(n),
    )
    return Dataset(
        images=images,
        label_names=("cat", "no"),
        annotation_ids=np.arange(10, 10 + n),
        image_rows=np.arange(n),
        labels=labels,
        boxes=boxes,
        is_crowd=np.arange(n) == 1,
        is_difficult=np.zeros(n, np.bool_),
        source_of=np.zeros(n, np.int64),
        source_rows=np.arange(n),
        sources=(source,),
    )


def save_to_memory(dataset: Dataset) -> dict[str, bytes]:
    return {
        document.path: b"".join(document.pieces)
        for document in yolo.build_documents(dataset, "flag")
    }


def test_a_dataset_of_another_format_becomes_new_files() -> None:
    dataset = foreign(["a.jpg", "val/b.jpg", "images/c.jpg"], ["train2017", "val", "trainval"])
    assert save_to_memory(dataset.take(np.array([0, 1]))) == {
        "data.yaml": b'train: images/train\nval: images/val\n\nnames:\n  0: cat\n  1: "no"\n',
        "labels/train/a.txt": b"0 0.06 0.24 0.1 0.4\n",
        "labels/val/b.txt": b"1 0.07 0.24 0.1 0.4\n",
        "labels/train/c.txt": b"",
    }
    assert yolo.assign_image_paths(dataset) == [
        "images/train/a.jpg", "images/val/b.jpg", "images/train/c.jpg",
    ]  # fmt: skip
    assert yolo.assign_annotation_ids(dataset).tolist() == ["train/a:0", "val/b:0", "train/c:0"]


@pytest.mark.parametrize(
    ("splits", "yaml"),
    [
        ([], b"train: images/train\nval: images/train\n"),
        (["all"], b"train: images/train\nval: images/train\n"),
        (["val2017"], b"train: images/val\nval: images/val\n"),
        (["test", "train"], b"train: images/train\nval: images/train\ntest: images/test\n"),
    ],
)
def test_train_and_val_always_lead_to_images(splits: list[str], yaml: bytes) -> None:
    dataset = foreign([f"{k}.jpg" for k in range(len(splits))], splits)
    assert save_to_memory(dataset)["data.yaml"].startswith(yaml + b"\nnames:")


def test_images_whose_label_files_would_be_one_are_made_unique() -> None:
    dataset = foreign(["a.jpg", "a.png", "images/a.jpg", "a.jpg"], ["train"] * 3 + ["val"])
    assert yolo.assign_image_paths(dataset) == [
        "images/train/a.jpg", "images/train/a-2.png", "images/train/a-3.jpg", "images/val/a.jpg",
    ]  # fmt: skip
    assert len(save_to_memory(dataset)) == 5
    assert yolo.assign_annotation_ids(dataset).tolist() == [
        "train/a:0", "train/a-2:0", "train/a-3:0", "val/a:0",
    ]  # fmt: skip


def test_sources_of_several_addresses_do_not_share_names() -> None:
    dataset = join([foreign(["a.jpg"], ["all"]), foreign(["a.jpg"], ["all"], group=1)])
    assert yolo.assign_image_paths(dataset) == ["images/train/a.jpg"] * 2
    assert yolo.assign_annotation_ids(dataset).tolist() == ["train/a:0", "all/train/a:0"]


def test_what_yolo_cannot_hold_is_reported() -> None:
    dataset = foreign(["a.jpg", "b.jpg"], ["all"] * 2)
    dataset.is_difficult[:] = True
    other = replace(foreign(["c.jpg"], ["all"]), source_rows=np.array([ADDED]))
    other.sources[0].extras = dict  # type: ignore[method-assign]  # it has none
    dataset = join([dataset, other])
    assert yolo.list_losses(dataset) == [
        "1 crowd flags (iscrowd)",
        "2 difficult flags",
        "1 x pose (all.json)",
        "1 x truncated (all.json)",
        "2 x annotations.segmentation (all.json)",
    ]


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("labels", UNKNOWN, "annotation 11 (b.jpg): its label is not declared"),
        ("image_rows", UNKNOWN, "annotation 11 (no image): its image is not declared"),
        ("boxes", np.nan, "annotation 11 (b.jpg): its box is not finite"),
    ],
)
def test_annotations_that_no_line_can_hold_are_refused(
    column: str, value: float, expected: str
) -> None:
    dataset = foreign(["a.jpg", "b.jpg"], ["all"] * 2)
    getattr(dataset, column)[1] = value
    with pytest.raises(DataError) as caught:
        save_to_memory(dataset)
    assert expected in str(caught.value)


def test_an_image_without_a_size_may_have_no_annotations() -> None:
    dataset = foreign(["a.jpg", "b.jpg"], ["all"] * 2)
    dataset.images.widths[1] = 0
    assert save_to_memory(dataset.take(np.array([0])))["labels/train/b.txt"] == b""
    with pytest.raises(DataError, match=r"b\.jpg\): the size of its image is unknown"):
        save_to_memory(dataset)


def test_composed_files_are_read_back(tmp_path: Path) -> None:
    names = ["a.png", "sub/images/b.png", "val/c.png", "a.bmp"]
    dataset = foreign(names, ["train", "all", "val", "train"])
    for place in yolo.assign_image_paths(dataset):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (100, 50)).save(tmp_path / place)
    for path, data in save_to_memory(dataset).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    again = load(tmp_path)
    order = [
        yolo.assign_annotation_ids(dataset).tolist().index(annotation_id)
        for annotation_id in again.annotation_ids
    ]
    assert sorted(order) == [0, 1, 2, 3]
    np.testing.assert_allclose(again.boxes, dataset.boxes[order], atol=1e-5)
    assert again.labels.tolist() == dataset.labels[order].tolist()
    assert again.label_names == dataset.label_names


def test_a_name_that_is_empty_in_coco_is_read_back(tmp_path: Path) -> None:
    categories = [{"id": 1, "name": ""}, {"id": 2, "name": "a"}, {"id": 3, "name": " "}]
    images = [{"id": 1, "file_name": "1.jpg", "width": 9, "height": 9}]
    path = tmp_path / "instances_train.json"
    path.write_text(json.dumps({"images": images, "categories": categories, "annotations": []}))
    boxmend.load(path).save(tmp_path / "out", format="yolo", images_as="none")
    assert read_yaml(tmp_path / "out/data.yaml").names == ("", "a", " ")
