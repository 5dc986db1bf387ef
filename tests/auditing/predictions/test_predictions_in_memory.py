"""Predictions as arrays: they mean what is documented, and errors name argument and row."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxmend import BoxmendError, Dataset, Predictions, read_predictions
from tests.auditing.predictions.prediction_worlds import (
    LABEL_NAMES,
    annotated_boxes,
    as_json,
    coco,
    expected_boxes,
    results,
    yolo,
)

LABELS = annotated_boxes()[1]


def columns(**changes: Any) -> dict[str, Any]:
    """What `results` of the worlds find, as arrays."""
    given: dict[str, Any] = {
        "image_ids": [100 + k // 2 for k in range(60)],
        "boxes": expected_boxes(),
        "labels": np.array(LABELS),
        "scores": [entry["score"] for entry in results()],
    }
    return given | changes


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return coco(tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"labels": [LABEL_NAMES[label] for label in LABELS]},
        {"labels": [label + 1 for label in LABELS], "label_names": ["background", *LABEL_NAMES]},
        {"labels": np.array(LABELS, np.float32)},  # as Ultralytics gives them
        {"image_ids": [f"photos/{k // 2:06d}.jpg" for k in range(60)]},
        {"image_ids": [Path(f"/elsewhere/{k // 2:06d}.jpg") for k in range(60)]},
        {"image_ids": np.arange(60) // 2 + 100},
        {"image_ids": (np.arange(60) // 2 + 100).astype(float)},  # as from pandas
        {"boxes": expected_boxes().tolist()},
    ],
)
def test_arrays_mean_the_same_as_a_file(
    dataset: Dataset, tmp_path: Path, changes: dict[str, Any]
) -> None:
    by_file = read_predictions([as_json(tmp_path / "found.json", results())], dataset)
    resolved = Predictions(**columns(**changes)).resolve(dataset)
    assert resolved.image_rows.tolist() == by_file.image_rows.tolist()
    assert resolved.labels.tolist() == by_file.labels.tolist()
    np.testing.assert_allclose(resolved.boxes, by_file.boxes)
    np.testing.assert_allclose(resolved.scores, by_file.scores)
    assert resolved.notes == by_file.notes


def test_indices_are_those_of_the_dataset_in_other_formats_too(tmp_path: Path) -> None:
    dataset = yolo(tmp_path)
    names = [f"{k // 2:06d}.png" for k in range(60)]
    resolved = Predictions(**columns(image_ids=names)).resolve(dataset)
    assert (resolved.labels[np.argsort(resolved.scores)] == LABELS).all()


def test_class_scores_are_ordered_by_label(dataset: Dataset) -> None:
    vectors = np.full((60, 3), 0.1)
    vectors[np.arange(60), LABELS] = 0.8
    plain = Predictions(**columns(), class_scores=vectors).resolve(dataset)
    assert plain.class_scores is not None
    assert plain.class_scores.argmax(axis=1).tolist() == plain.labels.tolist()
    order = [2, 0, 1]
    names = [LABEL_NAMES[label] for label in order]
    moved = columns(labels=[LABEL_NAMES[label] for label in LABELS], label_names=names)
    named = Predictions(**moved, class_scores=vectors[:, order]).resolve(dataset)
    assert named.class_scores is not None
    np.testing.assert_array_equal(named.class_scores, plain.class_scores)


def with_value(column: Any, row: int, value: Any) -> Any:
    changed = np.array(column, object if isinstance(value, str | None) else None)
    changed[row] = value
    return changed


BOXES = expected_boxes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"boxes": BOXES[:, :3]}, r"predictions.boxes has shape \(60, 3\); expected \(n, 4\)"),
        ({"boxes": BOXES.ravel()}, r"predictions.boxes has shape \(240,\)"),
        ({"boxes": with_value(BOXES, 17, np.nan)}, r"predictions.boxes\[17\] is \[nan, .*finite"),
        ({"boxes": with_value(BOXES, 17, 1e30)}, r"predictions.boxes\[17\]"),
        ({"boxes": BOXES[:, [2, 1, 0, 3]]}, r"predictions.boxes\[0\] .*x1 < x2.*60 rows are wrong"),
        ({"boxes": "boxes"}, "predictions.boxes has other values than numbers"),
        ({"boxes": BOXES * 1j}, "predictions.boxes has complex numbers"),
        ({"scores": [0.5] * 59}, r"predictions.scores has shape \(59,\); expected \(60,\)"),
        ({"scores": with_value([0.5] * 60, 7, np.nan)}, r"predictions.scores\[7\] is nan"),
        ({"scores": with_value([0.5] * 60, 7, 97.0)}, r"predictions.scores\[7\] is 97.0"),
        ({"labels": LABELS[:9]}, r"predictions.labels has shape \(9,\)"),
        ({"labels": with_value(LABELS, 3, 99)}, r"predictions.labels\[3\] is 99; .*3 labels: 0 \("),
        ({"labels": with_value(LABELS, 3, -1)}, r"predictions.labels\[3\] is -1"),
        ({"labels": ["cat"] * 59 + ["emu"]}, r"predictions.labels\[59\] is 'emu'; .*select"),
        ({"labels": ["cat"] * 59 + [None]}, r"predictions.labels\[59\] is None"),
        ({"label_names": ["cat", "dog"]}, r"predictions.labels\[\d+\] is 2; expected one of the 2"),
        ({"label_names": 5}, "predictions.label_names is 5; expected a list"),
        ({"scores": None}, r"predictions.scores has shape \(\)"),
        ({"labels": "cat"}, r"predictions.labels has shape \(\)"),
        ({"class_scores": [["a"] * 3] * 60}, "predictions.class_scores has other values"),
        ({"image_ids": [100] * 9}, r"predictions.image_ids has shape \(9,\)"),
        ({"image_ids": [100] * 59 + [131]}, r"predictions.image_ids\[59\] is 131; not in the"),
        ({"image_ids": [100] * 59 + ["b.jpg"]}, r"predictions.image_ids\[59\] is 'b.jpg'"),
        ({"image_ids": [100] * 59 + [None]}, r"predictions.image_ids\[59\] is None"),
        ({"image_ids": 100}, "predictions.image_ids is 100; expected a list or an array"),
        ({"class_scores": np.zeros((60, 2, 2))}, r"predictions.class_scores has shape"),
        ({"class_scores": np.full((60, 3), 1.5)}, r"predictions.class_scores\[0\] is"),
    ],
)
def test_a_wrong_value_is_named_with_argument_and_row(
    dataset: Dataset, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(BoxmendError, match=message):
        Predictions(**columns(**changes)).resolve(dataset)


def test_boxes_in_another_format_are_refused(dataset: Dataset) -> None:
    boxes = expected_boxes()
    sizes = boxes[:, 2:] - boxes[:, :2]
    is_right = sizes > boxes[:, :2]  # also corners, as they must be
    rows = np.flatnonzero(is_right.all(axis=1))
    wrong = np.concatenate([boxes[:, :2], sizes], axis=1)[rows]
    given: dict[str, Any] = {name: np.array(each)[rows] for name, each in columns().items()}
    assert len(rows) >= 10
    with pytest.raises(BoxmendError, match=r"as x, y, width and height .* but not as two corners"):
        Predictions(**(given | {"boxes": wrong})).resolve(dataset)
    shares = boxes / [200, 100, 200, 100]
    with pytest.raises(BoxmendError, match=r"two corners x1, y1, x2, y2 in shares of the image"):
        Predictions(**columns(boxes=shares)).resolve(dataset)


def test_labels_from_one_are_refused(dataset: Dataset) -> None:
    labels = [min(label + 1, 2) for label in LABELS]
    with pytest.raises(BoxmendError, match=r"labels .*another meaning.*numbers from 1"):
        Predictions(**columns(labels=labels)).resolve(dataset)


@pytest.mark.parametrize("shift", [0, 7])
def test_boxes_of_other_images_are_refused(tmp_path: Path, shift: int) -> None:
    dataset = coco(tmp_path)
    corners = np.random.default_rng(0).integers(0, (150, 60), (60, 2))
    dataset.boxes[:] = np.concatenate([corners, corners + np.array([50, 35])], axis=1)
    turned = [100 + (k // 2 + shift) % 30 for k in range(60)]
    predictions = Predictions(**columns(image_ids=turned, boxes=dataset.boxes))
    if shift == 0:
        assert predictions.resolve(dataset).notes == []
        return
    with pytest.raises(BoxmendError, match="predictions: the boxes overlap the annotations of oth"):
        predictions.resolve(dataset)


def test_others_are_left_out_by_select(dataset: Dataset) -> None:
    ids = [100 + k // 2 + 15 for k in range(60)]  # half of them are not in the dataset
    labels = ["emu" if k < 10 else LABEL_NAMES[label] for k, label in enumerate(LABELS)]
    predictions = Predictions(**columns(image_ids=ids, labels=labels))
    selected = predictions.select(dataset)
    assert len(selected) == 20
    assert selected.image_ids == ids[10:30]
    assert selected.labels == labels[10:30]
    np.testing.assert_array_equal(selected.boxes, expected_boxes()[10:30])
    assert len(predictions) == 60


def test_predictions_are_described_in_a_few_lines() -> None:
    predictions = Predictions(**columns(labels=["<b>\n" + LABEL_NAMES[label] for label in LABELS]))
    lines = repr(predictions).splitlines()
    assert lines[0] == "Predictions: 60 detections"
    assert lines[1] == "  30 images: 100, 101, 102, ..."
    assert len(lines) == 3
    assert "<b>" not in predictions._repr_html_()
    assert predictions.to_table()[0]["image_id"] == "100"
    assert predictions.to_table()["score"].tolist() == predictions.scores.tolist()


def test_no_predictions_are_resolved_to_none(dataset: Dataset) -> None:
    predictions = Predictions([], [], [], [])
    assert len(predictions) == 0
    assert len(predictions.resolve(dataset)) == 0
    assert len(predictions.select(dataset)) == 0
