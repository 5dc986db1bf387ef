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
from boxmend.training.loader.pictures import ReadableImages, size_mismatch, survey
from boxmend.training.loader.store import (
    GIB,
    Memory,
    Report,
    Store,
    copied_at_once,
    default_workers,
    open_store,
)


class Batch(NamedTuple):
    """Images and annotations of one step; all but `image_rows` lie on the device.

    An annotation that is neither `is_box` nor `is_ignored`, though its row is real, is to be
    taken for background. Boxes of padded rows are finite and mean nothing.
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
    """How a loader treats what is unusual, where it keeps images, and whom it tells."""

    difficult: Difficult = "ignore"
    """What difficult objects are: ignored, or (as mmdetection has it) background."""
    is_strict: bool = False
    """Raise DataError at an image that cannot be read, instead of skipping it."""
    device_share: float = 0.5
    """Images are kept on a GPU where they take at most this share of its free memory."""
    host_bytes: int = 8 * GIB
    """Otherwise they are kept on the host, up to here; beyond, each epoch decodes them anew."""
    workers: int = field(default_factory=default_workers)
    """Threads that decode."""
    part: int = 0
    """Which of the equal parts of every shuffled batch is wanted; each process takes its own."""
    parts: int = 1
    """Into how many parts shuffled batches are cut."""
    report: Report = lambda message: None
    """Called with a sentence about anything worth knowing."""
    progress: Progress = lambda done, total: None
    """Called while images are decoded at the start."""


class Loader:
    """Batches of a dataset; images are decoded once, and steps need no copy to the device.

    `canvas` is the height and width of all batches, `max_annotations` (A) the most that an image
    has, `skipped` a message for each image that cannot be read, `image_rows` [n] the others.
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
        _check(image_size, batch_size, seed, options)
        pictures, self._store, self._places, self.skipped = _opened(
            dataset, image_size, device, options
        )
        self.canvas = pictures.sizes.canvas
        self.image_rows = pictures.rows[self._places]
        sizes = pictures.sizes.take(self._places)
        self._columns = Columns(
            dataset, self.image_rows, sizes, difficult=options.difficult, device=device
        )
        self.max_annotations = self._columns.max_per_image
        self._sizes = torch.from_numpy(sizes.fitted).to(device)  # [n, 2] width, height
        self._scales = torch.from_numpy(sizes.scales).to(device)  # [n, 2] x, y
        self.batch_size = min(batch_size, len(self.image_rows))
        if self.batch_size % options.parts:
            raise UsageError(
                f"a batch of {self.batch_size} images cannot be shared by {options.parts} "
                "processes alike; choose --batch-size as a multiple of their number"
            )
        self.num_batches = len(self.image_rows) // self.batch_size
        self._seed = seed
        self._device = device
        self._options = options

    def epoch(self, number: int, first_batch: int = 0) -> Iterator[Batch]:
        """Yield shuffled batches of B images, or a part of each, mirrored by the toss of a coin.

        They depend on the seed and the number of the epoch alone, so an epoch that begins at
        `first_batch` continues one that was broken off there. The last n mod B images of the
        shuffle are left out; where n is less than the batch size, the one batch holds all.
        """
        if not 0 <= first_batch <= self.num_batches:
            raise ValueError(f"first_batch must lie between 0 and {self.num_batches}")
        generator = np.random.default_rng([self._seed, number])
        order = generator.permutation(len(self.image_rows))
        is_flipped = generator.random(len(order)) < 0.5
        end = self.num_batches * self.batch_size
        shape = (self.num_batches, self._options.parts, -1)
        part = self._options.part
        chosen = order[:end].reshape(shape)[first_batch:, part]
        coins = is_flipped[:end].reshape(shape)[first_batch:, part]
        yield from self._batches(list(chosen), list(coins))

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """Yield every image once, unflipped, in the dataset's order; the last may be smaller."""
        if batch_size < 1:
            raise UsageError(f"the batch size must be at least 1, got {batch_size}")
        n = len(self.image_rows)
        chosen = [np.arange(k, min(k + batch_size, n)) for k in range(0, n, batch_size)]
        yield from self._batches(chosen, [np.zeros(len(one), np.bool_) for one in chosen])

    def _batches(
        self, chosen: Sequence[NDArray[np.int64]], is_flipped: Sequence[NDArray[np.bool_]]
    ) -> Iterator[Batch]:
        images = copied_at_once(chosen, self._device)
        flips = copied_at_once(is_flipped, self._device)
        stored = self._store.batches([self._places[one] for one in chosen])
        for k, (pixels, problems) in enumerate(stored):
            batch = self._batch(pixels, images[k], flips[k], self.image_rows[chosen[k]])
            yield self._without_unreadable(batch, problems) if any(problems) else batch

    def _batch(
        self,
        pixels: Tensor,
        images: Tensor,
        is_flipped: Tensor,
        image_rows: NDArray[np.int64],
    ) -> Batch:
        """Put a batch together from pixels [B, 3, H, W] and positions [B] in `image_rows`."""
        sizes, scales = self._sizes[images], self._scales[images]  # [B, 2] each, x first
        frame = Frame(scales[:, 0], scales[:, 1], sizes[:, 0], is_flipped)
        given = self._columns.take(images)
        boxes = frame.to_network(given.boxes).clamp(min=0)  # rounding may leave the image by 1e-13
        return Batch(
            images=mirrored_images(pixels, frame.widths, is_flipped),
            sizes=sizes.flip(-1),
            boxes=torch.minimum(boxes, sizes.repeat(1, 2)[:, None].to(boxes.dtype)),
            labels=given.labels,
            is_box=given.is_box,
            is_ignored=given.is_ignored,
            rows=given.rows,
            frame=frame,
            image_rows=image_rows,
        )

    def _without_unreadable(self, batch: Batch, problems: Sequence[str | None]) -> Batch:
        """Leave out the annotations of images that could be read before but now are black."""
        told = [problem for problem in problems if problem is not None]
        _refuse(told, self._options.is_strict)
        for problem in told:
            self._options.report(problem)
        is_read = torch.tensor([problem is None for problem in problems], device=self._device)
        return batch._replace(
            is_box=batch.is_box & is_read[:, None], is_ignored=batch.is_ignored & is_read[:, None]
        )


