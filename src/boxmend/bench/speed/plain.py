"""The plain recipe, as torchvision documents it: lists of images, a DataLoader, autocast, SGD.

The network is torchvision's own module with its own forward pass and losses, of the same weights,
numbers and frozen stages as the others. What reference scripts do besides (reading the loss in
every step) is left out, in its favour.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler
from torchvision import tv_tensors
from torchvision.transforms import v2

from boxmend.bench.speed.choices import Counts
from boxmend.bench.speed.workshop import Workshop
from boxmend.dataset import UNKNOWN, Dataset
from boxmend.settings import TrainSettings, parsed_image_size
from boxmend.training.assembly import working_precision

Example = tuple[Tensor, dict[str, Tensor]]
Examples = tuple[Sequence[Tensor], Sequence[dict[str, Tensor]]]

PREFETCHED = 2  # batches of each worker, PyTorch's default
ENDLESS = 10**9  # images


class AnnotatedImages(torch.utils.data.Dataset[Example]):
    """Images decoded and mirrored by the toss of a coin, with targets as torchvision wants them."""

    def __init__(self, dataset: Dataset):
        self.paths = dataset.images.paths
        is_used = ~dataset.is_ignored & (dataset.labels != UNKNOWN)
        rows = np.flatnonzero(is_used & (dataset.image_rows != UNKNOWN))
        rows = rows[np.argsort(dataset.image_rows[rows], kind="stable")]
        ends = np.searchsorted(dataset.image_rows[rows], np.arange(len(self.paths)), "right")
        parts = np.split(rows, ends[:-1])
        self.boxes = [dataset.boxes[part] for part in parts]
        self.labels = [dataset.labels[part] for part in parts]
        self.transforms: Any = v2.Compose(
            [
                v2.ToImage(),
                v2.RandomHorizontalFlip(0.5),
                v2.ToDtype(torch.float32, scale=True),
                v2.ToPureTensor(),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Example:
        with Image.open(self.paths[index]) as file:
            image = file.convert("RGB")
        width, height = image.size
        boxes = self.boxes[index].clip(0, [width, height, width, height])
        is_sound = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
        target = {
            "boxes": tv_tensors.BoundingBoxes(
                torch.from_numpy(boxes[is_sound]).float(),
                format=tv_tensors.BoundingBoxFormat.XYXY,
                canvas_size=(height, width),
            ),
            "labels": torch.from_numpy(self.labels[index][is_sound] + 1),  # 0 is background
        }
        example: Example = self.transforms(image, target)
        return example


class PlainSteps:
    """Steps of the plain recipe."""

    def __init__(
        self,
        network: nn.Module,
        batches: Iterator[Examples],
        device: torch.device,
        precision: torch.dtype,
        batch_size: int,
    ):
        self.batch_size = batch_size
        self.num_ahead = 0  # batches that workers have ready while others take their turn
        self._network = network
        self._batches = batches
        self._device = device
        self._precision = precision
        trained = [one for one in network.parameters() if one.requires_grad]
        self._optimizer = torch.optim.SGD(trained, lr=1e-5, momentum=0.9, weight_decay=1e-4)

    def settle(self) -> None:
        """Throw away what was decoded while others took their turn."""
        for _ in range(self.num_ahead):
            next(self._batches)

    def run(self, steps: int) -> None:
        """Train as the documentation shows."""
        device = self._device
        for _ in range(steps):
            images, targets = next(self._batches)
            images = [image.to(device, non_blocking=True) for image in images]
            targets = [
                {name: value.to(device, non_blocking=True) for name, value in target.items()}
                for target in targets
            ]
            enabled = self._precision != torch.float32
            with torch.autocast(device.type, self._precision, enabled=enabled):
                losses: dict[str, Tensor] = self._network(images, targets)
                total = sum(losses.values(), torch.zeros((), device=device))
            self._optimizer.zero_grad()
            total.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()


def plain_steps(shop: Workshop, size: str, counts: Counts, *, on_device: bool) -> PlainSteps:
    """Make the plain recipe; `on_device` leaves decoding and copying out of the steps."""
    settings = shop.choices.settings("plain", size, counts)
    network = _network(shop, settings)
    images = AnnotatedImages(shop.dataset)
    batch_size = min(settings.batch_size, len(images))
    workers = 0 if on_device else shop.choices.num_workers
    if on_device:
        batches = _kept(images, batch_size, shop.device)
    else:
        batches = _decoded(images, batch_size, shop.device, workers)
    precision = working_precision(settings.precision, shop.device)
    made = PlainSteps(network, batches, shop.device, precision, batch_size)
    made.num_ahead = PREFETCHED * workers
    return made


def _network(shop: Workshop, settings: TrainSettings) -> nn.Module:
    """torchvision's module, which scales images by itself."""
    network: Any = shop.detector(settings).network
    short, long = parsed_image_size(settings.image_size)
    network.transform.min_size = (short or long,)
    network.transform.max_size = long
    trained: nn.Module = network.to(shop.device).train()
    return trained


def _decoded(
    images: AnnotatedImages, batch_size: int, device: torch.device, workers: int
) -> Iterator[Examples]:
    """Batches of random images, decoded by worker processes as they are needed."""
    loader: DataLoader[Any] = DataLoader(
        images,
        batch_size,
        sampler=RandomSampler(images, replacement=True, num_samples=ENDLESS),
        num_workers=workers,
        collate_fn=_collated,
        pin_memory=device.type == "cuda",
        prefetch_factor=PREFETCHED if workers else None,
    )
    return iter(loader)


def _kept(images: AnnotatedImages, batch_size: int, device: torch.device) -> Iterator[Examples]:
    """The same batches again and again, on the device already."""
    found = [images[index] for index in range(len(images) - len(images) % batch_size)]
    there = [
        (image.to(device), {name: value.to(device) for name, value in target.items()})
        for image, target in found
    ]
    starts = range(0, len(there), batch_size)
    return cycle([_collated(there[start : start + batch_size]) for start in starts])


def _collated(examples: Sequence[Example]) -> Examples:
    images, targets = zip(*examples, strict=True)
    return images, targets
