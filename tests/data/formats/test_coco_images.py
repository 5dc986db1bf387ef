"""The images of COCO documents: names, sizes, and paths."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import boxmend
from boxmend.errors import UsageError
from tests.data.formats.coco_documents import IMAGE, box, document, read_bytes


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../x.jpg",
        "a/../../x.jpg",
        "C:x.jpg",
        "",
        "a\0b",
        "a/",
        "\\\\h\\x",
    ],
)
def test_unsafe_file_name_is_reported_and_never_joined_to_a_folder(name: Any) -> None:
    dataset = read_bytes(document(box(), images=[IMAGE | {"file_name": name}]))
    assert [(one.kind, one.image) for one in dataset.findings] == [("unsafe-name", "1")]
    assert dataset.images.paths == [""]
    assert dataset.images.file_names == ["unsafe-0"]


@pytest.mark.parametrize("name", [5, None, ["a"], ...])
def test_file_name_that_is_not_text_is_reported(name: Any) -> None:
    image = {key: value for key, value in (IMAGE | {"file_name": name}).items() if value is not ...}
    dataset = read_bytes(document(box(), images=[image]))
    assert [(one.kind, one.image) for one in dataset.findings] == [("malformed", "1")]
    assert dataset.image_ids.tolist() == [1]


def test_file_name_that_is_not_unicode_is_reported() -> None:
    dataset = read_bytes(document(box()).replace(b'"1.jpg"', b'"\xff.jpg"'))
    assert [one.kind for one in dataset.findings] == ["malformed"]


@pytest.mark.parametrize("name", ["x" * 300 + ".jpg", "a/" * 3000 + "b.jpg", "\N{SNOWMAN}.jpg"])
def test_file_names_that_no_disk_can_hold_are_read(name: Any) -> None:
    dataset = read_bytes(document(box(), images=[{"id": 1, "file_name": name}]))
    assert dataset.images.file_names == [name]
    assert (dataset.images.widths.tolist(), dataset.findings) == ([0], ())


@pytest.mark.parametrize("size", [..., None, 0, -5, 2**70, 2**63, "64", 1e300, float("nan")])
def test_size_that_is_missing_or_absurd_is_taken_from_the_file(size: Any, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    Image.new("RGB", (31, 17)).save(tmp_path / "images/1.jpg")
    image = {"id": 1, "file_name": "1.jpg", "width": size, "height": 48}
    image = {key: value for key, value in image.items() if value is not ...}
    path = tmp_path / "instances_train.json"
    path.write_bytes(document(box(), images=[image]))
    dataset = boxmend.load(path)
    assert (dataset.images.widths.tolist(), dataset.images.heights.tolist()) == ([31], [17])


def test_size_written_as_a_whole_float_counts() -> None:
    dataset = read_bytes(document(box(), images=[IMAGE | {"width": 64.0}]))
    assert (dataset.images.widths.tolist(), dataset.images.heights.tolist()) == ([64], [48])


@pytest.mark.parametrize(
    ("json_at", "image_at"),
    [
        ("instances_train2017.json", "1.jpg"),
        ("instances_train2017.json", "images/1.jpg"),
        ("instances_train2017.json", "images/train2017/1.jpg"),
        ("instances_train2017.json", "train2017/1.jpg"),
        ("annotations/instances_train2017.json", "images/1.jpg"),
        ("annotations/instances_train2017.json", "train2017/1.jpg"),
        ("annotations/instances_train2017.json", "images/train2017/1.jpg"),
        ("annotations/instances_train2017.json", "1.jpg"),
        ("anything.json", "images/1.jpg"),
    ],
)
def test_images_are_found_in_the_usual_places(
    json_at: str, image_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (json_at, image_at):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / json_at).write_bytes(document(box()))
    (tmp_path / image_at).write_bytes(b"")
    assert boxmend.load(tmp_path / json_at).images.paths == [str(tmp_path / image_at)]
    monkeypatch.chdir((tmp_path / json_at).parent)
    image_path = boxmend.load(Path(json_at).name).images.paths[0]
    assert Path(image_path).samefile(tmp_path / image_at)


@pytest.mark.parametrize("place", ["pictures/1.jpg", "pictures/train/1.jpg"])
def test_images_are_found_in_the_folder_that_is_named(place: str, tmp_path: Path) -> None:
    (tmp_path / "instances_train.json").write_bytes(document(box()))
    for one in (place, "images/1.jpg"):
        (tmp_path / one).parent.mkdir(parents=True)
        (tmp_path / one).write_bytes(b"")
    dataset = boxmend.load(tmp_path, images=tmp_path / "pictures")
    assert dataset.images.paths == [str(tmp_path / place)]
    with pytest.raises(UsageError, match="no such folder"):
        boxmend.load(tmp_path, images=tmp_path / "nowhere")


def test_images_are_found_where_the_first_ones_of_the_file_are_missing(tmp_path: Path) -> None:
    images = [IMAGE | {"id": k, "file_name": f"{k}.jpg"} for k in range(100)]
    (tmp_path / "instances_train.json").write_bytes(document(images=images))
    (tmp_path / "train").mkdir()
    for k in range(30, 100):
        (tmp_path / f"train/{k}.jpg").write_bytes(b"")
    dataset = boxmend.load(tmp_path)
    assert dataset.images.paths[50] == str(tmp_path / "train/50.jpg")


def test_folder_is_read_whole_or_by_split_in_the_usual_order(tmp_path: Path) -> None:
    for folder in ("", "annotations"):
        base = tmp_path / f"in{folder}"
        for name in ("val", "zoo", "train", "minitrain"):
            path = base / folder / f"instances_{name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(document(box(id={"val": 7}.get(name, 5))))
        dataset = boxmend.load(base)
        assert dataset.images.splits == ["train", "val", "minitrain", "zoo"]
        assert boxmend.load(f"{base}:val").annotation_ids.tolist() == [7]
        with pytest.raises(
            UsageError, match=r"no split 'test'; the splits are train, val, minitrain, zoo"
        ):
            boxmend.load(f"{base}:test")


def test_address_of_a_name_that_is_too_long_is_not_an_address() -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        boxmend.load("x" * 300)
