"""The judged annotations of a dataset, in an order that does not depend on its files."""

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.evidence import Detected, Objects
from boxmend.auditing.ordering import is_judgeable, sort_by_confidence
from boxmend.auditing.predictions import ResolvedPredictions
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats, Mask, Rows


@dataclass(frozen=True, eq=False)
class Scene:
    """The judged annotations, sorted by image, label and box; images are sorted by name."""

    objects: Objects  # [k] the judged annotations
    rows: Rows  # [k] of the dataset
    ignored: Objects  # crowds and difficult objects
    sizes: Floats  # [images, 2] width and height; 0 where unknown
    images: Rows  # [images] rows of the dataset's images
    image_places: Rows  # [images + 1] of the dataset's images in this order; the last is UNKNOWN

    @property
    def object_sizes(self) -> Floats:
        """Width and height [k, 2] of the image of every judged annotation."""
        sizes: Floats = self.sizes[self.objects.image_rows]
        return sizes

    def select(self, detections: ResolvedPredictions) -> Detected:
        """Return detections with images in the order of the scene, sorted by confidence."""
        image_rows = self.image_places[detections.image_rows]
        order = sort_by_confidence(
            image_rows, detections.scores, detections.labels, detections.boxes
        )
        vectors = detections.class_scores
        return Detected(
            image_rows[order],
            detections.labels[order],
            detections.scores[order],
            detections.boxes[order],
            None if vectors is None else vectors[order],
        )

    def mark_seen(self, detected: Detected) -> Mask:
        """Mark the annotations [k] in images with a detection."""
        is_seen = np.zeros(len(self.images), np.bool_)
        is_seen[detected.image_rows] = True
        mask: Mask = is_seen[self.objects.image_rows]
        return mask


def make_scene(dataset: Dataset) -> Scene:
    """Sort the judgeable annotations of a dataset by image name, label and box."""
    names, ids = dataset.images.file_names, dataset.images.ids
    images = np.array(
        sorted(range(len(names)), key=lambda row: (names[row], str(ids[row]))), np.int64
    )
    places = np.full(len(names) + 1, UNKNOWN)
    places[images] = np.arange(len(images))
    image_rows = places[dataset.image_rows]
    rows = np.flatnonzero(is_judgeable(dataset))
    rows = rows[np.lexsort((*dataset.boxes[rows].T, dataset.labels[rows], image_rows[rows]))]
    is_box = np.isfinite(dataset.boxes).all(axis=1) & (dataset.image_rows != UNKNOWN)
    ignored = np.flatnonzero(dataset.is_ignored & is_box)
    sizes = dataset.images.sizes[images] if len(images) else np.zeros((0, 2))

    def select(chosen: Rows) -> Objects:
        return Objects(
            image_rows[chosen],
            dataset.labels[chosen],
            dataset.boxes[chosen],
            len(dataset.label_names),
        )

    return Scene(select(rows), rows, select(ignored), sizes, images, places)
