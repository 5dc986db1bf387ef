"""New COCO documents, for datasets from another format or without a source."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import boxmend
from boxmend.data.dataset import Dataset, Images, Source, as_ids
from boxmend.data.formats import read
from boxmend.data.joining import join
from boxmend.errors import DataError, LossyError
from tests.data.formats.coco_documents import box, document


@dataclass(eq=False)
class Folder(Source):
    """A source of a format with poses, and with comments that COCO cannot hold."""

    def document(self, row: int) -> Path:
        return self.path / f"{row}.xml"

    def attributes(self, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        return [{"pose": f"pose {row}"} if row else {} for row in rows.tolist()]

    def extras(self) -> dict[str, int]:
        return {"comments": 2} if self.path.name == "talkative" else {}


def build(
    splits: tuple[str, ...] = ("train", "val"),
    *,
    names: tuple[str, ...] | None = None,
    boxes: Any = ((1, 2, 4, 6), (0.25, 0, 1, 1.5)),
    folder: str | None = "quiet",
    paths: tuple[str, ...] | None = None,
) -> Dataset:
    """One image for each split, with one annotation each."""
    n = len(splits)
    columns = np.array(boxes, np.float64).reshape(-1, 4)
    labels = np.arange(len(columns)) % 2
    sources: tuple[Source, ...] = ()
    if folder is not None:
        sources = (Folder("voc", Path(folder), ("cat", "dog"), columns.copy(), labels.copy()),)
    return Dataset(
        images=Images(
            ids=as_ids([f"i{k}" for k in range(n)]),
            file_names=list(names or [f"{k}.png" for k in range(n)]),
            paths=list(paths or [""] * n),
            splits=list(splits),
            widths=np.full(n, 64),
            heights=np.full(n, 48),
            sources=np.zeros(n, np.int64),
            rows=np.arange(n),
        ),
        label_names=("cat", "dog"),
        annotation_ids=as_ids([f"i{k}:0" for k in range(len(columns))]),
        image_rows=np.arange(len(columns)) % n,
        labels=labels,
        boxes=columns,
        is_crowd=np.zeros(len(columns), np.bool_),
        is_difficult=np.arange(len(columns)) == 1,
        source_of=np.zeros(len(columns), np.int64),
        source_rows=np.arange(len(columns)),
        sources=sources,
    )


def test_new_documents_hold_the_columns_one_file_for_each_split(tmp_path: Path) -> None:
    saved = build().save(tmp_path / "out", format="coco")
    assert list(saved.files) == ["instances_train.json", "instances_val.json"]
    assert saved.annotation_ids.tolist() == [1, 2]
    assert json.loads((saved.out / "instances_val.json").read_text()) == {
        "images": [{"id": 2, "file_name": "1.png", "width": 64, "height": 48}],
        "annotations": [
            {
                "id": 2,
                "image_id": 2,
                "category_id": 2,
                "bbox": [0.25, 0, 0.75, 1.5],
                "area": 1.125,
                "iscrowd": 0,
                "pose": "pose 1",
                "difficult": 1,
            }
        ],
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
    }
    assert (saved.out / "instances_train.json").read_text().startswith('{"images": [\n{"id": 1, ')


def test_new_documents_are_read_as_what_they_were_made_of(tmp_path: Path) -> None:
    dataset = build(("train", "train", "val"), boxes=np.arange(20.0).reshape(5, 4) / 7)
    dataset.is_crowd[3] = True
    saved = dataset.save(tmp_path / "out", format="coco")
    again = boxmend.load(tmp_path / "out")
    rows = [again.annotation_ids.tolist().index(one) for one in saved.annotation_ids.tolist()]
    np.testing.assert_allclose(again.boxes[rows], dataset.boxes, atol=2e-6)
    assert again.labels[rows].tolist() == dataset.labels.tolist()
    assert again.is_difficult[rows].tolist() == dataset.is_difficult.tolist()
    assert again.is_crowd[rows].tolist() == [False, False, False, True, False]
    assert again.images.splits == ["train", "train", "val"]
    assert again.label_names == dataset.label_names


def test_a_drawn_dataset_keeps_its_integers(tmp_path: Path) -> None:
    dataset = replace(build(folder=None), annotation_ids=np.array([40, 7]))
    saved = dataset.save(tmp_path / "out")
    assert (saved.format, saved.annotation_ids.tolist()) == ("coco", [40, 7])
    assert boxmend.load(tmp_path / "out").annotation_ids.tolist() == [40, 7]


def test_empty_dataset_is_written_and_read(tmp_path: Path) -> None:
    build((), boxes=(), folder=None).save(tmp_path / "out")
    again = boxmend.load(tmp_path / "out/instances_all.json")
    assert (len(again), len(again.images), again.label_names) == (0, 0, ("cat", "dog"))


def test_what_coco_cannot_hold_is_named_and_refused(tmp_path: Path) -> None:
    dataset = build(folder="talkative")
    with pytest.raises(LossyError, match=r"2 x comments \(talkative\)"):
        dataset.save(tmp_path / "out", format="coco")
    assert not (tmp_path / "out").exists()
    assert dataset.save(tmp_path / "out", format="coco", allow_lossy=True).losses


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_box_that_cannot_be_written_is_refused_with_its_id(bad: Any, tmp_path: Path) -> None:
    dataset = build()
    dataset.boxes[1, 2] = bad
    with pytest.raises(DataError, match=r"1.xml: annotation i1:0: its box .* correct or remove"):
        dataset.save(tmp_path / "out", format="coco")
    assert not (tmp_path / "out").exists()


def test_names_that_are_not_unicode_are_refused(tmp_path: Path) -> None:
    dataset = build(names=("caf\udce9.png", "1.png"))
    with pytest.raises(DataError, match="not valid Unicode"):
        dataset.save(tmp_path / "out", format="coco")


def test_images_of_one_name_are_distinguished_within_their_split(tmp_path: Path) -> None:
    paths = []
    for k in range(4):
        (tmp_path / f"{k}").mkdir()
        (tmp_path / f"{k}/x.png").write_text(str(k))
        paths.append(str(tmp_path / f"{k}/x.png"))
    dataset = build(("train", "train", "val", "val"), names=("x.png",) * 4, paths=tuple(paths))
    dataset.save(tmp_path / "out", format="coco")
    again = boxmend.load(tmp_path / "out")
    assert again.images.file_names == ["x.png", "quiet/x.png"] * 2
    assert [Path(path).read_text() for path in again.images.paths] == ["0", "1", "2", "3"]


def test_images_without_a_path_are_distinguished_as_well(tmp_path: Path) -> None:
    build(("all", "all"), names=("x.png",) * 2, folder=None).save(tmp_path / "out")
    again = boxmend.load(tmp_path / "out")
    assert again.images.file_names == ["x.png", "image/x.png"]


def test_coco_joined_with_another_format_is_written_as_new_and_says_what_it_loses(
    tmp_path: Path,
) -> None:
    path = tmp_path / "instances_train.json"
    one = box(segmentation=[[1, 2, 3, 4, 5, 6]], truncated=1, area=12, occluded=True, note=None)
    image = {"id": 1, "file_name": "1.jpg", "width": 64, "height": 48, "license": 2}
    path.write_bytes(document(one, 5, images=[image], info={"year": 1}, licenses=[]))
    mixed = join([read(path), build(("train",), boxes=((1, 2, 3, 4),))])
    mixed.sources[1].group = 1
    with pytest.raises(LossyError) as caught:
        mixed.save(tmp_path / "out")
    assert caught.value.losses == (
        "1 x annotations.segmentation (instances_train.json)",
        "1 x malformed entry of annotations (instances_train.json)",
        "1 x images.license (instances_train.json)",
        "1 x info (instances_train.json)",
    )
    kept = mixed.take(np.array([0, 2]))
    saved = kept.save(tmp_path / "out", allow_lossy=True)
    assert saved.annotation_ids.tolist() == [1, 2]
    top = json.loads((saved.out / "instances_train.json").read_text())
    assert [annotation["bbox"] for annotation in top["annotations"]] == [[1, 2, 3, 4], [1, 2, 2, 2]]
    assert (top["annotations"][0]["truncated"], top["annotations"][0]["occluded"]) == (1, True)
    assert [annotation["category_id"] for annotation in top["annotations"]] == [1, 1]
    assert len(top["images"]) == 2


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(*[st.floats(-1e4, 1e4)] * 4).map(
            lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3])
        ),
        min_size=1,
        max_size=5,
    )
)
def test_boxes_survive_to_a_millionth_of_a_pixel(
    tmp_path_factory: pytest.TempPathFactory, boxes: Any
) -> None:
    out = tmp_path_factory.mktemp("x") / "out"
    build(boxes=boxes).save(out, format="coco")
    again = boxmend.load(out)
    order = np.argsort(again.annotation_ids)
    np.testing.assert_allclose(again.boxes[order], boxes, rtol=0, atol=1.1e-6)
