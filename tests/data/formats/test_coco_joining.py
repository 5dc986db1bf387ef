"""Several COCO files joined into one, which is consistent and names everything it loses."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import boxmend
from boxmend.data.dataset import Dataset
from boxmend.data.formats import read
from boxmend.errors import DataError, LossyError
from tests.data.formats.coco_documents import documents, parse_document, value


def image(identity: int, name: str, **others: Any) -> dict[str, Any]:
    return {"id": identity, "file_name": name, "width": 64, "height": 48} | others


def box(identity: int, image_id: int, category: int, x: float, **others: Any) -> dict[str, Any]:
    entry = {"id": identity, "image_id": image_id, "category_id": category, "bbox": [x, 2, 3, 4]}
    return entry | others


A = {
    "licenses": [{"id": 1, "name": "mine"}],
    "images": [image(1, "1.jpg"), image(2, "2.jpg")],
    "annotations": [box(1, 1, 1, 10), box(2, 2, 2, 20)],
    "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
}
B = {
    "images": [image(2, "1.jpg", license=3), image(3, "3.jpg")],
    "annotations": [
        box(2, 2, 1, 30, segmentation=[[1, 2, 3, 4, 5, 6]]),
        box(3, 3, 2, 40, score=1.0),
    ],
    "categories": [{"id": 1, "name": "dog"}, {"id": 2, "name": "cow", "supercategory": "beast"}],
}


def write(path: Path, top: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(top))
    return path


def list_annotations(dataset: Dataset) -> set[tuple[Any, ...]]:
    """Return the annotations without ids: label, box, name of the image, flags."""
    return {
        (
            dataset.label_names[dataset.labels[row]],
            *dataset.boxes[row].tolist(),
            Path(dataset.images.file_names[dataset.image_rows[row]]).name,
            bool(dataset.is_crowd[row]),
            bool(dataset.is_difficult[row]),
        )
        for row in range(len(dataset))
    }


@pytest.fixture
def both(tmp_path: Path) -> Dataset:
    a = write(tmp_path / "a/instances_train.json", A)
    b = write(tmp_path / "b/instances_val.json", B)
    for name, content in (("a/1.jpg", b"a1"), ("b/1.jpg", b"b1"), ("b/3.jpg", b"b3")):
        (tmp_path / name).write_bytes(content)
    return boxmend.load(a, b)


def test_joined_files_become_one_with_ids_made_unique(both: Dataset, tmp_path: Path) -> None:
    saved = both.save(tmp_path / "out")
    assert list(saved.files) == ["instances_train+val.json"]
    top = json.loads((tmp_path / "out/instances_train+val.json").read_text())
    assert top["licenses"] == A["licenses"]
    assert top["images"] == [
        *A["images"],
        image(12, "instances_val/1.jpg", license=3),
        image(13, "3.jpg"),
    ]
    assert top["annotations"] == [
        *A["annotations"],
        box(12, 12, 2, 30, segmentation=[[1, 2, 3, 4, 5, 6]]),
        box(13, 13, 3, 40, score=1.0),
    ]
    assert top["categories"] == [
        *A["categories"],
        {"id": 3, "name": "cow", "supercategory": "beast"},
    ]


def test_joined_file_is_read_back_with_the_same_content(both: Dataset, tmp_path: Path) -> None:
    saved = both.save(tmp_path / "out")
    again = boxmend.load(tmp_path / "out")
    assert list_annotations(again) == list_annotations(both)
    assert again.annotation_ids.tolist() == saved.annotation_ids.tolist() == [1, 2, 12, 13]
    assert again.images.ids.tolist() == both.images.ids.tolist()
    assert again.label_names == both.label_names == ("cat", "dog", "cow")


def test_images_of_joined_files_are_linked_by_the_names_in_the_document(
    both: Dataset, tmp_path: Path
) -> None:
    saved = both.save(tmp_path / "out")
    assert saved.images_missing == 1
    again = boxmend.load(tmp_path / "out")
    contents = [Path(path).read_bytes() for path in again.images.paths if Path(path).is_file()]
    assert contents == [b"a1", b"b1", b"b3"]


def test_first_file_keeps_its_bytes_where_others_are_appended(
    both: Dataset, tmp_path: Path
) -> None:
    both.save(tmp_path / "out")
    joined = (tmp_path / "out/instances_train+val.json").read_text()
    start = json.dumps(A).index('"annotations"') - len("], ")
    assert joined[:start] == json.dumps(A)[:start]
    assert '"bbox": [40, 2, 3, 4], "score": 1.0}], "categories": ' in joined


def test_changes_are_written_in_joined_files_too(both: Dataset, tmp_path: Path) -> None:
    both.boxes[2, 0] -= 1
    both.labels[0] = 2  # a label that only the second file declares
    both.is_crowd[3] = True
    both.is_difficult[[0, 3]] = True
    more = both.take(np.array([0, 2, 3])).add(
        np.array([3, 0]), np.array([0, 2]), np.array([[1.0, 2, 3, 4], [5, 6, 7, 8]])
    )
    saved = more.save(tmp_path / "out", images_as="none")
    again = boxmend.load(tmp_path / "out")
    assert list_annotations(again) == list_annotations(more)
    assert sorted(saved.annotation_ids.tolist()) == sorted(again.annotation_ids.tolist())
    top = json.loads((tmp_path / "out/instances_train+val.json").read_text())
    assert [category["name"] for category in top["categories"]] == ["cat", "dog", "cow"]
    assert top["annotations"][2]["boxmend"] == {"stale": ["segmentation"]}
    assert [annotation["image_id"] for annotation in top["annotations"]] == [1, 1, 12, 13, 13]


def test_annotations_are_put_into_a_first_file_that_has_none(tmp_path: Path) -> None:
    a = write(tmp_path / "a.json", {"images": [image(1, "1.jpg")]})
    b = write(tmp_path / "b.json", B)
    both = boxmend.load(a, b)
    more = both.add(np.array([0]), np.array([1]), np.array([[1.0, 2, 3, 4]]))
    more.save(tmp_path / "out", images_as="none")
    again = boxmend.load(tmp_path / "out/instances_all.json")
    assert list_annotations(again) == list_annotations(more)
    assert len(again) == 3


def test_files_are_joined_whose_first_lists_are_empty(tmp_path: Path) -> None:
    a = write(tmp_path / "a.json", {"images": [], "annotations": [], "categories": []})
    both = boxmend.load(a, write(tmp_path / "b.json", B))
    both.save(tmp_path / "out", images_as="none")
    top = json.loads((tmp_path / "out/instances_all.json").read_text())
    assert top == {
        "images": B["images"],
        "annotations": B["annotations"],
        "categories": B["categories"],
    }


def test_what_the_joined_file_cannot_hold_is_named_and_refused(tmp_path: Path) -> None:
    licences = {"licenses": [{"id": 1, "name": "theirs"}], "info": {"year": 2017}}
    a = write(tmp_path / "a.json", A | {"info": {"year": 2017.0}})
    b = write(tmp_path / "b.json", B | licences | {"\N{SNOWMAN}": 1})
    both = boxmend.load(a, b)
    with pytest.raises(LossyError) as caught:
        both.save(tmp_path / "out")
    assert caught.value.losses == ("'licenses' of b.json", "'\N{SNOWMAN}' of b.json")
    assert not (tmp_path / "out").exists()
    saved = both.save(tmp_path / "out", allow_lossy=True)
    assert saved.losses == caught.value.losses
    top = json.loads((tmp_path / "out/instances_all.json").read_text())
    assert top["licenses"] == A["licenses"]


def test_members_that_differ_from_those_of_the_first_file_are_named(tmp_path: Path) -> None:
    tops = [
        {"images": [], "categories": [{"id": 1, "name": "cat", "supercategory": kind}]}
        for kind in ("pet", "pet", "beast")
    ]
    paths = [write(tmp_path / f"{k}.json", top) for k, top in enumerate(tops)]
    with pytest.raises(LossyError) as caught:
        boxmend.load(*paths).save(tmp_path / "out")
    assert caught.value.losses == ("'supercategory' of category 'cat' of 2.json",)


def test_categories_with_the_same_name_stay_separate(tmp_path: Path) -> None:
    categories = [{"id": 4, "name": "cow"}, {"id": 7, "name": "cow"}]
    top = B | {"categories": categories, "annotations": [box(1, 2, 7, 1), box(2, 2, 4, 2)]}
    both = boxmend.load(write(tmp_path / "a.json", A), write(tmp_path / "b.json", top))
    assert both.label_names == ("cat", "dog", "cow", "cow (category 7)")
    both.save(tmp_path / "out", images_as="none")
    assert list_annotations(boxmend.load(tmp_path / "out/instances_all.json")) == list_annotations(
        both
    )


def test_unknown_references_stay_unknown(tmp_path: Path) -> None:
    top = {"images": [image(9, "9.jpg")], "categories": [], "annotations": [box(9, 1, 1, 1)]}
    both = read(write(tmp_path / "a.json", A), write(tmp_path / "b.json", top))
    both.save(tmp_path / "out", images_as="none")
    again = read(tmp_path / "out/instances_all.json")
    assert again.labels.tolist() == [0, 1, -1]
    assert again.image_ids.tolist() == [1, 2, None]
    entry = json.loads((tmp_path / "out/instances_all.json").read_text())["annotations"][2]
    assert (entry["image_id"], entry["category_id"]) == (None, None)


def test_entries_that_are_not_objects_cannot_be_joined(tmp_path: Path) -> None:
    top = B | {"images": [5, *B["images"]]}
    both = read(write(tmp_path / "a.json", A), write(tmp_path / "b.json", top))
    both.images.ids[2] = 77
    with pytest.raises(DataError, match=r"b.json: image 77 is malformed and cannot be changed"):
        both.save(tmp_path / "out")


def test_unsafe_names_are_not_replaced_by_joining(tmp_path: Path) -> None:
    a, b = (
        write(tmp_path / f"{name}.json", {"images": [image(k, "../x.jpg")]})
        for k, name in enumerate("ab")
    )
    read(a, b).save(tmp_path / "out")
    top = json.loads((tmp_path / "out/instances_all.json").read_text())
    assert [one["file_name"] for one in top["images"]] == ["../x.jpg", "../x.jpg"]


def test_one_image_in_two_files_is_linked_once_under_its_name(tmp_path: Path) -> None:
    a = write(tmp_path / "a.json", A)
    b = write(tmp_path / "b.json", A | {"annotations": [box(1, 1, 1, 50)]})
    (tmp_path / "1.jpg").write_bytes(b"one")
    both = boxmend.load(a, b)
    both.save(tmp_path / "out")
    again = boxmend.load(tmp_path / "out/instances_all.json")
    assert again.images.file_names == ["1.jpg", "2.jpg", "1.jpg", "2.jpg"]
    assert [path.name for path in (tmp_path / "out/images").iterdir()] == ["1.jpg"]
    assert list_annotations(again) == list_annotations(both)


def test_names_that_differ_only_in_spelling_are_distinguished(tmp_path: Path) -> None:
    for name in "ab":
        write(
            tmp_path / name / "x.json",
            {"images": [image(1, "./1.jpg" if name == "b" else "1.jpg")]},
        )
        (tmp_path / name / "1.jpg").write_bytes(name.encode())
    both = boxmend.load(tmp_path / "a/x.json", tmp_path / "b/x.json")
    both.save(tmp_path / "out")
    again = boxmend.load(tmp_path / "out/instances_all.json")
    assert again.images.file_names == ["1.jpg", "x/1.jpg"]
    assert [Path(path).read_bytes() for path in again.images.paths] == [b"a", b"b"]


def test_name_of_another_image_is_not_used_again(tmp_path: Path) -> None:
    names = {"a": ["1.jpg"], "b": ["1.jpg", "x/1.jpg"]}
    for folder, ones in names.items():
        images = [image(k, name) for k, name in enumerate(ones)]
        write(tmp_path / folder / "x.json", {"images": images})
        for name in ones:
            (tmp_path / folder / name).parent.mkdir(exist_ok=True)
            (tmp_path / folder / name).write_bytes(f"{folder} {name}".encode())
    both = boxmend.load(tmp_path / "a/x.json", tmp_path / "b/x.json")
    both.save(tmp_path / "out", images_as="copy")
    again = boxmend.load(tmp_path / "out/instances_all.json")
    assert again.images.file_names == ["1.jpg", "x-2/1.jpg", "x/1.jpg"]
    contents = [Path(path).read_bytes() for path in again.images.paths]
    assert contents == [b"a 1.jpg", b"b 1.jpg", b"b x/1.jpg"]


def test_folder_of_splits_joined_with_a_file_becomes_one_file(tmp_path: Path) -> None:
    write(tmp_path / "f/instances_train.json", A)
    write(tmp_path / "f/instances_val.json", B)
    c = write(tmp_path / "c.json", {**A, "images": [image(1, "9.jpg"), image(2, "8.jpg")]})
    three = boxmend.load(tmp_path / "f", c)
    assert len(three.sources) == 3
    saved = three.save(tmp_path / "out", images_as="none")
    assert list(saved.files) == ["instances_train+val+all.json"]
    again = boxmend.load(tmp_path / "out")
    assert list_annotations(again) == list_annotations(three)
    assert again.annotation_ids.tolist() == three.annotation_ids.tolist()


@settings(deadline=None)
@given(documents(), documents())
def test_any_two_documents_are_joined_without_losing_an_entry(one: bytes, two: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, "instances_a.json"), Path(folder, "instances_b.json")]
        for path, data in zip(paths, (one, two), strict=True):
            path.write_bytes(data)
        both = read(*paths)
        saved = both.save(Path(folder, "out"), images_as="none", allow_lossy=True)
        (name,) = saved.files
        joined = (saved.out / name).read_bytes()
        again = read(saved.out / name)
    assert again.findings == ()
    assert again.annotation_ids.tolist() == both.annotation_ids.tolist()
    assert again.image_ids.tolist() == both.image_ids.tolist()
    assert again.labels.tolist() == both.labels.tolist()
    assert again.boxes.tolist() == both.boxes.tolist()
    before = [parse_document(data) for data in (one, two)]
    entries = [entry for top in before for entry in value(top, "annotations") or []]
    ids = {"id", "image_id", "category_id"}
    for entry, new in zip(entries, value(parse_document(joined), "annotations") or [], strict=True):
        assert [pair for pair in new if pair[0] not in ids] == [
            pair for pair in entry if pair[0] not in ids
        ]
