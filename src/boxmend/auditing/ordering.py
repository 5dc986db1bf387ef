"""Sort a dataset so that the order of its source files does not matter, and map fixes back."""

from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from boxmend.auditing.evidence import Detected, select_objects
from boxmend.auditing.fixes.table import Fixes
from boxmend.auditing.judging import AuditInputs
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats, Mask, Rows


@dataclass(frozen=True, eq=False)
class SourceView:
    """One source of a joined dataset, with sorted images, labels and annotations.

    `rows`, `images` and `labels` are places in the joined dataset. `image_places` and
    `label_places` map images and labels of the joined dataset to this view; their last entry is for
    UNKNOWN.
    """

    dataset: Dataset
    rows: Rows
    images: Rows
    labels: Rows
    image_places: Rows
    label_places: Rows

    def select_inputs(self, rows: Rows, detected: Detected | None) -> AuditInputs:
        """Return the annotations at `rows`, ignored objects, sizes of images and detections."""
        dataset = self.dataset
        is_box = np.isfinite(dataset.boxes).all(axis=1) & (dataset.image_rows != UNKNOWN)
        return AuditInputs(
            objects=select_objects(dataset, rows),
            ignored=select_objects(dataset, np.flatnonzero(dataset.is_ignored & is_box)),
            sizes=dataset.images.sizes,
            detected=detected,
        )

    def to_joined(self, fixes: Fixes) -> Fixes:
        """Return fixes of this view with rows and labels of the joined dataset."""
        to_rows, to_labels = np.append(self.rows, UNKNOWN), np.append(self.labels, UNKNOWN)
        return replace(
            fixes,
            rows=to_rows[fixes.rows],
            image_rows=self.images[fixes.image_rows],
            old_labels=to_labels[fixes.old_labels],
            new_labels=to_labels[fixes.new_labels],
            kept_rows=to_rows[fixes.kept_rows],
        )


def list_groups(dataset: Dataset) -> list[int]:
    """Return the numbers of the sources of a joined dataset."""
    return sorted({source.group for source in dataset.sources}) or [0]


def normalise_order(dataset: Dataset, group: int) -> SourceView:
    """Return one source of a joined dataset, sorted independently of the order in its files."""
    of_sources = np.array([source.group for source in dataset.sources] or [0], np.int64)
    mine = np.flatnonzero(of_sources[dataset.images.sources] == group)
    names, ids = dataset.images.file_names, dataset.images.ids
    images = np.array(sorted(mine.tolist(), key=lambda row: (names[row], str(ids[row]))), np.int64)
    image_places = np.full(len(dataset.images) + 1, UNKNOWN)
    image_places[images] = np.arange(len(images))
    own_labels = sorted(_find_labels(dataset, group), key=dataset.label_names.__getitem__)
    labels = np.array(own_labels, np.int64)
    label_places = np.full(len(dataset.label_names) + 1, UNKNOWN)
    label_places[labels] = np.arange(len(labels))
    image_rows, new_labels = image_places[dataset.image_rows], label_places[dataset.labels]
    rows = np.flatnonzero(image_rows != UNKNOWN)
    with np.errstate(invalid="ignore"):
        order = np.lexsort((*dataset.boxes[rows].T, new_labels[rows], image_rows[rows]))
    rows = rows[order]
    own = replace(
        dataset.take(rows),
        images=dataset.images.take(images),
        image_rows=image_rows[rows],
        labels=new_labels[rows],
        label_names=tuple(dataset.label_names[label] for label in labels.tolist()),
        notes={},
        findings=(),
    )
    return SourceView(own, rows, images, labels, image_places, label_places)


def sort_by_confidence(image_rows: Rows, scores: Floats, labels: Rows, boxes: Floats) -> Rows:
    """Return the order of detections by image and falling score, then by label and box.

    To save time, only detections with equal scores are sorted by all columns.
    """
    order = np.lexsort((-scores, image_rows))
    is_new = np.diff(image_rows[order], prepend=-1) != 0
    is_new |= np.diff(scores[order], prepend=2) != 0
    is_tied = ~is_new
    is_tied[:-1] |= ~is_new[1:]
    tied = order[is_tied]
    runs = np.cumsum(is_new)[is_tied]
    order[is_tied] = tied[np.lexsort((*boxes[tied].T, labels[tied], runs))]
    return order


def is_judgeable(dataset: Dataset) -> Mask:
    """Mark annotations [n] with image, label and box that are neither crowd nor difficult."""
    with np.errstate(invalid="ignore", over="ignore"):
        sides = dataset.boxes[:, 2:] - dataset.boxes[:, :2]
        is_box = np.isfinite(sides).all(axis=1) & (sides > 0).all(axis=1)
    is_complete: Mask = is_box & (dataset.image_rows != UNKNOWN) & (dataset.labels != UNKNOWN)
    return is_complete & ~dataset.is_ignored


def _find_labels(dataset: Dataset, group: int) -> list[int]:
    """Return the labels that a source had before it was joined; all labels if unknown."""
    names = (source.label_names for source in dataset.sources if source.group == group)
    known = set(chain.from_iterable(names))
    return [k for k, name in enumerate(dataset.label_names) if name in known or not known]
