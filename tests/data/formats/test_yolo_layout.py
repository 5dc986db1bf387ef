"""The search for images and label files, and the names of images."""

import os
from pathlib import Path

import pytest
from PIL import Image

from boxmend.data.dataset import Dataset
from boxmend.data.formats import read
from boxmend.data.formats.yolo.layout import distinct_name, plain_name
from boxmend.data.formats.yolo.splits import get_label_path
from boxmend.errors import DataError, UsageError

LINE = "0 0.5 0.5 0.5 0.5\n"


def put_image(path: Path, size: tuple[int, int] = (20, 10)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size).save(path)
    return path


def put_text(path: Path, text: str = LINE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def put_yaml(folder: Path, text: str) -> Path:
    return put_text(folder / "data.yaml", text + "\nnames: [a]\n")


def ids(dataset: Dataset) -> list[str]:
    """Ids of the images that have annotations, and of those that have none in brackets."""
    labelled = set(dataset.image_rows.tolist())
    return [
        f"{one}" if row in labelled else f"({one})" for row, one in enumerate(dataset.images.ids)
    ]


def kinds(dataset: Dataset) -> list[str]:
    return [finding.kind for finding in dataset.findings]


@pytest.mark.parametrize(
    ("image", "label"),
    [
        ("/d/images/train/x.jpg", "/d/labels/train/x.txt"),
        ("/d/train/images/x.y.png", "/d/train/labels/x.y.txt"),
        ("/images/d/images/x.jpg", "/images/d/labels/x.txt"),
        ("/d/pictures/x.jpg", "/d/pictures/x.txt"),
        ("/d/my-images/x.jpg", "/d/my-images/x.txt"),
    ],
)
def test_the_last_images_folder_leads_to_the_labels(image: str, label: str) -> None:
    assert get_label_path(image) == label


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("x.jpg", "x.jpg"),
        ("train/x.jpg", "x.jpg"),
        ("train/train/x.jpg", "x.jpg"),
        ("images/a/images/x.jpg", "a/x.jpg"),
        ("images/train/a/x.jpg", "a/x.jpg"),
        ("a/train/x.jpg", "a/train/x.jpg"),
        ("images", "images"),
    ],
)
def test_names_drop_folders_that_lead_to_other_labels(name: str, plain: str) -> None:
    assert plain_name(name, "train") == plain
    assert plain_name(plain, "train") == plain


def test_names_that_would_share_a_label_file_get_numbers() -> None:
    used: dict[str, int] = {}
    names = ["a.jpg", "a.png", "a-2.jpg", "a.gif", "b/a.jpg"]
    assert [distinct_name([name], used) for name in names] == [
        "a.jpg", "a-2.png", "a-2-2.jpg", "a-3.gif", "b/a.jpg",
    ]  # fmt: skip


