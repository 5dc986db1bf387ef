"""The annotations in Ultralytics' training dataset: match them with a Dataset, exchange them.

Ultralytics keeps one dict per image with `cls` [n, 1] and `bboxes` [n, 4], which are centers and
sizes as shares of the image. Arrays are replaced and never changed in place, and nothing is
written, so Ultralytics' cache of labels keeps the original ones.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats, Rows
from boxmend.errors import DataError
from boxmend.integrations.ultralytics.soft_labels import encode
from boxmend.repair.mender import MendedAnnotations

TOLERANCE_PX = 1.0  # boxes of the same annotation differ by less
TOLERANCE_SHARE = 0.004  # of the image's side


def find_images(files: Sequence[str], dataset: Dataset) -> Rows:
    """Return the row in `dataset.images` of each image file of a loader.

    Files are matched by their path, else by file name without extension.
    """
    images = dataset.images
    by_path = {os.path.realpath(path): row for row, path in enumerate(images.paths) if path}
    rows = np.array([by_path.get(os.path.realpath(file), UNKNOWN) for file in files], np.int64)
    if (rows == UNKNOWN).any():
        by_stem = _index_by_stem(images.file_names)
        rows = np.array([by_stem.get(Path(file).stem, UNKNOWN) for file in files], np.int64)
    for file, row in zip(files, rows.tolist(), strict=True):
        if row == UNKNOWN:
            raise DataError(
                f"the training has the image {file}, which the dataset of the Mender does not "
                "have; pass the dataset that you train on as `dataset`"
            )
    return rows


def _index_by_stem(names: Sequence[str]) -> dict[str, int]:
    """Return image rows by file name without extension; UNKNOWN where several share it."""
    rows: dict[str, int] = {}
    for row, name in enumerate(names):
        stem = Path(name).stem
        rows[stem] = UNKNOWN if stem in rows else row
    return rows


def ensure_same_annotations(labels: Sequence[dict[str, Any]], rows: Rows, dataset: Dataset) -> None:
    """Raise a DataError if a loader's annotations are not those of the dataset.

    `labels` are the dicts of the loader and `rows` the image rows of `find_images`. The order of
    annotations does not matter, and neither do repeated ones, which Ultralytics removes.
    """
    sizes = image_sizes(labels, rows, dataset)
    order = np.argsort(dataset.image_rows, kind="stable")
    starts = np.searchsorted(dataset.image_rows[order], np.arange(len(dataset.images) + 1))
    differing = []
    for number, (label, row) in enumerate(zip(labels, rows.tolist(), strict=True)):
        known = order[starts[row] : starts[row + 1]]
        if not _are_same(label, sizes[number], dataset, known):
            differing.append(label["im_file"])
    if differing:
        raise DataError(
            f"the training has other annotations than the dataset of the Mender in "
            f"{len(differing):,} of {len(labels):,} images; the first is {differing[0]}. Delete "
            "Ultralytics' cache (the file `labels.cache` or `train.cache` beside the label files) "
            "if it is older than the label files, or pass the dataset that you train on as "
            "`dataset`"
        )


def _are_same(label: dict[str, Any], size: Floats, dataset: Dataset, known: Rows) -> bool:
    """Return whether an image's annotations in a loader are the ones at `known` of a dataset."""
    boxes = to_pixels(label["bboxes"], size)
    classes = label["cls"].reshape(-1)
    tolerance = np.maximum(TOLERANCE_PX, TOLERANCE_SHARE * np.tile(size, 2))
    is_close = (np.abs(boxes[:, None] - dataset.boxes[known]) <= tolerance).all(axis=-1)
    is_pair = is_close & (classes[:, None] == dataset.labels[known])
    is_required = ~dataset.is_ignored[known]
    return bool(is_pair.any(axis=1).all() and is_pair.any(axis=0)[is_required].all())


def image_sizes(labels: Sequence[dict[str, Any]], rows: Rows, dataset: Dataset) -> Floats:
    """Return width and height [n, 2] of the loader's images, in the dataset's pixels."""
    sizes = dataset.images.sizes[rows]
    for number in np.flatnonzero((sizes <= 0).any(axis=1)).tolist():
        shape = labels[number].get("shape")  # height, width; missing in rectangular batches
        if shape is None:
            raise DataError(
                f"the size of the image {labels[number]['im_file']} is unknown; give the dataset "
                "the sizes of its images"
            )
        sizes[number] = shape[1], shape[0]
    return sizes


def to_pixels(boxes: Any, size: Floats) -> Floats:
    """Return corners in pixels [n, 4] of centers and sizes as shares of an image."""
    centers, sides = boxes[:, :2].astype(np.float64), boxes[:, 2:].astype(np.float64)
    corners: Floats = np.concatenate([centers - sides / 2, centers + sides / 2], axis=1)
    return corners * np.tile(size, 2)


def to_shares(boxes: Floats, sizes: Floats) -> Floats:
    """Return centers and sizes [n, 4] as shares of images of corners in pixels, clipped to them."""
    corners = boxes / np.tile(sizes, (1, 2))
    corners = corners.clip(0, 1)
    shares: Floats = np.concatenate(
        [(corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]], axis=1
    )
    return shares


class TrainingLabels:
    """The annotations that an Ultralytics trainer trains on, as part of a Dataset."""

    def __init__(self, dataset: Dataset, loader_dataset: Any):
        """Match a loader's dataset; raise a DataError if its images or annotations differ."""
        self.dataset = dataset
        self.take(loader_dataset)

    def take(self, loader_dataset: Any) -> None:
        """Use another dataset of the loader, with the original annotations."""
        labels = loader_dataset.labels
        rows = find_images([label["im_file"] for label in labels], self.dataset)
        ensure_same_annotations(labels, rows, self.dataset)
        self.loader_dataset, self._rows = loader_dataset, rows
        self._sizes = image_sizes(labels, rows, self.dataset)

    @property
    def num_left_out(self) -> int:
        """Return how many images of the dataset the training does not use."""
        return len(self.dataset.images) - len(np.unique(self._rows))

    def exchange(self, mended: MendedAnnotations, *, soft: bool = False) -> None:
        """Replace the annotations of the loader by mended ones; leave out those of weight zero.

        With `soft`, classes are the most probable ones and carry soft labels; see `soft_labels`.
        Outlines are removed, since Ultralytics computes boxes from them.
        """
        number_of = np.full(len(self.dataset.images) + 1, UNKNOWN)  # the last is for image row -1
        number_of[self._rows] = np.arange(len(self._rows))
        numbers = number_of[mended.image_rows]
        used = np.flatnonzero((numbers >= 0) & (mended.labels >= 0) & (mended.weights > 0))
        shares = to_shares(mended.boxes[used], self._sizes[numbers[used]])
        has_area = (shares[:, 2:] > 0).all(axis=1)
        used, shares = used[has_area], shares[has_area]
        order = np.argsort(numbers[used], kind="stable")
        starts = np.searchsorted(numbers[used][order], np.arange(1, len(self._rows)))
        boxes = np.split(shares[order].astype(np.float32), starts)
        encoded = mended.labels[used].astype(np.float32)
        if soft:
            soft_labels = mended.soft_labels[used]
            encoded = encode(soft_labels.argmax(axis=1), soft_labels)
        classes = np.split(encoded[order][:, None], starts)
        for label, box, cls in zip(self.loader_dataset.labels, boxes, classes, strict=True):
            label["bboxes"], label["cls"], label["segments"] = box, cls, []
