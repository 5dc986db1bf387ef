"""A YOLO dataset as it was read, kept beside the columns so that writing means patching it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import Source
from boxmend.data.formats.yolo.data_yaml import DataYaml

USUAL_NAMES = ("data.yaml", "dataset.yaml", "data.yml", "dataset.yml")


@dataclass(eq=False)
class YoloSource(Source):
    """A data.yaml and its label files as they were read."""

    document_yaml: DataYaml
    read_as: dict[str, str]  # split of the data.yaml -> the split its images are in
    label_paths: list[str]  # of every image
    contents: list[bytes | None]  # None where there is no label file
    first_rows: NDArray[np.int64]  # [images + 1] where the annotations of each image start
    sharing: frozenset[int]  # images whose label file belongs to another image
    num_polygons: int

    @property
    def name(self) -> str:
        """The name of the file, or of its folder where the file is called what all are called."""
        is_usual = self.path.name in USUAL_NAMES
        return (self.path.absolute().parent.name if is_usual else "") or self.path.stem

    def document(self, row: int) -> Path:
        """The label file of image `row`."""
        return Path(self.label_paths[row]) if self.label_paths else self.path

    def extras(self) -> dict[str, int]:
        """The polygons that were read as the boxes around them."""
        return {"polygon": self.num_polygons} if self.num_polygons else {}

    def image_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The images that these rows of annotations belong to."""
        return np.searchsorted(self.first_rows, rows, side="right") - 1

    def positions(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of these annotations among those of their label files."""
        return rows - self.first_rows[self.image_of(rows)]
