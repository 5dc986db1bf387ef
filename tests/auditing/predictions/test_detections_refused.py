"""Unusable files of detections, and the messages about them."""

import json
from pathlib import Path
from typing import Any

import pytest

from boxmend.auditing.predictions.entries import ENTRIES_PER_PORTION, DetectionEntry, read_portions
from boxmend.auditing.predictions.exact import read_exactly
from boxmend.errors import BoxmendError, DataError, UsageError
from tests.auditing.predictions.detection_files import GOOD, catalogue, written

NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": NAN}, "score is NaN, not a finite number"),
        ({"score": -INFINITY}, "score is -Infinity, not a finite number"),
        ({"score": 10**400}, "not a finite number"),
        ({"score": 10**4000}, "score is Infinity, not a finite number"),
        ({"score": "0.9"}, 'score is "0.9", not a finite number'),
        ({"score": True}, "score is true, not a finite number"),
        ({"score": None}, "score is null, not a finite number"),
        ({"score": ...}, "score is missing, not a finite number"),
        ({"bbox": ...}, "bbox is missing, not four finite numbers"),
        ({"bbox": [1, 2, 3]}, "bbox is [1, 2, 3], not four finite numbers"),
        ({"bbox": [1, 2, 3, 4, 5]}, "not four finite numbers"),
        ({"bbox": [1, 2, NAN, 4]}, "bbox is [1, 2, NaN, 4], not four finite numbers"),
        ({"bbox": [1, INFINITY, 3, 4]}, "not four finite numbers"),
        ({"bbox": [1, 2, "3", 4]}, "not four finite numbers"),
        ({"bbox": {"x": 1}}, "not four finite numbers"),
        ({"bbox": "1 2 3 4"}, "not four finite numbers"),
        ({"bbox": [[1, 2, 3, 4]]}, "not four finite numbers"),
        ({"bbox": [1, 2, -3, 4]}, "bbox [1.0, 2.0, -3.0, 4.0] has a negative width or height"),
        ({"bbox": [1e308, 2, 1e308, 4]}, "is too large"),
        ({"bbox": [1, 2, 1e200, 1e200]}, "is too large"),
        ({"image_id": True}, "image_id is true, not a number or a name"),
        ({"image_id": False}, "image_id is false, not a number or a name"),
        ({"image_id": [7]}, "image_id is [7], not a number or a name"),
        ({"image_id": ...}, "it has neither image_id nor file_name"),
        ({"image_id": None}, "it has neither image_id nor file_name"),
        ({"category_id": {}}, "category_id is {}, not a number or a name"),
        ({"category_id": ...}, "it has neither category_id nor category_name"),
        ({"file_name": 7}, "file_name is 7, not a name"),
        ({"category_name": ["cat"]}, 'category_name is ["cat"], not a name'),
    ],
)
@pytest.mark.parametrize("before", [1, ENTRIES_PER_PORTION + 3])
def test_a_wrong_value_is_refused_by_file_place_and_value(
    tmp_path: Path, change: dict[str, Any], message: str, before: int
) -> None:
    wrong = {key: value for key, value in (GOOD | change).items() if value is not ...}
    path = written(tmp_path, [*[GOOD] * before, wrong, GOOD])
    with pytest.raises(DataError) as caught:
        read_exactly(path, catalogue())
    assert str(caught.value).startswith(f"{path}: detection {before} (the first is 0): ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        ("image,score\n7,0.5\n", "is not JSON"),
        ("[{}", "is not JSON"),
        ('[{"image_id": 7},]', "is not JSON"),
        (b'[{"image_id": "\xff"}]', "it is no text in UTF-8"),
        (b"\x89PNG\r\n", "is not JSON"),
        ("{}", "holds an object"),
        ('{"images": [], "results": []}', "holds an object"),
        ('{"annotations": {"7": []}}', "holds an object"),
        ('"found"', "holds a text"),
        ("null", "holds null"),
        ("true", "holds true or false"),
        ("7", "holds a number"),
        ("NaN", "holds a number"),
        ("[" * 200_000 + "]" * 200_000, "nested too deeply"),
        ('{"annotations":' * 50_000 + "[]" + "}" * 50_000, "nested too deeply"),
        ("[[1, 2, 3, 4, 0.5, 1]]", "detection 0 (the first is 0): it is a list"),
        ('["a.jpg"]', "detection 0 (the first is 0): it is a text"),
        ("[null]", "detection 0 (the first is 0): it is null"),
    ],
)
def test_what_is_no_list_of_detections_is_refused(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(DataError) as caught:
        read_exactly(path, catalogue())
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "expected a JSON list of" in str(caught.value)
    assert len(str(caught.value)) < 500 + len(str(path))


def test_an_entry_nested_beyond_all_measure_is_refused_or_passed_over(tmp_path: Path) -> None:
    deep = json.dumps(GOOD)[:-1] + ', "more": ' + "[" * 100_000 + "]" * 100_000 + "}"
    with pytest.raises(DataError, match="nested too deeply"):
        read_exactly(written(tmp_path, f"[{deep}]"), catalogue())


def test_more_digits_than_python_reads_are_reported_by_their_key(tmp_path: Path) -> None:
    long = json.dumps(GOOD).replace("0.5", "9" * 5000)
    with pytest.raises(DataError, match=r"detection 0 .*score is Infinity, not a finite number"):
        read_exactly(written(tmp_path, f"[{long}]"), catalogue())
    beside = json.dumps(GOOD)[:-1] + f', "area": NaN, "more": {"9" * 5000}}}'
    assert len(read_exactly(written(tmp_path, f"[{beside}]"), catalogue()).labels) == 1


def test_the_first_wrong_detection_is_the_one_that_is_reported(tmp_path: Path) -> None:
    entries = [GOOD, GOOD | {"score": "high"}, GOOD | {"bbox": []}]
    with pytest.raises(DataError, match=r"detection 1 .*score"):
        read_exactly(written(tmp_path, entries), catalogue())


def test_the_place_is_reported_also_where_a_file_is_read_the_slow_way(tmp_path: Path) -> None:
    entries = [GOOD | {"area": NAN}, *[GOOD] * (ENTRIES_PER_PORTION + 1), GOOD | {"image_id": 8}]
    with pytest.raises(
        DataError, match=f"detection {ENTRIES_PER_PORTION + 2} .*no image with image_id 8"
    ):
        read_exactly(written(tmp_path, entries), catalogue())


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("nowhere.json", UsageError, "no such file"),
        (".", DataError, "cannot be read"),
        ("a\0b", DataError, "cannot be read"),
        ("x" * 5000, DataError, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_reported(
    tmp_path: Path, name: str, kind: type[BoxmendError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        read_exactly(tmp_path / name, catalogue())


@pytest.mark.parametrize(
    ("entries", "variable"),
    [
        (b"{}," * 400_000 + b"{}", "ANNOTATION_OBJECTS"),
        (b"1," * 600_000 + b"1", "ANNOTATION_VALUES"),
        (b"NaN," * 300_000 + b"1", "ANNOTATION_VALUES"),
    ],
)
def test_too_many_entries_are_refused_before_they_are_decoded(
    entries: bytes, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "predictions.json"
    path.write_bytes(b"[" + entries + b"]")
    monkeypatch.setenv(f"BOXMEND_MAX_{variable}", "100000")
    with pytest.raises(DataError, match=rf"predictions\.json: .*BOXMEND_MAX_{variable}"):
        list(read_portions(path, DetectionEntry))
