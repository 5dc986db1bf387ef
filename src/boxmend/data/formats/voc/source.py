"""A VOC folder as it was read: its documents, its lists, and the positions of its objects."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import Source
from boxmend.data.formats.voc.scanning import (
    OCCLUDED,
    OWNER,
    POSE,
    SEGMENTED,
    SOURCE,
    TRUNCATED,
    VocXml,
    decode_text,
    find_text_spans,
)

ANNOTATIONS = "Annotations"  # the usual folder of the documents
FALSE_TEXTS = {"", "0", "false", "no", "unspecified"}  # texts of an unset flag or pose
_UNKNOWN_TEXTS = {"", "unknown", "unspecified"}
_MAX_NAMED_EXTRAS = 20  # the others are counted together


@dataclass(eq=False, repr=False)
class VocSource(Source):
    """The documents and lists of a VOC folder; one row per object, document by document."""

    ids: list[str]  # of the images: the document's name without .xml, row by row
    files: list[VocXml | bytes | None]  # bytes if it is not a VOC document, None if not read
    lists: dict[str, bytes]  # the files of ImageSets/Main that were read
    first_rows: NDArray[np.int64]  # [files + 1] row of each document's first object
    is_difficult: NDArray[np.bool_]  # [n]
    annotations_folder: str = ANNOTATIONS  # relative to the dataset, also of a written one
    image_folder: str = "JPEGImages"  # of a written dataset; empty for the dataset itself
    broken_lines: dict[str, set[int]] = field(default_factory=dict)  # numbers from 1, by list

    def document(self, row: int) -> Path:
        """Return the path of the XML file of image `row` of this source."""
        return self.path / self.annotations_folder / f"{self.ids[row]}.xml"

    def image_id(self, row: int) -> str:
        """Return the name of the document of image `row`."""
        return self.ids[row]

    def without_broken_lines(self) -> VocSource:
        """Return the source without lines of lists that name no document, or name one again."""
        lists = dict(self.lists)
        for name, numbers in self.broken_lines.items():
            lines = enumerate(lists[name].splitlines(keepends=True), 1)
            lists[name] = b"".join(line for number, line in lines if number not in numbers)
        return replace(self, lists=lists, broken_lines={})

    def find_positions(
        self, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the file of each object, and its position in the file."""
        files = np.searchsorted(self.first_rows, rows, side="right") - 1
        return files, rows - self.first_rows[files]

    def attributes(self, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Return pose, truncated and occluded of the objects at these rows, if they are set."""
        files, positions = self.find_positions(rows)
        return [
            _read_attributes(self.files[file], position)
            for file, position in zip(files.tolist(), positions.tolist(), strict=True)
        ]

    def extras(self) -> dict[str, int]:
        """Count parts, comments, unknown elements and attributes, and facts about the image."""
        counts: Counter[str] = Counter()
        for file in self.files:
            if isinstance(file, VocXml):
                counts.update("part" if word == "<part> element" else word for word in file.extras)
                counts.update(_list_image_facts(file))
        named = dict(counts.most_common(_MAX_NAMED_EXTRAS))
        if unnamed := counts.total() - sum(named.values()):
            named["other element or attribute"] = unnamed
        return named


def _read_attributes(file: VocXml | bytes | None, position: int) -> dict[str, Any]:
    assert isinstance(file, VocXml)  # only scanned documents have rows
    attributes: dict[str, Any] = {}
    for name, column in (("pose", POSE), ("truncated", TRUNCATED), ("occluded", OCCLUDED)):
        content = file.content(position, column)
        if content in (b"", b"0", b"Unspecified"):  # the usual cases
            continue
        text = decode_text(content)
        if text.lower() not in FALSE_TEXTS:
            is_count = column != POSE and text.isdecimal() and len(text) < 10
            attributes[name] = int(text) if is_count else text
    return attributes


def _list_image_facts(file: VocXml) -> Iterator[str]:
    if decode_text(file.head_content(SEGMENTED)).lower() not in FALSE_TEXTS:
        yield "segmented flag"
    for column, word in ((SOURCE, "source of the image"), (OWNER, "owner of the image")):
        content = file.head_content(column)
        texts = (decode_text(content[start:end]) for start, end in find_text_spans(content))
        if any(text.lower() not in _UNKNOWN_TEXTS for text in texts):
            yield word


def read_list_entries(content: bytes, known: Container[str]) -> Iterator[tuple[int, str]]:
    """Yield line number and name of each image in a list.

    The name is the whole line, with blanks, if that is a known image; else its first word, because
    class lists add a flag to each line.
    """
    for number, line in enumerate(content.removeprefix(codecs.BOM_UTF8).splitlines(), 1):
        entry = line.decode("utf-8", "surrogateescape").strip(" \t")
        if entry in known:
            yield number, entry
        elif entry:
            yield number, entry.replace("\t", " ").split(" ", 1)[0]
