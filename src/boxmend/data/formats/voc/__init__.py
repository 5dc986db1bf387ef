"""VOC: Annotations/*.xml, lists of images in ImageSets/Main, and images in JPEGImages.

Pixels count from one and both corners belong to the box, so x1 = xmin - 1 and x2 = xmax. VOC has no
list of classes: the label names of a dataset are the sorted names of its objects.
"""

import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from boxmend.data.dataset import UNKNOWN, Dataset, Images, format_position_id
from boxmend.data.files import change_detection
from boxmend.data.files.change_detection import ReadFile
from boxmend.data.findings import Finding
from boxmend.data.formats.reading import ReadOptions, is_safe_name
from boxmend.data.formats.voc.images import (
    choose_output_folder,
    fill_sizes,
    find_image_folder,
    find_images,
    report_names,
)
from boxmend.data.formats.voc.layout import (
    assign_splits,
    choose_list,
    find_annotations_folder,
    find_ids,
    read_list,
    read_lists,
    split_by_folder,
)
from boxmend.data.formats.voc.scanning import (
    DIFFICULT,
    FILENAME,
    HEIGHT,
    NAME,
    WIDTH,
    XMAX,
    XMIN,
    YMAX,
    YMIN,
    MalformedXmlError,
    VocXml,
    decode_text,
    parse_xml,
)
from boxmend.data.formats.voc.source import FALSE_TEXTS, VocSource
from boxmend.data.formats.voc.writing import (
    assign_annotation_ids,
    assign_image_paths,
    build_documents,
    list_losses,
)
from boxmend.data.types import Ids

__all__ = [
    "assign_annotation_ids",
    "assign_image_paths",
    "build_documents",
    "list_losses",
    "looks_like",
    "read",
]

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NAN_BOX = (math.nan,) * 4


def looks_like(path: Path) -> bool:
    """Return whether this is a folder with Annotations/*.xml, or another layout of VOC documents.

    Tools write documents into `annotations`, into `labels`, or beside the images.
    """
    return find_annotations_folder(path) is not None


def read(path: Path, split: str | None, options: ReadOptions) -> Dataset:
    """Read the documents that a list of ImageSets/Main names, or all documents.

    Without a split, an image belongs to the first list that names it (train, val, test, trainval,
    then others), or else to "all". Where documents lie beside the images, the folders `train`,
    `valid`, `val` and `test` are the splits.
    """
    folder = find_annotations_folder(path) or ""
    known = find_ids(path, folder)
    list_files = read_lists(path / "ImageSets" / "Main") if folder else {}
    lists = {name: file.content or b"" for name, file in list_files.items()}
    reader = _Reader(path, folder, find_image_folder(path, options))
    if not folder:
        splits = split_by_folder(path, known, split)
        ids = list(splits)
    elif split is None:
        ids = known
        splits, reader.broken_lines = assign_splits(path, lists, set(known), reader.findings)
    else:
        lists = {split: choose_list(path, lists, split)}
        ids, broken = read_list(path, split, lists[split], set(known), reader.findings)
        reader.broken_lines = {split: broken}
        splits = dict.fromkeys(ids, split)
    reader.read_files += [list_files[name] for name in lists]
    for id in ids:
        reader.add(id)
    return reader.make_dataset([splits.get(id, "all") for id in reader.ids], lists)


