"""Notice detections that do not fit their images: mirrored, scaled, or of other images.

Detections of augmented images fit the annotations in another reading than the documented one. A
detector that has just begun to learn fits in no reading, which is not an error.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from boxmend.auditing.evidence import Detected, Objects
from boxmend.auditing.pairs import find_largest, find_overlaps
from boxmend.auditing.predictions.box_formats import FORMATS
from boxmend.data.types import Floats, Mask, Rows
from boxmend.errors import DataError
from boxmend.repair.mender.scene import Scene

MIRRORED = ("mirrored horizontally", "mirrored vertically")  # often for some images only
REMEDY = (
    "predict on the training images as stored, without augmentation, and give boxes as x1, y1, x2, "
    "y2 in their pixels"
)


@dataclass(frozen=True)
class AgreementConstants:
    """How many detections are compared, and when another reading is the right one."""

    max_images: int = 2_000  # evenly spaced
    detections_per_image: int = 3  # with the highest scores
    min_images: int = 30  # fewer are too few to judge
    min_lead: float = 0.1  # of the mean IoU in another reading, in one image
    min_other_share: float = 0.15  # of the images that fit better mirrored; usual is up to 0.06
    min_other_ratio: float = 0.3  # of these images to those that fit worse mirrored
    same_scale: tuple[float, float] = (0.9, 1.1)  # of detected to annotated sides, if not scaled


AGREEMENT = AgreementConstants()


@dataclass(frozen=True, eq=False)
class _Sample:
    """The most confident detections of some images with annotations."""

    objects: Objects
    image_rows: Rows  # [m]
    boxes: Floats  # [m, 4]
    sizes: Floats  # [m, 2] of their images; 0 where unknown

    def measure(self, boxes: Floats, image_rows: Rows | None = None) -> Floats:
        """Return the IoU [m] of each detection with the annotation that it overlaps most."""
        rows = self.image_rows if image_rows is None else image_rows
        pairs = find_overlaps(self.objects.image_rows, self.objects.boxes, rows, boxes)
        best, _ = find_largest(pairs.second, pairs.iou, len(boxes))
        return best


def check_agreement(scene: Scene, detected: Detected) -> bool:
    """Return whether detections fit the annotations of their own images better than of others.

    Raise a DataError if they fit clearly better when they are mirrored, scaled, or read in another
    format.
    """
    sample = _select(scene, detected)
    images, place = np.unique(sample.image_rows, return_inverse=True)
    if len(images) < AGREEMENT.min_images:
        return True
    own = sample.measure(sample.boxes)
    others = np.roll(images, len(images) // 2)  # neighbours may be frames of one video
    chance = float(sample.measure(sample.boxes, others[place]).mean())
    needed = chance + FORMATS.min_beyond_chance * (1 - chance)
    readings = [(words, sample.measure(boxes)) for words, boxes in _list_readings(sample)]
    fitting = [
        (words, other)
        for words, other in readings
        if float(other.mean()) >= needed and _fits_better(words, own, other, place)
    ]
    if fitting:
        # Of readings that are nearly equal, the first and simplest.
        words, other = max(fitting, key=lambda reading: round(float(reading[1].mean()), 1))
        better = _share_of_better_images(own, other, place)
        raise DataError(
            f"the detections fit the annotations better {words}, in {better:.0%} of the images "
            f"(mean IoU {other.mean():.2f}, as they are {own.mean():.2f}); {REMEDY}"
        )
    return float(own.mean()) >= min(needed, FORMATS.good_mean_iou)


def _select(scene: Scene, detected: Detected) -> _Sample:
    """Choose the best detections of evenly spaced images; they are sorted by image and score."""
    has_objects = np.zeros(len(scene.images), np.bool_)
    has_objects[scene.objects.image_rows] = True
    images = np.unique(detected.image_rows)
    images = images[has_objects[images]]
    images = images[:: -(-len(images) // AGREEMENT.max_images) or 1]
    is_chosen = np.zeros(len(scene.images), np.bool_)
    is_chosen[images] = True
    rows = np.flatnonzero(is_chosen[detected.image_rows])
    of_image = detected.image_rows[rows]
    rank = np.arange(len(rows)) - np.searchsorted(of_image, of_image)
    rows = rows[rank < AGREEMENT.detections_per_image]
    image_rows = detected.image_rows[rows]
    return _Sample(scene.objects, image_rows, detected.boxes[rows], scene.sizes[image_rows])


def _list_readings(sample: _Sample) -> Iterator[tuple[str, Floats]]:
    """Yield other readings of the boxes, with words for them."""
    boxes, sizes = sample.boxes, sample.sizes
    known: Mask = np.logical_and.reduce(sizes > 0, axis=1)
    whole = np.tile(sizes, 2)
    if known.any():
        mirrored = whole - boxes[:, [2, 3, 0, 1]]
        yield MIRRORED[0], _columns(mirrored, boxes, (0, 2))
        yield MIRRORED[1], _columns(mirrored, boxes, (1, 3))
        yield "as shares of the image", boxes * whole
        yield "as centres and sides in shares of the image", _to_corners(boxes) * whole
    yield "as centres and sides", _to_corners(boxes)
    yield (
        "as corners and sides",
        np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1),
    )
    yield "as y1, x1, y2, x2", boxes[:, [1, 0, 3, 2]]
    yield from _list_scales(sample, known)


def _list_scales(sample: _Sample, known: Mask) -> Iterator[tuple[str, Floats]]:
    """Yield the boxes without a common scale, and without that of an input of fixed size."""
    low, high = AGREEMENT.same_scale
    scale = _estimate_scale(sample, np.ones(len(sample.boxes)))
    if scale > 0 and not low <= scale <= high:
        yield f"divided by {scale:.2f}", sample.boxes / scale
    if not known.all():
        return
    long_sides = sample.sizes.max(axis=1)
    side = _estimate_scale(sample, 1 / long_sides)
    factors = (long_sides / max(side, 1.0))[:, None]
    if low <= float(np.median(factors)) <= high:
        return
    padding = np.tile((long_sides[:, None] - sample.sizes) / 2, 2)
    words = f"as pixels of a model input of about {side:.0f} pixels"
    yield words, sample.boxes * factors
    yield f"{words} with padding", sample.boxes * factors - padding


def _estimate_scale(sample: _Sample, units: Floats) -> float:
    """Return the ratio of detected to annotated coordinates, times the inverse of `units` [m].

    The sides of boxes give a first estimate, the corners of those that overlap then refine it.
    """
    rows = sample.objects.image_rows
    number = int(max(rows.max(), sample.image_rows.max())) + 1
    sums = np.bincount(rows, np.log(_sides(sample.objects.boxes)).mean(axis=1), number)
    means = sums / np.maximum(np.bincount(rows, minlength=number), 1)
    sides = np.log(np.maximum(_sides(sample.boxes), 1e-6)).mean(axis=1)
    scale = float(np.median(np.exp(sides - means[sample.image_rows]) / units))
    boxes = sample.boxes / np.maximum(scale * units, 1e-9)[:, None]
    pairs = find_overlaps(rows, sample.objects.boxes, sample.image_rows, boxes)
    if not len(pairs):
        return scale
    detected = sample.boxes[pairs.second, 2:] / units[pairs.second, None]
    return float(np.median(detected / np.maximum(sample.objects.boxes[pairs.first, 2:], 1.0)))


def _fits_better(words: str, own: Floats, other: Floats, place: Rows) -> bool:
    """Return whether a reading fits clearly better, or a mirrored one in a part of the images."""
    if _is_clearly_better(own, other):
        return True
    worse = _share_of_better_images(other, own, place)
    needed = max(AGREEMENT.min_other_share, AGREEMENT.min_other_ratio * worse)
    return words in MIRRORED and _share_of_better_images(own, other, place) >= needed


def _share_of_better_images(own: Floats, other: Floats, place: Rows) -> float:
    """Return the share of images whose detections fit better in another reading."""
    counts = np.bincount(place)
    before, after = (np.bincount(place, values) / counts for values in (own, other))
    return float((after >= before + AGREEMENT.min_lead).mean())


def _is_clearly_better(own: Floats, other: Floats) -> bool:
    before, after = float(own.mean()), float(other.mean())
    needed = max(before + FORMATS.min_iou_lead, FORMATS.min_iou_ratio * before)
    return after >= max(needed, FORMATS.good_mean_iou)


def _columns(new: Floats, old: Floats, sides: tuple[int, int]) -> Floats:
    """Return old boxes with two of their columns replaced."""
    boxes = old.copy()
    boxes[:, sides] = new[:, sides]
    return boxes


def _sides(boxes: Floats) -> Floats:
    sides: Floats = boxes[:, 2:] - boxes[:, :2]
    return sides


def _to_corners(boxes: Floats) -> Floats:
    half = boxes[:, 2:] / 2
    corners: Floats = np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
    return corners
