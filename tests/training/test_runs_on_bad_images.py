"""Whole trainings on images that cannot be read, or that are stored in unusual ways."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from boxmend.data.dataset import Dataset
from boxmend.errors import DataError
from boxmend.runs import ledger
from boxmend.training.train import train
from tests.training.small_runs import (
    QUICK,
    SIDES,
    drawn,
    ensure_sound,
    ids_in_ledger,
    trained,
    with_files,
)

pytestmark = pytest.mark.usefixtures("one_thread")

BOXES = [(row, (10.0 + row, 20.0, 60.0, 70.0)) for row in (0, 1, 1, 2, 3, 3)]
OF_IMAGE_1 = [101, 102]


def become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


SPOILERS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-500]),
    "cut in its header": lambda path: path.write_bytes(path.read_bytes()[:20]),
    "a web page": lambda path: path.write_bytes(b"<html>404 Not Found</html>"),
    "random bytes": lambda path: path.write_bytes(np.random.default_rng(0).bytes(5000)),
    "a folder": become_a_folder,
}


def with_one_spoilt(folder: Path, how: str) -> Dataset:
    dataset = drawn(folder, BOXES)
    SPOILERS[how](Path(dataset.images.paths[1]))
    return dataset


@pytest.mark.parametrize("how", SPOILERS)
def test_an_unreadable_image_is_named_and_left_out(how: str, tmp_path: Path) -> None:
    dataset = with_one_spoilt(tmp_path / "data", how)
    run, log = trained(dataset, tmp_path / "run", method="baseline", batch_size=3)
    ensure_sound(run)
    notes = [str(line["note"]) for line in log if "note" in line]
    assert len([note for note in notes if dataset.images.paths[1] in note]) == 1
    expected = [one for one in dataset.annotation_ids.tolist() if one not in OF_IMAGE_1]
    assert ids_in_ledger(run, 0) == ids_in_ledger(run, 1) == expected


@pytest.mark.parametrize("how", ["missing", "truncated", "random bytes"])
def test_strictness_stops_at_the_image_and_says_what_to_do(how: str, tmp_path: Path) -> None:
    dataset = with_one_spoilt(tmp_path / "data", how)
    with pytest.raises(DataError, match="--strict") as caught:
        trained(dataset, tmp_path / "run", strict=True)
    assert dataset.images.paths[1] in str(caught.value)
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_strict_run_continues_after_the_image_is_repaired(tmp_path: Path) -> None:
    dataset = with_one_spoilt(tmp_path / "data", "truncated")
    with pytest.raises(DataError, match=r"1\.png"):
        trained(dataset, tmp_path / "run", strict=True)
    drawn(tmp_path / "data", BOXES)  # all images are there again
    run, _ = trained(dataset, tmp_path / "run", resume=True, strict=True)
    ensure_sound(run)
    assert ids_in_ledger(run, 1) == dataset.annotation_ids.tolist()


def test_nothing_is_trained_where_no_image_can_be_read(tmp_path: Path) -> None:
    dataset = drawn(tmp_path / "data", BOXES)
    for path in dataset.images.paths:
        Path(path).unlink()
    with pytest.raises(DataError, match=r"none of the 4 images can be read.*0\.png"):
        trained(dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()  # the same command goes when the images are there
    drawn(tmp_path / "data", BOXES)
    ensure_sound(trained(dataset, tmp_path / "run")[0])


def noise(width: int, height: int) -> Image.Image:
    cells = np.random.default_rng(width).integers(0, 256, (12, 12, 3), np.uint8)
    return Image.fromarray(cells).resize((width, height))


def make_turned_exif() -> Image.Exif:
    """EXIF by which a viewer turns the image by a quarter."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def stored_in_unusual_ways(folder: Path) -> list[str]:
    """Image files of 200 x 150 pixels in all modes that are met; their names."""
    folder.mkdir()
    image = noise(200, 150)
    deep = np.asarray(image.convert("L")).astype(np.uint16) * 257
    image.convert("L").save(folder / "grey.png")
    image.convert("P").save(folder / "palette.png")
    image.convert("RGBA").save(folder / "alpha.png")
    image.convert("CMYK").save(folder / "print.jpg")
    image.convert("1").save(folder / "bits.png")
    Image.fromarray(deep).save(folder / "deep.png")
    Image.fromarray(deep).save(folder / "deep.tiff")
    image.save(folder / "turned.jpg", exif=make_turned_exif())
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("method", ["baseline", "mend"])
def test_images_of_every_mode_train(method: str, tmp_path: Path) -> None:
    names = stored_in_unusual_ways(tmp_path / "data")
    boxes = [(row, (20.0, 10.0 + row, 170.0, 120.0)) for row in range(len(names))]
    dataset = with_files(tmp_path / "data", names, boxes)
    run, log = trained(dataset, tmp_path / "run", method=method, batch_size=4)
    ensure_sound(run)
    assert [line for line in log if "note" in line] == []
    assert ids_in_ledger(run, 0) == ids_in_ledger(run, 1) == dataset.annotation_ids.tolist()


@pytest.mark.parametrize("size", [(200, 150), (77, 301)], ids=str)
def test_boxes_on_an_image_turned_by_exif_come_back_as_annotated(
    size: tuple[int, int], tmp_path: Path
) -> None:
    """Pixels are taken as stored, in which annotations are; flips and scales are undone."""
    (tmp_path / "data").mkdir()
    width, height = size
    names = ["turned.jpg", "plain.jpg"]
    noise(*size).save(tmp_path / "data" / "turned.jpg", exif=make_turned_exif())
    noise(*size).save(tmp_path / "data" / "plain.jpg")
    box = (3.25, 5.5, width - 10.75, height - 30.125)
    dataset = with_files(tmp_path / "data", names, [(0, box), (1, box), (0, (0, 0, width, height))])
    run = train(dataset, tmp_path / "run", replace(QUICK, method="baseline", epochs=6))
    table = ledger.read(run.path)
    assert table.num_rows == 6 * 3  # flipped in some of the epochs
    rows = table["annotation_id"].to_numpy() - 100
    for kind in ("noisy", "matched", "final"):
        result = np.stack([table[f"{kind}_{side}"].to_numpy() for side in SIDES], -1)
        np.testing.assert_allclose(result, dataset.boxes[rows], atol=0.01)
