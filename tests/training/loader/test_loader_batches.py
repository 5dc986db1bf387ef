"""Batches: hand numbers, then equal to a slow path, complete, and the same whenever resumed."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import boxmend
from boxmend.data.dataset import Dataset
from boxmend.errors import UsageError
from boxmend.training.loader import Batch, ImageSize, Loader, LoaderOptions, decode, fit, resize
from boxmend.training.loader.store import FromDevice, FromHost
from tests.training.loader.loader_data import CPU, STREAMED, Box, dataset_with, loader, only


@pytest.fixture(scope="session")
def drawn_dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Drawn images, made of several sizes by cropping, so that batches hold padding."""
    folder = tmp_path_factory.mktemp("drawn") / "data"
    boxmend.synthesize(folder, images=19, seed=3, size=64)
    dataset = boxmend.load(folder)
    for row, path in enumerate(dataset.images.paths):
        image = Image.open(path)
        width, height = 64 - 3 * (row % 5), 64 - 7 * (row % 3)
        image.crop((0, 0, width, height)).save(path)
    return dataset


def equal(one: Batch, other: Batch) -> bool:
    tensors = zip([*one[:7], *one.frame], [*other[:7], *other.frame], strict=True)
    same = all(torch.equal(a, b) for a, b in tensors)
    return same and bool((one.image_rows == other.image_rows).all())


def test_a_batch_by_hand(tmp_path: Path) -> None:
    # 40 x 20 becomes 80 x 40 (times 2), 30 x 60 becomes 40 x 80 (times 4/3); canvas 96 x 96.
    boxes: list[tuple[int, Box]] = [(1, (3, 6, 15, 30)), (0, (5, 2, 20, 12)), (1, (0, 0, 30, 60))]
    dataset = dataset_with(tmp_path, [(40, 20), (30, 60)], boxes)
    load = loader(dataset, image_size=ImageSize(80))
    batch = only(load.in_order(8))
    assert (load.canvas, load.skipped) == ((96, 96), [])
    assert batch.rows.shape == (2, 2)
    assert batch.images.shape == (2, 3, 96, 96)
    assert batch.images.dtype == torch.uint8
    assert batch.sizes.tolist() == [[40, 80], [80, 40]]
    assert batch.boxes[0].tolist() == [[10, 4, 40, 24], [0, 0, 0, 0]]
    torch.testing.assert_close(batch.boxes[1], torch.tensor([[4.0, 8, 20, 40], [0, 0, 40, 80]]))
    assert batch.rows.tolist() == [[1, -1], [0, 2]]
    assert batch.labels.tolist() == [[1, 0], [0, 2]]
    assert batch.is_box.tolist() == [[True, False], [True, True]]
    assert not batch.is_ignored.any()
    assert batch.image_rows.tolist() == [0, 1]
    assert not batch.frame.is_flipped.any()
    for part in (batch.images[0, :, 40:], batch.images[0, :, :, 80:], batch.images[1, :, 80:]):
        assert not part.any()


def slow(dataset: Dataset, batch: Batch, k: int, image_size: ImageSize) -> tuple[torch.Tensor, ...]:
    """Image `k` of a batch and its annotations, one by one, by plain arithmetic."""
    row = int(batch.image_rows[k])
    pixels = decode(dataset.images.paths[row])
    height, width = pixels.shape[:2]
    new_width, new_height = fit(width, height, image_size.short, image_size.long)
    pixels = resize(pixels, new_width, new_height)
    annotations = np.flatnonzero(dataset.image_rows == row)
    boxes = dataset.boxes[annotations].clip(0, [width, height, width, height])
    boxes = boxes * np.tile([new_width / width, new_height / height], 2)
    if batch.frame.is_flipped[k]:
        pixels = pixels[:, ::-1]
        boxes = np.stack(
            [new_width - boxes[:, 2], boxes[:, 1], new_width - boxes[:, 0], boxes[:, 3]], 1
        )
    canvas = np.zeros((3, *batch.images.shape[2:]), np.uint8)
    canvas[:, :new_height, :new_width] = pixels.transpose(2, 0, 1)
    rows = torch.from_numpy(annotations)
    return torch.from_numpy(canvas), torch.from_numpy(boxes).float(), rows


