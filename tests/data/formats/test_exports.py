"""Exports of annotation tools, made by the tools themselves, are read and written back."""

from pathlib import Path

import numpy as np
import pytest

from boxmend.auditing.predictions import read_predictions
from boxmend.data.dataset import Dataset
from boxmend.data.formats import load, read
from boxmend.errors import DataError

EXPORTS = Path(__file__).parent / "exports"
BOXES = {  # label, box; by the names of the drawn images
    "a b": [("cat", [2, 2, 12, 6])],
    "c": [("dog", [0, 0, 8, 8]), ("cat", [8, 8, 12, 12])],
    "d": [("dog", [3, 3, 9, 9])],
}
SHIFTED = {"datumaro-voc-detection", "fiftyone-voc", "label-studio-voc"}
"""VOC counts pixels from 1, but these tools count from 0."""
SPLITS = {
    "datumaro-coco-instances": ["train", "train", "val"],
    "datumaro-voc-detection": ["train", "train", "val"],
    "datumaro-yolo": ["train", "train", "val"],
    "datumaro-yolo-ultralytics": ["train", "train", "val"],
    "fiftyone-coco": ["all"] * 3,
    "fiftyone-voc": ["all"] * 3,
    "fiftyone-yolov4": ["train"] * 3,
    "fiftyone-yolov5": ["train"] * 3,
    "label-studio-coco": ["all"] * 3,
    "label-studio-voc": ["all"] * 3,
    "label-studio-yolo": ["train"] * 3,
    "supervision-coco": ["all"] * 3,
    "supervision-voc": ["all"] * 3,
    "supervision-yolo": ["train"] * 3,
}
INEXACT = {"label-studio-coco": 3, "label-studio-voc": 1, "label-studio-yolo": 1}
CHANGED = {  # files that differ from the export when it is written, or that it lacks
    "fiftyone-yolov5": {"dataset.yaml", "data.yaml"},  # `path` is absolute
    "label-studio-voc": {"ImageSets/Main/all.txt"},  # a VOC folder without lists gets one
}
UNUSED = {"labelmap.txt", "notes.json"}  # files that boxmend does not read


def describe(dataset: Dataset) -> dict[str, list[tuple[str, list[float]]]]:
    """Return names and boxes by the drawn image, whatever the tool called its file."""
    found: dict[str, list[tuple[str, list[float]]]] = {}
    for row, name in enumerate(dataset.images.file_names):
        stem = Path(name).stem
        rows = np.flatnonzero(dataset.image_rows == row)
        found[stem[9:] if stem[8:9] == "-" else stem] = [
            (dataset.label_names[dataset.labels[k]], dataset.boxes[k].round(4).tolist())
            for k in rows
        ]
    return found


def files(folder: Path) -> dict[str, bytes]:
    """Return all files but images, which may be links."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".png" and path.name not in UNUSED
    }


@pytest.mark.parametrize("name", SPLITS)
def test_an_export_is_read_with_all_images(name: str) -> None:
    dataset = load(EXPORTS / name)
    expected = BOXES
    if name in SHIFTED:  # x1 and y1 are one too small; x2 and y2 are right
        boxes = {"a b": [1, 1, 12, 6], "d": [2, 2, 9, 9]}
        expected = {image: [(BOXES[image][0][0], box)] for image, box in boxes.items()}
        expected["c"] = [("dog", [-1, -1, 8, 8]), ("cat", [7, 7, 12, 12])]
    assert describe(dataset) == expected
    assert dataset.images.splits == SPLITS[name]
    assert set(dataset.label_names) == {"cat", "dog"}
    sizes = dict(zip(describe(dataset), dataset.images.sizes.tolist(), strict=True))
    assert sizes == {"a b": [20, 10], "c": [16, 16], "d": [12, 12]}
    assert all(Path(path).is_file() for path in dataset.images.paths)
    inexact = [one for one in dataset.findings if one.kind == "inexact-name"]
    assert len(inexact) == (name in INEXACT)
    assert len(dataset.findings) == len(inexact)
    if inexact:
        assert inexact[0].message.startswith(f"{INEXACT[name]} file name")
        assert "%20" in inexact[0].message


@pytest.mark.parametrize("name", SPLITS)
def test_an_export_is_written_as_it_is(name: str, tmp_path: Path) -> None:
    dataset = load(EXPORTS / name)
    saved = dataset.save(tmp_path / "out")
    before, after = files(EXPORTS / name), files(tmp_path / "out")
    different = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    assert different == CHANGED.get(name, set())
    again = load(tmp_path / "out")
    assert again.annotation_ids.tolist() == dataset.annotation_ids.tolist()
    assert again.annotation_ids.tolist() == saved.annotation_ids.tolist()
    assert again.images.file_names == dataset.images.file_names
    assert again.images.splits == dataset.images.splits
    assert (again.boxes == dataset.boxes).all()
    places = [Path(path).relative_to(EXPORTS / name) for path in dataset.images.paths]
    written = [Path(path).relative_to(tmp_path / "out") for path in again.images.paths]
    assert written == places
    assert [one.message for one in again.findings] == [one.message for one in dataset.findings]


@pytest.mark.parametrize("name", SPLITS)
def test_a_change_of_an_export_touches_one_file(name: str, tmp_path: Path) -> None:
    dataset = load(EXPORTS / name)
    dataset.boxes[1] += [0, 0, 1, 1]
    dataset.save(tmp_path / "out")
    before, after = files(EXPORTS / name), files(tmp_path / "out")
    different = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    (changed,) = different - CHANGED.get(name, set())
    assert changed in before
    assert load(tmp_path / "out").boxes[1].tolist() == dataset.boxes[1].tolist()


def test_lists_with_the_endings_of_ultralytics_are_read() -> None:
    dataset = load(EXPORTS / "ultralytics-autosplit")
    assert describe(dataset) == BOXES
    assert set(dataset.images.splits) == {"train", "val"}
    assert set(dataset.images.file_names) == {"a b.png", "c.png", "d.png"}


def test_confidences_are_refused_as_annotations_and_read_as_predictions() -> None:
    name = "fiftyone-yolov5-confidence"
    with pytest.raises(DataError, match=r"a b\.txt.*line 1: 6 values; the sixth .* --predictions"):
        load(EXPORTS / name)
    assert [one.kind for one in read(EXPORTS / name).findings] == ["malformed"] * 4
    dataset = load(EXPORTS / "ultralytics-autosplit")
    for folder in (EXPORTS / name / "labels/val", EXPORTS / "ultralytics-predictions"):
        predictions = read_predictions([folder], dataset)
        assert len(predictions) == 4
        assert predictions.scores.tolist() == pytest.approx([0.9] * 4)
        np.testing.assert_allclose(
            np.sort(predictions.boxes, 0), np.sort(dataset.boxes, 0), atol=1e-3
        )
