"""YOLO datasets read and written back: columns, findings, and unchanged bytes."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.formats import load, read, yolo
from boxmend.data.formats.reading import ReadOptions
from boxmend.errors import BoxmendError, DataError

YAML = "train: images/train\nval: images/val\nnames: [a, b, c]  # three\n"
X = b"1 0.5 0.25 0.25 0.5  \r\n\r\n0.0\t0.750000 0.5 0.5 1.0"
Y = b""
Z = b"2 0.1 0.2 0.1 0.2\n"


def put_image(path: Path, size: tuple[int, int] = (200, 100)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size).save(path)


def put(path: Path, data: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)


def make(root: Path, yaml: str = YAML) -> Path:
    """Make a dataset with images x (two annotations), y (an empty file), n (no file), z (one)."""
    for place in ("train/x", "train/y", "train/n", "val/z"):
        put_image(root / f"images/{place}.png")
    put(root / "labels/train/x.txt", X)
    put(root / "labels/train/y.txt", Y)
    put(root / "labels/val/z.txt", Z)
    put(root / "data.yaml", yaml)
    return root / "data.yaml"


def files(root: Path) -> dict[str, bytes]:
    """Return the annotation files of a folder."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.suffix in (".txt", ".yaml")
    }


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return load(make(tmp_path / "in"))


# Reading


def test_columns_hold_pixels_labels_and_ids(dataset: Dataset, tmp_path: Path) -> None:
    assert dataset.label_names == ("a", "b", "c")
    assert dataset.images.ids.tolist() == ["train/n", "train/x", "train/y", "val/z"]
    assert dataset.images.splits == ["train"] * 3 + ["val"]
    assert dataset.images.widths.tolist() == [200] * 4
    assert dataset.images.heights.tolist() == [100] * 4
    assert dataset.annotation_ids.tolist() == ["train/x:0", "train/x:1", "val/z:0"]
    assert dataset.image_ids.tolist() == ["train/x", "train/x", "val/z"]
    assert dataset.labels.tolist() == [1, 0, 2]
    np.testing.assert_allclose(
        dataset.boxes, [[75, 0, 125, 50], [100, 0, 200, 100], [10, 10, 30, 30]]
    )
    assert dataset.document(2) == tmp_path / "in/labels/val/z.txt"
    assert dataset.findings == ()


def test_one_split_can_be_read(dataset: Dataset, tmp_path: Path) -> None:
    assert load(f"{tmp_path}/in/data.yaml:val").annotation_ids.tolist() == ["val/z:0"]
    assert load(f"{tmp_path}/in:val").annotation_ids.tolist() == ["val/z:0"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("data.yaml", True), ("other.yml", True), ("x.txt", False), (".", True), ("empty", False)],
)
def test_a_yaml_file_or_a_folder_with_one_looks_like_yolo(
    tmp_path: Path, name: str, expected: bool
) -> None:
    for file in ("data.yaml", "other.yml", "x.txt"):
        put(tmp_path / file, "")
    (tmp_path / "empty").mkdir()
    assert yolo.looks_like(tmp_path / name) is expected


def test_findings_name_file_line_and_annotation(tmp_path: Path) -> None:
    put_image(tmp_path / "images/x.png")
    put(tmp_path / "labels/x.txt", "0 .5 .5 .1 .1\n\n7 .5 .5 .1 .1\n0 .5 .5 .1 .1 .99\n0 0 0 inf 1")
    put(tmp_path / "data.yaml", "train: images\nnames: [a]\n")
    dataset = read(tmp_path)
    assert [
        (finding.kind, finding.annotation_id, finding.message[:7]) for finding in dataset.findings
    ] == [
        ("unknown-category", "train/x:1", "line 3:"),
        ("malformed", "train/x:2", "line 4:"),
        ("box-not-finite", "train/x:3", "line 5:"),
    ]
    assert {finding.file for finding in dataset.findings} == {str(tmp_path / "labels/x.txt")}
    assert {finding.image for finding in dataset.findings} == {"x.png"}
    assert dataset.labels.tolist() == [0, UNKNOWN, 0, 0]
    assert np.isnan(dataset.boxes[2:]).all()
    with pytest.raises(DataError, match="train/x:1"):
        load(tmp_path)


