"""Images with their mended annotations, as inputs of a detector of Transformers."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset as TorchDataset

from boxmend.data.dataset import Dataset
from boxmend.data.images.decoding import convert_to_rgb, open_image, read_image
from boxmend.data.types import Floats, Mask, Rows
from boxmend.errors import DataError, UsageError
from boxmend.repair.mender import MendedAnnotations
from boxmend.repair.mender.annotations import RowsByImage

Transform = Callable[[Image.Image, Floats, Rows], tuple[Any, Floats, Rows]]


class TrainingImages(TorchDataset[dict[str, Any]]):
    """The images of a dataset with the annotations to train on now, prepared for a model.

    An item has what the image processor makes: `pixel_values`, `labels` with `class_labels` and
    `boxes`, and `pixel_mask` if it pads images.
    """

    def __init__(self, dataset: Dataset, processor: Any, transform: Transform | None = None):
        """Start with the annotations of the dataset; crowds and difficult objects are left out.

        `transform` augments: it is called with an image, its boxes [n, 4] as x1, y1, x2, y2 in
        pixels and its labels [n], and returns the same.
        """
        if not all(dataset.images.paths):
            raise DataError("the folder of the images is unknown; name it by load(images=...)")
        if not hasattr(processor, "post_process_object_detection"):
            raise UsageError(
                f"{type(processor).__name__} has no post_process_object_detection; pass the image "
                "processor of a detection model, such as RTDetrImageProcessor"
            )
        self.dataset, self.processor, self.transform = dataset, processor, transform
        self._set(dataset.image_rows, dataset.boxes, dataset.labels, ~dataset.is_ignored)

    def __len__(self) -> int:
        return len(self.dataset.images)

    def __getitem__(self, row: int) -> dict[str, Any]:
        rows = self._by_image.rows_of(row)
        image, boxes, labels = self.read(row), self._boxes[rows], self._labels[rows]
        if self.transform is not None:
            image, boxes, labels = self.transform(image, boxes, labels)
        prepared = self.processor(
            images=image, annotations=_to_coco(row, boxes, labels), return_tensors="pt"
        )
        item = {name: values[0] for name, values in prepared.items()}
        return {**item, "labels": dict(item["labels"])}

    def read(self, row: int) -> Image.Image:
        """Return an image as stored."""
        with open_image(read_image(self.dataset.images.paths[row])) as image:
            return convert_to_rgb(image).convert("RGB")

    def exchange(self, mended: MendedAnnotations) -> None:
        """Replace the annotations by mended ones; leave out those of weight zero."""
        self._set(mended.image_rows, mended.boxes, mended.labels, mended.weights > 0)

    def _set(self, image_rows: Rows, boxes: Floats, labels: Rows, is_used: Mask) -> None:
        used = is_used & (labels >= 0) & np.isfinite(boxes).all(axis=1)
        self._boxes, self._labels = boxes[used], labels[used]
        self._by_image = RowsByImage(image_rows[used])


def _to_coco(row: int, boxes: Floats, labels: Rows) -> dict[str, Any]:
    """Return the annotations of an image as image processors read them."""
    sizes = np.asarray(boxes)[:, 2:] - np.asarray(boxes)[:, :2]
    annotations = [
        {
            "image_id": row,
            "category_id": int(label),
            "bbox": [float(box[0]), float(box[1]), float(width), float(height)],
            "area": float(width * height),
            "iscrowd": 0,
        }
        for box, (width, height), label in zip(boxes, sizes, labels, strict=True)
    ]
    return {"image_id": row, "annotations": annotations}


def collate(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a batch of items of `TrainingImages`, for `Trainer(data_collator=collate)`."""
    shapes = sorted({tuple(item["pixel_values"].shape) for item in items})
    if len(shapes) > 1:
        raise UsageError(
            f"the image processor makes images of different shapes, such as {shapes[0]} and "
            f"{shapes[1]}; give it one size, or one to pad to (do_pad=True, pad_size=...)"
        )
    batch: dict[str, Any] = {
        name: torch.stack([item[name] for item in items])
        for name in ("pixel_values", "pixel_mask")
        if name in items[0]
    }
    batch["labels"] = [item["labels"] for item in items]
    return batch
