"""Images that cannot be read, or are not what was recorded: named, skipped, or refused."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from boxmend.data.dataset import Dataset
from boxmend.errors import DataError
from boxmend.training.loader import LoaderOptions, decode
from tests.training.loader.loader_data import STREAMED, Box, dataset_with, loader, only


def spoil(dataset: Dataset) -> None:
    """Cut image 1 short, empty image 2, and let image 3 vanish."""
    paths = [Path(path) for path in dataset.images.paths]
    paths[1].write_bytes(paths[1].read_bytes()[:-400])
    paths[2].write_bytes(b"")
    paths[3].unlink()


@pytest.mark.parametrize("host_bytes", [2**30, 0], ids=["kept", "streamed"])
def test_an_unreadable_image_is_skipped_by_name(host_bytes: int, tmp_path: Path) -> None:
    boxes: list[tuple[int, Box]] = [(row, (4, 4, 20, 20)) for row in (4, 1, 0, 1, 3)]
    dataset = dataset_with(tmp_path, [(64, 64)] * 5, boxes)
    spoil(dataset)
    messages: list[str] = []
    load = loader(dataset, options=LoaderOptions(host_bytes=host_bytes, report=messages.append))
    assert [Path(one.split(":")[0]).name for one in load.skipped] == ["2.png", "3.png", "1.png"]
    assert set(load.skipped) <= set(messages)
    assert load.image_rows.tolist() == [0, 4]
    batch = only(load.in_order(4))
    assert batch.image_rows.tolist() == [0, 4]
    assert batch.rows.tolist() == [[2], [0]]
    assert batch.images[1].equal(torch.from_numpy(decode(dataset.images.paths[4])).permute(2, 0, 1))


@pytest.mark.parametrize("row", [1, 2, 3])
def test_strictness_stops_at_an_unreadable_image(row: int, tmp_path: Path) -> None:
    dataset = dataset_with(tmp_path, [(64, 64)] * 5)
    spoil(dataset)
    kept = dataset.take_images(np.array([0, row]))
    with pytest.raises(DataError, match=rf"{row}\.png"):
        loader(kept, options=LoaderOptions(is_strict=True))


def test_a_dataset_without_a_readable_image_is_refused(tmp_path: Path) -> None:
    dataset = dataset_with(tmp_path, [(64, 64)] * 4)
    spoil(dataset)
    with pytest.raises(DataError, match="none of the 3 images"):
        loader(dataset.take_images(np.array([1, 2, 3])))
    with pytest.raises(DataError, match="none of the 1 images"):
        loader(dataset.take_images(np.array([1])))
    with pytest.raises(DataError, match="no images"):
        loader(dataset.take_images(np.array([], np.int64)))


def test_an_image_without_a_known_folder_is_named_by_its_file(tmp_path: Path) -> None:
    dataset = dataset_with(tmp_path, [(64, 64)] * 2)
    dataset.images.paths[1] = ""
    assert loader(dataset).skipped == ["1.png: the folder of the image is unknown"]


def test_a_streamed_image_that_vanishes_later_is_black_and_teaches_nothing(tmp_path: Path) -> None:
    box = (4.0, 4.0, 20.0, 20.0)
    dataset = dataset_with(tmp_path, [(64, 64)] * 2, [(0, box), (0, box), (1, box), (1, box)])
    dataset.is_crowd[[1, 3]] = True
    messages: list[str] = []
    options = dataclasses.replace(STREAMED, report=messages.append)
    load, strict = (
        loader(dataset, options=dataclasses.replace(options, is_strict=is_strict))
        for is_strict in (False, True)
    )
    assert "decoded in every epoch" in messages.pop()
    Path(dataset.images.paths[1]).unlink()
    batch = only(load.in_order(2))
    assert "1.png: No such file" in messages[-1]
    assert batch.is_box.tolist() == [[True, False], [False, False]]
    assert batch.is_ignored.tolist() == [[False, True], [False, False]]
    assert batch.images.flatten(1).any(1).tolist() == [True, False]
    Image.new("RGB", (32, 64)).save(dataset.images.paths[1])  # another size than before
    assert only(load.in_order(2)).is_box.tolist() == [[True, False], [False, False]]
    assert "32 x 64" in messages[-1]
    with pytest.raises(DataError, match=r"1\.png"):
        list(strict.in_order(2))


def test_a_wrongly_recorded_size_is_reported_and_the_size_of_the_file_is_used(
    tmp_path: Path,
) -> None:
    dataset = dataset_with(tmp_path, [(64, 32), (64, 64)], [(0, (0, 0, 64, 32))])
    dataset.images.widths[0], dataset.images.heights[0] = 32, 64
    dataset.images.widths[1] = 0  # unknown is not wrong
    messages: list[str] = []
    batch = next(loader(dataset, options=LoaderOptions(report=messages.append)).in_order(1))
    assert "1 of 2 images" in messages[0]
    assert "0.png: 32 x 64 recorded, 64 x 32 in the file" in messages[0]
    assert batch.boxes.tolist() == [[[0, 0, 64, 32]]]
