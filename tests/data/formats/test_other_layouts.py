"""Datasets in the folders of other tools: read, and written in the same folders."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import boxmend
from boxmend.data.dataset import Dataset
from boxmend.data.formats import detect_format, load, read
from boxmend.data.formats.yolo.splits import get_label_path
from boxmend.errors import DataError, UsageError
from tests.data.formats.test_image_names import coco
from tests.data.formats.test_yolo import files, put, put_image
from tests.data.formats.voc_folders import DOG, objects

LINE = "0 0.5 0.5 0.5 0.5\n"
ROBOFLOW_YAML = (
    "train: ../train/images\nval: ../valid/images\ntest: ../test/images\n\nnc: 1\n"
    "names: ['helmet']\n\nroboflow:\n  workspace: w\n  version: 3\n"
)


def documents(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder but images, which may be links."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".png"
    }


def save_and_read(dataset: Dataset, out: Path) -> Dataset:
    """Save a dataset, and read it with the same ids, names and places of its images."""
    saved = dataset.save(out)
    again = read(out)
    assert again.annotation_ids.tolist() == saved.annotation_ids.tolist()
    assert again.images.ids.tolist() == dataset.images.ids.tolist()
    assert again.images.file_names == dataset.images.file_names
    assert again.images.splits == dataset.images.splits
    assert all(Path(path).is_file() for path in again.images.paths)
    return again


def list_images(dataset: Dataset) -> list[tuple[str, str, str]]:
    """Return id, file name and split of all images."""
    images = dataset.images
    return list(zip(images.ids.tolist(), images.file_names, images.splits, strict=True))


# YOLO: a data.yaml


def roboflow(root: Path) -> Path:
    for split in ("train", "valid", "test"):
        put_image(root / f"{split}/images/x_jpg.rf.0123.png")
        put(root / f"{split}/labels/x_jpg.rf.0123.txt", LINE)
    put(root / "data.yaml", ROBOFLOW_YAML)
    return root


def test_an_export_of_roboflow_keeps_its_folders(tmp_path: Path) -> None:
    dataset = load(roboflow(tmp_path / "in"))
    save_and_read(dataset, tmp_path / "out")
    yaml = ROBOFLOW_YAML.replace("../", "").encode()
    assert documents(tmp_path / "out") == documents(tmp_path / "in") | {"data.yaml": yaml}
    assert dataset.images.splits == ["train", "val", "test"]


def test_an_output_inside_its_input_does_not_lead_back_to_it(tmp_path: Path) -> None:
    dataset = load(roboflow(tmp_path / "in"))
    dataset.boxes[0] = [0, 0, 10, 10]
    again = save_and_read(dataset, tmp_path / "in/mended")
    assert again.boxes[0].tolist() == [0, 0, 10, 10]
    assert all(Path(path).is_relative_to(tmp_path / "in/mended") for path in again.images.paths)


def test_a_conversion_has_the_folders_of_its_format(tmp_path: Path) -> None:
    load(roboflow(tmp_path / "in")).save(tmp_path / "coco", format="coco")
    assert sorted(documents(tmp_path / "coco")) == [
        "instances_test.json",
        "instances_train.json",
        "instances_val.json",
    ]
    boxmend.load(tmp_path / "coco").save(tmp_path / "yolo", format="yolo")
    assert sorted(documents(tmp_path / "yolo")) == [
        "data.yaml",
        *(f"labels/{split}/x_jpg.rf.0123.txt" for split in ("test", "train", "val")),
    ]


def test_a_part_of_an_export_keeps_its_folders(tmp_path: Path) -> None:
    dataset = load(roboflow(tmp_path / "in"))
    save_and_read(dataset.take_images(np.array([1, 2])), tmp_path / "out")
    assert (tmp_path / "out/data.yaml").read_text() == ROBOFLOW_YAML.replace("../", "").replace(
        "train: train/", "train: valid/"
    )


@pytest.mark.parametrize("root", ["/nowhere", "{tmp}/in/sub", "sub", "./sub/"])
def test_the_root_of_the_paths_is_kept_if_it_is_relative(tmp_path: Path, root: str) -> None:
    inside = "in" if root == "/nowhere" else "in/sub"
    put_image(tmp_path / inside / "train/images/x.png")
    put(tmp_path / inside / "train/labels/x.txt", LINE)
    text = (
        f"path: {root.format(tmp=tmp_path)}\ntrain: train/images\nval: train/images\nnames: [a]\n"
    )
    put(tmp_path / "in/data.yaml", text)
    save_and_read(load(tmp_path / "in"), tmp_path / "out")
    written = {"/nowhere": "null", "{tmp}/in/sub": "sub"}.get(root, root)
    assert (tmp_path / "out/data.yaml").read_text() == text.replace(
        root.format(tmp=tmp_path), written
    )


def test_images_elsewhere_get_a_folder_per_split(tmp_path: Path) -> None:
    put_image(tmp_path / "one/images/x.png")
    put(tmp_path / "one/labels/x.txt", LINE)
    put_image(tmp_path / "two/images/y.png")
    put(tmp_path / "in/data.yaml", "train: ../one/images\nval: ../two/images\nnames: [a]\n")
    save_and_read(load(tmp_path / "in"), tmp_path / "out")
    assert documents(tmp_path / "out") == {
        "data.yaml": b"train: images/train\nval: images/val\nnames: [a]\n",
        "labels/train/x.txt": LINE.encode(),
    }


def test_several_folders_of_a_split_are_kept(tmp_path: Path) -> None:
    for name in "abc":
        put_image(tmp_path / f"in/{name}/images/{name}.png")
        put(tmp_path / f"in/{name}/labels/{name}.txt", LINE)
    text = "train:\n  - {0}a/images # one\n  - {0}b/images\nval: {0}c/images\nnames: [a]\n"
    put(tmp_path / "in/data.yaml", text.format("../"))
    save_and_read(load(tmp_path / "in"), tmp_path / "out")
    written = (tmp_path / "out/data.yaml").read_text()
    assert written == "train:\n  - a/images\n  - b/images\nval: c/images\nnames: [a]\n"
    put(tmp_path / "in/data.yaml", text.format(""))
    save_and_read(load(tmp_path / "in"), tmp_path / "same")
    assert (tmp_path / "same/data.yaml").read_text() == text.format("")


def test_an_image_in_two_splits_gets_a_folder_in_each(tmp_path: Path) -> None:
    for name in "ab":
        put_image(tmp_path / f"in/images/{name}.png")
        put(tmp_path / f"in/labels/{name}.txt", LINE)
    put(tmp_path / "in/train.txt", "images/a.png\nimages/b.png\n")
    put(tmp_path / "in/val.txt", "images/b.png\n")
    put(tmp_path / "in/data.yaml", "train: train.txt\nval: val.txt\nnames: [a]\n")
    dataset = load(tmp_path / "in")
    dataset.boxes[1] = [0, 0, 10, 10]  # in one of the splits alone
    again = save_and_read(dataset, tmp_path / "out")
    assert again.boxes.tolist() == dataset.boxes.tolist()
    assert set(files(tmp_path / "out")) == {
        "data.yaml", "labels/train/a.txt", "labels/train/b.txt", "labels/val/b.txt",
    }  # fmt: skip


def test_a_split_whose_ids_would_change_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        put_image(tmp_path / f"in/{name}/images/x.png")
        put(tmp_path / f"in/{name}/labels/x.txt", LINE)
    put(tmp_path / "in/data.yaml", "train: one/images\nval: two/images\nnames: [a]\n")
    dataset = load(f"{tmp_path}/in/data.yaml:val")
    save_and_read(dataset, tmp_path / "out")
    assert sorted(files(tmp_path / "out")) == ["data.yaml", "labels/val/x.txt"]


@pytest.mark.parametrize(
    "folders",
    [
        {"train": "train/images", "val": "valid/images", "test": "test/images"},
        {"train": "images/train", "val": "images/val"},
        {"train": "images"},
    ],
)
def test_a_data_yaml_without_splits_has_the_usual_ones(
    tmp_path: Path, folders: dict[str, str]
) -> None:
    for folder in folders.values():
        put_image(tmp_path / f"in/{folder}/x.png")
        put(tmp_path / f"in/{folder.replace('images', 'labels')}/x.txt", LINE)
    put(tmp_path / "in/data.yaml", "nc: 2\n")
    dataset = load(tmp_path / "in")
    assert dataset.label_names == ("0", "1")
    assert dataset.images.splits == list(folders)
    save_and_read(dataset, tmp_path / "out")
    assert documents(tmp_path / "out") == documents(tmp_path / "in")


def test_paths_of_windows_are_read(tmp_path: Path) -> None:
    for split in ("train", "val"):
        put_image(tmp_path / f"in/images/{split}/x.png")
        put(tmp_path / f"in/labels/{split}/x.txt", LINE)
    put(tmp_path / "in/data.yaml", "train: images\\train\nval: val.txt\nnames: [a]\n")
    put(tmp_path / "in/val.txt", "images\\val\\x.png\r\n")
    dataset = load(tmp_path / "in")
    assert dataset.images.ids.tolist() == ["train/x", "val/x"]
    (finding,) = dataset.findings
    assert r"'images\\val\\x.png' as 'images/val/x.png' (backslashes)" in finding.message
    save_and_read(dataset, tmp_path / "out")
    text = "train: images/train\nval: val.txt\nnames: [a]\n"
    assert (tmp_path / "out/data.yaml").read_text() == text
    assert (tmp_path / "out/val.txt").read_bytes() == b"images\\val\\x.png\r\n"


LAYOUTS = ("images/{}", "{}/images", "set/{}/images", "{}", "{}.txt", "lists/{}.txt")


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(LAYOUTS),
    st.dictionaries(
        st.sampled_from(["train", "val", "test"]),
        st.lists(st.sampled_from(["a", "b", "a b", "s/a", "s/images/b"]), min_size=1, unique=True),
        min_size=1,
    ),
    st.data(),
)
def test_any_part_of_any_layout_is_read_alike(
    layout: str, names: dict[str, list[str]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        lines = []
        for split, stems in names.items():
            place = layout.format(split)
            images = f"images/{split}" if place.endswith(".txt") else place
            for stem in stems:
                image = f"{images}/{stem}.png"
                put_image(root / "in" / image)
                label = Path(get_label_path(f"/{image}")).as_posix().lstrip("/")
                put(root / "in" / label, LINE)
            if place.endswith(".txt"):
                listing = "".join(f"{images}/{stem}.png\n" for stem in stems)
                put(root / "in" / place, listing)
            lines.append(f"{split}: {place}\n")
        put(root / "in/data.yaml", "".join([*lines, "names: [a]\n"]))
        dataset = load(root / "in")
        n = len(dataset.images)
        chosen = data.draw(st.lists(st.integers(0, n - 1), min_size=1, unique=True))
        part = dataset.take_images(np.array(chosen))
        saved = part.save(root / "part")
        again = read(root / "part")  # images that a list named may be in the order of their names
        assert sorted(again.annotation_ids.tolist()) == sorted(saved.annotation_ids.tolist())
        assert sorted(list_images(again)) == sorted(list_images(part))
        assert (again.boxes == dataset.boxes[: len(again)]).all()
        save_and_read(dataset, root / "out")
        if set(names) >= {"train", "val"}:
            assert documents(root / "out") == documents(root / "in")


# YOLO: lists of images


def test_a_written_list_names_the_images_of_the_copy(tmp_path: Path) -> None:
    for name in "abc":
        put_image(tmp_path / f"in/images/{name}.png")
        put(tmp_path / f"in/labels/{name}.txt", LINE)
    lines = f"\ufeff./images/a.png\n\n{tmp_path}/in/images/b.png  \r\nimages/c.png"
    put(tmp_path / "in/train.txt", lines)
    put(tmp_path / "in/data.yaml", "train: train.txt\nval: train.txt\nnames: [a]\n")
    dataset = load(tmp_path / "in")
    save_and_read(dataset, tmp_path / "out")
    written = (tmp_path / "out/train.txt").read_bytes().decode()
    assert written == "\ufeff./images/a.png\n\n./images/b.png  \r\nimages/c.png"
    save_and_read(dataset.take_images(np.array([0, 2])), tmp_path / "part")
    assert (tmp_path / "part/train.txt").read_text() == "\ufeff./images/a.png\n\nimages/c.png"


def test_a_list_of_another_machine_names_the_images_here(tmp_path: Path) -> None:
    for name in ("a", "b c"):
        put_image(tmp_path / f"in/images/{name}.png")
        put(tmp_path / f"in/labels/{name}.txt", LINE)
    put(tmp_path / "in/train.txt", "/content/data/images/a.png\nimages/b%20c.png\n")
    put(tmp_path / "in/data.yaml", "train: train.txt\nval: train.txt\nnames: [a]\n")
    dataset = load(tmp_path / "in")
    assert len(dataset) == 2
    assert [one.kind for one in dataset.findings] == ["inexact-name"]
    save_and_read(dataset, tmp_path / "out")
    assert (tmp_path / "out/train.txt").read_text() == "./images/a.png\nimages/b%20c.png\n"


# YOLO: label files


def test_label_files_with_inexact_names_belong_to_their_images(tmp_path: Path) -> None:
    for name in ("a b", "c", "d"):
        put_image(tmp_path / f"in/images/{name}.png")
    put(tmp_path / "in/labels/a%20b.txt", LINE)
    put(tmp_path / "in/labels/5e6f7a8b-c.txt", LINE)
    put(tmp_path / "in/labels/5e6f7a8b-d.txt", LINE)
    put(tmp_path / "in/labels/d.txt", "")
    put(tmp_path / "in/classes.txt", "cat\n")
    dataset = read(tmp_path / "in")
    assert dataset.annotation_ids.tolist() == ["train/a b:0", "train/c:0", "train/5e6f7a8b-d:0"]
    assert [one.kind for one in dataset.findings] == ["inexact-name", "missing-image"]
    dataset.save(tmp_path / "out")
    assert documents(tmp_path / "out") == documents(tmp_path / "in")


# YOLO without a data.yaml


@pytest.mark.parametrize("place", ["classes.txt", "obj.names", "labels/classes.txt"])
def test_a_list_of_class_names_is_enough(tmp_path: Path, place: str) -> None:
    put_image(tmp_path / "in/images/x.png")
    put(tmp_path / "in/labels/x.txt", LINE)
    put(tmp_path / "in" / place, "cat\r\nred dog\r\n\r\n")
    dataset = load(tmp_path / "in")
    assert dataset.label_names == ("cat", "red dog")
    assert dataset.annotation_ids.tolist() == ["train/x:0"]
    assert dataset.sources[0].name == ("labels" if "/" in place else "in")
    assert load(tmp_path / "in" / place).annotation_ids.tolist() == ["train/x:0"]
    save_and_read(dataset, tmp_path / "out")
    assert documents(tmp_path / "out") == documents(tmp_path / "in")


def test_images_and_label_files_may_lie_beside_the_list(tmp_path: Path) -> None:
    put_image(tmp_path / "in/x.png")
    put(tmp_path / "in/x.txt", LINE)
    put(tmp_path / "in/classes.txt", "cat\n")
    save_and_read(load(tmp_path / "in"), tmp_path / "out")
    assert documents(tmp_path / "out") == documents(tmp_path / "in")


def test_new_names_are_appended_to_the_list(tmp_path: Path) -> None:
    put_image(tmp_path / "in/images/x.png")
    put(tmp_path / "in/labels/x.txt", LINE)
    put(tmp_path / "in/obj.names", "cat\r\ndog")
    put(tmp_path / "in/obj.data", "classes= 2 \ntrain = data/images\nnames = data/obj.names\n")
    dataset = load(tmp_path / "in")
    dataset.label_names += ("hen",)
    dataset.labels[0] = 2
    dataset.save(tmp_path / "out")
    assert documents(tmp_path / "out") == {
        "obj.names": b"cat\r\ndog\r\nhen\r\n",
        "obj.data": b"classes= 3 \ntrain = data/images\nnames = data/obj.names\n",
        "labels/x.txt": LINE.replace("0", "2", 1).encode(),
    }
    assert load(tmp_path / "out").label_names == ("cat", "dog", "hen")
    dataset.label_names = ("cat", "dog", " hen")
    with pytest.raises(DataError, match="' hen': cannot be a line of a list of class names"):
        dataset.save(tmp_path / "more")


def test_an_obj_data_names_no_list_that_is_not_written(tmp_path: Path) -> None:
    lines = ["names = data/obj.names\n"]
    for key, split in (("train", "train"), ("valid", "val"), ("test", "test")):
        put_image(tmp_path / f"in/obj_{split}_data/{split}.png")
        put(tmp_path / f"in/obj_{split}_data/{split}.txt", LINE)
        put(tmp_path / f"in/{split}.txt", f"data/obj_{split}_data/{split}.png\n")
        lines.append(f"{key} = data/{split}.txt\n")
    put(tmp_path / "in/obj.names", "cat\n")
    put(tmp_path / "in/obj.data", "".join(lines))
    dataset = load(tmp_path / "in")
    save_and_read(dataset, tmp_path / "out")
    assert documents(tmp_path / "out") == documents(tmp_path / "in")
    for name, part in (
        ("part", dataset.take_images(np.array([0]))),
        ("split", load(f"{tmp_path}/in:train")),
    ):
        save_and_read(part, tmp_path / name)
        written = (tmp_path / name / "obj.data").read_text()
        assert written == f"{lines[0]}{lines[1]}valid = train.txt\n"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("classes.txt", "", "has no class names; write one per line"),
        ("classes.txt", "cat\n\ndog\n", "line 2: is blank; write the name of class 1 there"),
        ("classes.txt", b"\xff\n", "not UTF-8 at byte 0"),
        ("obj.data", "train = train.txt\n", "names is '', which is no file"),
        ("obj.data", "names = ../secret\n", "names is '../secret', which is no file"),
        ("obj.data", "names = obj.names\ntrain = x.txt\n", "train: no such folder or list file"),
        ("obj.data", "names = obj.names\n", "has none of train, val and test"),
    ],
)
def test_invalid_lists_are_refused_with_the_reason(
    tmp_path: Path, name: str, text: str | bytes, expected: str
) -> None:
    put(tmp_path / "secret", "cat\n")
    put(tmp_path / "in/obj.names", "cat\n")
    put(tmp_path / "in" / name, text)
    with pytest.raises(DataError, match=expected):
        load(tmp_path / "in" / name)


def test_a_converted_dataset_needs_a_data_yaml(tmp_path: Path) -> None:
    put_image(tmp_path / "in/images/x.png")
    put(tmp_path / "in/labels/x.txt", LINE)
    put(tmp_path / "in/classes.txt", "cat\n")
    dataset = load(tmp_path / "in")
    dataset.images.splits[0] = "val"  # as folds do
    dataset.save(tmp_path / "out")
    assert files(tmp_path / "out") == {
        "data.yaml": b"train: images/val\nval: images/val\n\nnames:\n  0: cat\n",
        "labels/val/x.txt": LINE.encode(),
    }


# VOC


@pytest.mark.parametrize(
    ("document", "image"),
    [
        ("Annotations/x.xml", "images/x.png"),
        ("annotations/x.xml", "images/x.png"),
        ("labels/x.xml", "data/x.png"),
        ("x.xml", "x.png"),
        ("valid/x.xml", "valid/x.png"),
    ],
)
def test_documents_and_images_keep_their_folders(tmp_path: Path, document: str, image: str) -> None:
    put_image(tmp_path / "in" / image)
    put(tmp_path / "in" / document, objects(DOG))
    dataset = load(tmp_path / "in")
    assert detect_format(tmp_path / "in") == "voc"
    again = save_and_read(dataset, tmp_path / "out")
    assert again.images.paths == [str(tmp_path / "out" / image)]
    lists = {"ImageSets/Main/all.txt": b"x\n"} if document[0] == "A" else {}
    assert documents(tmp_path / "out") == documents(tmp_path / "in") | lists


def test_folders_of_splits_are_splits(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        put_image(tmp_path / f"in/{split}/x.png")
        put(tmp_path / f"in/{split}/x.xml", objects(DOG))
    assert load(tmp_path / "in").images.splits == ["train", "valid"]
    assert load(f"{tmp_path}/in:valid").annotation_ids.tolist() == ["valid/x:0"]
    with pytest.raises(UsageError, match=r"no split 'test'; the splits are train, valid"):
        load(f"{tmp_path}/in:test")


def test_other_xml_files_are_no_documents(tmp_path: Path) -> None:
    put(tmp_path / "annotations.xml", "<annotations><version>1.1</version></annotations>")
    with pytest.raises(DataError, match="no dataset found"):
        load(tmp_path)


def test_a_filename_of_windows_leads_to_its_image(tmp_path: Path) -> None:
    put_image(tmp_path / "in/JPEGImages/sub/y.png")
    text = objects(DOG).replace("<object>", "<filename>C:\\photos\\sub\\y.png</filename><object>")
    put(tmp_path / "in/Annotations/x.xml", text)
    dataset = load(tmp_path / "in")
    assert dataset.images.file_names == ["sub/y.png"]
    assert [one.kind for one in dataset.findings] == ["inexact-name"]
    save_and_read(dataset, tmp_path / "out")


# COCO


@pytest.mark.parametrize(
    ("document", "image"),
    [
        ("annotations/instances_train.json", "train/x.png"),
        ("annotations/instances_train.json", "images/train/x.png"),
        ("annotations/instances_train.json", "annotations/images/x.png"),
        ("labels.json", "data/x.png"),
        ("annotations.json", "images/x.png"),
        ("result.json", "x.png"),
        ("train/_annotations.coco.json", "train/x.png"),
    ],
)
def test_coco_files_and_images_keep_their_folders(
    tmp_path: Path, document: str, image: str
) -> None:
    put_image(tmp_path / "in" / image, (20, 10))
    made = coco(tmp_path / "in", "x.png").rename(tmp_path / "made.json")
    (tmp_path / "in" / document).parent.mkdir(exist_ok=True)
    made.rename(tmp_path / "in" / document)
    dataset = load(tmp_path / "in")
    again = save_and_read(dataset, tmp_path / "out")
    assert documents(tmp_path / "out") == documents(tmp_path / "in")
    assert again.images.paths == [str(tmp_path / "out" / image)]
    by_file = load(tmp_path / "in" / document)
    assert by_file.images.paths == [str(tmp_path / "in" / image)]
    by_file.save(tmp_path / "file")
    (name,) = documents(tmp_path / "file")
    assert document.endswith(name)
    (path,) = load(tmp_path / "file" / name).images.paths
    assert image.endswith(Path(path).relative_to(tmp_path / "file").as_posix())
    assert Path(path).is_symlink()


def test_splits_of_roboflow_are_folders(tmp_path: Path) -> None:
    for split in ("valid", "train", "test"):
        put_image(tmp_path / f"in/{split}/{split}.png", (20, 10))
        path = coco(tmp_path / f"in/{split}", f"{split}.png")
        path.rename(path.with_name("_annotations.coco.json"))
    dataset = load(tmp_path / "in")
    assert dataset.images.splits == ["train", "valid", "test"]
    save_and_read(dataset, tmp_path / "out")
    assert documents(tmp_path / "out") == documents(tmp_path / "in")
    assert load(f"{tmp_path}/in:valid").images.file_names == ["valid.png"]


def test_images_of_a_named_folder_are_written_to_images(tmp_path: Path) -> None:
    put_image(tmp_path / "pictures/x.png", (20, 10))
    coco(tmp_path / "in/annotations", "x.png")
    load(tmp_path / "in", images=tmp_path / "pictures").save(tmp_path / "out")
    assert json.loads((tmp_path / "out/annotations/instances_train.json").read_text())
    assert (tmp_path / "out/images/x.png").is_symlink()
    assert load(tmp_path / "out").images.paths == [str(tmp_path / "out/images/x.png")]
