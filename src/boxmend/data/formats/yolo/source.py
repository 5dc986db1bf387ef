"""A YOLO dataset as it was read; the writer patches it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import Source
from boxmend.data.formats.yolo.class_lists import CLASS_LIST_NAMES, DARKNET_NAME, ClassList
from boxmend.data.formats.yolo.data_yaml import DataYaml
from boxmend.data.formats.yolo.image_lists import ImageList
from boxmend.data.formats.yolo.layout import SplitImage

USUAL_NAMES = ("data.yaml", "dataset.yaml", "data.yml", "dataset.yml")


@dataclass(frozen=True)
class SourceLayout:
    """The folders of a dataset as it was read, all of them in the folder `base`."""

    base: str  # absolute
    root: str  # of the paths in the data.yaml, relative to `base`
    entries: Sequence[SplitImage]
    lists: Sequence[ImageList]


@dataclass(eq=False, repr=False)
class YoloSource(Source):
    """A data.yaml, or the files in its place, and label files as they were read."""

    index: DataYaml | ClassList
    layout: SourceLayout | None  # None if the files do not lie in one folder
    read_as: dict[str, str]  # split of the data.yaml -> the split its images are in
    label_paths: list[str]  # of every image
    contents: list[bytes | None]  # None if there is no label file
    first_rows: NDArray[np.int64]  # [images + 1] first annotation of each image
    sharing: frozenset[int]  # images whose label file belongs to another image
    num_polygons: int

    @property
    def name(self) -> str:
        """Return the stem of the file's name, or its folder's name if the file has a usual name."""
        is_usual = self.path.name in (*USUAL_NAMES, DARKNET_NAME, *CLASS_LIST_NAMES)
        return (self.path.absolute().parent.name if is_usual else "") or self.path.stem

    def document(self, row: int) -> Path:
        """Return the path of the label file of image `row`."""
        return Path(self.label_paths[row]) if self.label_paths else self.path

    def without_broken_lines(self) -> YoloSource:
        """Return the source without lines of lists that name no image."""
        if self.layout is None:
            return self
        lists = [replace(listed, drops_broken=True) for listed in self.layout.lists]
        return replace(self, layout=replace(self.layout, lists=lists))

    def extras(self) -> dict[str, int]:
        """Count the polygons that were read as the boxes around them."""
        return {"polygon": self.num_polygons} if self.num_polygons else {}

    def find_images(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the image of each of these annotation rows."""
        return np.searchsorted(self.first_rows, rows, side="right") - 1

    def find_positions(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the position of each of these annotations in its label file."""
        return rows - self.first_rows[self.find_images(rows)]
