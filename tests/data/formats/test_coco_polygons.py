"""COCO annotations that have polygons instead of boxes: refused, or boxed on request."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import boxmend
from boxmend.cli import run
from boxmend.data.dataset import Dataset
from boxmend.data.formats import read
from boxmend.data.formats.coco.outlines import write_outlined_boxes
from boxmend.data.formats.coco.sizes import measure_annotations
from boxmend.errors import DataError
from tests.data.formats.coco_documents import box, document

TRIANGLE = [10, 5, 30, 5, 20.5, 25]
SQUARE = [2, 3, 4, 3, 4, 9, 2, 9]


def outline(*polygons: Any, **others: Any) -> dict[str, Any]:
    return box(bbox=..., segmentation=list(polygons), **others)


def write(folder: Path, *annotations: Any) -> Path:
    path = folder / "instances_train.json"
    path.write_bytes(document(*annotations))
    return path


def load(path: Path) -> Dataset:
    return boxmend.load(path, polygons="box")


def save(dataset: Dataset, out: Path, **options: Any) -> dict[int, dict[str, Any]]:
    dataset.save(out, images_as="none", **options)
    top = json.loads((out / "instances_train.json").read_bytes())
    return {entry["id"]: entry for entry in top["annotations"]}


def test_without_the_option_the_error_names_it(tmp_path: Path) -> None:
    path = write(tmp_path, outline(TRIANGLE))
    with pytest.raises(DataError, match=r"bbox is missing.*pass --polygons box"):
        boxmend.load(path)


@pytest.mark.parametrize("bbox", [..., None, []])
def test_the_box_is_that_around_all_polygons(tmp_path: Path, bbox: Any) -> None:
    first = outline(TRIANGLE, id=1) | ({} if bbox is ... else {"bbox": bbox})
    path = write(tmp_path, first, outline(TRIANGLE, SQUARE, id=2), box(id=3))
    dataset = load(path)
    assert dataset.boxes.tolist() == [[10, 5, 30, 25], [2, 3, 30, 25], [1, 2, 4, 6]]
    (finding,) = dataset.findings
    assert (finding.kind, finding.message[:12]) == ("polygon", "2 boxes are ")
    save(dataset, tmp_path / "out")
    assert (tmp_path / "out/instances_train.json").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "segmentation",
    [
        ..., None, [], [[]], [[1, 2, 3, 4]], [[1, 2, 3, 4, 5, 6, 7]], [[1, 2, 3, 4, 5, "x"]],
        [[1, 2, 3, 4, 5, True]], [[1, 2, 3, 4, 5, 1e400]], {"counts": [4, 5], "size": [3, 3]}, "x",
        [[1, 2, 3, 4, 5, 10**400]],
    ],
)  # fmt: skip
def test_other_outlines_give_no_box(tmp_path: Path, segmentation: Any) -> None:
    path = write(tmp_path, box(bbox=..., segmentation=segmentation))
    (finding,) = read(path, polygons="box").findings
    assert finding.kind == "box-not-finite"
    assert "--polygons" not in finding.message


def test_a_moved_box_is_written_whole_and_makes_the_outline_stale(tmp_path: Path) -> None:
    dataset = load(write(tmp_path, outline(TRIANGLE, id=1), outline(SQUARE, id=2)))
    dataset.boxes[0, 0] = 11
    entries = save(dataset, tmp_path / "out")
    assert entries[1]["bbox"] == [11, 5, 19, 20]
    assert entries[1]["boxmend"] == {"stale": ["segmentation"]}
    assert "bbox" not in entries[2]
    assert save(dataset, tmp_path / "drop", segmentation="drop")[1]["segmentation"] == []


def test_conversions_write_the_boxes(tmp_path: Path) -> None:
    path = write(tmp_path, outline(TRIANGLE, id=1, area=7.5), box(id=2))
    line = ["convert", str(path), "--polygons", "box", "--images-as", "none"]
    assert run([*line, "--to", "coco", "--out", str(tmp_path / "boxed")]) == 0
    written = json.loads((tmp_path / "boxed/instances_train.json").read_bytes())
    original = json.loads(path.read_bytes())
    original["annotations"][0]["bbox"] = [10, 5, 20, 20]  # and nothing else: it is not stale
    assert written == original
    assert boxmend.load(tmp_path / "boxed").boxes.tolist() == load(path).boxes.tolist()
    assert run([*line, "--to", "yolo", "--allow-lossy", "--out", str(tmp_path / "yolo")]) == 0
    assert (tmp_path / "yolo/labels/train/1.txt").read_text().count("\n") == 2


def test_check_writes_a_copy_with_boxes(tmp_path: Path) -> None:
    path = write(tmp_path, outline(TRIANGLE))
    line = ["check", str(path), "--no-open-images", "--fix", "--out", str(tmp_path / "out")]
    assert run(line) == 1
    assert not (tmp_path / "out").exists()
    assert run([*line, "--polygons", "box"]) == 0
    assert run(["check", str(tmp_path / "out"), "--no-open-images"]) == 0


def test_areas_are_those_of_the_outlines(tmp_path: Path) -> None:
    dataset = load(write(tmp_path, outline(TRIANGLE, area=7.5), outline(SQUARE, id=6)))
    areas, sizes = measure_annotations(dataset)
    assert areas.tolist() == [7.5, 12]
    assert sizes.tolist() == [[20, 20], [2, 6]]


coordinates = st.integers(0, 90) | st.floats(0, 90).map(lambda value: round(value, 3))
polygons = st.lists(st.tuples(coordinates, coordinates), min_size=3, max_size=5)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(polygons, min_size=1, max_size=2), min_size=1, max_size=4), st.data())
def test_boxes_are_written_on_request_alone(
    outlines: list[list[list[tuple[float, float]]]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        flat = [[[side for point in one for side in point] for one in many] for many in outlines]
        path = write(root, *(outline(*many, id=k) for k, many in enumerate(flat)))
        dataset = load(path)
        points = [np.array([point for one in many for point in one]) for many in outlines]
        expected = [[*one.min(0), *one.max(0)] for one in points]
        np.testing.assert_allclose(dataset.boxes, expected, atol=1e-9)
        save(dataset, root / "same")
        assert (root / "same/instances_train.json").read_bytes() == path.read_bytes()
        moved = data.draw(st.integers(0, len(outlines) - 1))
        dataset.boxes[moved] += 1
        entries = save(dataset, root / "moved")
        assert [key for key, entry in entries.items() if "bbox" in entry] == [moved]
        save(write_outlined_boxes(dataset), root / "all")
        np.testing.assert_allclose(read(root / "all").boxes, dataset.boxes, atol=2e-6)