class _Opened(NamedTuple):
    """The images of a dataset, found and decoded."""

    pictures: ReadableImages
    store: Store
    places: NDArray[np.int64]  # [n] of the readable ones, in pictures and store
    skipped: list[str]


def _opened(
    dataset: Dataset, image_size: ImageSize, device: torch.device, options: LoaderOptions
) -> _Opened:
    pictures, skipped = survey(dataset.images, image_size)
    _refuse(skipped, options.is_strict)
    if not len(pictures):
        raise DataError(_no_images(skipped))
    store, problems = open_store(
        pictures,
        Memory(device, options.device_share, options.host_bytes),
        workers=options.workers,
        report=options.report,
        progress=options.progress,
    )
    _refuse(list(problems.values()), options.is_strict)
    skipped += problems.values()
    if len(problems) == len(pictures):
        raise DataError(_no_images(skipped))
    for message in (*skipped, size_mismatch(dataset.images, pictures)):
        if message is not None:
            options.report(message)
    places = np.setdiff1d(np.arange(len(pictures)), list(problems))
    return _Opened(pictures, store, places, skipped)


def _check(image_size: ImageSize, batch_size: int, seed: int, options: LoaderOptions) -> None:
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


def _refuse(problems: Sequence[str], is_strict: bool) -> None:
    if problems and is_strict:
        more = f" (and {len(problems) - 1} more images)" if len(problems) > 1 else ""
        remedy = "repair it or take it out of the dataset; without --strict it is left out"
        raise DataError(f"{problems[0]}{more}; {remedy}")


def _no_images(problems: Sequence[str]) -> str:
    if not problems:
        return "the dataset has no images"
    return f"none of the {len(problems)} images can be read, the first because: {problems[0]}"
