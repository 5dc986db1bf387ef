"""Whole trainings on images of any shape, ids of any kind, and in half the precision."""

from pathlib import Path

import pytest

import boxmend
from boxmend.methods.table import METHODS, MendSettings
from boxmend.runs import ledger
from tests.training.small_runs import SIDE, Box, drawn, ensure_sound, ids_in_ledger, trained

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("method", ["baseline", "mend", "mend-paper"])
def test_images_of_extreme_shapes_train(method: str, tmp_path: Path) -> None:
    """A dot, a long line, a high one, and a usual image."""
    sizes = [(1, 1), (4000, 3), (3, 4000), (SIDE, SIDE)]
    boxes: list[tuple[int, Box]] = [
        (0, (0, 0, 1, 1)),
        (1, (10, 0, 900, 3)),
        (2, (0, 10, 3, 900)),
        (3, (5, 5, 60, 60)),
    ]
    dataset = drawn(tmp_path / "data", boxes, sizes=sizes)
    run, _ = trained(dataset, tmp_path / "run", method=method)
    ensure_sound(run)
    assert ids_in_ledger(run, 0) == ids_in_ledger(run, 1) == [100, 101, 102, 103]


@pytest.mark.parametrize("format", ["voc", "yolo"])
def test_ids_that_are_texts_stand_in_the_ledger_as_they_are(format: str, tmp_path: Path) -> None:
    boxmend.synthesize(tmp_path / "toys", images=5, seed=1, format=format)
    dataset = boxmend.load(f"{tmp_path / 'toys'}:train")
    run, _ = trained(dataset, tmp_path / "run", batch_size=4)
    ensure_sound(run)
    assert isinstance(dataset.annotation_ids[0], str)
    assert [str(one) for one in ids_in_ledger(run, 1)] == sorted(dataset.annotation_ids.tolist())
    image_ids = set(ledger.read(run.path, ["image_id"])["image_id"].to_pylist())
    assert image_ids == {str(one) for one in dataset.images.ids.tolist()}


@pytest.mark.parametrize("method", sorted(METHODS))
def test_half_the_precision_trains(method: str, tmp_path: Path) -> None:
    boxes: list[tuple[int, Box]] = [(row, (10.0, 20.0 + row, 60.0, 70.0)) for row in range(4)]
    dataset = drawn(tmp_path / "data", boxes)
    run, _ = trained(dataset, tmp_path / "run", method=method, precision="bfloat16", batch_size=4)
    ensure_sound(run)
    assert ids_in_ledger(run, 1) == dataset.annotation_ids.tolist()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_missing_annotations_may_be_left_out_of_the_background(
    precision: str, tmp_path: Path
) -> None:
    boxes: list[tuple[int, Box]] = [(row, (10.0, 20.0 + row, 60.0, 70.0)) for row in range(4)]
    dataset = drawn(tmp_path / "data", boxes)
    settings = MendSettings(missing_min_score=0.0)  # every proposal beside the annotations
    run, _ = trained(dataset, tmp_path / "run", mend=settings, precision=precision, batch_size=4)
    ensure_sound(run)
    assert ids_in_ledger(run, 1) == dataset.annotation_ids.tolist()
    missing = [line["missing"] for line in run.read_metrics() if "missing" in line]
    assert missing
    assert max(missing) > 1


def test_two_datasets_joined_train_as_one(tmp_path: Path) -> None:
    boxmend.synthesize(tmp_path / "one", images=5, seed=1, format="voc")
    boxmend.synthesize(tmp_path / "two", images=5, seed=2, format="coco")
    dataset = boxmend.load(f"{tmp_path / 'one'}:train", f"{tmp_path / 'two'}:train")
    run, _ = trained(dataset, tmp_path / "run", method="baseline", batch_size=8)
    ensure_sound(run)
    assert sorted(map(str, ids_in_ledger(run, 1))) == sorted(map(str, dataset.annotation_ids))
