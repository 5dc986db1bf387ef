"""Statistics of a dataset."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxmend.data.checks.annotations import count_annotations_per_image
from boxmend.data.dataset import UNKNOWN, Dataset

MAX_SMALL_AREA = 32**2  # square pixels; COCO calls smaller objects small
MAX_MEDIUM_AREA = 96**2  # square pixels; COCO calls objects up to it medium
MAX_SIDE_PIXELS = 2**31  # no image is larger; larger boxes would distort the medians


def compute_statistics(dataset: Dataset) -> dict[str, Any]:
    """Return counts of images, annotations, labels, splits and box sizes, ready for JSON."""
    per_image = count_annotations_per_image(dataset)
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
        "labels": _count_labels(dataset),
        "boxes": _summarize_boxes(dataset.boxes),
        "splits": _count_splits(dataset, per_image),
    }


def _count_labels(dataset: Dataset) -> dict[str, dict[str, int]]:
    """Count annotations and images per label name; labels of the same name count as one."""
    names = list(dict.fromkeys(dataset.label_names))
    position = {name: k for k, name in enumerate(names)}
    new_label = np.array([position[name] for name in dataset.label_names] + [UNKNOWN], np.int64)
    labels = new_label[dataset.labels]  # UNKNOWN picks the last
    annotations = np.bincount(labels[labels != UNKNOWN], minlength=len(names))
    is_known = (labels != UNKNOWN) & (dataset.image_rows != UNKNOWN)
    stride = max(len(names), 1)
    pairs = np.sort(dataset.image_rows[is_known] * stride + labels[is_known])
    pairs = pairs[np.diff(pairs, prepend=-1) != 0]  # takes half the time of np.unique
    images = np.bincount(pairs % stride, minlength=len(names))
    return {
        name: {"annotations": int(annotations[k]), "images": int(images[k])}
        for k, name in enumerate(names)
    }


def _summarize_boxes(boxes: NDArray[np.float64]) -> dict[str, float | None]:
    """Return median sides and shares of COCO's area classes, over the boxes with an area."""
    with np.errstate(over="ignore", invalid="ignore"):  # coordinates may be extreme or infinite
        widths, heights = (boxes[:, 2:] - boxes[:, :2]).T
    is_usable = (widths > 0) & (heights > 0)
    is_usable &= (widths < MAX_SIDE_PIXELS) & (heights < MAX_SIDE_PIXELS)
    widths, heights = widths[is_usable], heights[is_usable]
    areas = widths * heights
    n = len(areas)
    if n == 0:
        return dict.fromkeys(("median_width", "median_height", "small", "medium", "large"))
    small = int((areas < MAX_SMALL_AREA).sum())
    up_to_medium = int((areas < MAX_MEDIUM_AREA).sum())
    return {
        "median_width": float(np.median(widths)),
        "median_height": float(np.median(heights)),
        "small": small / n,
        "medium": (up_to_medium - small) / n,
        "large": (n - up_to_medium) / n,
    }


def _count_splits(dataset: Dataset, per_image: NDArray[np.int64]) -> dict[str, dict[str, int]]:
    splits: dict[str, dict[str, int]] = {}
    for split, count in zip(dataset.images.splits, per_image.tolist(), strict=True):
        counts = splits.setdefault(split, {"images": 0, "annotations": 0})
        counts["images"] += 1
        counts["annotations"] += count
    return splits
