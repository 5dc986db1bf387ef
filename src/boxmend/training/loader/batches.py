"""Batches for training and evaluation: fixed shapes, on the device, the same for the same seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boxmend.data.dataset import Dataset
from boxmend.data.progress import Progress
from boxmend.errors import DataError, UsageError
from boxmend.training.loader.columns import Columns, Difficult
from boxmend.training.loader.frame import Frame, ImageSize, mirrored_images
from boxmend.training.loader.readable import ReadableImages, describe_size_mismatch, read_headers
from boxmend.training.loader.store import (
    GIB,
    Memory,
    Report,
    Store,
    copy_together,
    default_workers,
    open_store,
)


class Batch(NamedTuple):
    """The images and annotations of one step, on the device except for `image_rows`.

    An annotation with a real row that is neither `is_box` nor `is_ignored` counts as background.
    Boxes of padded rows are finite and have no meaning.
    """

    images: Tensor  # [B, 3, H, W] uint8, the real part at the top left, zero elsewhere
    sizes: Tensor  # [B, 2] int64 height and width of the real part
    boxes: Tensor  # [B, A, 4] float32 in the network frame, within the real part
    labels: Tensor  # [B, A] int64
    is_box: Tensor  # [B, A] annotations to learn from
    is_ignored: Tensor  # [B, A] crowd, difficult by setting, degenerate, or of unknown label
    rows: Tensor  # [B, A] int64 row in the dataset; -1 where padded
    frame: Frame
    image_rows: NDArray[np.int64]  # [B] on the host


@dataclass(frozen=True)
class LoaderOptions:
    """The options of a loader: difficult and unreadable data, memory, processes, and messages."""

    difficult: Difficult = "ignore"
    """Ignore difficult objects, or treat them as background, as mmdetection does."""
    is_strict: bool = False
    """Raise a DataError for an image that cannot be read, instead of skipping it."""
    device_share: float = 0.5
    """Keep images on a GPU if they take at most this share of its free memory."""
    host_bytes: int = 8 * GIB
    """Otherwise keep them on the host, up to this size; larger data are decoded in every epoch."""
    workers: int = field(default_factory=default_workers)
    """Threads that decode."""
    part: int = 0
    """The index of the part of every shuffled batch to yield; each process has its own."""
    parts: int = 1
    """The number of equal parts of a shuffled batch."""
    report: Report = lambda message: None
    """Called with each message for the user."""
    progress: Progress = lambda done, total: None
    """Called while images are decoded at the start."""


class Loader:
    """The batches of a dataset; images are decoded once if they fit into memory.

    `canvas` is the height and width of all batches, `skipped` has a message for each image that
    cannot be read, and `image_rows` [n] are the other images.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        image_size: ImageSize,
        batch_size: int,
        seed: int,
        device: torch.device,
        options: LoaderOptions | None = None,
    ):
        options = options or LoaderOptions()
        _check_arguments(image_size, batch_size, seed, options)
        readable, self._store, self._store_rows, self.skipped = _open_images(
            dataset, image_size, device, options
        )
        self.canvas = readable.sizes.canvas
        self.image_rows = readable.rows[self._store_rows]
        sizes = readable.sizes.take(self._store_rows)
        self._columns = Columns(
            dataset, self.image_rows, sizes, difficult=options.difficult, device=device
        )

        self._sizes = torch.from_numpy(sizes.fitted).to(device)  # [n, 2] width, height
        self._scales = torch.from_numpy(sizes.scales).to(device)  # [n, 2] x, y
        self.batch_size = min(batch_size, len(self.image_rows))
        if self.batch_size % options.parts:
            raise UsageError(
                f"a batch of {self.batch_size} images cannot be divided equally among "
                f"{options.parts} processes; choose --batch-size as a multiple of their number"
            )
        self.num_batches = len(self.image_rows) // self.batch_size
        self._seed = seed
        self._device = device
        self._options = options

    def epoch(self, number: int, first_batch: int = 0) -> Iterator[Batch]:
        """Yield shuffled batches of B images, or a part of each, with half of the images mirrored.

        They depend on the seed and the number of the epoch only, so `first_batch` continues an
        interrupted epoch. The last n mod B images of the shuffle are left out; if n is less than
        the batch size, there is one batch with all images.
        """
        if not 0 <= first_batch <= self.num_batches:
            raise ValueError(f"first_batch must lie between 0 and {self.num_batches}")
        generator = np.random.default_rng([self._seed, number])
        order = generator.permutation(len(self.image_rows))
        is_flipped = generator.random(len(order)) < 0.5
        end = self.num_batches * self.batch_size
        shape = (self.num_batches, self._options.parts, -1)
        part = self._options.part
        indices = order[:end].reshape(shape)[first_batch:, part]
        flips = is_flipped[:end].reshape(shape)[first_batch:, part]
        yield from self._batches(list(indices), list(flips))

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """Yield every image once, not mirrored, in the order of the dataset.

        The last batch may be smaller.
        """
        if batch_size < 1:
            raise UsageError(f"the batch size must be at least 1, got {batch_size}")
        n = len(self.image_rows)
        indices = [np.arange(k, min(k + batch_size, n)) for k in range(0, n, batch_size)]
        yield from self._batches(indices, [np.zeros(len(rows), np.bool_) for rows in indices])

    def _batches(
        self, indices: Sequence[NDArray[np.int64]], is_flipped: Sequence[NDArray[np.bool_]]
    ) -> Iterator[Batch]:
        images = copy_together(indices, self._device)
        flips = copy_together(is_flipped, self._device)
        stored = self._store.batches([self._store_rows[rows] for rows in indices])
        for k, (pixels, problems) in enumerate(stored):
            batch = self._batch(pixels, images[k], flips[k], self.image_rows[indices[k]])
            yield self._ignore_unreadable(batch, problems) if any(problems) else batch

    def _batch(
        self,
        pixels: Tensor,
        images: Tensor,
        is_flipped: Tensor,
        image_rows: NDArray[np.int64],
    ) -> Batch:
        """Build a batch from pixels [B, 3, H, W] and positions [B] in `image_rows`."""
        sizes, scales = self._sizes[images], self._scales[images]  # [B, 2] each, x first
        frame = Frame(scales[:, 0], scales[:, 1], sizes[:, 0], is_flipped)
        annotations = self._columns.take(images)
        boxes = frame.to_network(annotations.boxes).clamp(min=0)  # rounding errors below 0
        return Batch(
            images=mirrored_images(pixels, frame.widths, is_flipped),
            sizes=sizes.flip(-1),
            boxes=torch.minimum(boxes, sizes.repeat(1, 2)[:, None].to(boxes.dtype)),
            labels=annotations.labels,
            is_box=annotations.is_box,
            is_ignored=annotations.is_ignored,
            rows=annotations.rows,
            frame=frame,
            image_rows=image_rows,
        )

    def _ignore_unreadable(self, batch: Batch, problems: Sequence[str | None]) -> Batch:
        """Leave out the annotations of images that became unreadable and are black now."""
        messages = [problem for problem in problems if problem is not None]
        _refuse_problems(messages, self._options.is_strict)
        for message in messages:
            self._options.report(message)
        is_read = torch.tensor([problem is None for problem in problems], device=self._device)
        return batch._replace(
            is_box=batch.is_box & is_read[:, None], is_ignored=batch.is_ignored & is_read[:, None]
        )


