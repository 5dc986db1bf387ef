"""VOC: Annotations/*.xml, lists of images in ImageSets/Main, and images in JPEGImages.

Pixels count from one and both corners belong to the box, so x1 = xmin - 1 and x2 = xmax. VOC has no
list of classes: the label names of a dataset are the sorted names of its objects.
"""

import math
import os
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from boxmend.data.dataset import UNKNOWN, Dataset, Images, format_position_id
from boxmend.data.files import change_detection
from boxmend.data.files.change_detection import ReadFile
from boxmend.data.files.reading import open_file
from boxmend.data.findings import Finding
from boxmend.data.formats.reading import (
    IMAGE_ENDINGS,
    ReadOptions,
    is_safe_name,
    read_file,
    read_image_size,
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
from boxmend.data.formats.voc.source import FALSE_TEXTS, VocSource, read_list_entries
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

SPLIT_ORDER = ("train", "val", "test", "trainval")  # the more specific lists first
_APPLE_DOUBLE = b"\x00\x05\x16\x07"  # the start of the "._NAME" files in archives made on a Mac
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NAN_BOX = (math.nan,) * 4


def looks_like(path: Path) -> bool:
    """Return whether this is a folder with Annotations/*.xml, or with lists of images."""
    folder = path / "Annotations"
    if not os.path.isdir(folder):
        return False
    has_lists = os.path.isdir(path / "ImageSets" / "Main")
    return has_lists or next(_find_documents(folder), None) is not None


def read(path: Path, split: str | None, options: ReadOptions) -> Dataset:
    """Read the documents that a list of ImageSets/Main names, or all documents.

    Without a split, an image belongs to the first list that names it (train, val, test, trainval,
    then others), or else to "all".
    """
    known = _find_ids(path / "Annotations")
    list_files = _read_lists(path / "ImageSets" / "Main")
    lists = {name: file.content or b"" for name, file in list_files.items()}
    reader = _Reader(path, _find_image_folder(path, options))
    if split is None:
        ids = known
        splits = _assign_splits(path, lists, set(known), reader.findings)
    else:
        lists = {split: _choose_list(path, lists, split)}
        ids = _read_list(path, split, lists[split], set(known), reader.findings)
        splits = dict.fromkeys(ids, split)
    reader.read_files += [list_files[name] for name in lists]
    for id in ids:
        reader.add(id)
    return reader.make_dataset([splits.get(id, "all") for id in reader.ids], lists)


def _find_documents(folder: Path) -> Iterator[str]:
    """Yield the XML files in a folder and below, relative to it, with forward slashes."""

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
        return False  # reading it as a document reports the problem


def _find_ids(folder: Path) -> list[str]:
    return sorted(name.removesuffix(".xml") for name in _find_documents(folder))


def _read_lists(folder: Path) -> dict[str, ReadFile]:
    """Return the lists of a folder by name, the usual splits first."""
    if not os.path.isdir(folder):
        return {}
    files = (path for path in sorted(folder.glob("?*.txt")) if os.path.isfile(path))
    paths = {path.name.removesuffix(".txt"): path for path in files}
    usual = [name for name in SPLIT_ORDER if name in paths]
    return {name: read_file(paths[name]) for name in dict.fromkeys([*usual, *paths])}


def _get_list_path(path: Path, split: str) -> Path:
    return path / "ImageSets" / "Main" / f"{split}.txt"


def _choose_list(path: Path, lists: dict[str, bytes], split: str) -> bytes:
    if split in lists:
        return lists[split]
    known = ", ".join(lists) or "none"
    raise UsageError(f"{path}: no split {split!r} in ImageSets/Main; the splits are {known}")


def _read_list(
    path: Path, split: str, content: bytes, known: Container[str], findings: list[Finding]
) -> list[str]:
    """Return the images of a list, once each; invalid lines become findings."""
    list_path = str(_get_list_path(path, split))
    ids: dict[str, int] = {}
    for line, id in read_list_entries(content, known):
        if not is_safe_name(id):
            findings.append(_report_unsafe_line(list_path, line, id))
        elif id in ids:
            message = f"line {line} names {id!r} again, after line {ids[id]}; remove one"
            findings.append(Finding("duplicate-id", message, list_path, id))
        elif id not in known:
            missing = path / "Annotations" / f"{id}.xml"
            message = f"line {line} names {id!r}, but there is no {str(missing)!r}"
            findings.append(Finding("malformed", message, list_path, id))
        else:
            ids[id] = line
    return list(ids)


def _assign_splits(
    path: Path, lists: dict[str, bytes], known: Container[str], findings: list[Finding]
) -> dict[str, str]:
    """Return for each image the first list that names it."""
    splits: dict[str, str] = {}
    for name, content in lists.items():
        for line, id in read_list_entries(content, known):
            if id in known:
                splits.setdefault(id, name)
            elif not is_safe_name(id):
                list_path = str(_get_list_path(path, name))
                findings.append(_report_unsafe_line(list_path, line, id))
    return splits


def _report_unsafe_line(list_path: str, line: int, id: str) -> Finding:
    message = f"line {line} names {id!r}, which leads out of the folder; name an image inside it"
    return Finding("unsafe-name", message, list_path)


def _find_image_folder(path: Path, options: ReadOptions) -> Path:
    usual = (path / "JPEGImages", path / "images")
    return options.images or next((folder for folder in usual if folder.is_dir()), path)


@dataclass
class _Reader:
    """The reader of the documents of a dataset, with the columns so far."""

    path: Path
    image_folder: Path
    findings: list[Finding] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    files: list[VocXml | bytes | None] = field(default_factory=list)
    read_files: list[ReadFile] = field(default_factory=list)
    file_names: list[str] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of the objects; empty without a name
    boxes: list[tuple[float, float, float, float]] = field(default_factory=list)
    is_difficult: list[bool] = field(default_factory=list)
    decoded_names: dict[bytes, str] = field(default_factory=dict)  # by their bytes in the files

    def add(self, id: str) -> None:
        """Read the document of an image."""
        path = f"{self.path}{os.sep}Annotations{os.sep}{id}.xml"
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
        self.file_names.append(self._find_image(id, filename, path))
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

    def _find_image(self, id: str, filename: str, path: str) -> str:
        """Return the image of a document relative to the image folder, by its filename or id."""
        folder = id.rpartition("/")[0]
        by_filename = []
        if is_safe_name(filename):
            in_folder = f"{folder}/{filename}"
            has_folder = folder and "/" not in filename
            by_filename = [in_folder, filename] if has_folder else [filename]
        elif filename:
            message = f"filename {filename!r} leads out of the folder; name an image inside it"
            self.findings.append(Finding("unsafe-name", message, path, id))
        by_id = (id + end for ending in IMAGE_ENDINGS for end in (ending, ending.upper()))
        for candidates in (by_filename, by_id):
            for name in candidates:
                if os.path.isfile(f"{self.image_folder}{os.sep}{name}"):
                    return name
        return by_filename[0] if by_filename else f"{id}{IMAGE_ENDINGS[0]}"

    def _read_size(self, file: VocXml | bytes | None, id: str, path: str) -> tuple[int, int]:
        """Return the recorded width and height, else those of the image's header, else zeros."""
        if isinstance(file, VocXml):
            width, height = (_read_pixels(file.head_content(column)) for column in (WIDTH, HEIGHT))
            if width and height:
                return width, height
            if width is None or height is None:
                message = "the width or height in size is not a number of pixels"
                self.findings.append(Finding("malformed", message, path, id))
        return read_image_size(self.image_folder / self.file_names[-1]) or (0, 0)

    def make_dataset(self, splits: list[str], lists: dict[str, bytes]) -> Dataset:
        """Return the dataset of all documents read so far."""
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
            format_position_id(id, k)
            for id, count in zip(self.ids, self.counts, strict=True)
            for k in range(count)
        )
        return Dataset(
            images=Images(
                ids=_make_object_column(self.ids),
                file_names=self.file_names,
                paths=[os.path.join(self.image_folder, name) for name in self.file_names],
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
