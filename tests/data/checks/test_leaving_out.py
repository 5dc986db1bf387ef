"""What is broken is left out and listed; the rest keeps its bytes and has no errors."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.data.checks import check, leave_out_broken, repair
from boxmend.data.dataset import Dataset
from boxmend.data.findings import Finding, Severity
from boxmend.data.formats import read
from tests.data.formats.test_yolo import files, put, put_image
from tests.data.formats.voc_folders import CAT, DOG, corners, image, objects, voc_folder

GOOD = "0 0.5 0.5 0.5 0.5\n"


def find_errors(dataset: Dataset, *, open_images: bool = True) -> list[Finding]:
    findings = check(dataset, open_images=open_images, jobs=1)
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def leave_out(dataset: Dataset) -> tuple[Dataset, list[str]]:
    """Return the dataset without broken entries, and where they were, with their messages."""
    left = leave_out_broken(dataset, check(dataset, jobs=1))
    assert {entry.action for entry in left.entries} <= {"left out"}
    return left.dataset, [
        f"{Path(entry.file).name} {entry.annotation_id or entry.image or ''}: {entry.message}"
        for entry in left.entries
    ]


# YOLO


def test_broken_lines_of_label_files_are_left_out(tmp_path: Path) -> None:
    put_image(tmp_path / "in/images/x.png")
    lines = f"{GOOD}\n7 .5 .5 .1 .1\r\n0 .5 .5 .1 .1 .99\n0 0 0 inf 1\n0 a b c d\n1 .5 .5 .2 .2"
    put(tmp_path / "in/labels/x.txt", lines)
    put(tmp_path / "in/data.yaml", "train: images\nval: images\nnames: [a, b]\n")
    left, entries = leave_out(read(tmp_path / "in"))
    assert [entry.split(": ")[:2] for entry in entries] == [
        ["x.txt train/x:1", "line 3"],
        ["x.txt train/x:2", "line 4"],
        ["x.txt train/x:4", "line 6"],
    ]
    mended, repairs = repair(left)  # boxes that are not finite are repaired, not left out
    assert [one.annotation_id for one in repairs] == ["train/x:3"]
    mended.save(tmp_path / "out")
    assert (tmp_path / "out/labels/x.txt").read_bytes() == f"{GOOD}\n1 .5 .5 .2 .2".encode()
    assert find_errors(read(tmp_path / "out")) == []


def test_broken_images_are_left_out_with_their_annotations(tmp_path: Path) -> None:
    for name in ("x", "gone", "broken"):
        put(tmp_path / f"in/labels/{name}.txt", GOOD * 2)
    put_image(tmp_path / "in/images/x.png")
    put(tmp_path / "in/images/broken.png", b"no image")
    put(tmp_path / "in/data.yaml", "train: images\nval: images\nnames: [a]\n")
    left, entries = leave_out(read(tmp_path / "in"))
    assert left.images.file_names == ["x.png"]
    assert [entry.partition(": ")[0] for entry in entries] == [
        "broken.png broken.png",
        "gone.txt gone.jpg",
    ]
    assert all(entry.endswith("(with its 2 annotations)") for entry in entries)
    left.save(tmp_path / "out")
    assert set(files(tmp_path / "out")) == {"data.yaml", "labels/x.txt"}
    assert find_errors(read(tmp_path / "out")) == []


def test_broken_lines_of_lists_are_left_out(tmp_path: Path) -> None:
    put_image(tmp_path / "in/images/x.png")
    put(tmp_path / "in/labels/x.txt", GOOD)
    put(tmp_path / "in/train.txt", "images/x.png\n../secret.png\nnotes\n\nimages/gone.png\n")
    put(tmp_path / "in/data.yaml", "train: train.txt\nval: train.txt\nnames: [a]\n")
    left, entries = leave_out(read(tmp_path / "in"))
    assert len(entries) == 3
    assert entries[0].startswith("train.txt : line 2: '../secret.png' is not a safe path")
    left.save(tmp_path / "out")
    assert (tmp_path / "out/train.txt").read_text() == "images/x.png\n\n"
    assert find_errors(read(tmp_path / "out")) == []


def test_of_images_that_share_a_label_file_the_first_one_stays(tmp_path: Path) -> None:
    for name in ("x.png", "x.webp", "y.png"):
        put_image(tmp_path / f"in/images/{name}")
    put(tmp_path / "in/labels/x.txt", GOOD)
    put(tmp_path / "in/data.yaml", "train: images\nval: images\nnames: [a]\n")
    left, entries = leave_out(read(tmp_path / "in"))
    assert left.images.file_names == ["x.png", "y.png"]
    assert len(left) == len(entries) == 1


def test_a_wrong_number_of_classes_is_about_no_entry(tmp_path: Path) -> None:
    put_image(tmp_path / "in/images/x.png")
    put(tmp_path / "in/data.yaml", "train: images\nval: images\nnames: [a]\nnc: 2\n")
    left, entries = leave_out(read(tmp_path / "in"))
    assert entries == []
    assert [finding.kind for finding in find_errors(left)] == ["malformed"]


# VOC


def test_broken_objects_documents_and_lines_of_lists_are_left_out(tmp_path: Path) -> None:
    nameless = corners(1, 2, 3, 4)
    documents: dict[str, str | bytes] = {
        "1": objects(DOG, nameless, CAT),
        "2": b"<annotation><object>",
        "3": objects(DOG),
        "4": objects(DOG),
    }
    lists = {"train": "1\n2\n../x\n1\nnone\n3\n4\n"}
    root = voc_folder(tmp_path / "in", documents, lists)
    for name in "123":
        image(root / f"JPEGImages/{name}.jpg", (9, 9))
    left, entries = leave_out(read(f"{root}:train"))
    assert left.annotation_ids.tolist() == ["1:0", "1:2", "3:0"]
    assert [entry.partition(": ")[0] for entry in entries] == [
        "train.txt ", "train.txt 1", "train.txt none", "1.xml 1:1", "2.xml 2", "4.xml 4.jpg",
    ]  # fmt: skip
    left.save(tmp_path / "out")
    assert (tmp_path / "out/ImageSets/Main/train.txt").read_text() == "1\n3\n"
    assert find_errors(read(f"{tmp_path}/out:train")) == []
    assert not (tmp_path / "out/Annotations/2.xml").exists()


# COCO


def write_coco(root: Path, **lists: list[Any]) -> Path:
    top: dict[str, Any] = {
        "images": [{"id": 1, "file_name": "1.png", "width": 9, "height": 9}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}],
    }
    root.mkdir(parents=True, exist_ok=True)
    put_image(root / "images/1.png", (9, 9))
    path = root / "instances_train.json"
    path.write_text(json.dumps(top | {key: top[key] + value for key, value in lists.items()}))
    return path


def test_broken_entries_of_coco_are_left_out(tmp_path: Path) -> None:
    box = {"id": 2, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}
    path = write_coco(
        tmp_path / "in",
        images=[
            {"id": 1, "file_name": "1.png"},
            {"id": 3, "file_name": "../3.png"},
            {"id": 4, "file_name": None},
            {"id": 5, "file_name": "gone.png"},
            {"file_name": "1.png"},
        ],
        annotations=[
            box,
            box | {"bbox": [5, 5, 2, 2]},
            box | {"id": 6, "category_id": 9},
            box | {"id": 7, "image_id": 9},
            box | {"id": None},
            box | {"id": 8, "image_id": 5},
            7,
        ],
    )
    left, entries = leave_out(read(path))
    assert left.annotation_ids.tolist() == [1, 2]
    assert left.images.ids.tolist() == [1]
    assert any("gone.png" in entry and "with its 1 annotation)" in entry for entry in entries)
    left.save(tmp_path / "out")
    assert find_errors(read(tmp_path / "out")) == []
    written = json.loads((tmp_path / "out" / path.name).read_text())
    assert written["annotations"] == json.loads(path.read_text())["annotations"][:2]


def test_entries_of_joined_datasets_are_left_out(tmp_path: Path) -> None:
    paths = [
        write_coco(tmp_path / name, images=[{"id": 2, "file_name": "../x.png"}]) for name in "ab"
    ]
    dataset = read(*paths)
    left, entries = leave_out(dataset)
    assert len(entries) == 2
    assert left.images.file_names == ["1.png", "1.png"]
    assert find_errors(left) == []


def test_nothing_is_left_out_of_a_valid_dataset(tmp_path: Path) -> None:
    dataset = read(write_coco(tmp_path / "in"))
    left, entries = leave_out(dataset)
    assert entries == []
    left.save(tmp_path / "out")
    before, after = (tmp_path / name / "instances_train.json" for name in ("in", "out"))
    assert before.read_bytes() == after.read_bytes()


# Properties

tokens = st.sampled_from(["0", "1", "9", "-1", ".5", "0.2", "nan", "1e999", "x", "1_0"])
label_lines = st.one_of(
    st.just(GOOD.strip()),
    st.lists(tokens, max_size=8).map(" ".join),
    st.text(" \t\x0b\xa0é", max_size=3),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(label_lines, max_size=5), min_size=1, max_size=3), st.data())
def test_a_mended_yolo_dataset_has_no_errors_and_keeps_valid_lines(
    contents: list[list[str]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        put(root / "in/data.yaml", "train: images\nval: images\nnames: [a, b]\n")
        put_image(root / "in/images/there.png")
        newline = data.draw(st.sampled_from(["\n", "\r\n"]))
        for number, lines in enumerate(contents):
            if data.draw(st.booleans()):
                put_image(root / f"in/images/{number}.png")
            put(root / f"in/labels/{number}.txt", newline.join(lines))
        dataset = read(root / "in")
        left = leave_out_broken(dataset, check(dataset, jobs=1))
        mended, repairs = repair(left.dataset)
        mended.save(root / "out")
        again = read(root / "out")
        assert find_errors(again) == []
        assert len(again) == len(mended)
        clipped = sum(one.action == "clipped" for one in repairs)
        unchanged = (np.isin(again.boxes, dataset.boxes)).all(axis=1).sum()
        assert unchanged >= len(again) - clipped


entries = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from([1, 2, 2, 3, None, "x", 1.5]),
        "image_id": st.sampled_from([1, 1, 2, 9, None]),
        "category_id": st.sampled_from([1, 1, 9, "x"]),
        "bbox": st.sampled_from([[1, 2, 3, 4], [1, 2, 0, 4], [-5, 0, 9, 9], [1, 2], None]),
        "file_name": st.sampled_from(["1.png", "2.png", "../1.png", "/x", None, 5]),
        "width": st.sampled_from([9, 0, None, "x"]),
    },
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(entries, st.just(5)), max_size=5), st.lists(entries, max_size=3))
def test_a_mended_coco_file_has_no_errors_and_keeps_valid_entries(
    annotations: list[Any], images: list[Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        path = write_coco(root / "in", annotations=annotations, images=images)
        dataset = read(path)
        left = leave_out_broken(dataset, check(dataset, jobs=1))
        mended, _ = repair(left.dataset)
        mended.save(root / "out")
        assert find_errors(read(root / "out")) == []
        # The valid one that every file has; an error about its id may be about its image.
        is_unique = all(one.get("id") != 1 for one in images)
        assert not is_unique or 1 in mended.annotation_ids.tolist()


@pytest.mark.parametrize("format", ["coco", "voc", "yolo"])
def test_the_input_stays_as_it_is(tmp_path: Path, format: str) -> None:
    source = read(write_coco(tmp_path / "in"))
    source.save(tmp_path / "data", format=format)
    before = {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}
    dataset = read(tmp_path / "data")
    boxes = dataset.boxes.copy()
    leave_out_broken(dataset, check(dataset, jobs=1))
    assert (dataset.boxes == boxes).all()
    assert before == {path: path.read_bytes() for path in before}