class _OpenImages(NamedTuple):
    """The decoded images of a dataset."""

    readable: ReadableImages
    store: Store
    store_rows: NDArray[np.int64]  # [n] rows of `readable` and `store` that can be decoded
    skipped: list[str]


def _open_images(
    dataset: Dataset, image_size: ImageSize, device: torch.device, options: LoaderOptions
) -> _OpenImages:
    readable, skipped = read_headers(dataset.images, image_size)
    _refuse_problems(skipped, options.is_strict)
    if not len(readable):
        raise DataError(_no_images(skipped))
    store, problems = open_store(
        readable,
        Memory(device, options.device_share, options.host_bytes),
        workers=options.workers,
        report=options.report,
        progress=options.progress,
    )
    _refuse_problems(list(problems.values()), options.is_strict)
    skipped += problems.values()
    if len(problems) == len(readable):
        raise DataError(_no_images(skipped))
    for message in (*skipped, describe_size_mismatch(dataset.images, readable)):
        if message is not None:
            options.report(message)
    store_rows = np.setdiff1d(np.arange(len(readable)), list(problems))
    return _OpenImages(readable, store, store_rows, skipped)


def _check_arguments(
    image_size: ImageSize, batch_size: int, seed: int, options: LoaderOptions
) -> None:
    image_size.check()
    if batch_size < 1:
        raise UsageError(f"the batch size must be at least 1, got {batch_size}")
    if seed < 0:
        raise UsageError(f"the seed must be at least 0, got {seed}")
    if options.workers < 1:
        raise UsageError(f"workers must be at least 1, got {options.workers}")
    if not 0 <= options.part < options.parts:
        raise UsageError(f"part must lie between 0 and {options.parts - 1}, got {options.part}")
    if not 0 <= options.device_share <= 1:
        raise UsageError(f"device_share must lie between 0 and 1, got {options.device_share}")


def _refuse_problems(problems: Sequence[str], is_strict: bool) -> None:
    if problems and is_strict:
        more = f" (and {len(problems) - 1} more images)" if len(problems) > 1 else ""
        remedy = "repair it, remove it from the dataset, or leave it out by omitting --strict"
        raise DataError(f"{problems[0]}{more}; {remedy}")


def _no_images(problems: Sequence[str]) -> str:
    if not problems:
        return "the dataset has no images"
    return f"none of the {len(problems)} images can be read; the first: {problems[0]}"
