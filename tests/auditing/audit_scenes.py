"""Drawn scenes without images: true objects, what annotators made of them, what a detector saw."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from boxmend.auditing.evidence import Detected
from boxmend.data.dataset import Dataset, Images, Source

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]
SIZE = 400
LABELS = ("car", "truck", "dog", "cat", "bus")


@dataclass(frozen=True, eq=False)
class Scene:
    """A dataset, detections in it, and the truth of each annotation."""

    dataset: Dataset
    detected: Detected
    true_labels: Rows  # [n] -1 where there is nothing
    true_boxes: Floats  # [n, 4]
    missing: Rows  # [m, 1] image rows of objects without annotation
    missing_boxes: Floats  # [m, 4]


@dataclass(frozen=True)
class Noise:
    """How annotators err."""

    labels: float = 0.0
    boxes: float = 0.0
    missing: float = 0.0
    spurious: float = 0.0
    duplicates: float = 0.0


def scene(noise: Noise, *, images: int = 400, seed: int = 0, error: float = 0.03) -> Scene:
    """Draw four objects an image, one in each quarter; the detector sees nearly all of them."""
    random = np.random.default_rng(seed)
    n = 4 * images
    image_rows = np.repeat(np.arange(images), 4)
    sides = random.uniform(60, 120, (n, 2))
    corner = np.stack([np.tile([0, 200, 0, 200], images), np.tile([0, 0, 200, 200], images)], 1)
    low = corner + 20 + random.random((n, 2)) * (160 - sides)
    boxes = np.concatenate([low, low + sides], axis=1)
    labels = random.integers(len(LABELS), size=n)
    detected = _draw_detections(image_rows, labels, boxes, error, random)
    return _draw_annotations(image_rows, labels, boxes, detected, noise, random)


def _draw_detections(
    image_rows: Rows, labels: Rows, boxes: Floats, error: float, random: np.random.Generator
) -> Detected:
    """Detect nearly every object, mostly with its label, and some false positives."""
    n = len(labels)
    is_seen = random.random(n) < 0.995
    is_clear = random.random(n) < 0.97
    is_named = random.random(n) < 0.96
    others = (labels + random.integers(1, len(LABELS), size=n)) % len(LABELS)
    scores = np.where(is_named, random.beta(8, 1.5, n), random.beta(2, 2, n))
    scores = np.where(is_clear, scores, random.beta(1, 8, n))
    sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    seen = boxes + random.normal(0, error, (n, 4)) * sides
    number = n // 3
    low = random.random((number, 2)) * (SIZE - 80)
    ghosts = np.concatenate([low, low + random.uniform(40, 80, (number, 2))], axis=1)
    return Detected(
        np.concatenate([image_rows[is_seen], random.integers(image_rows.max() + 1, size=number)]),
        np.concatenate(
            [np.where(is_named, labels, others)[is_seen], random.integers(len(LABELS), size=number)]
        ),
        np.concatenate([scores[is_seen], random.beta(1, 8, number)]),
        np.concatenate([seen[is_seen], ghosts]),
    )


def _draw_annotations(
    image_rows: Rows,
    labels: Rows,
    boxes: Floats,
    detected: Detected,
    noise: Noise,
    random: np.random.Generator,
) -> Scene:
    n = len(labels)
    is_wrong = random.random(n) < noise.labels
    others = (labels + random.integers(1, len(LABELS), size=n)) % len(LABELS)
    sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    noisy = boxes + random.uniform(-noise.boxes, noise.boxes, (n, 4)) * sides
    is_missing = random.random(n) < noise.missing
    left = np.flatnonzero(~is_missing)
    number = round(noise.spurious * n)
    low = random.random((number, 2)) * (SIZE - 120)
    spurious = np.concatenate([low, low + random.uniform(60, 120, (number, 2))], axis=1)
    doubled = random.permutation(left)[: round(noise.duplicates * n)]
    again = noisy[doubled] + random.uniform(-0.04, 0.04, (len(doubled), 4)) * sides[doubled]
    annotated_labels = np.where(is_wrong, others, labels)
    dataset = dataset_of(
        np.concatenate(
            [image_rows[left], random.integers(n // 4, size=number), image_rows[doubled]]
        ),
        np.concatenate(
            [
                annotated_labels[left],
                random.integers(len(LABELS), size=number),
                annotated_labels[doubled],
            ]
        ),
        np.concatenate([noisy[left], spurious, again]),
        n // 4,
    )
    return Scene(
        dataset,
        detected,
        np.concatenate([labels[left], np.full(number, -1), labels[doubled]]),
        np.concatenate([boxes[left], np.full((number, 4), np.nan), boxes[doubled]]),
        image_rows[is_missing],
        boxes[is_missing],
    )


def dataset_of(image_rows: Rows, labels: Rows, boxes: Floats, images: int) -> Dataset:
    """A dataset in memory, with integer ids from 1 on."""
    n = len(labels)
    source = Source("coco", Path("drawn.json"), LABELS, boxes.copy(), labels.copy())
    return Dataset(
        images=Images(
            ids=np.arange(1, images + 1),
            file_names=[f"{row:06}.png" for row in range(images)],
            paths=["" for _ in range(images)],
            splits=["all" for _ in range(images)],
            widths=np.full(images, SIZE),
            heights=np.full(images, SIZE),
            sources=np.zeros(images, np.int64),
            rows=np.arange(images),
        ),
        label_names=LABELS,
        annotation_ids=np.arange(1, n + 1),
        image_rows=image_rows,
        labels=labels,
        boxes=boxes,
        is_crowd=np.zeros(n, np.bool_),
        is_difficult=np.zeros(n, np.bool_),
        source_of=np.zeros(n, np.int64),
        source_rows=np.arange(n),
        sources=(source,),
    )


def calibration_error(chances: Floats, is_true: NDArray[np.bool_], bins: int = 15) -> float:
    """The mean distance of chances and shares over bins of equal width."""
    places = np.minimum((chances * bins).astype(int), bins - 1)
    total = 0.0
    for number in range(bins):
        inside = places == number
        if inside.any():
            total += inside.mean() * abs(chances[inside].mean() - is_true[inside].mean())
    return total