@pytest.mark.parametrize("image_size", [ImageSize(64), ImageSize(100, 48)])
@pytest.mark.parametrize("options", [LoaderOptions(), STREAMED], ids=["kept", "streamed"])
def test_batches_equal_the_slow_path(
    drawn_dataset: Dataset, image_size: ImageSize, options: LoaderOptions
) -> None:
    load = loader(drawn_dataset, image_size=image_size, options=options)
    flips = []
    for batch in (*load.epoch(1), *load.in_order(6)):
        for k in range(len(batch.images)):
            image, boxes, rows = slow(drawn_dataset, batch, k, image_size)
            n = len(rows)
            assert batch.images[k].equal(image)
            torch.testing.assert_close(batch.boxes[k, :n], boxes, rtol=0, atol=1e-4)
            assert batch.rows[k, :n].equal(rows)
            assert (batch.rows[k, n:] == -1).all()
            assert batch.labels[k, :n].tolist() == drawn_dataset.labels[rows].tolist()
        flips += batch.frame.is_flipped.tolist()
    assert any(flips[:16])
    assert not all(flips[:16])


@pytest.mark.parametrize("options", [LoaderOptions(), STREAMED], ids=["kept", "streamed"])
def test_every_annotation_comes_once_an_epoch_and_finds_the_way_home(
    drawn_dataset: Dataset, options: LoaderOptions
) -> None:
    load = loader(drawn_dataset, batch_size=1, options=options)
    assert load.num_batches == 19
    rows: list[int] = []
    for batch in load.epoch(0):
        real = batch.rows >= 0
        rows += batch.rows[real].tolist()
        home = batch.frame.to_image(batch.boxes)[real].double().numpy()
        height, width = decode(drawn_dataset.images.paths[int(batch.image_rows[0])]).shape[:2]
        clipped = drawn_dataset.boxes[batch.rows[real]].clip(0, [width, height, width, height])
        assert abs(home - clipped).max(initial=0) < 1e-4
        assert (drawn_dataset.image_rows[batch.rows[real]] == batch.image_rows[0]).all()
    assert sorted(rows) == list(range(len(drawn_dataset)))


@pytest.mark.parametrize("options", [LoaderOptions(), STREAMED], ids=["kept", "streamed"])
def test_an_epoch_resumes_at_every_batch_whatever_came_before(
    drawn_dataset: Dataset, options: LoaderOptions
) -> None:
    load, fresh = loader(drawn_dataset, options=options), loader(drawn_dataset, options=options)
    list(load.epoch(0))
    whole = list(load.epoch(5))
    assert len(whole) == load.num_batches == 19 // 4
    for first in range(load.num_batches + 1):
        rest = list(fresh.epoch(5, first))
        assert len(rest) == len(whole) - first
        assert all(map(equal, rest, whole[first:]))


def test_epochs_and_seeds_differ_and_an_epoch_leaves_out_less_than_a_batch(
    drawn_dataset: Dataset,
) -> None:
    def order(load: Loader, epoch: int) -> list[int]:
        return [row for batch in load.epoch(epoch) for row in batch.image_rows.tolist()]

    load = loader(drawn_dataset)
    assert len(set(order(load, 0))) == len(order(load, 0)) == 16
    assert order(load, 0) != order(load, 1)
    assert order(load, 0) != order(loader(drawn_dataset, seed=1), 0)
    assert sorted({row for epoch in range(20) for row in order(load, epoch)}) == list(range(19))


def test_half_of_the_images_are_mirrored(drawn_dataset: Dataset) -> None:
    load = loader(drawn_dataset, batch_size=19)
    flipped = torch.stack([only(load.epoch(k)).frame.is_flipped for k in range(100)])
    assert 0.45 < flipped.double().mean() < 0.55  # 1,900 coins: sigma is 0.011
    assert (flipped.double().mean(0) > 0.2).all()


def test_a_dataset_smaller_than_a_batch_is_one_batch(drawn_dataset: Dataset) -> None:
    load = loader(drawn_dataset, batch_size=50)
    assert load.num_batches == 1
    assert sorted(only(load.epoch(0)).image_rows.tolist()) == list(range(19))


def test_in_order_is_every_image_once_with_a_smaller_last_batch(drawn_dataset: Dataset) -> None:
    batches = list(loader(drawn_dataset).in_order(8))
    assert [len(batch.images) for batch in batches] == [8, 8, 3]
    assert np.concatenate([batch.image_rows for batch in batches]).tolist() == list(range(19))


def test_one_image_without_annotations_trains(tmp_path: Path) -> None:
    load = loader(dataset_with(tmp_path, [(32, 32)]))
    batch = only(load.epoch(0))
    assert batch.boxes.shape == (1, 1, 4)
    assert batch.boxes.isfinite().all()
    assert batch.rows.tolist() == [[-1]]
    assert not (batch.is_box | batch.is_ignored).any()


