"""VOC: Annotations/*.xml with one-based pixels, lists of images in ImageSets/Main, JPEGImages.

Its pixels count from one and both corners belong to the box, so x1 = xmin - 1 and x2 = xmax.
VOC has no list of classes: the label names of a dataset are those its objects have, sorted.
"""

import math
import os
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from boxmend.data.dataset import UNKNOWN, Dataset, Images, make_position_id
from boxmend.data.files import change_detection
from boxmend.data.files.change_detection import ReadFile
from boxmend.data.files.reading import open_file
from boxmend.data.findings import Finding
from boxmend.data.formats.reading import (
    IMAGE_ENDINGS,
    ReadOptions,
    image_size,
    is_safe_name,
    read_file,
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
from boxmend.data.formats.voc.source import NO, VocSource, entries
from boxmend.data.formats.voc.writing import (
    assign_annotation_ids,
    assign_image_paths,
    build_documents,
    list_losses,
)
from boxmend.data.types import Ids
from boxmend.errors import DataError, UsageError

__all__ = [
    "assign_annotation_ids",
    "assign_image_paths",
    "build_documents",
    "list_losses",
    "looks_like",
    "read",
]

SPLIT_ORDER = ("train", "val", "test", "trainval")  # the finer list says more of an image
_APPLE_DOUBLE = b"\x00\x05\x16\x07"  # begins the "._NAME" files that archives made on a Mac hold
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NAN_BOX = (math.nan,) * 4


def looks_like(path: Path) -> bool:
    """Whether this is a folder with Annotations/*.xml, or with lists of images at least."""
    folder = path / "Annotations"
    if not os.path.isdir(folder):
        return False
    lists = os.path.isdir(path / "ImageSets" / "Main")
    return lists or next(_documents(folder), None) is not None


def read(path: Path, split: str | None, options: ReadOptions) -> Dataset:
    """Read the documents that a list of ImageSets/Main names, or all there are.

    Without a split, each image belongs to the first of train, val, test, trainval and the other
    lists that names it, else to "all".
    """
    known = _known_ids(path / "Annotations")
    list_files = _lists(path / "ImageSets" / "Main")
    lists = {name: file.content or b"" for name, file in list_files.items()}
    reading = _Reading(path, _image_folder(path, options))
    if split is None:
        ids = known
        splits = _first_lists(path, lists, set(known), reading.findings)
    else:
        lists = {split: _chosen(path, lists, split)}
        ids = _listed(path, split, lists[split], set(known), reading.findings)
        splits = dict.fromkeys(ids, split)
    reading.read_files += [list_files[name] for name in lists]
    for id in ids:
        reading.add(id)
    return reading.dataset([splits.get(id, "all") for id in reading.ids], lists)


def _documents(folder: Path) -> Iterator[str]:
    """Names of the XML files in a folder and below, relative to it, with forward slashes."""

    def fail(error: OSError) -> None:
        raise DataError(f"{error.filename}: {error.strerror}") from error

    for place, _, names in os.walk(folder, onerror=fail):
        prefix = os.path.relpath(place, folder).replace(os.sep, "/") + "/"
        for name in names:
            if name.endswith(".xml") and not _is_apple_double(os.path.join(place, name), name):
                yield name if prefix == "./" else prefix + name


def _is_apple_double(path: str, name: str) -> bool:
    if not name.startswith("._"):
        return False
    try:
        with open_file(path) as file:
            return file.read(len(_APPLE_DOUBLE)) == _APPLE_DOUBLE
    except OSError:
        return False  # what is wrong with it is found when it is read as a document


def _known_ids(folder: Path) -> list[str]:
    return sorted(name.removesuffix(".xml") for name in _documents(folder))


def _lists(folder: Path) -> dict[str, ReadFile]:
    """The lists of a folder by name, the usual splits first."""
    if not os.path.isdir(folder):
        return {}
    found = (path for path in sorted(folder.glob("?*.txt")) if os.path.isfile(path))
    paths = {path.name.removesuffix(".txt"): path for path in found}
    first = [name for name in SPLIT_ORDER if name in paths]
    return {name: read_file(paths[name]) for name in dict.fromkeys([*first, *paths])}


def _list_path(path: Path, split: str) -> Path:
    return path / "ImageSets" / "Main" / f"{split}.txt"


def _chosen(path: Path, lists: dict[str, bytes], split: str) -> bytes:
    if split in lists:
        return lists[split]
    there = ", ".join(lists) or "none"
    raise UsageError(f"{path}: no split {split!r} in ImageSets/Main; there is {there}")


def _listed(
    path: Path, split: str, content: bytes, known: Container[str], findings: list[Finding]
) -> list[str]:
    """The images of a list, once each; what it names in vain becomes a finding."""
    place = str(_list_path(path, split))
    ids: dict[str, int] = {}
    for line, id in entries(content, known):
        if not is_safe_name(id):
            findings.append(_unsafe_entry(place, line, id))
        elif id in ids:
            message = f"line {line} names {id!r} again, after line {ids[id]}; remove one"
            findings.append(Finding("duplicate-id", message, place, id))
        elif id not in known:
            missing = path / "Annotations" / f"{id}.xml"
            message = f"line {line} names {id!r}, but there is no {str(missing)!r}"
            findings.append(Finding("malformed", message, place, id))
        else:
            ids[id] = line
    return list(ids)


def _first_lists(
    path: Path, lists: dict[str, bytes], known: Container[str], findings: list[Finding]
) -> dict[str, str]:
    """The first list that names each image."""
    splits: dict[str, str] = {}
    for name, content in lists.items():
        for line, id in entries(content, known):
            if id in known:
                splits.setdefault(id, name)
            elif not is_safe_name(id):
                findings.append(_unsafe_entry(str(_list_path(path, name)), line, id))
    return splits


def _unsafe_entry(place: str, line: int, id: str) -> Finding:
    message = f"line {line} names {id!r}, which leads out of the folder; name an image in it"
    return Finding("unsafe-name", message, place)


def _image_folder(path: Path, options: ReadOptions) -> Path:
    usual = (path / "JPEGImages", path / "images")
    return options.images or next((folder for folder in usual if folder.is_dir()), path)


@dataclass
class _Reading:
    """The columns of a dataset while its documents are read, one after another."""

    path: Path
    image_folder: Path
    findings: list[Finding] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    files: list[VocXml | bytes | None] = field(default_factory=list)
    read_files: list[ReadFile] = field(default_factory=list)
    file_names: list[str] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of each object; empty where it has none
    boxes: list[tuple[float, float, float, float]] = field(default_factory=list)
    is_difficult: list[bool] = field(default_factory=list)
    name_of: dict[bytes, str] = field(default_factory=dict)  # names as they stand in the files

    def add(self, id: str) -> None:
        """Read the document of an image."""
        place = f"{self.path}{os.sep}Annotations{os.sep}{id}.xml"
        if not is_safe_name(id) or not _is_text(id):
            message = "the file's name is no name on every system; rename it"
            self.findings.append(Finding("unsafe-name", message, place))
            return
        content: bytes | None = None
        file: VocXml | bytes | None = None
        try:
            read = _document(place)
            self.read_files.append(read)
            content = read.content or b""
            file = parse_xml(content)
        except MalformedXmlError as error:
            file = content
            self.findings.append(Finding("malformed", f"the file {error}", place, id))
        filename = ""
        if isinstance(file, VocXml):
            filename = decode_text(file.head_content(FILENAME))
            self._add_objects(file, id, place)
        self.file_names.append(self._image_file(id, filename, place))
        self.sizes.append(self._size(file, id, place))
        self.ids.append(id)
        self.files.append(file)
        self.counts.append(len(file) if isinstance(file, VocXml) else 0)

    def _add_objects(self, file: VocXml, id: str, place: str) -> None:
        for position in range(len(file)):
            content = file.content(position, NAME)
            name = self.name_of.get(content)
            if name is None:
                name = self.name_of[content] = decode_text(content)
            if not name:
                self._complain("malformed", "the object has no name", place, id, position)
            difficult = file.content(position, DIFFICULT)
            box = _box(file, position)
            if box is _NAN_BOX:
                message = f"the object's box is {_described_box(file, position)}"
                self._complain("box-not-finite", message, place, id, position)
            self.names.append(name)
            self.boxes.append(box)
            self.is_difficult.append(difficult != b"0" and decode_text(difficult).lower() not in NO)

    def _complain(self, kind: str, message: str, place: str, id: str, position: int) -> None:
        self.findings.append(Finding(kind, message, place, id, make_position_id(id, position)))

    def _image_file(self, id: str, filename: str, place: str) -> str:
        """The image of a document, relative to the folder of images: as named, else by the id."""
        folder = id.rpartition("/")[0]
        named = []
        if is_safe_name(filename):
            beside = f"{folder}/{filename}"
            named = [beside, filename] if folder and "/" not in filename else [filename]
        elif filename:
            message = f"filename {filename!r} leads out of the folder; name an image in it"
            self.findings.append(Finding("unsafe-name", message, place, id))
        by_id = (id + end for ending in IMAGE_ENDINGS for end in (ending, ending.upper()))
        for candidates in (named, by_id):
            for name in candidates:
                if os.path.isfile(f"{self.image_folder}{os.sep}{name}"):
                    return name
        return named[0] if named else f"{id}{IMAGE_ENDINGS[0]}"

    def _size(self, file: VocXml | bytes | None, id: str, place: str) -> tuple[int, int]:
        """Width and height as recorded, else by the image's header, else zeros."""
        if isinstance(file, VocXml):
            width, height = (_pixels(file.head_content(column)) for column in (WIDTH, HEIGHT))
            if width and height:
                return width, height
            if width is None or height is None:
                message = "size holds something else than numbers of pixels"
                self.findings.append(Finding("malformed", message, place, id))
        return image_size(self.image_folder / self.file_names[-1]) or (0, 0)

    def dataset(self, splits: list[str], lists: dict[str, bytes]) -> Dataset:
        """All that was read."""
        label_names = tuple(sorted(set(self.names) - {""}))
        label_of = {name: label for label, name in enumerate(label_names)} | {"": UNKNOWN}
        labels = np.array([label_of[name] for name in self.names], np.int64)
        boxes = np.array(self.boxes, np.float64).reshape(-1, 4)
        is_difficult = np.array(self.is_difficult, np.bool_)
        n, images = len(boxes), len(self.ids)
        source = VocSource(
            *("voc", self.path, label_names, boxes, labels),
            ids=self.ids,
            files=self.files,
            lists=lists,
            first_rows=np.cumsum([0, *self.counts]),
            is_difficult=is_difficult,
            read_files=self.read_files,
        )
        sizes = np.array(self.sizes, np.int64).reshape(-1, 2)
        ids = (
            make_position_id(id, k)
            for id, count in zip(self.ids, self.counts, strict=True)
            for k in range(count)
        )
        return Dataset(
            images=Images(
                ids=_column(self.ids),
                file_names=self.file_names,
                paths=[os.path.join(self.image_folder, name) for name in self.file_names],
                splits=splits,
                widths=sizes[:, 0].copy(),
                heights=sizes[:, 1].copy(),
                sources=np.zeros(images, np.int64),
                rows=np.arange(images),
            ),
            label_names=label_names,
            annotation_ids=_column(list(ids)),
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


def _column(ids: list[str]) -> Ids:
    """Names as a column that stays one of names even when it is empty."""
    column = np.empty(len(ids), object)
    column[:] = ids
    return column


def _is_text(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


def _document(place: str) -> ReadFile:
    """Read a document; MalformedXml where it cannot or should not be read."""
    try:
        return change_detection.read_file(place, "label_file_bytes")
    except OSError as error:
        raise MalformedXmlError(f"cannot be read: {error.strerror or error}") from error


def _box(file: VocXml, position: int) -> tuple[float, float, float, float]:
    """The box of an object, or _NAN_BOX where it is not four finite numbers."""
    corners = [file.content(position, column) for column in (XMIN, YMIN, XMAX, YMAX)]
    try:
        left, top, right, bottom = map(float, corners)
        if any(b"_" in corner for corner in corners):  # which Python takes for a number's
            return _NAN_BOX
    except ValueError:  # a comment or a reference between the digits, or no number at all
        left, top, right, bottom = (_number(decode_text(corner)) for corner in corners)
    box = (left - 1, top - 1, right, bottom)
    return box if all(map(math.isfinite, box)) else _NAN_BOX


def _number(text: str) -> float:
    return float(text) if _NUMBER.fullmatch(text) else math.nan


def _described_box(file: VocXml, position: int) -> str:
    texts = [
        decode_text(file.content(position, column))[:40] for column in (XMIN, YMIN, XMAX, YMAX)
    ]
    if not any(texts):
        return "missing"
    return "not four finite numbers: xmin {!r}, ymin {!r}, xmax {!r}, ymax {!r}".format(*texts)


def _pixels(content: bytes) -> int | None:
    """A width or height; 0 where it is not given, None where it is something else."""
    if content.isdigit() and len(content) < 10:
        return int(content)
    text = decode_text(content)
    number = _number(text) if text else 0.0
    return int(number) if 0 <= number < 2**31 else None
