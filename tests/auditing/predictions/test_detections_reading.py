"""Files of detections that can be read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.auditing.predictions.entries import ENTRIES_PER_PORTION
from boxmend.auditing.predictions.exact import read_exactly
from tests.auditing.predictions.detection_files import GOOD, catalogue, written


def test_columns_are_those_of_the_file_in_its_order(tmp_path: Path) -> None:
    entries = [
        {"image_id": 3, "category_id": 1, "bbox": [10, 20, 30, 40], "score": 0.25},
        {"image_id": 7, "category_id": 18, "bbox": [0.5, 1.5, 2, 0], "score": 3},
    ]
    predictions = read_exactly(written(tmp_path, entries), catalogue())
    assert predictions.image_rows.tolist() == [1, 0]
    assert predictions.labels.tolist() == [1, 0]
    assert predictions.scores.tolist() == [0.25, 3.0]  # a score need not be a probability
    assert predictions.boxes.tolist() == [[10, 20, 40, 60], [0.5, 1.5, 2.5, 1.5]]
    assert predictions.sizes.tolist() == [[30, 40], [2, 0]]  # a box without area is one, too
    kinds = [column.dtype for column in vars(predictions).values()]
    assert kinds == [np.int64, np.int64, np.float64, np.float64, np.float64]


def test_widths_survive_to_the_last_bit(tmp_path: Path) -> None:
    entry = GOOD | {"bbox": [0.1, 0.7, 0.2, 0.1]}
    predictions = read_exactly(written(tmp_path, [entry]), catalogue())
    assert predictions.sizes.tolist() == [[0.2, 0.1]]
    assert (predictions.boxes[:, 2:] - predictions.boxes[:, :2]).tolist() != [[0.2, 0.1]]


@pytest.mark.parametrize("content", [[], {"annotations": []}, {"predictions": []}, " [ ]\n"])
def test_no_detections_are_a_fine_answer(tmp_path: Path, content: Any) -> None:
    predictions = read_exactly(written(tmp_path, content), catalogue())
    assert len(predictions.labels) == 0
    assert predictions.boxes.shape == (0, 4)
    assert predictions.sizes.shape == (0, 2)


@pytest.mark.parametrize("key", ["annotations", "predictions"])
def test_the_list_may_lie_in_an_object(tmp_path: Path, key: str) -> None:
    predictions = read_exactly(written(tmp_path, {"info": {"x": [1]}, key: [GOOD]}), catalogue())
    assert predictions.scores.tolist() == [0.5]


@pytest.mark.parametrize(
    "extra",
    [
        {"id": 1, "area": 1200.0, "iscrowd": 0},
        {"segmentation": {"size": [100, 100], "counts": "abc"}},
        {"area": float("nan")},  # Python's json writes NaN, which is no JSON
        {"keypoints": [float("inf")] * 3},
        {"note": "\ud800"},  # half a character
        {"file_name": None, "category_name": None},
    ],
)
def test_other_keys_are_passed_over(tmp_path: Path, extra: dict[str, Any]) -> None:
    predictions = read_exactly(written(tmp_path, [GOOD, GOOD | extra]), catalogue())
    assert predictions.image_rows.tolist() == [0, 0]
    assert predictions.boxes.tolist() == [[1, 2, 31, 42]] * 2


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_encodings_that_shells_write_do_no_harm(tmp_path: Path, encoding: str) -> None:
    path = written(tmp_path, json.dumps([GOOD]).encode(encoding))
    assert read_exactly(path, catalogue()).scores.tolist() == [0.5]


def test_many_portions_are_put_together_in_order(tmp_path: Path) -> None:
    n = 2 * ENTRIES_PER_PORTION + 5
    entries = [GOOD | {"score": k / n, "image_id": (3, 7)[k % 2]} for k in range(n)]
    predictions = read_exactly(written(tmp_path, entries), catalogue())
    assert predictions.scores.tolist() == [k / n for k in range(n)]
    assert predictions.image_rows.tolist() == [1 - k % 2 for k in range(n)]


finite = st.floats(-1e6, 1e6)
positive = st.floats(0, 1e6)
any_entry = st.fixed_dictionaries(
    {
        "image_id": st.sampled_from([7, 3, 7.0, "7", "a.jpg", "b", "b.jpg"]),
        "category_id": st.sampled_from([18, 1, "cat", "dog", "18"]),
        "bbox": st.tuples(finite, finite, positive, positive),
        "score": st.one_of(finite, st.integers(-5, 5)),
    },
    optional={"file_name": st.just("a.jpg"), "category_name": st.just("dog"), "id": st.none()},
)


@settings(max_examples=100, deadline=None)
@given(entries=st.lists(any_entry, max_size=6))
def test_what_is_written_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, entries: list[dict[str, Any]]
) -> None:
    path = written(tmp_path_factory.mktemp("any"), entries)
    predictions = read_exactly(path, catalogue())
    assert predictions.scores.tolist() == [entry["score"] for entry in entries]
    assert predictions.sizes.tolist() == [list(entry["bbox"][2:]) for entry in entries]
    assert predictions.boxes[:, :2].tolist() == [list(entry["bbox"][:2]) for entry in entries]
    rows = [
        0 if "file_name" in entry else {"b": 1, "3": 1}.get(str(entry["image_id"])[0], 0)
        for entry in entries
    ]
    assert predictions.image_rows.tolist() == rows
    labels = [
        1 if "category_name" in entry else {"cat": 0, "18": 0}.get(str(entry["category_id"]), 1)
        for entry in entries
    ]
    assert predictions.labels.tolist() == labels
