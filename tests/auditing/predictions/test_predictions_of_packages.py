"""Predictions of other packages, by objects that have the attributes of theirs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from boxmend import BoxmendError, Predictions
from tests.auditing.predictions.prediction_worlds import as_json, coco, expected_boxes, results

BOXES = [[1.0, 2, 30, 40], [5, 6, 7, 8]]
SCORES = [0.75, 0.5]


class Tensor:
    """A tensor, which is read only after `detach` and `cpu`."""

    def __init__(self, values: Any):
        self.values = np.array(values, np.float32)

    def detach(self) -> "Tensor":
        return self

    def cpu(self) -> Any:
        return self.values

    def __len__(self) -> int:
        return len(self.values)


def ultralytics(path: str, boxes: Any = BOXES, labels: Any = (2, 0), scores: Any = SCORES) -> Any:
    """What `ultralytics.engine.results.Results` has."""
    held = SimpleNamespace(
        xyxy=Tensor(np.reshape(boxes, (-1, 4))), cls=Tensor(labels), conf=Tensor(scores)
    )
    return SimpleNamespace(
        boxes=held, names={0: "cat", 1: "dog", 2: "emu"}, path=path, orig_shape=(80, 60)
    )


@dataclass
class Supervised:
    """What `supervision.Detections` has."""

    xyxy: Any
    confidence: Any = None
    class_id: Any = None
    data: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.xyxy)


def listed(predictions: Predictions) -> list[tuple[Any, Any, Any, Any]]:
    columns = (predictions.image_ids, predictions.labels, predictions.scores.tolist())
    return list(zip(*columns, predictions.boxes.tolist(), strict=True))


EXPECTED = [
    ("a.jpg", "emu", 0.75, [1, 2, 30, 40]),
    ("a.jpg", "cat", 0.5, [5, 6, 7, 8]),
    ("c.jpg", "dog", 0.25, [0, 0, 9, 9]),
]


def test_results_of_ultralytics() -> None:
    def stream() -> Iterator[Any]:
        yield ultralytics("a.jpg")
        yield ultralytics("b.jpg", [], [], [])
        yield ultralytics("c.jpg", [[0, 0, 9, 9]], [1], [0.25])

    assert listed(Predictions.from_ultralytics(stream())) == EXPECTED
    assert listed(Predictions.from_ultralytics(ultralytics("a.jpg"))) == EXPECTED[:2]
    assert len(Predictions.from_ultralytics([])) == 0


def test_detections_of_supervision() -> None:
    data = {"class_name": np.array(["emu", "cat"])}
    first = Supervised(np.array(BOXES), np.array(SCORES), np.array([2, 0]), data)
    last = Supervised(np.array([[0, 0, 9, 9.0]]), np.array([0.25]), np.array([1]))
    empty = Supervised(np.zeros((0, 4)))
    named = {"a.jpg": first, "b.jpg": empty}
    assert listed(Predictions.from_supervision(named)) == EXPECTED[:2]
    every = {**named, "c.jpg": last}
    by_id = Predictions.from_supervision(every, label_names=["cat", "dog", "emu"])
    assert listed(by_id) == EXPECTED
    assert listed(Predictions.from_supervision({5: last}))[0][:2] == (5, 1)


def test_outputs_of_torchvision() -> None:
    first = {"boxes": Tensor(BOXES), "labels": Tensor([3, 1]), "scores": Tensor(SCORES)}
    last = {"boxes": [[0, 0, 9, 9]], "labels": [2], "scores": [0.25], "masks": None}
    categories = ["__background__", "cat", "dog", "emu"]
    by_image = Predictions.from_torchvision({"a.jpg": first, "c.jpg": last}, label_names=categories)
    assert listed(by_image) == EXPECTED
    numbered = Predictions.from_torchvision([first, last], image_ids=[8, 9])
    assert numbered.labels == [2, 0, 1]
    assert numbered.image_ids == [8, 8, 9]


def test_results_of_coco_as_a_list_and_as_a_file(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    entries = results()
    arrays = [entry | {"bbox": np.array(entry["bbox"])} for entry in entries]
    for given in (entries, arrays, str(as_json(tmp_path / "found.json", entries))):
        predictions = Predictions.from_coco(given)
        np.testing.assert_allclose(predictions.boxes, expected_boxes())
        resolved = predictions.resolve(dataset)
        agrees = resolved.labels == dataset.labels[np.argsort(dataset.image_rows, kind="stable")]
        assert agrees.mean() > 0.3  # in another order within an image
        assert resolved.notes == []
    by_name = [
        {"file_name": "000000.jpg", "category_name": "dog", "bbox": (1, 2, 3, 4), "score": 1}
    ]
    assert listed(Predictions.from_coco(by_name)) == [("000000.jpg", "dog", 1, [1, 2, 4, 6])]


@dataclass
class Sample:
    """What a sample of FiftyOne has."""

    filepath: str
    fields: dict[str, Any]
    metadata: Any = None

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


def detection(label: str, box: list[float], confidence: float | None) -> Any:
    return SimpleNamespace(label=label, bounding_box=box, confidence=confidence)


def test_detections_of_fiftyone(tmp_path: Path) -> None:
    Image.new("L", (10, 20)).save(tmp_path / "c.png")
    size = SimpleNamespace(width=100, height=50)
    first = [detection("emu", [0.01, 0.04, 0.29, 0.76], 0.75)]
    found = SimpleNamespace(detections=first)
    unsized = SimpleNamespace(detections=[detection("dog", [0.1, 0.1, 0.5, 0.5], 0.25)])
    view = [
        Sample("a.jpg", {"found": found}, size),
        Sample("b.jpg", {"found": None}, size),
        Sample(str(tmp_path / "c.png"), {"found": unsized}),
    ]
    predictions = Predictions.from_fiftyone(view, "found")
    assert predictions.image_ids == ["a.jpg", str(tmp_path / "c.png")]
    assert predictions.labels == ["emu", "dog"]
    np.testing.assert_allclose(predictions.boxes, [[1, 2, 30, 40], [1, 2, 6, 12]])


def wrong_results() -> list[Any]:
    none, nan = ultralytics("a.jpg"), ultralytics("b.jpg", [[0, 0, 9, np.nan]], [0], [1])
    none.boxes = None
    unnamed = ultralytics("a.jpg", labels=(7, 0))
    empty: dict[str, Any] = {"boxes": [], "labels": [], "scores": []}
    background = {"boxes": BOXES, "labels": [1, 0], "scores": SCORES}
    truth = SimpleNamespace(detections=[detection("emu", [0, 0, 1, 1], None)])
    view = [Sample("a.jpg", {"truth": truth}, SimpleNamespace(width=9, height=9))]
    ours, torchvision = Predictions.from_ultralytics, Predictions.from_torchvision
    fiftyone, supervision = Predictions.from_fiftyone, Predictions.from_supervision
    entry = {"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}
    lists = Predictions.from_coco
    return [
        (ours, ([none],), r"results\[0\].boxes is None"),
        (ours, ([ultralytics("a.jpg"), nan],), r"results\[1\].boxes.xyxy\[0\] is .*finite"),
        (ours, ([unnamed],), r"results\[0\].names has no name for label 7"),
        (ours, ([{"boxes": []}],), r"results\[0\] is a dict without 'boxes'"),
        (ours, ("results",), "results is a str; expected a list"),
        (supervision, ([Supervised(BOXES)],), "must be a dict of supervision.Detections"),
        (
            supervision,
            ({"a": Supervised(BOXES)},),
            r"detections_by_image\['a'\].confidence is None",
        ),
        (supervision, ({"a": Supervised(BOXES, SCORES)},), r"class_id is None; an audit needs"),
        (torchvision, ([empty],), "a list of outputs does not name its images; give image_ids"),
        (torchvision, ({"a": {"boxes": []}},), r"outputs\[0\] has no 'labels'; its keys are boxes"),
        (torchvision, ({"a": background},), r"outputs\[0\].labels\[1\] is 0; labels start from 1"),
        (fiftyone, (view, "found"), r"view\[0\] has no field 'found'"),
        (fiftyone, (view, "truth"), r"truth.detections\[0\].confidence is None; name a field of"),
        (lists, ([entry, {**entry, "bbox": [1, 2, 3]}],), r"results\[1\].bbox is \[1, 2, 3\]"),
        (lists, ([{**entry, "bbox": [1, 2, -3, 4]}],), r"results.bbox\[0\]"),
        (lists, ([{**entry, "score": None}],), r"results.score"),
        (lists, ([{"bbox": [1, 2, 3, 4]}],), r"results\[0\] has no image_id"),
        (lists, ([{**entry, "image_id": []}],), r"results\[0\]: image_id is \[\]"),
        (lists, ([5],), r"results\[0\] is a int; expected"),
        (lists, (entry,), "results is a dict; expected a list"),
        (lists, ("missing.json",), "missing.json: no such file"),
    ]


@pytest.mark.parametrize("case", wrong_results(), ids=lambda case: case[2][:40])
def test_what_cannot_be_read_is_named(case: Any) -> None:
    function, arguments, message = case
    with pytest.raises(BoxmendError, match=message):
        function(*arguments)


def test_the_number_of_images_and_outputs_is_the_same() -> None:
    with pytest.raises(BoxmendError, match="image_ids has 1 entries for 2 outputs"):
        Predictions.from_torchvision([{}, {}], image_ids=[1])
