"""Stores of decoded images: on the device, on the host, or in their files."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boxmend.data.progress import Progress
from boxmend.training.loader.readable import ReadableImages

CHUNK_IMAGES = 64  # decoded before each copy into the store
MAX_WORKERS = 32  # threads; more would wait for Python's lock
GIB = 2**30

Report = Callable[[str], None]
Item = TypeVar("Item")
Value = TypeVar("Value")


class Stored(NamedTuple):
    """The images of one batch on the device, not mirrored."""

    images: Tensor  # [B, 3, H, W] uint8
    problems: Sequence[str | None] = ()  # [B] why an image is black, or (); None if it is sound


class Store(Protocol):
    """Decoded images, which it yields by their indices, batch by batch."""

    def batches(self, plan: Sequence[NDArray[np.int64]]) -> Iterator[Stored]:
        """Yield the images at each array of indices [B]."""


class Memory:
    """The number of bytes of images that fit on the device and on the host."""

    def __init__(self, device: torch.device, device_share: float, host_bytes: int):
        self.device = device
        self.host_bytes = host_bytes
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
        self.device_bytes = int(device_share * free)


def open_store(
    readable: ReadableImages, memory: Memory, *, workers: int, report: Report, progress: Progress
) -> tuple[Store, dict[int, str]]:
    """Decode every image and return the store that has room for them, and messages by index.

    The messages are about images that cannot be decoded.
    """
    height, width = readable.sizes.canvas
    shape = (len(readable), 3, height, width)
    size = int(np.prod(shape, dtype=np.int64))
    kept: Tensor | None = None
    if size <= memory.device_bytes:
        kept = torch.zeros(shape, dtype=torch.uint8, device=memory.device)
    elif size <= memory.host_bytes:
        kept = torch.zeros(shape, dtype=torch.uint8)
    problems = _decode_all(readable, kept, workers, progress)
    if kept is None:
        report(f"{_gib(size)} of images do not fit into memory; they are decoded in every epoch")
        return FromFiles(readable, memory.device, workers), problems
    if kept.device.type != memory.device.type:
        report(f"{_gib(size)} of images do not fit on the device; they are kept on the host")
        return FromHost(kept, memory.device), problems
    return FromDevice(kept), problems


def default_workers() -> int:
    """Return the number of threads that decode: one per core."""
    return min(os.cpu_count() or 1, MAX_WORKERS)


class FromDevice:
    """Images that are all kept on the device."""

    def __init__(self, images: Tensor):
        self._images = images  # [n, 3, H, W]

    def batches(self, plan: Sequence[NDArray[np.int64]]) -> Iterator[Stored]:
        """Yield the images at each array of indices [B]."""
        for indices in copy_together(plan, self._images.device):
            yield Stored(self._images.index_select(0, indices))


class FromHost:
    """Images that are kept on the host; gathers the next batch while one is used."""

    def __init__(self, images: Tensor, device: torch.device):
        self._images = images  # [n, 3, H, W]
        self._device = device

    def batches(self, plan: Sequence[NDArray[np.int64]]) -> Iterator[Stored]:
        """Yield the images at each array of indices [B]."""
        for images in _prefetch(self._gather, plan):
            yield Stored(images.to(self._device, non_blocking=True))

    def _gather(self, indices: NDArray[np.int64]) -> Tensor:
        out = _make_staging((len(indices), *self._images.shape[1:]), self._device)
        return torch.index_select(self._images, 0, torch.from_numpy(indices), out=out)


class FromFiles:
    """Images that are decoded for each batch, the next one while one is used.

    An image that cannot be decoded is black.
    """

    def __init__(self, readable: ReadableImages, device: torch.device, workers: int):
        self._readable = readable
        self._device = device
        self._workers = workers

    def batches(self, plan: Sequence[NDArray[np.int64]]) -> Iterator[Stored]:
        """Yield the images at each array of indices [B]."""
        with ThreadPoolExecutor(self._workers, "boxmend-decode") as pool:

            def decode(indices: NDArray[np.int64]) -> tuple[Tensor, list[str | None]]:
                canvas = self._readable.sizes.canvas
                images = _make_staging((len(indices), 3, *canvas), self._device)
                fill = self._readable.fill
                return images, list(pool.map(fill, images.numpy(), indices.tolist()))

            for images, problems in _prefetch(decode, plan):
                yield Stored(images.to(self._device, non_blocking=True), problems)


def copy_together(arrays: Sequence[NDArray[Any]], device: torch.device) -> list[Tensor]:
    """Copy arrays to the device in one transfer, so that no step waits for its own array."""
    if not arrays:
        return []
    whole = torch.from_numpy(np.concatenate(arrays)).to(device)
    ends = np.cumsum([len(array) for array in arrays]).tolist()
    return [whole[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _decode_all(
    readable: ReadableImages, kept: Tensor | None, workers: int, progress: Progress
) -> dict[int, str]:
    """Decode all images into `kept` [n, 3, H, W], if given; return messages by index."""
    chunk = np.empty((min(CHUNK_IMAGES, len(readable)), 3, *readable.sizes.canvas), np.uint8)
    problems: dict[int, str] = {}
    with (
        warnings.catch_warnings(),  # Pillow warns about metadata that is not used
        ThreadPoolExecutor(workers, "boxmend-decode") as pool,
    ):
        warnings.simplefilter("ignore")
        for first in range(0, len(readable), CHUNK_IMAGES):
            indices = range(first, min(first + CHUNK_IMAGES, len(readable)))
            messages = list(pool.map(readable.fill, chunk, indices))
            pairs = zip(indices, messages, strict=True)
            problems |= {k: message for k, message in pairs if message is not None}
            if kept is not None:
                kept[indices.start : indices.stop] = torch.from_numpy(chunk[: len(indices)])
            progress(indices.stop, len(readable))
    return problems


def _prefetch(make: Callable[[Item], Value], items: Sequence[Item]) -> Iterator[Value]:
    """Yield make(item) for each item; a thread computes the next while one is used."""
    if not items:
        return
    with ThreadPoolExecutor(1, "boxmend-prefetch") as thread:
        pending = thread.submit(make, items[0])
        for item in items[1:]:
            value, pending = pending.result(), thread.submit(make, item)
            yield value
        yield pending.result()


def _make_staging(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Return an uninitialised batch on the host, from which copies to the device do not block."""
    return torch.empty(shape, dtype=torch.uint8, pin_memory=device.type == "cuda")


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