def test_an_image_that_cannot_be_opened_leaves_its_boxes_unknown(tmp_path: Path) -> None:
    put(tmp_path / "images/x.png", b"not an image")
    os.mkfifo(tmp_path / "images/y.png")
    (tmp_path / "images/z.png").symlink_to(tmp_path / "gone.png")
    for name in "xyz":
        put(tmp_path / f"labels/{name}.txt", "0 .5 .5 .1 .1")
    put(tmp_path / "data.yaml", "train: images\nnames: [a]\n")
    dataset = read(tmp_path)
    assert [(finding.kind, Path(finding.file).name) for finding in dataset.findings] == [
        ("unreadable-image", "x.png"),
        ("missing-image", "y.png"),
        ("missing-image", "z.png"),
    ]
    assert dataset.images.widths.tolist() == [0, 0, 0]
    assert np.isnan(dataset.boxes).all()
    assert dataset.save(tmp_path / "out").files.keys() == {
        "data.yaml", "labels/x.txt", "labels/y.txt", "labels/z.txt",
    }  # fmt: skip


def test_polygons_are_refused_or_boxed(tmp_path: Path) -> None:
    put_image(tmp_path / "images/train/x.png")
    polygon = b"0 .5 .5 .6 .5 .6 .7\r\n1 .5 .5 .1 .1 \n2 0 0 1 0 1 1 0 1"
    put(tmp_path / "labels/train/x.txt", polygon)
    put(tmp_path / "data.yaml", "train: images/train\nnames: [a, b, c]\n")
    with pytest.raises(
        DataError, match=r"train/x:0: line 1: a polygon of 3 points.*--polygons box"
    ):
        load(tmp_path)
    dataset = load(tmp_path, polygons="box")
    np.testing.assert_allclose(dataset.boxes[0], [100, 50, 120, 70])
    (finding,) = dataset.findings
    assert (finding.kind, finding.message[:10]) == ("polygon", "2 polygons")
    assert dataset.sources[0].extras() == {"polygon": 2}
    assert yolo.list_losses(dataset) == []
    boxes, labels = dataset.boxes.copy(), dataset.labels.copy()
    boxes[0], labels[2] = [100, 50, 130, 70], 1
    changed = replace(dataset, boxes=boxes, labels=labels)
    changed.save(tmp_path / "out")
    assert (tmp_path / "out/labels/train/x.txt").read_bytes() == polygon.replace(
        b".5 .5 .6 .5 .6 .7", b"0.575 0.6 0.15 0.2"
    ).replace(b"\n2 ", b"\n1 ")


def test_a_label_file_of_a_hundred_megabytes_is_refused(tmp_path: Path) -> None:
    put_image(tmp_path / "images/x.png")
    put(tmp_path / "labels/x.txt", "")
    os.truncate(tmp_path / "labels/x.txt", 100 * 2**20)
    put(tmp_path / "data.yaml", "train: images\nnames: [a]\n")
    with pytest.raises(DataError, match=r"x\.txt: .*more than the limit of 8,388,608"):
        read(tmp_path)


def test_a_label_file_that_is_a_pipe_is_refused_and_a_dangling_link_is_not_a_label_file(
    tmp_path: Path,
) -> None:
    put_image(tmp_path / "images/x.png")
    put(tmp_path / "data.yaml", "train: images\nnames: [a]\n")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels/x.txt").symlink_to(tmp_path / "gone.txt")
    assert len(read(tmp_path)) == 0
    os.mkfifo(tmp_path / "gone.txt")
    with pytest.raises(DataError, match=r"x\.txt: cannot be read \(a pipe, not a regular file"):
        read(tmp_path)


# Patching


def test_unchanged_data_keeps_every_byte(dataset: Dataset, tmp_path: Path) -> None:
    before = files(tmp_path / "in")
    saved = dataset.save(tmp_path / "out")
    assert files(tmp_path / "out") == before == files(tmp_path / "in")
    assert (tmp_path / "out/images/train/n.png").is_file()
    assert saved.annotation_ids.tolist() == dataset.annotation_ids.tolist()
    assert saved.images_missing == 0


def test_changes_touch_only_their_tokens(dataset: Dataset, tmp_path: Path) -> None:
    dataset.labels[1] = 2
    dataset.boxes[2] = [10, 10, 40, 30]
    dataset.save(tmp_path / "out")
    assert files(tmp_path / "out") == files(tmp_path / "in") | {
        "labels/train/x.txt": X.replace(b"0.0\t", b"2\t"),
        "labels/val/z.txt": Z.replace(b"0.1 0.2 0.1", b"0.125 0.2 0.15"),
    }


