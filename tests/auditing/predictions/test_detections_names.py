"""What a detection may call its image and its class."""

from pathlib import Path
from typing import Any

import pytest

from boxmend.auditing.predictions.catalogue import to_whole_number
from boxmend.auditing.predictions.exact import read_exactly
from boxmend.errors import DataError
from tests.auditing.predictions.detection_files import GOOD, catalogue, written

PLACES = {"val/000001.jpg": 11, "val/000002.jpg": 12, "test/000002.jpg": 13, "x.y.png": 14}


def row(folder: Path, names: dict[str, int | str], **entry: Any) -> int:
    values = {key: value for key, value in (GOOD | entry).items() if value is not ...}
    return int(read_exactly(written(folder, [values]), catalogue(names)).image_rows[0])


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (11, 0),
        (11.0, 0),  # tables export numbers like this
        ("11", 0),
        ("val/000001.jpg", 0),
        ("000001.jpg", 0),
        ("000001", 0),
        ("val/000001", 0),
        ("/data/coco/val/000002.jpg", 1),
        ("test/000002.jpg", 2),
        (r"C:\images\test\000002.jpg", 2),
        (r"val\000001", 0),
        ("x.y", 3),
    ],
)
def test_an_image_is_identified_by_id_name_or_stem(
    tmp_path: Path, identity: int | str, expected: int
) -> None:
    assert row(tmp_path, dict(PLACES), image_id=identity) == expected
    if isinstance(identity, str) and identity != "11":
        assert row(tmp_path, dict(PLACES), image_id=..., file_name=identity) == expected


@pytest.mark.parametrize("name", ["000002.jpg", "000002", "else/000002.jpg"])
def test_a_name_that_two_images_share_is_refused_unless_the_id_chooses(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(DataError, match=r"detection 0 .*(more than one image|have no image)"):
        row(tmp_path, dict(PLACES), image_id=name)
    with pytest.raises(DataError, match=r"detection 0 .*(more than one image|have no image)"):
        row(tmp_path, dict(PLACES), image_id=..., file_name=name)
    if "/" not in name:
        assert row(tmp_path, dict(PLACES), image_id=13, file_name=name) == 2
        with pytest.raises(DataError, match="more than one image; give the image_id"):
            row(tmp_path, dict(PLACES), image_id=14, file_name=name)


def test_an_id_that_is_the_stem_of_another_image_is_refused_as_text(tmp_path: Path) -> None:
    names: dict[str, int | str] = {"1.jpg": 2, "2.jpg": 1}
    assert row(tmp_path, names, image_id=1) == 1
    with pytest.raises(DataError, match='image_id "1" means more than one image; give the whole'):
        row(tmp_path, names, image_id="1")


# A file name is the same in every copy of a dataset, a number is not: `boxmend predict` counts the
# images of a folder from 1.
def test_a_file_name_goes_before_an_id(tmp_path: Path) -> None:
    assert row(tmp_path, dict(PLACES), image_id=12, file_name="000001.jpg") == 0
    with pytest.raises(DataError, match=r'no image with file_name "new\.jpg"'):
        row(tmp_path, dict(PLACES), image_id=12, file_name="new.jpg")


# Detectors turn a file name like 000042.jpg into the number 42.
def test_a_number_may_be_a_file_name_where_ids_are_no_numbers(tmp_path: Path) -> None:
    names: dict[str, int | str] = {"000042.jpg": "000042", "dog.jpg": "dog", "42b.jpg": "42b"}
    assert row(tmp_path, names, image_id=42) == 0
    assert row(tmp_path, names, image_id="000042") == 0
    assert row(tmp_path, names, image_id="dog") == 1
    with pytest.raises(DataError, match="no image with image_id 7"):
        row(tmp_path, names, image_id=7)
    with pytest.raises(DataError, match="no image with image_id 42"):
        row(tmp_path, {"000042.jpg": 1}, image_id=42)  # here ids are numbers, and 42 is none
    both: dict[str, int | str] = {"042.jpg": "a", "42.jpg": "b"}
    with pytest.raises(DataError, match="image_id 42 means more than one image"):
        row(tmp_path, both, image_id=42)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"category_id": 18}, 0),
        ({"category_id": 18.0}, 0),
        ({"category_id": "18"}, 0),
        ({"category_id": "dog"}, 1),
        ({"category_id": ..., "category_name": "dog"}, 1),
        ({"category_id": 18, "category_name": "dog"}, 1),  # numbers differ between datasets
        ({"category_id": 999, "category_name": "dog"}, 1),
    ],
)
def test_a_class_is_identified_by_number_or_name(
    tmp_path: Path, entry: dict[str, Any], expected: int
) -> None:
    values = {key: value for key, value in (GOOD | entry).items() if value is not ...}
    assert read_exactly(written(tmp_path, [values]), catalogue()).labels.tolist() == [expected]


def test_a_class_whose_name_is_a_number_goes_before_that_number(tmp_path: Path) -> None:
    known = catalogue(labels={1: 0, 2: 1}, label_names=("2", "1"))
    for category, expected in ((1, 0), ("1", 1), ("2", 0)):
        path = written(tmp_path, [GOOD | {"category_id": category}])
        assert read_exactly(path, known).labels.tolist() == [expected]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"image_id": 8},
            "the data have no image with image_id 8; they have 2 images, such as 7 (a.jpg)",
        ),
        ({"image_id": "c.jpg"}, 'the data have no image with image_id "c.jpg"'),
        ({"image_id": 7.5}, "no image with image_id 7.5"),
        ({"image_id": 10**30}, f"no image with image_id {10**30}"),
        ({"image_id": "x" * 9000}, "xxx...; they have 2 images"),
        ({"image_id": "/" * 4000}, "the data have no image"),
        ({"image_id": ""}, 'no image with image_id ""'),
        (
            {"category_id": 2},
            "the data have no class with category_id 2; their classes are cat (18), dog",
        ),
        ({"category_id": "bird"}, 'no class with category_id "bird"'),
        (
            {"category_id": "²"},
            "the data have no class",
        ),  # a digit, but not one that makes a number
        ({"category_id": "9" * 5000}, "the data have no class"),
        ({"category_name": "Cat"}, 'no class with category_name "Cat"'),
    ],
)
def test_what_is_unknown_is_refused_by_file_place_and_value(
    tmp_path: Path, entry: dict[str, Any], message: str
) -> None:
    path = written(tmp_path, [GOOD, GOOD, GOOD | entry])
    with pytest.raises(DataError) as caught:
        read_exactly(path, catalogue())
    assert str(caught.value).startswith(f"{path}: detection 2 (the first is 0): ")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(path))


def test_a_dataset_without_images_knows_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no image with image_id 7; they have no images"):
        read_exactly(written(tmp_path, [GOOD]), catalogue({}))


@pytest.mark.parametrize(
    ("identity", "number"),
    [(7, 7), (7.0, 7), ("7", 7), (7.5, None), (float("inf"), None), ("x", None), (None, None)],
)
def test_whole_numbers_are_read_from_numbers_and_texts(identity: Any, number: int | None) -> None:
    assert to_whole_number(identity) == number


def test_a_number_that_no_float_can_hold_is_a_whole_number() -> None:
    assert to_whole_number(10**400) == 10**400
