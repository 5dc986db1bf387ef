"""The plain recipe that torchvision documents: lists of images, a DataLoader, autocast, SGD.

The network is torchvision's module with its own forward pass and losses, and has the same weights,
numbers and frozen stages as the other rows. Reading the loss in every step, as reference scripts
do, is left out in its favour.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, Sampler
from torchvision import tv_tensors
from torchvision.transforms import v2

from boxmend.bench.speed.choices import LEARNING_RATE, Counts
from boxmend.bench.speed.timed_training import TrainingFactory
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.detector import Detector
from boxmend.runs.settings import parse_image_size
from boxmend.training.assembly import resolve_precision

Example = tuple[Tensor, dict[str, Tensor]]
Examples = tuple[Sequence[Tensor], Sequence[dict[str, Tensor]]]

PREFETCHED_BATCHES = 2  # batches of each worker, PyTorch's default
MANY_IMAGES = 10**9  # images


class AnnotatedImages(torch.utils.data.Dataset[Example]):
    """Decoded images, half of them mirrored, with targets in torchvision's format."""

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


class PlainTrainer:
    """torchvision's module, trained as its documentation shows: in lists, by autocast and SGD."""

    def __init__(self, network: nn.Module, device: torch.device, precision: torch.dtype):
        self.network = network
        self._device = device
        self._precision = precision
        self._trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self._optimizer = torch.optim.SGD(
            self._trained, LEARNING_RATE, momentum=0.9, weight_decay=1e-4
        )

    def set_rate(self, rate: float) -> None:
        """Choose the learning rate of the steps that follow."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate

    def train_on(self, examples: Examples, max_norm: float | None = None) -> Tensor:
        """Take one step; gradients are scaled to at most `max_norm`. Returns the loss."""
        device = self._device
        images, targets = examples
        images = [image.to(device, non_blocking=True) for image in images]
        targets = [
            {name: value.to(device, non_blocking=True) for name, value in target.items()}
            for target in targets
        ]
        enabled = self._precision != torch.float32
        with torch.autocast(device.type, self._precision, enabled=enabled):
            losses: dict[str, Tensor] = self.network(images, targets)
            total = sum(losses.values(), torch.zeros((), device=device))
        self._optimizer.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        if max_norm is not None:
            nn.utils.clip_grad_norm_(self._trained, max_norm)
        self._optimizer.step()
        return total.detach()


class PlainSteps:
    """Steps of the plain recipe, to be timed."""

    def __init__(self, trainer: PlainTrainer, batches: Iterator[Examples], batch_size: int):
        self.trainer = trainer
        self.batch_size = batch_size
        self.num_ahead = 0  # batches that workers have ready while others take their turn
        self._batches = batches

    def settle(self) -> None:
        """Discard the batches that workers decoded during the turns of other rows."""
        for _ in range(self.num_ahead):
            next(self._batches)

    def run(self, steps: int) -> None:
        """Train so many steps."""
        for _ in range(steps):
            self.trainer.train_on(next(self._batches))


def plain_steps(
    factory: TrainingFactory, size: str, counts: Counts, *, on_device: bool
) -> PlainSteps:
    """Make the plain recipe; `on_device` leaves decoding and copying out of the steps."""
    settings = factory.choices.settings("plain", size, counts)
    network = prepare_network(factory.detector(settings), settings.image_size).to(factory.device)
    images = AnnotatedImages(factory.dataset)
    batch_size = min(settings.batch_size, len(images))
    workers = 0 if on_device else factory.choices.num_workers
    if on_device:
        batches = _repeat_on_device(images, batch_size, factory.device)
    else:
        sampler = RandomSampler(images, replacement=True, num_samples=MANY_IMAGES)
        batches = iter(make_data_loader(images, sampler, batch_size, factory.device, workers))
    precision = resolve_precision(settings.precision, factory.device)
    steps = PlainSteps(PlainTrainer(network, factory.device, precision), batches, batch_size)
    steps.num_ahead = PREFETCHED_BATCHES * workers
    return steps


def prepare_network(detector: Detector, image_size: str) -> nn.Module:
    """Return the torchvision module of a detector, which scales images itself, in training mode."""
    network: Any = detector.network
    short, long = parse_image_size(image_size)
    network.transform.min_size = (short or long,)
    network.transform.max_size = long
    trained: nn.Module = network.train()
    return trained


def make_data_loader(
    images: AnnotatedImages,
    sampler: Sampler[int],
    batch_size: int,
    device: torch.device,
    workers: int,
) -> DataLoader[Examples]:
    """Return batches that worker processes decode on demand, without a smaller last one."""
    return DataLoader(
        images,  # type: ignore[arg-type]  # whose examples are collated
        batch_size,
        sampler=sampler,
        num_workers=workers,
        collate_fn=_collate_examples,
        pin_memory=device.type == "cuda",
        drop_last=True,
        prefetch_factor=PREFETCHED_BATCHES if workers else None,
        persistent_workers=workers > 0,
    )


def _repeat_on_device(
    images: AnnotatedImages, batch_size: int, device: torch.device
) -> Iterator[Examples]:
    """Copy all batches to the device and repeat them without end."""
    examples = [images[index] for index in range(len(images) - len(images) % batch_size)]
    examples_on_device = [
        (image.to(device), {name: value.to(device) for name, value in target.items()})
        for image, target in examples
    ]
    starts = range(0, len(examples_on_device), batch_size)
    return cycle(
        [_collate_examples(examples_on_device[start : start + batch_size]) for start in starts]
    )


def _collate_examples(examples: Sequence[Example]) -> Examples:
    images, targets = zip(*examples, strict=True)
    return images, targets