def test_nothing_is_cut_off_a_crowded_image(tmp_path: Path) -> None:
    boxes: list[tuple[int, Box]] = [(k != 7, (k, k, k + 10, k + 9)) for k in range(31)]
    load = loader(dataset_with(tmp_path, [(64, 64)] * 3, boxes))
    batch = only(load.in_order(3))
    assert batch.rows.shape == (3, 30)
    assert batch.rows[0].tolist() == [7] + [-1] * 29
    assert batch.rows[1].tolist() == [k for k in range(31) if k != 7]
    assert (batch.rows[2] == -1).all()
    assert batch.is_box.sum() == 31


def test_images_of_every_mode_train_together(tmp_path: Path) -> None:
    modes = ["RGB", "L", "P", "RGBA", "LA", "1", "I;16"]
    dataset = dataset_with(tmp_path, [(40, 30)] * len(modes))
    for mode, path in zip(modes, dataset.images.paths, strict=True):
        Image.new(mode, (40, 30), 1).save(path)
    load = loader(dataset, batch_size=7)
    assert load.skipped == []
    assert only(load.epoch(0)).images.shape == (7, 3, 64, 64)


def test_progress_counts_to_the_end(tmp_path: Path) -> None:
    counts: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        counts.append((done, total))

    loader(dataset_with(tmp_path, [(32, 32)] * 70), options=LoaderOptions(progress=progress))
    assert counts == [(64, 70), (70, 70)]


def test_an_abandoned_epoch_leaves_no_thread_behind(drawn_dataset: Dataset) -> None:
    before = threading.active_count()
    batches = loader(drawn_dataset, options=STREAMED).epoch(0)
    next(batches)
    del batches
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": 0}, "batch size"),
        ({"seed": -1}, "seed"),
        ({"image_size": ImageSize(0)}, "1 pixel"),
        ({"options": LoaderOptions(workers=0)}, "workers"),
        ({"options": LoaderOptions(device_share=1.5)}, "device_share"),
        ({"options": LoaderOptions(part=2, parts=2)}, "part must lie between 0 and 1, got 2"),
        (
            {"options": LoaderOptions(parts=3)},
            "a batch of 4 images cannot be divided equally among 3 ",
        ),
    ],
)
def test_a_wrong_call_is_refused(
    wrong: dict[str, object], message: str, drawn_dataset: Dataset
) -> None:
    with pytest.raises(UsageError, match=message):
        loader(drawn_dataset, **wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="batch size"):
        next(loader(drawn_dataset).in_order(0))
    with pytest.raises(ValueError, match="first_batch"):
        next(loader(drawn_dataset).epoch(0, 5))


@pytest.mark.parametrize("streamed", [False, True])
def test_the_parts_of_a_batch_make_up_the_whole_of_it(
    drawn_dataset: Dataset, streamed: bool
) -> None:
    usual = STREAMED if streamed else LoaderOptions()
    parts = [loader(drawn_dataset, options=replace(usual, part=part, parts=2)) for part in (0, 1)]
    assert parts[0].num_batches == parts[1].num_batches == loader(drawn_dataset).num_batches
    whole, *halves = (list(one.epoch(1, first_batch=1)) for one in (loader(drawn_dataset), *parts))
    assert len(whole) == len(halves[0]) == len(halves[1]) > 1
    for batch, first, second in zip(whole, *halves, strict=True):
        columns = zip([*first[:7], *first.frame], [*second[:7], *second.frame], strict=True)
        joined = [torch.cat(pair) for pair in columns]
        wanted = [*batch[:7], *batch.frame]
        assert all(torch.equal(one, other) for one, other in zip(joined, wanted, strict=True))
        rows = np.concatenate([first.image_rows, second.image_rows])
        assert rows.tolist() == batch.image_rows.tolist()


def test_the_dataset_is_not_changed(drawn_dataset: Dataset) -> None:
    before = (
        drawn_dataset.boxes.copy(),
        drawn_dataset.labels.copy(),
        drawn_dataset.image_rows.copy(),
    )
    list(loader(drawn_dataset).epoch(0))
    after = drawn_dataset.boxes, drawn_dataset.labels, drawn_dataset.image_rows
    assert all((one == other).all() for one, other in zip(before, after, strict=True))


def test_images_on_the_host_come_batch_by_batch_as_those_on_the_device() -> None:
    images = torch.randint(0, 256, (9, 3, 4, 5), dtype=torch.uint8)
    plan = [np.array([3, 1]), np.array([8, 8]), np.array([0])]
    for store in (FromHost(images, CPU), FromDevice(images)):
        assert [batch.problems for batch in store.batches(plan)] == [(), (), ()]
        listed = [batch.images for batch in store.batches(plan)]
        assert all(map(torch.equal, listed, [images[[3, 1]], images[[8, 8]], images[[0]]]))
        assert list(store.batches([])) == []
