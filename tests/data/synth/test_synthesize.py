"""The built-in dataset on disk, in every format."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import boxmend
from boxmend.data.synth import LABEL_NAMES, draw_scene, synthesize
from boxmend.errors import OutputError, UsageError


@pytest.fixture(scope="module", params=["coco", "voc", "yolo"])
def drawn_dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("synth") / str(request.param)
    synthesize(out, images=25, seed=3, format=str(request.param))
    return out


def test_every_format_holds_the_drawn_boxes_and_labels(drawn_dataset: Path) -> None:
    dataset = boxmend.load(drawn_dataset)
    assert len(dataset.images) == 25
    by_name = {Path(name).stem: row for row, name in enumerate(dataset.images.file_names)}
    for index in range(25):
        scene = draw_scene(3, index)
        rows = np.flatnonzero(dataset.image_rows == by_name[f"{index + 1:06d}"])
        np.testing.assert_allclose(dataset.boxes[rows], scene.boxes, atol=0.01)
        names = [dataset.label_names[label] for label in dataset.labels[rows]]
        assert names == [LABEL_NAMES[label] for label in scene.labels]


def test_the_images_are_the_drawn_pixels(drawn_dataset: Path) -> None:
    dataset = boxmend.load(drawn_dataset)
    index = int(Path(dataset.images.file_names[7]).stem) - 1
    with Image.open(dataset.images.paths[7]) as image:
        assert np.array_equal(np.asarray(image), draw_scene(3, index).pixels)


def test_a_fifth_is_for_validation_and_splits_do_not_mix(drawn_dataset: Path) -> None:
    train, val = boxmend.load(f"{drawn_dataset}:train"), boxmend.load(f"{drawn_dataset}:val")
    assert (len(train.images), len(val.images)) == (20, 5)
    assert not set(train.images.file_names) & set(val.images.file_names)
    assert not set(train.annotation_ids) & set(val.annotation_ids)


def test_check_has_no_findings(drawn_dataset: Path) -> None:
    assert boxmend.check(boxmend.load(drawn_dataset), jobs=1) == []


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(tmp_path: Path) -> None:
    files = [synthesize(tmp_path / name, images=6, seed=1).files for name in ("a", "b")]
    assert files[0] == files[1]
    assert synthesize(tmp_path / "c", images=6, seed=2).files != files[0]


def test_a_larger_dataset_begins_with_the_smaller_one(tmp_path: Path) -> None:
    synthesize(tmp_path / "small", images=5)
    synthesize(tmp_path / "large", images=8)
    small, large = boxmend.load(tmp_path / "small:train"), boxmend.load(tmp_path / "large:train")
    assert np.array_equal(large.boxes[: len(small)], small.boxes)


def test_progress_is_reported(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    synthesize(tmp_path / "a", images=3, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("wrong", [{"images": 0}, {"seed": -1}, {"size": 8}, {"format": "csv"}])
def test_invalid_arguments_are_refused_and_leave_nothing(
    tmp_path: Path, wrong: dict[str, int]
) -> None:
    with pytest.raises(UsageError):
        synthesize(tmp_path / "out", **wrong)  # type: ignore[arg-type]  # wrong on purpose
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(OutputError, match="not empty"):
        synthesize(tmp_path, images=1)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
