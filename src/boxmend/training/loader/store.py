"""Where decoded images are kept: on the device, on the host, or nowhere but in their files."""

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
from boxmend.training.loader.pictures import ReadableImages

CHUNK = 64  # images decoded between two copies to where they stay
MAX_WORKERS = 32  # threads; more of them wait for Python's lock
GIB = 2**30

Report = Callable[[str], None]
Item = TypeVar("Item")
Made = TypeVar("Made")


class Stored(NamedTuple):
    """The images of one batch on the device, unflipped."""

    images: Tensor  # [B, 3, H, W] uint8
    problems: Sequence[str | None] = ()  # [B] what made an image black; empty where nothing can


class Store(Protocol):
    """What gives images by their indices, batch after batch."""

    def batches(self, plan: Sequence[NDArray[np.int64]]) -> Iterator[Stored]:
        """Yield the images at each array of indices [B]."""


class Memory:
    """How much may be kept where."""

    def __init__(self, device: torch.device, device_share: float, host_bytes: int):
        self.device = device
        self.host_bytes = host_bytes
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
        self.device_bytes = int(device_share * free)


def open_store(
    pictures: ReadableImages, memory: Memory, *, workers: int, report: Report, progress: Progress
) -> tuple[Store, dict[int, str]]:
    """Decode every image once, keep them where they fit, and tell by index what cannot be read."""
    height, width = pictures.sizes.canvas
    shape = (len(pictures), 3, height, width)
    size = int(np.prod(shape, dtype=np.int64))
    kept: Tensor | None = None
    if size <= memory.device_bytes:
        kept = torch.zeros(shape, dtype=torch.uint8, device=memory.device)
    elif size <= memory.host_bytes:
        kept = torch.zeros(shape, dtype=torch.uint8)
    problems = _decode_all(pictures, kept, workers, progress)
    if kept is None:
        report(f"{_gib(size)} of images are too many to keep; they are decoded in every epoch")
        return FromFiles(pictures, memory.device, workers), problems
    if kept.device.type != memory.device.type:
        report(f"{_gib(size)} of images do not fit on the device; they are kept on the host")
        return FromHost(kept, memory.device), problems
    return FromDevice(kept), problems


def default_workers() -> int:
    """Threads to decode with: one a core."""
    return min(os.cpu_count() or 1, MAX_WORKERS)


class FromDevice:
    """Images that all lie where they are used."""

    def __init__(self, images: Tensor):
        self._images = images  # [n, 3, H, W]

    def batches(self, plan: Sequence[NDArray[np.int64]]) -> Iterator[Stored]:
        """Yield the images at each array of indices [B]."""
        for indices in copied_at_once(plan, self._images.device):
            yield Stored(self._images.index_select(0, indices))


class FromHost:
    """Images that lie on the host; the next batch is gathered while one is used."""

    def __init__(self, images: Tensor, device: torch.device):
        self._images = images  # [n, 3, H, W]
        self._device = device

    def batches(self, plan: Sequence[NDArray[np.int64]]) -> Iterator[Stored]:
        """Yield the images at each array of indices [B]."""
        for images in _one_ahead(self._gathered, plan):
            yield Stored(images.to(self._device, non_blocking=True))

    def _gathered(self, indices: NDArray[np.int64]) -> Tensor:
        out = _staging((len(indices), *self._images.shape[1:]), self._device)
        return torch.index_select(self._images, 0, torch.from_numpy(indices), out=out)


class FromFiles:
    """Images that are decoded anew, the next batch while one is used; one that fails is black."""

    def __init__(self, pictures: ReadableImages, device: torch.device, workers: int):
        self._pictures = pictures
        self._device = device
        self._workers = workers

    def batches(self, plan: Sequence[NDArray[np.int64]]) -> Iterator[Stored]:
        """Yield the images at each array of indices [B]."""
        with ThreadPoolExecutor(self._workers, "boxmend-decode") as pool:

            def decoded(indices: NDArray[np.int64]) -> tuple[Tensor, list[str | None]]:
                canvas = self._pictures.sizes.canvas
                images = _staging((len(indices), 3, *canvas), self._device)
                fill = self._pictures.fill
                return images, list(pool.map(fill, images.numpy(), indices.tolist()))

            for images, problems in _one_ahead(decoded, plan):
                yield Stored(images.to(self._device, non_blocking=True), problems)


def copied_at_once(arrays: Sequence[NDArray[Any]], device: torch.device) -> list[Tensor]:
    """Copy arrays to the device in one piece; a step that takes its own then waits for nothing."""
    if not arrays:
        return []
    whole = torch.from_numpy(np.concatenate(arrays)).to(device)
    ends = np.cumsum([len(array) for array in arrays]).tolist()
    return [whole[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _decode_all(
    pictures: ReadableImages, kept: Tensor | None, workers: int, progress: Progress
) -> dict[int, str]:
    """Decode all images into `kept` [n, 3, H, W], or only to see which can be; tell problems."""
    chunk = np.empty((min(CHUNK, len(pictures)), 3, *pictures.sizes.canvas), np.uint8)
    problems: dict[int, str] = {}
    with (
        warnings.catch_warnings(),  # Pillow's are about metadata that nothing here reads
        ThreadPoolExecutor(workers, "boxmend-decode") as pool,
    ):
        warnings.simplefilter("ignore")
        for first in range(0, len(pictures), CHUNK):
            indices = range(first, min(first + CHUNK, len(pictures)))
            told = list(pool.map(pictures.fill, chunk, indices))
            problems |= {k: one for k, one in zip(indices, told, strict=True) if one is not None}
            if kept is not None:
                kept[indices.start : indices.stop] = torch.from_numpy(chunk[: len(indices)])
            progress(indices.stop, len(pictures))
    return problems


def _one_ahead(make: Callable[[Item], Made], items: Sequence[Item]) -> Iterator[Made]:
    """Make each item in a thread while the one before it is in use."""
    if not items:
        return
    with ThreadPoolExecutor(1, "boxmend-prefetch") as thread:
        pending = thread.submit(make, items[0])
        for item in items[1:]:
            made, pending = pending.result(), thread.submit(make, item)
            yield made
        yield pending.result()


def _staging(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """An uninitialised batch on the host, from which copying need not be waited for."""
    return torch.empty(shape, dtype=torch.uint8, pin_memory=device.type == "cuda")


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