def test_removed_and_added_annotations(dataset: Dataset, tmp_path: Path) -> None:
    n, x, _, z = range(4)
    smaller = dataset.take(np.array([1]))
    box = [10.0, 10.0, 30.0, 30.0]
    changed = smaller.add(np.array([x, n, z, x]), np.array([0, 1, 2, 2]), np.array([box] * 4))
    saved = changed.save(tmp_path / "out")
    assert files(tmp_path / "out") == files(tmp_path / "in") | {
        "labels/train/n.txt": b"1 0.1 0.2 0.1 0.2\n",
        "labels/train/x.txt": b"\r\n0.0\t0.750000 0.5 0.5 1.0"
        b"\r\n0 0.1 0.2 0.1 0.2\r\n2 0.1 0.2 0.1 0.2",
        "labels/val/z.txt": Z,  # removed, and one like it added
    }
    again = load(tmp_path / "out")
    assert dict(zip(again.annotation_ids, again.labels.tolist(), strict=True)) == dict(
        zip(saved.annotation_ids, changed.labels.tolist(), strict=True)
    )


def test_a_part_of_the_images_is_written(dataset: Dataset, tmp_path: Path) -> None:
    dataset.take_images(np.array([3])).save(tmp_path / "out")
    assert files(tmp_path / "out") == {
        "data.yaml": YAML.replace("images/train", "images/val").encode(),
        "labels/val/z.txt": Z,
    }
    assert load(tmp_path / "out").annotation_ids.tolist() == ["val/z:0"]