@pytest.mark.parametrize("address", ["data.yaml", ".", "data.yaml:train"])
def test_folders_of_images_with_their_labels_in_another(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_image(tmp_path / "images/train/x.png")
    put_image(tmp_path / "images/train/deep/y.PNG")
    put_text(tmp_path / "labels/train/x.txt")
    put_text(tmp_path / "labels/train/deep/y.txt")
    put_yaml(tmp_path, "train: images/train\n")
    monkeypatch.chdir(tmp_path)
    dataset = read(address)
    assert ids(dataset) == ["train/deep/y", "train/x"]
    assert dataset.images.file_names == ["deep/y.PNG", "x.png"]
    assert dataset.images.paths[1] == str(tmp_path / "images/train/x.png")
    assert dataset.images.splits == ["train", "train"]
    assert dataset.findings == ()
    assert dataset.boxes.tolist() == [[5, 2.5, 15, 7.5]] * 2
    assert dataset.document(1) == tmp_path / "labels/train/x.txt"


def test_roboflow_folders_are_found_though_their_paths_lead_too_far_up(tmp_path: Path) -> None:
    for folder in ("train", "valid"):
        put_image(tmp_path / f"set/{folder}/images/x.png")
        put_text(tmp_path / f"set/{folder}/labels/x.txt")
    put_yaml(tmp_path / "set", "train: ../train/images\nval: ../valid/images\ntest: ../test/images")
    dataset = read(tmp_path / "set")
    assert ids(dataset) == ["train/x", "val/x"]
    (finding,) = dataset.findings
    assert (finding.kind, finding.severity) == ("no-label-file", "warning")
    assert "test: no such folder" in finding.message


@pytest.mark.parametrize("root", ["..", "{tmp}/set", "/nowhere/set", "../moved"])
def test_the_root_may_be_relative_absolute_or_outdated(tmp_path: Path, root: str) -> None:
    put_image(tmp_path / "set/images/x.png")
    put_text(tmp_path / "set/labels/x.txt")
    train = "set/images" if root == ".." else "images"
    root = root.format(tmp=tmp_path)
    put_yaml(tmp_path / "set", f"path: {root}\ntrain: {train}")
    assert ids(read(tmp_path / "set")) == ["train/x"]


def test_labels_lie_beside_images_where_no_folder_is_called_images(tmp_path: Path) -> None:
    put_image(tmp_path / "pictures/x.png")
    put_image(tmp_path / "pictures/y.png")
    put_text(tmp_path / "pictures/x.txt")
    put_text(tmp_path / "pictures/classes.txt", "0\n1\n")
    put_text(tmp_path / "pictures/notes.txt", "taken in May\n")
    put_text(tmp_path / "pictures/z.txt")
    os.mkfifo(tmp_path / "pictures/pipe.txt")
    put_yaml(tmp_path, "train: pictures")
    dataset = read(tmp_path)
    assert ids(dataset) == ["train/x", "(train/y)", "train/z"]
    assert [(one.kind, one.file) for one in dataset.findings] == [
        ("missing-image", str(tmp_path / "pictures/z.txt"))
    ]


def test_a_split_may_hold_images_and_labels_in_one_folder(tmp_path: Path) -> None:
    put_image(tmp_path / "train/images/x.png")
    put_text(tmp_path / "train/labels/x.txt")
    put_text(tmp_path / "train/labels/lost.txt")
    put_yaml(tmp_path, "train: train")
    dataset = read(tmp_path)
    assert ids(dataset) == ["train/x", "train/lost"]
    assert dataset.images.paths[1] == str(tmp_path / "train/images/lost.jpg")
    assert kinds(dataset) == ["missing-image"]


def test_a_label_file_without_its_image_is_kept_and_reported(tmp_path: Path) -> None:
    put_image(tmp_path / "images/train/x.png")
    put_text(tmp_path / "labels/train/x.txt")
    lost = put_text(tmp_path / "labels/train/sub/lost.txt", LINE * 2)
    put_text(tmp_path / "labels/train/classes.txt", "a\n")
    put_text(tmp_path / "images/train/stray.txt")  # no label file of any image
    put_yaml(tmp_path, "train: images/train")
    dataset = read(tmp_path)
    assert ids(dataset) == ["train/x", "train/sub/lost"]
    (finding,) = dataset.findings
    assert (finding.kind, finding.file) == ("missing-image", str(lost))
    assert str(tmp_path / "images/train/sub/lost.jpg") in finding.message
    assert dataset.annotation_ids.tolist() == ["train/x:0", "train/sub/lost:0", "train/sub/lost:1"]
    assert dataset.images.widths.tolist() == [20, 0]
    assert str(dataset.boxes[1:].tolist()) == str([[float("nan")] * 4] * 2)


def test_labels_alone_are_a_dataset_of_missing_images(tmp_path: Path) -> None:
    put_text(tmp_path / "labels/train/x.txt")
    put_yaml(tmp_path, "train: images/train")
    dataset = read(tmp_path)
    assert ids(dataset) == ["train/x"]
    assert kinds(dataset) == ["missing-image"]


def test_a_list_file_may_name_images_in_every_way(tmp_path: Path) -> None:
    for name in "abcde":
        put_image(tmp_path / f"set/images/train/{name}.png")
        put_text(tmp_path / f"set/labels/train/{name}.txt")
    put_image(tmp_path / "elsewhere/f.png")
    put_text(tmp_path / "elsewhere/f.txt")
    put_image(tmp_path / "set/lists/images/train/e.png")
    listing = (
        "\ufeff./images/train/a.png\n"
        "images/train/b.png\r\n"
        f"\n  {tmp_path}/set/images/train/c.png  \n"
        f"{tmp_path}/elsewhere/f.png\n"
        "images/train/a.png"
    )
    put_text(tmp_path / "set/train.txt", listing)
    put_text(
        tmp_path / "set/lists/val.txt",
        "images/train/d.png\n./images/train/d.png\nimages/train/e.png",
    )
    put_yaml(tmp_path / "set", "train: train.txt\nval: lists/val.txt")
    dataset = read(tmp_path / "set")
    assert ids(dataset) == [
        "train/a",
        "train/b",
        "train/c",
        "train/f",
        "val/train/d",
        "(val/lists/train/d)",
        "(val/train/e)",
    ]
    (missing,) = dataset.findings
    assert missing.file == str(tmp_path / "set/lists/images/train/d.png")


def test_list_entries_that_leave_the_folder_or_are_not_images_are_reported_and_not_opened(
    tmp_path: Path,
) -> None:
    put_image(tmp_path / "secret.png")
    put_image(tmp_path / "set/images/a.png")
    put_text(tmp_path / "set/labels/a.txt")
    listing = "images/a.png\n../secret.png\nimages/../../secret.png\nimages\\a.png\nx.exe\nb\0.png"
    put_text(tmp_path / "set/train.txt", listing)
    put_yaml(tmp_path / "set", "train: train.txt")
    dataset = read(tmp_path / "set")
    assert ids(dataset) == ["train/a"]
    assert [(one.kind, one.message.split(":")[0]) for one in dataset.findings] == [
        ("unsafe-name", "line 2"),
        ("unsafe-name", "line 3"),
        ("malformed", "line 5"),
        ("unsafe-name", "line 6"),
        ("inexact-name", "1 file name was read as the name of another file"),
    ]
    assert {one.file for one in dataset.findings} == {str(tmp_path / "set/train.txt")}


def test_a_listed_image_that_does_not_exist_keeps_its_annotations(tmp_path: Path) -> None:
    put_text(tmp_path / "labels/a.txt")
    put_text(tmp_path / "train.txt", "images/a.png\n")
    put_yaml(tmp_path, "train: train.txt")
    dataset = read(tmp_path)
    assert ids(dataset) == ["train/a"]
    assert [(one.kind, one.file) for one in dataset.findings] == [
        ("missing-image", str(tmp_path / "images/a.png"))
    ]


def test_images_of_one_name_in_several_folders_keep_more_of_their_paths(tmp_path: Path) -> None:
    for folder in ("north/images", "south/images", "images/train", "images"):
        put_image(tmp_path / folder / "x.png")
        put_text(tmp_path / folder.replace("images", "labels") / "x.txt")
    put_yaml(tmp_path, "train: [north/images, south/images, images]")
    dataset = read(tmp_path)
    names = dataset.images.file_names
    assert names[:2] == ["x.png", "south/x.png"]
    assert len({os.path.splitext(name)[0] for name in names}) == 4
    assert not any("images" in name.split("/") for name in names)
    assert dataset.findings == ()


def test_images_that_share_a_label_file_are_reported_and_the_first_one_owns_it(
    tmp_path: Path,
) -> None:
    put_image(tmp_path / "images/x.png")
    put_image(tmp_path / "images/x.bmp")
    put_text(tmp_path / "labels/x.txt")
    put_yaml(tmp_path, "train: images")
    dataset = read(tmp_path)
    assert ids(dataset) == ["train/x", "(train/x.png)"]
    assert dataset.images.file_names == ["x.bmp", "x.png"]
    assert kinds(dataset) == ["duplicate-id"]


def test_two_keys_of_one_folder_are_read_once(tmp_path: Path) -> None:
    put_image(tmp_path / "images/val/x.png")
    put_text(tmp_path / "labels/val/x.txt")
    put_yaml(tmp_path, "train: images/val\nval: ./images/val/")
    assert ids(read(tmp_path)) == ["val/x"]  # named after the folder
    assert ids(read(f"{tmp_path}:train")) == ["train/x"]
    put_yaml(tmp_path, "train: images\nval: images")
    assert ids(read(tmp_path)) == ["train/val/x"]


def test_folders_that_lead_in_circles_end(tmp_path: Path) -> None:
    put_image(tmp_path / "images/x.png")
    put_text(tmp_path / "labels/x.txt")
    (tmp_path / "images/again").symlink_to(tmp_path / "images", target_is_directory=True)
    put_yaml(tmp_path, "train: images")
    assert ids(read(tmp_path)) == ["train/x"]


def test_names_that_are_invalid_on_other_systems_are_reported(tmp_path: Path) -> None:
    put_image(tmp_path / "images/x.png")
    put_text(tmp_path / "labels/x.txt")
    put_image(tmp_path / "images/a\\b.png")
    os.rename(put_image(tmp_path / "images/y.png"), os.fsencode(tmp_path) + b"/images/\xff.png")
    put_image(tmp_path / "images/._x.png")  # left behind by macOS
    put_yaml(tmp_path, "train: images")
    dataset = read(tmp_path)
    assert ids(dataset) == ["train/x"]
    assert kinds(dataset) == ["unsafe-name", "unsafe-name"]
    "".join(map(str, dataset.findings)).encode()  # can be printed


def test_a_split_without_any_label_file_is_reported_once(tmp_path: Path) -> None:
    for name in ("x", "y"):
        put_image(tmp_path / f"images/train/{name}.png")
        put_image(tmp_path / f"images/val/{name}.png")
    put_text(tmp_path / "labels/train/x.txt")
    put_yaml(tmp_path, "train: images/train\nval: images/val")
    (finding,) = read(tmp_path).findings
    assert finding.kind == "no-label-file"
    assert finding.message.startswith("val: none of 2 images")
    assert str(tmp_path / "labels/val/x.txt") in finding.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train: nowhere", "train: no such folder or list file: {tmp}/nowhere"),
        ("train: [images, nowhere]", "train: no such folder"),
        ("train: " + "x" * 300, "train: no such folder"),
        ("train: data.yaml", "expected a folder of images, or a .txt file"),
        ("train: latin.txt", "latin.txt: not UTF-8 at byte 2"),
    ],
)
def test_paths_that_do_not_exist_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "latin.txt").write_bytes(b"im\xe9.png")
    put_yaml(tmp_path, text)
    with pytest.raises(DataError) as caught:
        read(tmp_path)
    assert expected.format(tmp=tmp_path) in str(caught.value)


def test_an_unknown_split_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    put_image(tmp_path / "images/x.png")
    put_yaml(tmp_path, "train: images\nval: images\ntest: nowhere")
    with pytest.raises(UsageError, match="no split 'dev'; the splits are train, val, test"):
        read(f"{tmp_path}:dev")
    with pytest.raises(DataError, match="test: no such folder"):
        read(f"{tmp_path}:test")
