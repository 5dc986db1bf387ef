"""What a dataset holds, in numbers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxmend.data.checks.annotations import annotations_per_image
from boxmend.data.dataset import UNKNOWN, Dataset

SMALL_AREA = 32**2  # px; below it COCO calls an object small,
MEDIUM_AREA = 96**2  # and below this one medium
MAX_SIDE = 2**31  # px; no image is larger, so what is would only spoil the medians


def statistics(dataset: Dataset) -> dict[str, Any]:
    """Count images, annotations, labels, splits and box sizes; the result is ready for JSON."""
    per_image = annotations_per_image(dataset)
    return {
        "formats": sorted({source.format for source in dataset.sources}),
        "images": len(dataset.images),
        "annotations": len(dataset),
        "crowd": int(dataset.is_crowd.sum()),
        "difficult": int(dataset.is_difficult.sum()),
        "images_without_annotations": int((per_image == 0).sum()),
        "annotations_per_image": {
            "mean": float(per_image.mean()) if len(per_image) else 0.0,
            "max": int(per_image.max(initial=0)),
        },
        "labels": _labels(dataset),
        "boxes": _box_sizes(dataset.boxes),
        "splits": _splits(dataset, per_image),
    }


def _labels(dataset: Dataset) -> dict[str, dict[str, int]]:
    """Annotations and images per label name; labels of the same name count as one."""
    names = list(dict.fromkeys(dataset.label_names))
    position = {name: k for k, name in enumerate(names)}
    new_label = np.array([position[name] for name in dataset.label_names] + [UNKNOWN], np.int64)
    labels = new_label[dataset.labels]  # UNKNOWN picks the last
    annotations = np.bincount(labels[labels != UNKNOWN], minlength=len(names))
    is_placed = (labels != UNKNOWN) & (dataset.image_rows != UNKNOWN)
    stride = max(len(names), 1)
    pairs = np.sort(dataset.image_rows[is_placed] * stride + labels[is_placed])
    pairs = pairs[np.diff(pairs, prepend=-1) != 0]  # np.unique hashes, which takes twice as long
    images = np.bincount(pairs % stride, minlength=len(names))
    return {
        name: {"annotations": int(annotations[k]), "images": int(images[k])}
        for k, name in enumerate(names)
    }


def _box_sizes(boxes: NDArray[np.float64]) -> dict[str, float | None]:
    """Medians of the sides and shares by area, over the boxes that have an area."""
    with np.errstate(over="ignore", invalid="ignore"):  # a box may be as wide as floats reach
        widths, heights = (boxes[:, 2:] - boxes[:, :2]).T
    is_usable = (widths > 0) & (heights > 0) & (widths < MAX_SIDE) & (heights < MAX_SIDE)
    widths, heights = widths[is_usable], heights[is_usable]
    areas = widths * heights
    n = len(areas)
    if n == 0:
        return dict.fromkeys(("median_width", "median_height", "small", "medium", "large"))
    small, up_to_medium = int((areas < SMALL_AREA).sum()), int((areas < MEDIUM_AREA).sum())
    return {
        "median_width": float(np.median(widths)),
        "median_height": float(np.median(heights)),
        "small": small / n,
        "medium": (up_to_medium - small) / n,
        "large": (n - up_to_medium) / n,
    }


def _splits(dataset: Dataset, per_image: NDArray[np.int64]) -> dict[str, dict[str, int]]:
    splits: dict[str, dict[str, int]] = {}
    for split, count in zip(dataset.images.splits, per_image.tolist(), strict=True):
        counts = splits.setdefault(split, {"images": 0, "annotations": 0})
        counts["images"] += 1
        counts["annotations"] += count
    return splits
