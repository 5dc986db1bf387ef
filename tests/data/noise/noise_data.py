"""Small datasets for the tests of noise, built by hand without any document behind them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import Dataset, Images, as_ids


def build(
    boxes: Sequence[Sequence[float]] | NDArray[np.float64],
    labels: Sequence[int] | NDArray[np.int64],
    label_names: Sequence[str] = ("car", "van", "truck"),
    *,
    size: tuple[int, int] = (1000, 800),
    num_images: int = 2,
    ids: Sequence[int | str] | None = None,
) -> Dataset:
    """A dataset whose annotations take turns on the images, all of one size."""
    n = len(labels)
    images = Images(
        ids=np.arange(1, num_images + 1),
        file_names=[f"{k}.jpg" for k in range(num_images)],
        paths=[""] * num_images,
        splits=["all"] * num_images,
        widths=np.full(num_images, size[0], np.int64),
        heights=np.full(num_images, size[1], np.int64),
        sources=np.zeros(num_images, np.int64),
        rows=np.arange(num_images),
    )
    return Dataset(
        images=images,
        label_names=tuple(label_names),
        annotation_ids=as_ids(list(ids)) if ids is not None else np.arange(100, 100 + n),
        image_rows=np.arange(n) % num_images,
        labels=np.array(labels, np.int64),
        boxes=np.array(boxes, np.float64).reshape(n, 4),
        is_crowd=np.zeros(n, np.bool_),
        is_difficult=np.zeros(n, np.bool_),
        source_of=np.zeros(n, np.int64),
        source_rows=np.arange(n),
    )


def many(n: int, num_labels: int = 3, *, num_images: int = 2) -> Dataset:
    """A dataset of n boxes of 40 x 20 to 139 x 119 pixels, well within their images."""
    k = np.arange(n)
    x, y = 300.0 + k * 7 % 200, 250.0 + k * 3 % 200
    boxes = np.stack([x, y, x + 40 + k % 100, y + 20 + k % 100], axis=1)
    names = tuple(f"label{label}" for label in range(num_labels))
    return build(boxes, k % num_labels, names, num_images=num_images)


def iou(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """IoU of boxes row by row, written apart from the code under test."""
    inner = np.maximum(0, np.minimum(a[:, 2:], b[:, 2:]) - np.maximum(a[:, :2], b[:, :2])).prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - inner
    result: NDArray[np.float64] = inner / union
    return result
