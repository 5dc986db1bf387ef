"""Documents that are not COCO or are hostile: one clear error, or findings."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import boxmend
from boxmend.data.dataset import Dataset
from boxmend.errors import BoxmendError, DataError
from tests.data.formats.coco_documents import box, document, read_bytes


def test_truncated_documents_are_refused_at_every_byte() -> None:
    data = document(box(note='a"\\{'), info={"a": [1, float("nan")]})
    for end in range(len(data)):
        with pytest.raises(
            DataError, match=r"instances_train.json: (is not valid JSON|is not a COCO)"
        ):
            read_bytes(data[:end])
    assert len(read_bytes(data)) == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not valid JSON"),
        (b"[]", "such as results of a detector"),
        (b'  [{"image_id": 1, "score": 0.5}]', "such as results of a detector"),
        (b"{}", 'no list "images"'),
        (b'{"images": {}}', "not a COCO dataset"),
        (b'{"images": [], "annotations": {}}', "not a COCO dataset"),
        (b'{"images": null}', 'no list "images"'),
        (b"null", "not a COCO dataset"),
        (b'{"images": []} x', "not valid JSON"),
        (b'{"images": [],}', "not valid JSON"),
        (b'{"images": [NaNNaN]}', "not valid JSON"),
        ('{"images": []}'.encode("utf-16"), "not valid JSON"),
        ('{"images": []}'.encode("utf-32"), "not valid JSON"),
        (b"\x00" * 1000, "not valid JSON"),
        (b'{"images": [{"file_name": "\\ud800.jpg"}]}', "not valid JSON"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"images": [' + b'{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_documents_that_are_not_a_coco_dataset_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_bytes(data)
    assert "instances_train.json" in str(caught.value)


def test_deep_nesting_ends_in_an_error_or_a_dataset_at_any_depth() -> None:
    for depth in range(100, 1100, 7):
        deep = "[" * depth + "]" * depth
        text = document(box(iscrowd="odd")).replace(b'"odd"', deep.encode())
        try:
            dataset = read_bytes(text)
        except DataError as error:
            assert "nested too deeply" in str(error)  # noqa: PT017 - either way is fine
        else:
            assert dataset.annotation_ids.tolist() in ([5], ["annotations[0]"])


def test_unterminated_strings_full_of_quotes_are_refused_in_no_time() -> None:
    data = b'{"images": [], "x": "' + b'\\"' * 2_000_000
    with pytest.raises(DataError, match="not valid JSON"):
        read_bytes(data)


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "instances_train.json").mkdir()
    with pytest.raises(DataError, match=r"instances_train.json: cannot be read \(a folder, not a"):
        boxmend.load(tmp_path)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_dataset_or_a_boxmend_error(data: bytes) -> None:
    for spoiled in (data, b'{"images": [' + data + b"]}", b'{"images": [{"id": ' + data + b"}]}"):
        try:
            assert isinstance(read_bytes(spoiled), Dataset)
        except BoxmendError as error:
            assert "instances_train.json" in str(error)  # noqa: PT017 - either way is fine


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)
ENTRY = st.dictionaries(
    st.sampled_from(["id", "image_id", "category_id", "bbox", "iscrowd", "file_name", "width"])
    | st.sampled_from(["height", "name", "difficult"]),
    JSON | st.integers(0, 3) | st.lists(st.integers(0, 9) | st.floats(), min_size=4, max_size=4),
)
LISTS = st.lists(ENTRY | JSON, max_size=4)


@settings(deadline=None)
@given(LISTS, LISTS, LISTS)
def test_any_entries_become_columns_of_their_number(
    images: Any, annotations: Any, categories: Any
) -> None:
    top = {"images": images, "annotations": annotations, "categories": categories}
    dataset = read_bytes(json.dumps(top).encode())
    assert (len(dataset), len(dataset.images)) == (len(annotations), len(images))
    assert len(dataset.label_names) == len(set(dataset.label_names)) == len(categories)
    reported = {
        finding.annotation_id for finding in dataset.findings if finding.kind == "box-not-finite"
    }
    is_bad = ~np.isfinite(dataset.boxes).all(axis=1)
    assert reported == set(dataset.annotation_ids[is_bad].tolist())
    json.dumps(
        [[finding.kind, finding.message, finding.annotation_id] for finding in dataset.findings]
    )


ENTRIES = 400_000  # more than a megabyte of JSON, below which nothing is counted


@pytest.mark.parametrize(
    ("entry", "variable"),
    [
        (b"{}", "ANNOTATION_OBJECTS"),
        (b"123", "ANNOTATION_VALUES"),
        (b"[ ]", "ANNOTATION_VALUES"),
    ],
)
def test_a_list_of_too_many_entries_is_refused_before_it_is_decoded(
    entry: bytes, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b'{"images": [], "annotations": [' + b",".join([entry] * ENTRIES) + b"]}"
    monkeypatch.setenv(f"BOXMEND_MAX_{variable}", "100000")
    with pytest.raises(DataError, match=rf"instances_train\.json: .*BOXMEND_MAX_{variable}"):
        read_bytes(data)


def test_malformed_entries_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b'{"images": [], "annotations": [{}, {}, {}, {"bbox": 7}]}'
    assert len(read_bytes(data).findings) > 4
    monkeypatch.setenv("BOXMEND_MAX_MALFORMED_ENTRIES", "3")
    with pytest.raises(DataError, match=r"4 entries .*BOXMEND_MAX_MALFORMED_ENTRIES"):
        read_bytes(data)


def test_a_long_list_of_objects_with_many_values_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOXMEND_MAX_ANNOTATION_VALUES", "1000")
    polygon = {"segmentation": {"counts": [1] * 400_000, "size": [9, 9]}, "bbox": [1, 1, 2, 2]}
    assert len(read_bytes(document(box(**polygon)))) == 1


@pytest.mark.parametrize("key", ["images", "annotations", "categories"])
def test_a_number_in_place_of_a_list_is_refused(tmp_path: Path, key: str) -> None:
    lists = dict.fromkeys(("images", "annotations", "categories"), "[]") | {key: "Infinity"}
    path = tmp_path / "a.json"
    path.write_text("{" + ", ".join(f'"{name}": {text}' for name, text in lists.items()) + "}")
    with pytest.raises(DataError, match=f'is not a COCO dataset: "{key}" is not a list'):
        boxmend.load(str(path))
