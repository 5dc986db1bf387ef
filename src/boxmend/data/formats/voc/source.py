"""A VOC folder as it was read: its documents, its lists, and the rows of its objects."""

import codecs
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass
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
    text_spans,
)

NO = {"", "0", "false", "no", "unspecified"}  # what a flag or a pose says when it says nothing
_SAYS_NOTHING = {"", "unknown", "unspecified"}
_MOST_EXTRAS = 20  # different ones that are named; files may hold any number


@dataclass(eq=False)
class VocSource(Source):
    """The documents and lists of a VOC folder; one row per object, document by document."""

    ids: list[str]  # of the images: the document's name without .xml, row by row
    files: list[VocXml | bytes | None]  # bytes where they are no VOC document, None where not read
    lists: dict[str, bytes]  # ImageSets/Main, as far as they were asked for
    first_rows: NDArray[np.int64]  # [files + 1] row of each document's first object
    is_difficult: NDArray[np.bool_]  # [n]

    def document(self, row: int) -> Path:
        """The XML file of the image `row` of this source."""
        return self.path / "Annotations" / f"{self.ids[row]}.xml"

    def places(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The file of each object, and its position in there."""
        files = np.searchsorted(self.first_rows, rows, side="right") - 1
        return files, rows - self.first_rows[files]

    def attributes(self, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Pose, truncated and occluded of the objects at these rows, where they say anything."""
        files, positions = self.places(rows)
        return [
            _attributes(self.files[file], position)
            for file, position in zip(files.tolist(), positions.tolist(), strict=True)
        ]

    def extras(self) -> dict[str, int]:
        """Parts, comments, unknown elements and attributes, and what is said of the image."""
        counts: Counter[str] = Counter()
        for file in self.files:
            if isinstance(file, VocXml):
                counts.update("part" if word == "<part> element" else word for word in file.extras)
                counts.update(_said_of_the_image(file))
        named = dict(counts.most_common(_MOST_EXTRAS))
        if unnamed := counts.total() - sum(named.values()):
            named["other element or attribute"] = unnamed
        return named


def _attributes(file: VocXml | bytes | None, position: int) -> dict[str, Any]:
    assert isinstance(file, VocXml)  # only scanned documents have rows
    found: dict[str, Any] = {}
    for name, column in (("pose", POSE), ("truncated", TRUNCATED), ("occluded", OCCLUDED)):
        content = file.content(position, column)
        if content in (b"", b"0", b"Unspecified"):  # nearly always
            continue
        text = decode_text(content)
        if text.lower() not in NO:
            is_count = column != POSE and text.isdecimal() and len(text) < 10
            found[name] = int(text) if is_count else text
    return found


def _said_of_the_image(file: VocXml) -> Iterator[str]:
    if decode_text(file.head_content(SEGMENTED)).lower() not in NO:
        yield "segmented flag"
    for column, word in ((SOURCE, "source of the image"), (OWNER, "owner of the image")):
        content = file.head_content(column)
        texts = (decode_text(content[start:end]) for start, end in text_spans(content))
        if any(text.lower() not in _SAYS_NOTHING for text in texts):
            yield word


def entries(content: bytes, known: Container[str]) -> Iterator[tuple[int, str]]:
    """The images that a list names, with the line of each.

    A line names the image that it spells as a whole, blanks and all, if that is known; else the
    one that its first word spells, since class lists add a flag to each line.
    """
    for number, line in enumerate(content.removeprefix(codecs.BOM_UTF8).splitlines(), 1):
        entry = line.decode("utf-8", "surrogateescape").strip(" \t")
        if entry in known:
            yield number, entry
        elif entry:
            yield number, entry.replace("\t", " ").split(" ", 1)[0]
