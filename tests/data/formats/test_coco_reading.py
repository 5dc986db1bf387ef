"""Reading COCO: valid values become columns, invalid ones a finding or one clear error."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import boxmend
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.formats import read
from boxmend.errors import DataError
from tests.data.formats.coco_documents import IMAGE, box, document, documents, read_bytes


def findings(dataset: Dataset) -> list[tuple[str, int | str | None]]:
    return [(finding.kind, finding.annotation_id) for finding in dataset.findings]


# The contract


def test_loading_gives_columns_and_keeps_ids_and_order(tmp_path: Path) -> None:
    path = tmp_path / "instances_val.json"
    path.write_bytes(
        document(
            box(id=9, category_id=7, bbox=[1.5, 2, 3, 4.25], iscrowd=1),
            box(id=2, image_id=20, difficult=1),
            images=[IMAGE, {"id": 20, "file_name": "a/b.png", "width": 5, "height": 6}],
            categories=[{"id": 7, "name": "dog"}, {"id": 3, "name": "cat"}],
        )
    )
    dataset = boxmend.load(path)
    assert dataset.boxes.tolist() == [[1.5, 2, 4.5, 6.25], [1, 2, 4, 6]]
    assert dataset.boxes.dtype == np.float64
    assert dataset.label_names == ("dog", "cat")
    assert dataset.labels.tolist() == [0, 1]
    assert dataset.annotation_ids.tolist() == [9, 2]
    assert dataset.image_ids.tolist() == [1, 20]
    assert dataset.is_crowd.tolist() == [True, False]
    assert dataset.is_difficult.tolist() == [False, True]
    assert dataset.images.file_names == ["1.jpg", "a/b.png"]
    assert dataset.images.widths.tolist() == [64, 5]
    assert dataset.images.heights.tolist() == [48, 6]
    assert dataset.images.splits == ["val", "val"]
    assert dataset.findings == ()


def test_document_without_annotations_and_categories_is_a_dataset() -> None:
    dataset = read_bytes(b'{"images": []}')
    assert (len(dataset), len(dataset.images), dataset.label_names) == (0, 0, ())
    assert dataset.boxes.shape == (0, 4)


def test_more_annotations_than_are_decoded_at_once_stay_in_order() -> None:
    entries = [box(id=k, bbox=[k, 0, 1, 1], iscrowd=k == 5000) for k in range(7000)]
    entries[6000]["id"] = "odd"
    dataset = read_bytes(document(*entries))
    assert dataset.boxes[:, 0].tolist() == list(range(7000))
    assert dataset.annotation_ids.tolist() == [*range(6000), "odd", *range(6001, 7000)]
    assert np.flatnonzero(dataset.is_crowd).tolist() == [5000]
    assert dataset.findings == ()


def test_load_names_file_id_and_remedy(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(document(box(category_id=4), box(id=6, category_id=4)))
    with pytest.raises(DataError) as caught:
        boxmend.load(path)
    message = str(caught.value)
    assert f"{path}, annotation 5: its category_id is 4, which is not among" in message
    assert "There are 2 errors in all." in message
    assert "boxmend check" in message


def test_ids_of_findings_are_plain_and_can_be_written_as_json() -> None:
    wrong = [box(id=1, category_id=4), box(id=2, image_id=9), box(id=3, bbox=[1e308, 0, 1e308, 1])]
    dataset = read_bytes(document(*wrong, *[box(id=7)] * 2))
    assert findings(dataset) == [
        ("duplicate-id", 7),
        ("box-not-finite", 3),
        ("unknown-category", 1),
        ("unknown-image", 2),
    ]
    assert json.dumps([finding.annotation_id for finding in dataset.findings]) == "[7, 3, 1, 2]"
    assert all("np." not in finding.message for finding in dataset.findings)


# Entries that are wrong


@pytest.mark.parametrize(
    "bbox",
    [
        [1, 2, 3],
        [1, 2, 3, 4, 5],
        ["1", "2", "3", "4"],
        [1, 2, None, 4],
        [1, 2, True, 4],
        [[1, 2], [3, 4]],
        [1, 2, 10**400, 4],
        [1e308, 2, 1e308, 4],
        [1, 2, float("nan"), 4],
        [-float("inf"), 2, 3, 4],
        float("nan"),
        "1,2,3,4",
        {},
        None,
        ...,
    ],
)
def test_box_that_is_not_four_finite_numbers_is_reported_and_the_rest_is_read(bbox: Any) -> None:
    dataset = read_bytes(document(box(id=4), box(bbox=bbox, iscrowd=1), box(id=6)))
    assert findings(dataset) == [("box-not-finite", 5)]
    assert not np.isfinite(dataset.boxes[1]).all()
    assert dataset.boxes[[0, 2]].tolist() == [[1, 2, 4, 6]] * 2
    assert dataset.annotation_ids.tolist() == [4, 5, 6]
    assert dataset.labels.tolist() == [0, 0, 0]
    assert dataset.is_crowd.tolist() == [False, True, False]


def test_numbers_out_of_range_are_reported() -> None:
    data = document(box()).replace(b"[1, 2, 3, 4]", b"[1, 2, 1e999, 4]")
    assert findings(read_bytes(data)) == [("box-not-finite", 5)]


def test_lax_numbers_are_shown_as_in_the_document() -> None:
    data = document(box(bbox=[float("nan"), 1, 2, 3], id=float("nan")))
    messages = [finding.message for finding in read_bytes(data).findings]
    assert messages == [
        "annotations[0]: its id is nan; assign a unique id",
        "bbox is [nan, 1, 2, 3], not four finite numbers x, y, w, h",
    ]


@pytest.mark.parametrize("identity", [1.5, True, None, ..., [], {}, float("nan")])
def test_annotation_without_a_proper_id_is_reported_by_its_place(identity: Any) -> None:
    dataset = read_bytes(document(box(id=1), box(id=identity)))
    assert findings(dataset) == [("malformed", "annotations[1]")]
    assert "annotations[1]" in dataset.findings[0].message
    assert dataset.annotation_ids.tolist() == [1, "annotations[1]"]
    assert dataset.boxes.tolist() == [[1, 2, 4, 6]] * 2


@pytest.mark.parametrize("identity", [-3, 0, 2**63 - 1, 2**63, 2**70, -(2**70), "a:1", "", "1"])
def test_ids_may_be_any_integer_or_text(identity: Any) -> None:
    dataset = read_bytes(
        document(box(id=identity, image_id=identity), images=[IMAGE | {"id": identity}])
    )
    assert dataset.findings == ()
    assert dataset.annotation_ids.tolist() == [identity]
    assert dataset.image_ids.tolist() == [identity]


def test_whole_numbers_written_as_floats_are_ids() -> None:
    dataset = read_bytes(document(box(id=5.0, image_id=1.0, category_id=3.0)))
    assert dataset.findings == ()
    assert dataset.annotation_ids.tolist() == [5]
    assert (dataset.labels.tolist(), dataset.image_rows.tolist()) == ([0], [0])


@pytest.mark.parametrize("reference", ["3", 4, None, ..., True, 3.5, [], 2**70])
def test_category_that_is_not_declared_is_reported(reference: Any) -> None:
    dataset = read_bytes(document(box(category_id=reference)))
    assert findings(dataset) == [("unknown-category", 5)]
    assert dataset.labels.tolist() == [UNKNOWN]


@pytest.mark.parametrize("reference", ["1", 4, None, ..., True, 1.5, {}, -(2**70)])
def test_image_that_is_not_declared_is_reported(reference: Any) -> None:
    dataset = read_bytes(document(box(image_id=reference)))
    assert findings(dataset) == [("unknown-image", 5)]
    assert dataset.image_rows.tolist() == [UNKNOWN]


def test_references_to_huge_ids_are_found_or_unknown() -> None:
    huge = 10**15  # too many numbers for a table of all of them
    images = [IMAGE | {"id": huge}, IMAGE | {"id": 7, "file_name": "7.jpg"}]
    entries = [box(id=k, image_id=one) for k, one in enumerate((huge, 7, huge - 1, 8, 1))]
    dataset = read_bytes(document(*entries, images=images))
    assert dataset.image_rows.tolist() == [0, 1, -1, -1, -1]
    assert findings(dataset) == [("unknown-image", k) for k in (2, 3, 4)]


@pytest.mark.parametrize(
    ("flag", "is_crowd"),
    [
        (0, False),
        (1, True),
        (2, True),
        (True, True),
        (False, False),
        (1.0, True),
        (0.0, False),
        ("1", False),
        ([], False),
        (None, False),
        (..., False),
    ],
)
def test_crowd_flag_may_be_a_number_a_truth_value_or_nothing(flag: Any, is_crowd: Any) -> None:
    dataset = read_bytes(document(box(iscrowd=flag, difficult=flag)))
    assert dataset.findings == ()
    assert dataset.is_crowd.tolist() == dataset.is_difficult.tolist() == [is_crowd]


@pytest.mark.parametrize("entry", [5, "x", None, [], [1, 2], True, {}])
def test_annotation_that_is_not_an_object_or_empty_is_reported(entry: Any) -> None:
    dataset = read_bytes(document(box(), entry))
    kinds = {finding.kind for finding in dataset.findings}
    assert kinds == {"malformed", "box-not-finite", "unknown-category", "unknown-image"}
    assert dataset.annotation_ids.tolist() == [5, "annotations[1]"]


@pytest.mark.parametrize("key", ["annotations", "images", "categories"])
def test_duplicate_ids_are_reported_once_with_their_number(key: str) -> None:
    entries = {"annotations": [box()], "images": [IMAGE], "categories": [{"id": 3, "name": "cat"}]}
    entries[key] *= 3
    dataset = read_bytes(document(**entries))
    assert [finding.kind for finding in dataset.findings] == ["duplicate-id"]
    assert dataset.findings[0].message.startswith(f"3 {key} have the id")
    assert dataset.findings[0].annotation_id == (5 if key == "annotations" else None)


def test_overflow_is_reported_for_annotations_that_share_an_id() -> None:
    dataset = read_bytes(document(box(), box(bbox=[1e308, 0, 1e308, 1])))
    assert findings(dataset) == [("duplicate-id", 5), ("box-not-finite", 5)]


def test_categories_that_share_a_name_are_distinguished() -> None:
    names = ["cat", "cat", "cat (category 3)", "cat", "cat"]
    categories = [{"id": k, "name": name} for k, name in zip([1, 2, 9, 3, 3], names, strict=True)]
    dataset = read_bytes(document(box(category_id=2), categories=categories))
    assert dataset.label_names[:3] == ("cat", "cat (category 2)", "cat (category 3)")
    assert len(set(dataset.label_names)) == 5
    assert dataset.labels.tolist() == [1]


@pytest.mark.parametrize("name", [None, ..., 5, ["cat"]])
def test_category_without_a_name_is_reported_and_named_after_its_id(name: Any) -> None:
    category = {key: value for key, value in {"id": 3, "name": name}.items() if value is not ...}
    dataset = read_bytes(document(box(), categories=[category]))
    assert findings(dataset) == [("malformed", None)]
    assert dataset.label_names == ("category 3",)


@settings(deadline=None)
@given(documents())
def test_columns_equal_those_of_pythons_json(data: bytes) -> None:
    top = json.loads(data.decode("utf-8-sig"))
    entries = top.get("annotations", [])
    dataset = read_bytes(data)
    assert dataset.annotation_ids.tolist() == [entry["id"] for entry in entries]
    assert dataset.image_ids.tolist() == [entry["image_id"] for entry in entries]
    assert [label + 1 for label in dataset.labels.tolist()] == [e["category_id"] for e in entries]
    assert dataset.is_crowd.tolist() == [bool(entry.get("iscrowd")) for entry in entries]
    boxes = [(x, y, x + w, y + h) for x, y, w, h in (entry["bbox"] for entry in entries)]
    assert dataset.boxes.tolist() == [list(map(float, box)) for box in boxes]


def test_reading_leaves_the_file_as_before(tmp_path: Path) -> None:
    path = tmp_path / "instances_train.json"
    path.write_bytes(document(box()))
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    read(path).save(tmp_path / "out")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


@pytest.mark.parametrize("text", ["}, {", "}{", "{", "}", "{}", '\\"}, {\\"', "}, {}, {"])
@pytest.mark.parametrize("indent", [None, 2])
def test_braces_in_strings_do_not_mislead(text: str, indent: int | None, tmp_path: Path) -> None:
    document_content: dict[str, Any] = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 9, "height": 9}],
        "annotations": [
            {"id": k, "image_id": 1, "category_id": 1, "bbox": [k, 1, 2, 3], "note": text}
            for k in (4, 5, 6)
        ],
        "categories": [{"id": 1, "name": text}],
    }
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document_content, indent=indent))
    dataset = boxmend.load(path)
    assert dataset.annotation_ids.tolist() == [4, 5, 6]
    assert dataset.boxes[:, 0].tolist() == [4, 5, 6]
    dataset.boxes[1, 2] = 8
    dataset.save(tmp_path / "out", images_as="none")
    document_content["annotations"][1]["bbox"] = [5, 1, 3, 3]
    assert json.loads((tmp_path / "out/a.json").read_text()) == document_content
