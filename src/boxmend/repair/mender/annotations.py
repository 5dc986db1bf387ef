"""The annotations to train on, as columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from boxmend.data.describing import describe
from boxmend.data.types import Floats, Mask, Rows, Singles


@dataclass(frozen=True, eq=False, repr=False)
class IgnoreRegions:
    """Regions of images that are neither object nor background."""

    __repr__ = describe

    image_rows: Rows  # [r] rows of the dataset's images
    boxes: Floats  # [r, 4] xyxy pixels of the image
    scores: Singles  # [r] of the detection; 1 for crowds and difficult objects of the dataset

    def __len__(self) -> int:
        return len(self.image_rows)

    def rows_of_image(self, image_row: int) -> Rows:
        """Return the rows of the regions in one image."""
        return self._by_image.rows_of(image_row)

    @cached_property
    def _by_image(self) -> RowsByImage:
        return RowsByImage(self.image_rows)


@dataclass(frozen=True, eq=False, repr=False)
class MendedAnnotations:
    """The annotations to train on, one row each; do not change the arrays.

    The first rows are those of the dataset, in its order; added annotations follow.
    """

    __repr__ = describe

    image_rows: Rows  # [m] rows of the dataset's images; -1 if the image is not declared
    boxes: Floats  # [m, 4] xyxy pixels of the image
    labels: Rows  # [m] indices into the dataset's label_names; -1 if the label is not declared
    weights: Singles  # [m] 1, or 0 for spurious, crowd and difficult annotations
    confidences: Singles  # [m] probability of the label
    is_added: Mask  # [m]
    ignore: IgnoreRegions
    make_soft_labels: Callable[[], Singles] = field(repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def soft_labels(self) -> Singles:
        """[m, C] Posterior of the true class; the probabilities of an annotation add up to 1."""
        return self.make_soft_labels()

    def __getstate__(self) -> dict[str, Any]:
        """Return the columns without the Mender, for copies and for processes of a loader."""
        return {**self.__dict__, "make_soft_labels": partial(np.asarray, self.soft_labels)}

    def rows_of_image(self, image_row: int) -> Rows:
        """Return the rows of the annotations in one image, also those of weight 0."""
        return self._by_image.rows_of(image_row)

    @cached_property
    def _by_image(self) -> RowsByImage:
        return RowsByImage(self.image_rows)


class RowsByImage:
    """The rows of a column of image rows, by image."""

    def __init__(self, image_rows: Rows):
        self._order = np.argsort(image_rows, kind="stable")
        self._sorted = image_rows[self._order]

    def rows_of(self, image_row: int) -> Rows:
        """Return the rows of one image, ascending."""
        first, last = np.searchsorted(self._sorted, [image_row, image_row + 1])
        rows: Rows = self._order[first:last]
        return rows
