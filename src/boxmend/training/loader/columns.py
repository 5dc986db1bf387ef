"""Annotations as columns on the device, gathered into padded batches without synchronisation."""

from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.training.loader.readable import Sizes

Difficult = Literal["ignore", "background"]
NO_ROW = -1  # in `rows`, for padding
MIN_SIDE_PIXELS = 1.0  # in the network frame; smaller boxes are not learnt from


class PaddedAnnotations(NamedTuple):
    """The annotations of a batch by image, in the order of the dataset; boxes in image pixels."""

    boxes: Tensor  # [B, A, 4] float32
    labels: Tensor  # [B, A] int64
    is_box: Tensor  # [B, A]
    is_ignored: Tensor  # [B, A]
    rows: Tensor  # [B, A] int64


class Columns:
    """All annotations of a dataset, sorted by image, with a last row for padding.

    Stored without padding, so that one image with a hundred objects does not cost a hundred rows
    for every other image.
    """

    def __init__(
        self,
        dataset: Dataset,
        image_rows: NDArray[np.int64],
        sizes: Sizes,
        *,
        difficult: Difficult,
        device: torch.device,
    ):
        """Take the rows of the readable images [n] and their sizes."""
        position = np.full(len(dataset.images) + 1, UNKNOWN)  # UNKNOWN (-1) takes the last
        position[image_rows] = np.arange(len(image_rows))
        images = position[dataset.image_rows]  # [m]
        rows = np.argsort(images, kind="stable")[np.count_nonzero(images == UNKNOWN) :]
        images = images[rows]
        counts = np.bincount(images, minlength=len(image_rows))  # [n]
        boxes, is_sound = _clip_boxes(dataset.boxes[rows], sizes.take(images))
        is_box, is_ignored = _roles(dataset, rows, is_sound, difficult)
        self._padding = len(rows)
        self._counts = _on(device, counts)
        self._starts = _on(device, np.cumsum(counts) - counts)
        max_per_image = max(1, int(counts.max(initial=0)))
        self._slots = torch.arange(max_per_image, device=device)  # [A]
        labels = dataset.labels[rows].clip(min=0)
        self._columns = PaddedAnnotations(
            _on(device, np.concatenate([boxes, np.zeros((1, 4), np.float32)])),
            _on(device, np.append(labels, 0)),
            _on(device, np.append(is_box, False)),
            _on(device, np.append(is_ignored, False)),
            _on(device, np.append(rows, NO_ROW)),
        )

    def take(self, images: Tensor) -> PaddedAnnotations:
        """Gather the annotations of images [B], given as positions in `image_rows`."""
        is_real = self._slots < self._counts[images][:, None]  # [B, A]
        places = torch.where(is_real, self._starts[images][:, None] + self._slots, self._padding)
        return PaddedAnnotations(*(column[places] for column in self._columns))


def _clip_boxes(
    boxes: NDArray[np.float64], sizes: Sizes
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return boxes [m, 4] clipped to their images, and whether they are large enough when scaled.

    The boxes are finite and ordered.
    """
    is_finite: NDArray[np.bool_] = np.all(np.isfinite(boxes), axis=-1)
    boxes = np.where(is_finite[:, None], boxes, 0.0)
    boxes = boxes.clip(0, np.tile(sizes.stored, 2))
    low, high = boxes[:, :2], boxes[:, 2:]
    is_large: NDArray[np.bool_] = np.all((high - low) * sizes.scales >= MIN_SIDE_PIXELS, axis=-1)
    ordered = np.concatenate([low, np.maximum(low, high)], -1)
    return ordered.astype(np.float32), is_large  # boxes that were not finite are empty


def _roles(
    dataset: Dataset, rows: NDArray[np.int64], is_sound: NDArray[np.bool_], difficult: Difficult
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which annotations are learnt from, and which are ignored; both [m]."""
    is_crowd, is_difficult = dataset.is_crowd[rows], dataset.is_difficult[rows]
    is_usable = is_sound & (dataset.labels[rows] != UNKNOWN)
    is_box = is_usable & ~is_crowd & ~is_difficult
    is_background = is_difficult & ~is_crowd & (difficult == "background")
    return is_box, ~is_box & ~is_background


def _on(device: torch.device, column: NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(column).to(device)