@dataclass
class _Reader:
    """The reader of the documents of a dataset, with the columns so far."""

    path: Path
    annotations_folder: str
    image_folder: Path
    findings: list[Finding] = field(default_factory=list)
    broken_lines: dict[str, set[int]] = field(default_factory=dict)  # of lists
    ids: list[str] = field(default_factory=list)
    files: list[VocXml | bytes | None] = field(default_factory=list)
    read_files: list[ReadFile] = field(default_factory=list)
    filenames: list[str] = field(default_factory=list)  # of the images, as written
    sizes: list[tuple[int, int]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of the objects; empty without a name
    boxes: list[tuple[float, float, float, float]] = field(default_factory=list)
    is_difficult: list[bool] = field(default_factory=list)
    decoded_names: dict[bytes, str] = field(default_factory=dict)  # by their bytes in the files

    def add(self, id: str) -> None:
        """Read the document of an image."""
        path = os.path.join(self.path, self.annotations_folder, f"{id}.xml")
        if not is_safe_name(id) or not _is_text(id):
            message = "the file name is not valid on every system; rename the file"
            self.findings.append(Finding("unsafe-name", message, path))
            return
        content: bytes | None = None
        file: VocXml | bytes | None = None
        try:
            document = _read_document(path)
            self.read_files.append(document)
            content = document.content or b""
            file = parse_xml(content)
        except MalformedXmlError as error:
            file = content
            self.findings.append(Finding("malformed", f"the file {error}", path, id))
        filename = ""
        if isinstance(file, VocXml):
            filename = decode_text(file.head_content(FILENAME))
            self._add_objects(file, id, path)
        self.filenames.append(filename)
        self.sizes.append(self._read_size(file, id, path))
        self.ids.append(id)
        self.files.append(file)
        self.counts.append(len(file) if isinstance(file, VocXml) else 0)

    def _add_objects(self, file: VocXml, id: str, path: str) -> None:
        for position in range(len(file)):
            content = file.content(position, NAME)
            name = self.decoded_names.get(content)
            if name is None:
                name = self.decoded_names[content] = decode_text(content)
            if not name:
                self._report("malformed", "the object has no name", path, id, position)
            difficult = file.content(position, DIFFICULT)
            box = _read_box(file, position)
            if box is _NAN_BOX:
                message = f"the object's box is {_describe_box(file, position)}"
                self._report("box-not-finite", message, path, id, position)
            self.names.append(name)
            self.boxes.append(box)
            self.is_difficult.append(
                difficult != b"0" and decode_text(difficult).lower() not in FALSE_TEXTS
            )

    def _report(self, kind: str, message: str, path: str, id: str, position: int) -> None:
        self.findings.append(Finding(kind, message, path, id, format_position_id(id, position)))

    def _read_size(self, file: VocXml | bytes | None, id: str, path: str) -> tuple[int, int]:
        """Return the recorded width and height, or zeros."""
        if isinstance(file, VocXml):
            width, height = (_read_pixels(file.head_content(column)) for column in (WIDTH, HEIGHT))
            if width and height:
                return width, height
            if width is None or height is None:
                message = "the width or height in size is not a number of pixels"
                self.findings.append(Finding("malformed", message, path, id))
        return 0, 0

    def _find_images(self) -> list[str]:
        """Return the names of all images, relative to their folder."""
        folder = os.path.join(self.path, self.annotations_folder)
        documents = [os.path.join(folder, f"{id}.xml") for id in self.ids]
        names, inexact, findings = find_images(
            self.image_folder, self.ids, self.filenames, documents
        )
        self.findings += [*findings, *report_names(inexact, self.path)]
        return names

    def make_dataset(self, splits: list[str], lists: dict[str, bytes]) -> Dataset:
        """Return the dataset of all documents read so far."""
        label_names = tuple(sorted(set(self.names) - {""}))
        label_of = {name: label for label, name in enumerate(label_names)} | {"": UNKNOWN}
        labels = np.array([label_of[name] for name in self.names], np.int64)
        boxes = np.array(self.boxes, np.float64).reshape(-1, 4)
        file_names = self._find_images()
        is_difficult = np.array(self.is_difficult, np.bool_)
        n, images = len(boxes), len(self.ids)
        source = VocSource(
            *("voc", self.path, label_names, boxes, labels),
            ids=self.ids,
            files=self.files,
            lists=lists,
            first_rows=np.cumsum([0, *self.counts]),
            is_difficult=is_difficult,
            broken_lines=self.broken_lines,
            annotations_folder=self.annotations_folder,
            image_folder=choose_output_folder(
                self.path, self.image_folder, file_names, not self.annotations_folder
            ),
            read_files=self.read_files,
        )
        recorded = fill_sizes(self.image_folder, file_names, self.sizes)
        sizes = np.array(recorded, np.int64).reshape(-1, 2)
        ids = (
            format_position_id(id, k)
            for id, count in zip(self.ids, self.counts, strict=True)
            for k in range(count)
        )
        return Dataset(
            images=Images(
                ids=_make_object_column(self.ids),
                file_names=file_names,
                paths=[os.path.join(self.image_folder, name) for name in file_names],
                splits=splits,
                widths=sizes[:, 0].copy(),
                heights=sizes[:, 1].copy(),
                sources=np.zeros(images, np.int64),
                rows=np.arange(images),
            ),
            label_names=label_names,
            annotation_ids=_make_object_column(list(ids)),
            image_rows=np.repeat(np.arange(images), self.counts),
            labels=labels.copy(),
            boxes=boxes.copy(),
            is_crowd=np.zeros(n, np.bool_),
            is_difficult=is_difficult.copy(),
            source_of=np.zeros(n, np.int64),
            source_rows=np.arange(n),
            sources=(source,),
            findings=tuple(self.findings),
        )


def _make_object_column(ids: list[str]) -> Ids:
    """Return the ids as a column of objects, even if it is empty."""
    column = np.empty(len(ids), object)
    column[:] = ids
    return column


def _is_text(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


def _read_document(path: str) -> ReadFile:
    """Read a document; raise a MalformedXmlError if that fails or it is too large."""
    try:
        return change_detection.read_file(path, "label_file_bytes")
    except OSError as error:
        raise MalformedXmlError(f"cannot be read: {error.strerror or error}") from error


def _read_box(file: VocXml, position: int) -> tuple[float, float, float, float]:
    """Return the box of an object, or _NAN_BOX if it is not four finite numbers."""
    corners = [file.content(position, column) for column in (XMIN, YMIN, XMAX, YMAX)]
    try:
        left, top, right, bottom = map(float, corners)
        if any(b"_" in corner for corner in corners):  # only Python accepts 1_000 as a number
            return _NAN_BOX
    except ValueError:  # a comment or reference between the digits, or not a number
        left, top, right, bottom = (_parse_number(decode_text(corner)) for corner in corners)
    box = (left - 1, top - 1, right, bottom)
    return box if all(map(math.isfinite, box)) else _NAN_BOX


def _parse_number(text: str) -> float:
    return float(text) if _NUMBER.fullmatch(text) else math.nan


def _describe_box(file: VocXml, position: int) -> str:
    texts = [
        decode_text(file.content(position, column))[:40] for column in (XMIN, YMIN, XMAX, YMAX)
    ]
    if not any(texts):
        return "missing"
    return "not four finite numbers: xmin {!r}, ymin {!r}, xmax {!r}, ymax {!r}".format(*texts)


def _read_pixels(content: bytes) -> int | None:
    """Return a width or height: 0 if it is missing, None if it is not a number of pixels."""
    if content.isdigit() and len(content) < 10:
        return int(content)
    text = decode_text(content)
    number = _parse_number(text) if text else 0.0
    return int(number) if 0 <= number < 2**31 else None
