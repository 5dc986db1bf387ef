"""Read files of CVAT: "CVAT for images 1.1", as XML or as a zip file.

Boxes are identified by their attribute `region`. Boxes of `export.json` that are missing in the
file were deleted. CVAT does not record which images were reviewed, so all images in the file count.
"""

from __future__ import annotations

import io
import lzma
import math
import zipfile
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from boxmend.data.files.limits import ensure_within_limit, get_limit
from boxmend.data.types import Box
from boxmend.errors import DataError
from boxmend.repair.export.cvat import REGION
from boxmend.repair.export.naming import escape_for_one_line
from boxmend.repair.importing.tasks import (
    ExportedRegion,
    ExportManifest,
    ReturnedFile,
    ReturnedRegion,
    ReviewedImage,
    round_box,
)

VERSION = "1.1"
MAX_DEPTH = 20  # files of CVAT have seven levels
MAX_TEXT_CHARACTERS = 10_000  # that are read of an element; CVAT cuts attributes at 4,096
PIECE_BYTES = 2**20
CORNERS = ("xtl", "ytl", "xbr", "ybr")
DOCUMENT = "annotations.xml"
_ZIP_ERRORS = (  # that a damaged or hostile archive can raise
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, EOFError),
    *(RuntimeError, NotImplementedError, ValueError, OverflowError),
)


def unzip(path: Path, data: bytes) -> Iterator[bytes]:
    """Yield the document in a zip file of CVAT piece by piece."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = archive.getinfo(DOCUMENT).file_size
            ensure_within_limit("export_bytes", size, path, f"{DOCUMENT} in it")
            with archive.open(DOCUMENT) as file:  # reads at most that size
                while piece := file.read(PIECE_BYTES):
                    yield piece
    except KeyError as error:
        raise DataError(
            f'{path}: does not contain {DOCUMENT}; export as "CVAT for images 1.1"'
        ) from error
    except _ZIP_ERRORS as error:
        raise DataError(
            f"{path}: cannot be read as a zip file ({error}); export it from CVAT again"
        ) from error


def read(path: Path, pieces: Iterable[bytes], manifest: ExportManifest) -> ReturnedFile:
    """Read the images of an export that a file of CVAT has."""
    exported = {
        escape_for_one_line(image.file_name): image.annotations for image in manifest.images
    }
    document = _parse(path, pieces, exported)
    images = document.images
    if not images:
        raise DataError(f"{path}: has none of the exported images; name the file of the right task")
    boxes = [box for image in images for box in image.regions]
    if boxes and not any(box.key for box in boxes):
        raise DataError(
            f"{path}: no box has the attribute `{REGION}`, because the labels of the task do not "
            "declare it; create the task with labels.json, and import annotations.xml again"
        )
    return ReturnedFile(
        to="cvat",
        data_sha256=manifest.data_sha256,
        images=tuple(image.finish(exported[image.name], document.dumped) for image in images),
        num_unfinished=len(exported.keys() - {image.name for image in images}),
        num_foreign=document.num_foreign,
    )


class _Image:
    __slots__ = ("name", "regions", "size")

    def __init__(self, attributes: Mapping[str, str]):
        self.name = escape_for_one_line(attributes.get("name", ""))
        self.size = _number(attributes.get("width")), _number(attributes.get("height"))
        self.regions: list[ReturnedRegion] = []

    def finish(self, exported: list[ExportedRegion], when: str | None) -> ReviewedImage:
        return ReviewedImage(self.name, self.size, tuple(exported), tuple(self.regions), when=when)


class _Document:
    """The state and handlers of one parser."""

    def __init__(self, path: Path, wanted: Container[str]):
        self.path = path
        self.wanted = wanted
        self.images: list[_Image] = []
        self.image = _Image({})
        self.num_foreign = 0
        self.dumped: str | None = None
        self.version: str | None = None
        self.stack: list[str] = []
        self.text = ""
        self.num_elements = 0
        self.max_elements = get_limit("export_elements")
        self.box: dict[str, str] = {}
        self.key = ""
        self.attribute: str | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if not self.stack and tag != "annotations":
            self.refuse(f"its outermost element is <{tag[:60]}>")
        if tag == "track":
            self.refuse("it is a video task")
        self.stack.append(tag)
        self.num_elements += 1
        if self.num_elements > self.max_elements:
            ensure_within_limit("export_elements", self.num_elements, self.path)
        if len(self.stack) > MAX_DEPTH:
            self.refuse(f"it nests elements more than {MAX_DEPTH} deep")
        self.text = ""
        match self.stack[1:]:
            case ["image"]:
                self.image = _Image(attributes)
                if self.image.name in self.wanted:
                    self.images.append(self.image)
                else:
                    self.num_foreign += 1
            case ["image", "box"]:
                self.box, self.key = attributes, ""
            case ["image", "box", "attribute"]:
                self.attribute = attributes.get("name")

    def end(self, _tag: str) -> None:
        text = self.text.strip()
        match self.stack[1:]:
            case ["version"]:
                self.version = text
            case ["meta", "dumped"]:
                self.dumped = text[:100]
            case ["image", "box", "attribute"] if self.attribute == REGION:
                self.key = text
            case ["image", "box"]:
                region = ReturnedRegion(self.key, self.box.get("label", ""), _box(self.box))
                self.image.regions.append(region)
        self.stack.pop()
        self.text = ""

    def add_text(self, text: str) -> None:
        if len(self.text) < MAX_TEXT_CHARACTERS:
            self.text += text[:MAX_TEXT_CHARACTERS]

    def doctype(self, *_arguments: object) -> None:
        self.refuse("it declares a document type, which files of CVAT do not have")

    def refuse(self, why: str) -> NoReturn:
        raise DataError(f'{self.path}: is not XML of CVAT: {why}; export as "CVAT for images 1.1"')


def _parse(path: Path, pieces: Iterable[bytes], wanted: Container[str]) -> _Document:
    document, parser = _Document(path, wanted), expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = document.start, document.end
    parser.buffer_text = True
    parser.CharacterDataHandler = document.add_text
    parser.StartDoctypeDeclHandler = document.doctype
    try:
        for piece in pieces:
            parser.Parse(piece)
        parser.Parse(b"", True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        document.refuse(f"{error}")
    if document.version != VERSION:
        document.refuse(f"its version is {document.version!r:.60}, expected {VERSION!r}")
    return document


def _box(attributes: Mapping[str, str]) -> Box | None:
    """Return a box in pixels, or None if it is rotated or invalid."""
    x1, y1, x2, y2 = (_number(attributes.get(name)) for name in CORNERS)
    is_rotated = _number(attributes.get("rotation", "0")) != 0
    return None if is_rotated else round_box(x1, y1, x2, y2)


def _number(text: str | None) -> float:
    try:
        number = float(text or "nan")
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan
