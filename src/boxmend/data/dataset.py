"""The model of a dataset: images, labels and annotations in columns, beside their documents.

Boxes are xyxy, zero-based, half-open, float, in pixels of the image as annotated. Every
annotation keeps the id its reader gave it and the row it has in its source, so that writing
means patching the source and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from boxmend.data.files.change_detection import ReadFile
from boxmend.data.findings import Finding
from boxmend.data.types import Ids

if TYPE_CHECKING:
    from boxmend.data.formats.writing import SaveResult

Note = Mapping[str, float | str | None]  # what boxmend has to say of an annotation
ADDED = -1  # source row of an annotation that no document holds yet
UNKNOWN = -1  # label or image row of an annotation that names one which does not exist
ATTRIBUTES = ("pose", "truncated", "occluded")  # carried between formats that can hold them


@dataclass(eq=False)
class Source:
    """One document, or folder of documents, as it was read; formats derive their own from it.

    `boxes` and `labels` are what the documents say, row by row, and never change: what differs
    from them in a Dataset is what a writer has to patch.
    """

    format: str
    path: Path
    label_names: tuple[str, ...]
    boxes: NDArray[np.float64]
    labels: NDArray[np.int64]
    group: int = field(default=0, kw_only=True)  # which of the addresses it was read from
    read_files: Sequence[ReadFile] = field(default=(), kw_only=True, repr=False)

    def __post_init__(self) -> None:
        self.boxes.setflags(write=False)
        self.labels.setflags(write=False)

    @property
    def name(self) -> str:
        """A short name to tell this source from others it is joined with; safe as a folder's."""
        return Path(os.path.abspath(self.path)).stem.strip(".") or self.format

    def document(self, row: int) -> Path:
        """The file that holds the annotations of image `row` of this source."""
        raise NotImplementedError

    def attributes(self, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        """The ATTRIBUTES of the annotations at these source rows, where they say anything."""
        return [{} for _ in rows]

    def extras(self) -> dict[str, int]:
        """What the documents hold beyond a Dataset's columns and ATTRIBUTES, with how often."""
        return {}


@dataclass(eq=False)
class Images:
    """Columns of the images: one row each."""

    ids: Ids
    file_names: list[str]  # relative, with forward slashes, safe to join to any folder
    paths: list[str]  # where the file lies (or should lie); empty where no folder is known
    splits: list[str]  # "train", "val", ...; "all" where the dataset is not split
    widths: NDArray[np.int64]  # as recorded; 0 where unknown
    heights: NDArray[np.int64]
    sources: NDArray[np.int64]  # index into Dataset.sources
    rows: NDArray[np.int64]  # row in that source

    def __len__(self) -> int:
        return len(self.file_names)

    @property
    def sizes(self) -> NDArray[np.float64]:
        """[n, 2] Widths and heights; 0 where unknown."""
        return np.stack([self.widths, self.heights], axis=1).astype(np.float64)

    def take(self, rows: NDArray[np.int64]) -> Images:
        """The images at `rows`, in that order."""
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


@dataclass(eq=False)
class Dataset:
    """Annotated images in columns; change the columns, then `save`.

    All annotation columns have one row per annotation, in the order of the documents.
    """

    images: Images
    label_names: tuple[str, ...]
    annotation_ids: Ids  # [n]
    image_rows: NDArray[np.int64]  # [n] rows of `images`; UNKNOWN where the image is not declared
    labels: NDArray[np.int64]  # [n] index into label_names; UNKNOWN where not declared
    boxes: NDArray[np.float64]  # [n, 4]
    is_crowd: NDArray[np.bool_]  # [n] COCO's iscrowd
    is_difficult: NDArray[np.bool_]  # [n] VOC's difficult
    source_of: NDArray[np.int64]  # [n] index into sources
    source_rows: NDArray[np.int64]  # [n] row in the source, or ADDED
    sources: tuple[Source, ...] = ()
    notes: Mapping[int | str, Note] = field(default_factory=dict, repr=False)
    """By annotation id: written as the key `boxmend` (COCO) or an element (VOC); YOLO has none."""
    findings: tuple[Finding, ...] = field(default=(), repr=False)  # what reading stumbled over

    def __post_init__(self) -> None:
        self.check_columns()

    def check_columns(self) -> None:
        """Raise ValueError where columns do not have one row per annotation, or point nowhere."""
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

    @property
    def image_ids(self) -> Ids:
        """[n] The id of each annotation's image; None where the image is not declared."""
        ids: Ids = self.images.ids[self.image_rows] if len(self.images) else self.image_rows * 0
        if (self.image_rows == UNKNOWN).any():
            ids = ids.astype(object)
            ids[self.image_rows == UNKNOWN] = None
        return ids

    @property
    def is_ignored(self) -> NDArray[np.bool_]:
        """[n] Crowd and difficult objects: never trained on, disturbed or mended."""
        return self.is_crowd | self.is_difficult

    def document(self, annotation: int) -> Path:
        """The file that holds (or will hold) the annotation at this row."""
        source = self.sources[int(self.source_of[annotation])]
        image = int(self.image_rows[annotation])
        return source.document(int(self.images.rows[image]) if image != UNKNOWN else 0)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Dataset:
        """The same images with only the annotations at `rows` (indices, or a mask)."""
        return replace(
            self,
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
        """Only the images at `rows`, in their present order, with their annotations."""
        rows = np.unique(rows)
        new_row = np.full(len(self.images) + 1, UNKNOWN, np.int64)
        new_row[rows] = np.arange(len(rows))
        kept = self.take(new_row[self.image_rows] != UNKNOWN)
        return replace(kept, images=self.images.take(rows), image_rows=new_row[kept.image_rows])

    def add(
        self, image_rows: NDArray[np.int64], labels: NDArray[np.int64], boxes: NDArray[np.float64]
    ) -> Dataset:
        """Append annotations to images; each gets an id that is not in use."""
        n = len(image_rows)
        if len(self.images) == 0 and n:
            raise ValueError("there is no image to add annotations to")
        if n and not (image_rows.min() >= 0 and image_rows.max() < len(self.images)):
            raise ValueError(f"image_rows must lie between 0 and {len(self.images) - 1}")
        return replace(
            self,
            annotation_ids=np.concatenate([self.annotation_ids, self._unused_ids(image_rows)]),
            image_rows=np.concatenate([self.image_rows, image_rows]),
            labels=np.concatenate([self.labels, labels]),
            boxes=np.concatenate([self.boxes, boxes.reshape(n, 4)]),
            is_crowd=np.concatenate([self.is_crowd, np.zeros(n, np.bool_)]),
            is_difficult=np.concatenate([self.is_difficult, np.zeros(n, np.bool_)]),
            source_of=np.concatenate([self.source_of, self.images.sources[image_rows]]),
            source_rows=np.concatenate([self.source_rows, np.full(n, ADDED, np.int64)]),
        )

    def _unused_ids(self, image_rows: NDArray[np.int64]) -> Ids:
        """Ids for new annotations: the next integers, or the next positions in their images."""
        if self.annotation_ids.dtype != object:
            first = int(self.annotation_ids.max(initial=0)) + 1
            return as_ids(list(range(first, first + len(image_rows))))
        used = set(self.annotation_ids.tolist())
        positions = np.bincount(self.image_rows[self.image_rows >= 0], minlength=len(self.images))
        ids = np.empty(len(image_rows), object)
        for k, row in enumerate(image_rows.tolist()):
            while (new := make_position_id(self.images.ids[row], int(positions[row]))) in used:
                positions[row] += 1
            used.add(new)
            ids[k] = new
        return ids

    def save(
        self,
        out: str | Path,
        *,
        format: str | None = None,
        images_as: str = "link",
        allow_lossy: bool = False,
        segmentation: str = "flag",
    ) -> SaveResult:
        """Write a dataset that is usable as it is into `out`, a folder that is empty or new.

        In the format it was read in, only what changed differs from the source. `format` converts
        ("coco", "voc", "yolo"); `images_as` is "link", "copy" or "none"; `segmentation` says what
        happens to the outline of an object whose box moved: "flag" it as stale, or "drop" it.
        """
        from boxmend.data.formats.writing import (  # upwards: the file side is above
            WriteOptions,
            write,
        )

        options = WriteOptions(images_as, allow_lossy, segmentation)
        return write(self, Path(out), format, options)


def make_position_id(image_id: int | str, position: int) -> str:
    """The id of the annotation at `position` of an image whose format knows no ids."""
    return f"{image_id}:{position}"


def make_position_ids(dataset: Dataset) -> Ids:
    """Ids by position within the image, as a reader of VOC or YOLO gives them after writing.

    Documents keep their order, and what was added to an image comes last.
    """
    ids = np.empty(len(dataset), object)
    image_ids = dataset.image_ids
    order = sort_by_document(dataset)
    previous, position = None, 0
    for row, image in zip(order.tolist(), dataset.image_rows[order].tolist(), strict=True):
        position = position + 1 if image == previous else 0
        ids[row] = make_position_id(image_ids[row], position)
        previous = image
    return ids


def sort_by_document(dataset: Dataset) -> NDArray[np.int64]:
    """Rows of the annotations image by image, as a document lists them; added ones come last."""
    n = len(dataset)
    added = dataset.source_rows == ADDED
    return np.lexsort((np.arange(n), dataset.source_rows, added, dataset.image_rows))


def as_ids(values: Sequence[int | str]) -> Ids:
    """A column of ids: int64 if every one is an integer that fits, else objects as they are."""
    if set(map(type, values)) <= {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    column = np.empty(len(values), object)
    column[:] = values
    return column


def join(datasets: Sequence[Dataset]) -> Dataset:
    """One dataset of several; labels are joined by name, and ids that collide are kept apart.

    The first dataset keeps its ids. A later one whose ids collide with those before it gets all
    of them moved: integers by a power of ten, names by the name of their source in front.
    """
    if len(datasets) == 1:
        return datasets[0]
    label_names = tuple(dict.fromkeys(name for one in datasets for name in one.label_names))
    names = [one.sources[0].name if one.sources else "added" for one in datasets]
    image_ids = separate_ids([one.images.ids for one in datasets], names)
    annotation_ids = separate_ids([one.annotation_ids for one in datasets], names)
    first_image = np.cumsum([0] + [len(one.images) for one in datasets])
    first_source = np.cumsum([0] + [len(one.sources) for one in datasets])
    relabelled = [_relabelled(one, label_names) for one in datasets]
    moved_rows = [
        np.where(one.image_rows == UNKNOWN, UNKNOWN, one.image_rows + first)
        for one, first in zip(datasets, first_image, strict=False)
    ]
    images = [one.images for one in datasets]
    return Dataset(
        images=Images(
            ids=_concatenate_ids(image_ids),
            file_names=[name for one in images for name in one.file_names],
            paths=[path for one in images for path in one.paths],
            splits=[split for one in images for split in one.splits],
            widths=np.concatenate([one.widths for one in images]),
            heights=np.concatenate([one.heights for one in images]),
            sources=np.concatenate(
                [one.sources + first for one, first in zip(images, first_source, strict=False)]
            ),
            rows=np.concatenate([one.rows for one in images]),
        ),
        label_names=label_names,
        annotation_ids=_concatenate_ids(annotation_ids),
        image_rows=np.concatenate(moved_rows),
        labels=np.concatenate(relabelled),
        boxes=np.concatenate([one.boxes for one in datasets]),
        is_crowd=np.concatenate([one.is_crowd for one in datasets]),
        is_difficult=np.concatenate([one.is_difficult for one in datasets]),
        source_of=np.concatenate(
            [one.source_of + first for one, first in zip(datasets, first_source, strict=False)]
        ),
        source_rows=np.concatenate([one.source_rows for one in datasets]),
        sources=tuple(source for one in datasets for source in one.sources),
        notes={
            new: one.notes[old]
            for one, ids in zip(datasets, annotation_ids, strict=True)
            for old, new in zip(one.annotation_ids.tolist(), ids.tolist(), strict=True)
            if old in one.notes
        },
        findings=tuple(
            finding
            for one, ids in zip(datasets, annotation_ids, strict=True)
            for finding in _renamed(one, ids)
        ),
    )


def _renamed(dataset: Dataset, ids: Ids) -> Iterator[Finding]:
    """The findings of a dataset whose annotations have got other ids."""
    if not dataset.findings or ids is dataset.annotation_ids:
        yield from dataset.findings
        return
    new = dict(zip(dataset.annotation_ids.tolist(), ids.tolist(), strict=True))
    for finding in dataset.findings:
        yield replace(finding, annotation_id=new.get(finding.annotation_id, finding.annotation_id))


def _relabelled(dataset: Dataset, label_names: tuple[str, ...]) -> NDArray[np.int64]:
    label_of = {name: label for label, name in enumerate(label_names)}
    new = [label_of[name] for name in dataset.label_names]
    return np.array([*new, UNKNOWN], np.int64)[dataset.labels]  # UNKNOWN picks the last


def separate_ids(columns: Sequence[Ids], names: Sequence[str]) -> list[Ids]:
    """Columns of ids, the later ones moved as a whole where they collide with earlier ones.

    `names` are those of the sources; they go in front of ids that are no numbers.
    """
    apart: list[Ids] = []
    for column, name in zip(columns, names, strict=True):
        before = _concatenate_ids(apart) if apart else as_ids([])
        moved, attempt = column, 0
        while _collide(before, moved):
            attempt += 1
            moved = _moved(column, before, name, attempt)
        apart.append(moved)
    return apart


def _collide(before: Ids, column: Ids) -> bool:
    if before.dtype != object and column.dtype != object:
        return len(np.intersect1d(before, column)) > 0
    return not set(before.tolist()).isdisjoint(column.tolist())


def _moved(column: Ids, before: Ids, name: str, attempt: int) -> Ids:
    """Integers moved by a power of ten beyond all, names with the name of their source in front.

    A further attempt moves farther: negative numbers may land on others the first time.
    """
    shift = 10 ** (len(str(max(_largest(before), _largest(column)))) + attempt - 1)
    if column.dtype != object and shift < 2**62:
        shifted: Ids = column + shift
        return shifted
    ids, prefix = column.tolist(), name if attempt == 1 else f"{name}-{attempt}"
    return as_ids([one + shift if isinstance(one, int) else f"{prefix}/{one}" for one in ids])


def _largest(ids: Ids) -> int:
    """The largest absolute value among the integers of a column."""
    if ids.dtype != object:
        return max(int(ids.max(initial=0)), -int(ids.min(initial=0)))
    return max((abs(one) for one in ids if isinstance(one, int)), default=0)


def _concatenate_ids(columns: Sequence[Ids]) -> Ids:
    return np.concatenate([column for column in columns if len(column)] or [columns[0]])