def test_another_layout_is_kept_and_read_with_the_same_ids(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        put_image(tmp_path / f"in/{split}/images/x.png")
        put(tmp_path / f"in/{split}/labels/x.txt", X)
    yaml = "path: ..  # here\ntrain: in/train/images\nval: [in/valid/images]\nnames: [a, b]\n"
    put(tmp_path / "in/helmets.yaml", yaml)
    dataset = load(tmp_path / "in/helmets.yaml")
    assert dataset.sources[0].name == "helmets"
    dataset.save(tmp_path / "out")
    assert files(tmp_path / "out") == {
        "data.yaml": b"path: null  # here\ntrain: train/images\nval: [valid/images]\n"
        b"names: [a, b]\n",
        "train/labels/x.txt": X,
        "valid/labels/x.txt": X,
    }
    again = load(tmp_path / "out")
    assert again.annotation_ids.tolist() == dataset.annotation_ids.tolist()
    assert (again.boxes == dataset.boxes).all()
    assert again.sources[0].name == "out"


def test_splits_that_share_their_images_still_share_them_when_written(tmp_path: Path) -> None:
    yaml = "train: images/train\ntest: images/val\nval: images/val\nnames: [a, b, c]\n"
    load(make(tmp_path / "in", yaml)).save(tmp_path / "out")
    assert files(tmp_path / "out") == files(tmp_path / "in")


def test_an_orphan_and_lines_that_are_wrong_do_not_change(tmp_path: Path) -> None:
    make(tmp_path / "in")
    put(tmp_path / "in/labels/train/lost.txt", "9 x\r\n")
    put(tmp_path / "in/labels/val/z.txt", "a b\n\xff\n0 0 0 0 0 0\n")
    dataset = read(tmp_path / "in")
    dataset.save(tmp_path / "out", images_as="none")
    assert files(tmp_path / "out") == files(tmp_path / "in")


def test_labels_that_the_data_yaml_lacks_are_added_to_its_names(
    dataset: Dataset, tmp_path: Path
) -> None:
    dataset = replace(dataset, label_names=(*dataset.label_names, "unused", "new"))
    dataset.labels[2] = 4
    dataset.save(tmp_path / "out")
    assert files(tmp_path / "out") == files(tmp_path / "in") | {
        "data.yaml": YAML.replace("c]", "c, new]").encode(),
        "labels/val/z.txt": b"3" + Z[1:],
    }


def test_joined_datasets_get_a_folder_each_and_keep_their_numbers(tmp_path: Path) -> None:
    first = make(tmp_path / "first")
    second = make(tmp_path / "second", YAML.replace("[a, b, c]", "[c, b, b]"))
    dataset = load(first, second)
    assert dataset.label_names == ("a", "b", "c")
    assert dataset.labels.tolist() == [1, 0, 2, 1, 2, 1]
    saved = dataset.save(tmp_path / "out")
    assert files(tmp_path / "out/first") == files(tmp_path / "first")
    assert files(tmp_path / "out/second") == files(tmp_path / "second")
    again = load(tmp_path / "out/first", tmp_path / "out/second")
    assert again.annotation_ids.tolist() == saved.annotation_ids.tolist()
    dataset.labels[3] = 0
    dataset.save(tmp_path / "more")
    changed = files(tmp_path / "more/second")
    assert changed["labels/train/x.txt"] == X.replace(b"1 ", b"3 ", 1)
    assert b"names: [c, b, b, a]" in changed["data.yaml"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"labels": np.array([1, UNKNOWN, 2])}, "train/x:1: has no label any more"),
        ({"boxes": np.full((3, 4), np.inf)}, "its box is not finite"),
        ({"source_rows": np.array([0, 0, 2])}, "train/x:1: is repeated"),
        (
            {"image_rows": np.array([1, 2, 3])},
            "train/x:1: is repeated or was moved to another image",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_with_its_id(
    dataset: Dataset, tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    with pytest.raises(DataError, match=expected):
        replace(dataset, **change).save(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_box_of_an_image_without_a_size_cannot_be_written(tmp_path: Path) -> None:
    make(tmp_path / "in")
    put(tmp_path / "in/labels/val/lost.txt", Z)
    dataset = read(tmp_path / "in")
    dataset.boxes[-1] = [0, 0, 5, 5]
    with pytest.raises(DataError, match=r"val/lost:0 \(lost\.jpg\): the size of its image"):
        dataset.save(tmp_path / "out")


def test_annotations_of_a_shared_label_file_cannot_be_distinguished(tmp_path: Path) -> None:
    make(tmp_path / "in")
    put_image(tmp_path / "in/images/val/z.webp")
    dataset = read(tmp_path / "in")
    assert dataset.images.ids.tolist()[-2:] == ["val/z", "val/z.webp"]
    dataset.save(tmp_path / "same")
    assert files(tmp_path / "same") == files(tmp_path / "in")
    assert read(tmp_path / "same").images.ids.tolist() == dataset.images.ids.tolist()
    added = dataset.add(np.array([4]), np.array([0]), np.array([[0.0, 0, 5, 5]]))
    for part in (added, added.take_images(np.array([4]))):
        with pytest.raises(DataError, match=r"z\.txt: belongs to .* and to another image"):
            part.save(tmp_path / "out")


# Properties


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


lines = st.tuples(st.integers(0, 2), *[st.floats(0.01, 1).map(lambda v: f"{v:.6f}")] * 4)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(lines, max_size=4), min_size=1, max_size=3), st.data())
def test_only_what_was_changed_differs_on_reading_again(
    contents: list[list[tuple[Any, ...]]], data: st.DataObject
) -> None:
    with folder() as root:
        for k, content in enumerate(contents):
            put_image(root / f"in/images/train/{k}.png", (640, 480))
            text = "".join(" ".join(map(str, line)) + "\n" for line in content)
            put(root / f"in/labels/train/{k}.txt", text)
        put(root / "in/data.yaml", "train: images/train\nnames: [a, b, c]\n")
        before = load(root / "in")
        n = len(before)
        chosen = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), np.bool_)
        changed = replace(before, boxes=before.boxes.copy(), labels=before.labels.copy())
        changed.boxes[chosen] += data.draw(st.floats(-5, 5))
        changed.labels[chosen] = (changed.labels[chosen] + 1) % 3
        changed.save(root / "out")
        after = load(root / "out")
        assert after.annotation_ids.tolist() == before.annotation_ids.tolist()
        assert (after.boxes[~chosen] == before.boxes[~chosen]).all()
        assert (after.labels == changed.labels).all()
        np.testing.assert_allclose(after.boxes, changed.boxes, atol=0.01)
        touched = {before.images.file_names[row] for row in before.image_rows[chosen]}
        for k in range(len(contents)):
            name = f"labels/train/{k}.txt"
            same = files(root / "in")[name] == files(root / "out")[name]
            assert same is (f"{k}.png" not in touched)


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(st.just(b"train: images\nnames: [a]\n"), st.binary(max_size=40)),
    st.binary(max_size=60),
    st.binary(max_size=40),
)
def test_no_files_end_in_anything_but_findings_or_a_boxmend_error(
    yaml: bytes, label: bytes, listing: bytes
) -> None:
    with folder() as root:
        put_image(root / "images/x.png")
        put(root / "labels/x.txt", label)
        put(root / "list.txt", listing)
        put(root / "data.yaml", yaml)
        put(root / "listed.yaml", b"train: list.txt\nnames: [a]\n")
        for path in (root / "data.yaml", root / "listed.yaml"):
            message, paths = str(root), {"data.yaml"}
            try:
                dataset = yolo.read(path, None, ReadOptions(polygons="box"))
                paths = {document.path for document in yolo.build_documents(dataset, "flag")}
            except BoxmendError as error:
                message = str(error)
            assert str(root) in message
            assert "data.yaml" in paths
