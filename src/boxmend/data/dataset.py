"""The model of a dataset: images, labels and annotations in columns, and their documents.

Boxes are xyxy, zero-based, half-open, float, in pixels of the image as annotated. Every
annotation keeps the id from its reader and its row in the source, so a writer patches only what
changed in the source.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from boxmend.data.files.change_detection import ReadFile
from boxmend.data.findings import Finding
from boxmend.data.types import Ids

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from PIL.Image import Image

    from boxmend.data.formats.writing import SaveResult

Note = Mapping[str, float | str | None]  # what boxmend records about an annotation
ADDED = -1  # source row of a new annotation, which no document has
UNKNOWN = -1  # label or image row of an annotation whose label or image does not exist
ATTRIBUTES = ("pose", "truncated", "occluded")  # converted between the formats that have them


@dataclass(eq=False)
class Source:
    """A document, or a folder of documents, as it was read; each format has a subclass.

    `boxes` and `labels` hold the values of the documents, row by row, and never change. A writer
    patches what differs from them in a Dataset.
    """

    format: str
    path: Path
    label_names: tuple[str, ...]
    boxes: NDArray[np.float64]
    labels: NDArray[np.int64]
    group: int = field(default=0, kw_only=True)  # index of the address it was read from
    address: str = field(default="", kw_only=True)  # `PATH` or `PATH:SPLIT`; empty if unknown
    images_folder: str | None = field(default=None, kw_only=True)  # given by the user
    read_files: Sequence[ReadFile] = field(default=(), kw_only=True, repr=False)

    def __post_init__(self) -> None:
        self.boxes.setflags(write=False)
        self.labels.setflags(write=False)

    @property
    def name(self) -> str:
        """Return a short name that distinguishes joined sources; it is a safe folder name."""
        return Path(os.path.abspath(self.path)).stem.strip(".") or self.format

    def document(self, row: int) -> Path:
        """Return the path of the file with the annotations of image `row` of this source."""
        raise NotImplementedError

    def image_id(self, row: int) -> str:
        """Return the id of image `row` in the documents; empty if they have none."""
        return ""

    def without_broken_lines(self) -> Source:
        """Return the source without lines of lists that a reader reported as errors."""
        return self

    def attributes(self, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Return the ATTRIBUTES of the annotations at these source rows, if they have any."""
        return [{} for _ in rows]

    def extras(self) -> dict[str, int]:
        """Count what the documents hold beyond a Dataset's columns and ATTRIBUTES."""
        return {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"


@dataclass(eq=False, repr=False)
class Images:
    """The columns of the images, with one row per image."""

    ids: Ids
    file_names: list[str]  # relative, with forward slashes, safe to join to any folder
    paths: list[str]  # where the file lies, or should lie; empty if no folder is known
    splits: list[str]  # "train", "val", ...; "all" if the dataset is not split
    widths: NDArray[np.int64]  # as recorded; 0 if unknown
    heights: NDArray[np.int64]
    sources: NDArray[np.int64]  # index into Dataset.sources
    rows: NDArray[np.int64]  # row in that source

    def __len__(self) -> int:
        return len(self.file_names)

    def __repr__(self) -> str:
        return f"Images: {len(self):,} ({list_first(self.file_names)})"

    @property
    def sizes(self) -> NDArray[np.float64]:
        """Return the widths and heights [n, 2]; 0 if unknown."""
        return np.stack([self.widths, self.heights], axis=1).astype(np.float64)

    def take(self, rows: NDArray[np.int64]) -> Images:
        """Return the images at `rows`, in that order."""
        return Images(
            ids=self.ids[rows],
            file_names=[self.file_names[row] for row in rows],
            paths=[self.paths[row] for row in rows],
            splits=[self.splits[row] for row in rows],
            widths=self.widths[rows],
            heights=self.heights[rows],
            sources=self.sources[rows],
            rows=self.rows[rows],
        )


@dataclass(eq=False, repr=False)
class Dataset:
    """Annotated images in columns: change the columns, then call `save`.

    Every annotation column has one row per annotation, in the order of the documents.
    """

    images: Images
    label_names: tuple[str, ...]
    annotation_ids: Ids  # [n]
    image_rows: NDArray[np.int64]  # [n] rows of `images`; UNKNOWN if the image is not declared
    labels: NDArray[np.int64]  # [n] index into label_names; UNKNOWN if not declared
    boxes: NDArray[np.float64]  # [n, 4]
    is_crowd: NDArray[np.bool_]  # [n] COCO's iscrowd
    is_difficult: NDArray[np.bool_]  # [n] VOC's difficult
    source_of: NDArray[np.int64]  # [n] index into sources
    source_rows: NDArray[np.int64]  # [n] row in the source, or ADDED
    sources: tuple[Source, ...] = ()
    notes: Mapping[int | str, Note] = field(default_factory=dict, repr=False)
    """Notes by annotation id, written as the key `boxmend` (COCO) or an element (VOC)."""
    findings: tuple[Finding, ...] = field(default=(), repr=False)  # of the reader

    def __post_init__(self) -> None:
        self.check_columns()

    def check_columns(self) -> None:
        """Raise a ValueError if a column has a wrong length or an index out of range."""
        n = len(self.annotation_ids)
        if self.boxes.shape != (n, 4):
            raise ValueError(f"boxes must have shape ({n}, 4), got {self.boxes.shape}")
        names = ("image_rows", "labels", "is_crowd", "is_difficult", "source_of", "source_rows")
        for name in names:
            if getattr(self, name).shape != (n,):
                raise ValueError(f"{name} must have {n} rows, got {getattr(self, name).shape}")
        for name, limit in (("labels", len(self.label_names)), ("image_rows", len(self.images))):
            column = getattr(self, name)
            if n and not (column.min() >= UNKNOWN and column.max() < limit):
                raise ValueError(f"{name} must lie between {UNKNOWN} (unknown) and {limit - 1}")

    def __len__(self) -> int:
        return len(self.annotation_ids)

    def __repr__(self) -> str:
        sources = [f"{source.path} ({source.format})" for source in self.sources]
        return (
            f"{type(self).__name__}: {len(self.images):,} images, {len(self):,} annotations\n"
            f"  {len(self.label_names):,} labels: {list_first(self.label_names, 5)}\n"
            f"  read from {list_first(sources) or 'memory'}"
        )

    def _repr_html_(self) -> str:
        """Return the summary and the counts of the labels as HTML, for notebooks."""
        from boxmend.data.arrow_columns import summarise_as_html  # late: it imports this module

        return summarise_as_html(self)

    @property
    def image_ids(self) -> Ids:
        """Return the id [n] of each annotation's image; None if the image is not declared."""
        ids: Ids = self.images.ids[self.image_rows] if len(self.images) else self.image_rows * 0
        if (self.image_rows == UNKNOWN).any():
            ids = ids.astype(object)
            ids[self.image_rows == UNKNOWN] = None
        return ids

    @property
    def is_ignored(self) -> NDArray[np.bool_]:
        """Mark [n] crowd and difficult objects: no training, noise or fixes for them."""
        return self.is_crowd | self.is_difficult

    def document(self, annotation: int) -> Path:
        """Return the path of the file that has, or will have, the annotation at this row."""
        if not self.sources:
            return Path("the dataset in memory")
        source = self.sources[int(self.source_of[annotation])]
        image = int(self.image_rows[annotation])
        return source.document(int(self.images.rows[image]) if image != UNKNOWN else 0)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Dataset:
        """Return the same images with only the annotations at `rows` (indices or a mask)."""
        return self._with(
            annotation_ids=self.annotation_ids[rows],
            image_rows=self.image_rows[rows],
            labels=self.labels[rows],
            boxes=self.boxes[rows],
            is_crowd=self.is_crowd[rows],
            is_difficult=self.is_difficult[rows],
            source_of=self.source_of[rows],
            source_rows=self.source_rows[rows],
        )

    def take_images(self, rows: NDArray[np.int64]) -> Dataset:
        """Return only the images at `rows`, in their current order, with their annotations."""
        rows = np.unique(rows)
        new_row = np.full(len(self.images) + 1, UNKNOWN, np.int64)
        new_row[rows] = np.arange(len(rows))
        kept = self.take(new_row[self.image_rows] != UNKNOWN)
        return replace(kept, images=self.images.take(rows), image_rows=new_row[kept.image_rows])

    def subset(
        self,
        rows: Any = None,
        *,
        image_ids: Iterable[int | str] | None = None,
        label_names: Iterable[str] | None = None,
    ) -> Dataset:
        """Return the annotations that all given conditions select.

        `rows` are indices or a mask of annotations, and `label_names` are names of labels; all
        images stay. `image_ids`, which may also be file names, keep only these images.
        """
        from boxmend.data.in_memory import make_subset  # late: that module imports this one

        return make_subset(self, rows, image_ids, label_names)

    def add(
        self, image_rows: NDArray[np.int64], labels: NDArray[np.int64], boxes: NDArray[np.float64]
    ) -> Dataset:
        """Return the dataset with new annotations appended; each gets an unused id."""
        n = len(image_rows)
        if len(self.images) == 0 and n:
            raise ValueError("the dataset has no images, so no annotations can be added")
        if n and not (image_rows.min() >= 0 and image_rows.max() < len(self.images)):
            raise ValueError(f"image_rows must lie between 0 and {len(self.images) - 1}")
        return self._with(
            annotation_ids=np.concatenate([self.annotation_ids, self._unused_ids(image_rows)]),
            image_rows=np.concatenate([self.image_rows, image_rows]),
            labels=np.concatenate([self.labels, labels]),
            boxes=np.concatenate([self.boxes, boxes.reshape(n, 4)]),
            is_crowd=np.concatenate([self.is_crowd, np.zeros(n, np.bool_)]),
            is_difficult=np.concatenate([self.is_difficult, np.zeros(n, np.bool_)]),
            source_of=np.concatenate([self.source_of, self.images.sources[image_rows]]),
            source_rows=np.concatenate([self.source_rows, np.full(n, ADDED, np.int64)]),
        )

    def _with(self, **columns: Any) -> Dataset:
        """Return a plain Dataset with these columns and the other ones of this dataset."""
        own = {name.name: getattr(self, name.name) for name in fields(Dataset)}
        return Dataset(**(own | columns))

    def _unused_ids(self, image_rows: NDArray[np.int64]) -> Ids:
        """Return ids for new annotations: the next integers, or positions in their images."""
        if self.annotation_ids.dtype != object:
            first = int(self.annotation_ids.max(initial=0)) + 1
            return as_ids(list(range(first, first + len(image_rows))))
        used = set(self.annotation_ids.tolist())
        positions = np.bincount(self.image_rows[self.image_rows >= 0], minlength=len(self.images))
        ids = np.empty(len(image_rows), object)
        for k, row in enumerate(image_rows.tolist()):
            while (new := format_position_id(self.images.ids[row], int(positions[row]))) in used:
                positions[row] += 1
            used.add(new)
            ids[k] = new
        return ids

    @classmethod
    def from_arrays(
        cls,
        image_ids: Any,
        boxes: Any,
        labels: Any,
        label_names: Sequence[str] | None = None,
        *,
        images: Mapping[Any, str | Path] | Sequence[str | Path] | None = None,
    ) -> Dataset:
        """Return a dataset of arrays, one row per annotation.

        `image_ids` [n] are ids or paths of images, `boxes` [n, 4] are x1, y1, x2, y2 in pixels, and
        `labels` [n] are indices into `label_names`, or names. `images` gives all images, including
        those without annotations: a list of paths, or a dict of paths by image id. Without it, the
        ids are the paths.
        """
        from boxmend.data.in_memory import build_dataset  # late: that module imports this one

        return build_dataset(image_ids, boxes, labels, label_names, images)

    def to_arrow(self) -> pa.Table:
        """Return the annotations as a `pyarrow.Table`, with label names and file names."""
        from boxmend.data.arrow_columns import annotations_table  # late: it imports this module

        return annotations_table(self)

    def to_pandas(self) -> pd.DataFrame:
        """Return the annotations as a `pandas.DataFrame`; raise a BoxmendError without pandas."""
        from boxmend.data.table import to_pandas  # late, since PyArrow takes time to import

        return to_pandas(self.to_arrow())

    def show(self, image_id: int | str, *, side: int = 960) -> Image:
        """Return the picture of an image with its boxes and label names, for notebooks.

        `image_id` may also be a file name. The long side has at most `side` pixels.
        """
        from boxmend.data.images.showing import draw_annotations  # late, since Pillow takes time

        return draw_annotations(self, image_id, side)

    def save(
        self,
        out: str | Path,
        *,
        format: str | None = None,
        images_as: str = "link",
        allow_lossy: bool = False,
        segmentation: str = "flag",
    ) -> SaveResult:
        """Write the dataset with its images into `out`, a new or empty folder.

        In the original format, only the changes differ from the source. `format` converts to
        "coco", "voc" or "yolo". `images_as` is "link", "copy" or "none". `segmentation` is "flag"
        or "drop": mark the outline of an object whose box moved as stale, or remove it.
        """
        from boxmend.data.formats.writing import (  # late: that module imports this one
            WriteOptions,
            write,
        )

        options = WriteOptions(images_as, allow_lossy, segmentation)
        return write(self, Path(out), format, options)


def list_first(names: Sequence[str], max_shown: int = 3) -> str:
    """Return the first names as one short line."""
    shown = (name if len(name) <= 40 else f"{name[:39]}…" for name in names[:max_shown])
    text = ", ".join("".join(c if c.isprintable() else " " for c in name) for name in shown)
    return f"{text}, ..." if len(names) > max_shown else text


def format_position_id(image_id: int | str, position: int) -> str:
    """Return the id of the annotation at `position` of an image, for formats without ids."""
    return f"{image_id}:{position}"


def assign_position_ids(dataset: Dataset) -> Ids:
    """Return the ids by position that a reader of VOC or YOLO gives after writing.

    Documents keep their order, and new annotations of an image come last.
    """
    ids = np.empty(len(dataset), object)
    image_ids = dataset.image_ids
    order = sort_by_document(dataset)
    previous, position = None, 0
    for row, image in zip(order.tolist(), dataset.image_rows[order].tolist(), strict=True):
        position = position + 1 if image == previous else 0
        ids[row] = format_position_id(image_ids[row], position)
        previous = image
    return ids


def sort_by_document(dataset: Dataset) -> NDArray[np.int64]:
    """Return the rows of the annotations image by image in document order, new ones last."""
    n = len(dataset)
    added = dataset.source_rows == ADDED
    return np.lexsort((np.arange(n), dataset.source_rows, added, dataset.image_rows))


def as_ids(values: Sequence[int | str]) -> Ids:
    """Return a column of ids: int64 if all are integers that fit, else objects."""
    if set(map(type, values)) <= {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    column = np.empty(len(values), object)
    column[:] = values
    return column
