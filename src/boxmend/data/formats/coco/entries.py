"""Entries of a COCO document into columns; what does not fit is told as a finding."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import as_ids
from boxmend.data.files.limits import ensure_within_limit
from boxmend.data.findings import Finding
from boxmend.data.formats.coco.document import (
    UNDECODABLE,
    MisjudgedError,
    Parsed,
    chunks,
    ensure_count,
    members,
)
from boxmend.data.formats.reading import is_safe_name
from boxmend.data.types import Ids

NO_ID = "\0no id"  # no document holds it: stands for ids that are none
NOT_A_BOX = (math.nan, math.nan, math.nan, math.nan)


class AnnotationEntry(msgspec.Struct, gc=False):
    """What is read of an annotation; the rest stays in its bytes."""

    id: int | str
    image_id: int | str
    category_id: int | str
    bbox: tuple[float, float, float, float]
    iscrowd: int | bool | None = 0
    difficult: int | bool | None = 0


class PlainAnnotation(msgspec.Struct, gc=False):
    """The same as nearly every file has it; telling numbers from other ids costs time."""

    id: int
    image_id: int
    category_id: int
    bbox: tuple[float, float, float, float]
    iscrowd: int = 0
    difficult: int = 0


class ImageEntry(msgspec.Struct, gc=False):
    """What is read of an image."""

    id: int | str
    file_name: str
    width: int | None = 0
    height: int | None = 0


class CategoryEntry(msgspec.Struct):
    """What is read of a category."""

    id: int | str
    name: str


READ_KEYS = {
    key for kind in (AnnotationEntry, ImageEntry, CategoryEntry) for key in kind.__struct_fields__
}


@dataclass
class AnnotationColumns:
    """The annotations of one document, row by row as they stand in it."""

    ids: Ids
    image_ids: Ids
    category_ids: Ids
    boxes: NDArray[np.float64]  # [n, 4] xyxy
    is_crowd: NDArray[np.bool_]
    is_difficult: NDArray[np.bool_]


class IdColumn:
    """A column of ids that is filled portion by portion: integers until another kind comes."""

    def __init__(self, length: int):
        self.values: Ids = np.empty(length, np.int64)

    def put(self, rows: slice, ids: list[Any], is_plain: bool) -> None:
        """Set the ids at `rows`; `is_plain` says that they are integers, if perhaps long ones."""
        if is_plain and self.values.dtype != object:
            try:
                self.values[rows] = np.fromiter(ids, np.int64, len(ids))
                return
            except OverflowError:
                pass
        column = as_ids(ids)
        if column.dtype == object and self.values.dtype != object:
            self.values = self.values.astype(object)
        self.values[rows] = column


Entry = TypeVar("Entry")


@dataclass
class Reader:
    """One document being read, with the findings so far."""

    parsed: Parsed
    path: Path
    findings: list[Finding] = field(default_factory=list)

    def contents(self) -> tuple[list[ImageEntry], list[CategoryEntry], AnnotationColumns]:
        """Read all there is: images, categories and annotations."""
        return self.images(), self.categories(), self.annotations()

    def annotations(self) -> AnnotationColumns:
        """Read the annotations."""
        n = len(self.parsed.spans["annotations"])
        boxes = np.empty((n, 4))
        is_crowd, is_difficult = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        ids, image_ids, category_ids = IdColumn(n), IdColumn(n), IdColumn(n)
        for rows, portion, entries in self._annotation_portions():
            here = slice(rows.start, rows.stop)
            is_plain = type(entries[0]) is PlainAnnotation
            ids.put(here, [entry.id for entry in entries], is_plain)
            image_ids.put(here, [entry.image_id for entry in entries], is_plain)
            category_ids.put(here, [entry.category_id for entry in entries], is_plain)
            sides = chain.from_iterable([entry.bbox for entry in entries])
            boxes[here] = np.fromiter(sides, np.float64, 4 * len(rows)).reshape(-1, 4)
            if any(flags := [entry.iscrowd for entry in entries]):
                is_crowd[here] = flags
            if b"difficult" in portion or b"\\" in portion:  # else no key can be of that name
                is_difficult[here] = [bool(entry.difficult) for entry in entries]
        with np.errstate(over="ignore"):
            boxes[:, 2:] += boxes[:, :2]
        columns = AnnotationColumns(
            ids=ids.values,
            image_ids=image_ids.values,
            category_ids=category_ids.values,
            boxes=boxes,
            is_crowd=is_crowd,
            is_difficult=is_difficult,
        )
        self._report_duplicates(columns.ids, "annotations", is_annotation=True)
        self._report_overflow(columns)
        return columns

    def images(self) -> list[ImageEntry]:
        """Read the images; an unsafe file name is told and replaced by an empty one."""
        portions = self._portions("images", ImageEntry, self._image)
        images = [image for _, portion in portions for image in portion]
        for image in images if _has_doubtful([image.file_name for image in images]) else []:
            if not is_safe_name(image.file_name):
                message = (
                    f"image {image.id}: file_name {image.file_name!r} is absolute or leaves the "
                    "folder of the images; make it relative"
                )
                self._report("unsafe-name", message, image=str(image.id))
                image.file_name = ""
        self._report_duplicates(as_ids([image.id for image in images]), "images")
        return images

    def categories(self) -> list[CategoryEntry]:
        """Read the categories."""
        portions = self._portions("categories", CategoryEntry, self._category)
        categories = [category for _, portion in portions for category in portion]
        self._report_duplicates(as_ids([category.id for category in categories]), "categories")
        return categories

    def _annotation_portions(
        self,
    ) -> Iterator[tuple[range, bytes, list[PlainAnnotation] | list[AnnotationEntry]]]:
        """Decode the annotations, by the plain type where a portion fits it."""
        decoder = msgspec.json.Decoder(list[PlainAnnotation])
        general = msgspec.json.Decoder(list[AnnotationEntry])
        for rows, portion in chunks(self.parsed, "annotations"):
            try:
                yield rows, portion, _all_of(rows, decoder.decode(portion))
                continue
            except UNDECODABLE:
                ensure_count(portion, len(rows))
            try:
                yield rows, portion, general.decode(portion)
            except UNDECODABLE:
                slowly = (AnnotationEntry, self._annotation)
                yield rows, portion, [self._slowly("annotations", row, *slowly) for row in rows]

    def _portions(
        self, key: str, kind: type[Entry], one_by_one: Callable[[int, dict[str, Any]], Entry]
    ) -> Iterator[tuple[range, list[Entry]]]:
        """Decode an array portion by portion, entry by entry where a portion does not fit."""
        decoder = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]  # a type at run time
        for rows, portion in chunks(self.parsed, key):
            try:
                yield rows, _all_of(rows, decoder.decode(portion))
            except UNDECODABLE:
                ensure_count(portion, len(rows))
                yield rows, [self._slowly(key, row, kind, one_by_one) for row in rows]

    def _slowly(
        self,
        key: str,
        row: int,
        kind: type[Entry],
        lenient: Callable[[int, dict[str, Any]], Entry],
    ) -> Entry:
        try:
            return msgspec.json.decode(self.parsed.entry(key, row), type=kind)
        except UNDECODABLE:
            return lenient(row, _values(self.parsed.original(key, row)))

    def _annotation(self, row: int, values: dict[str, Any]) -> AnnotationEntry:
        """An annotation that does not fit, as far as it can be told what it means."""
        identity = self._identity(row, values, "annotations")
        box = _four_numbers(values.get("bbox"))
        if box is None:
            message = f"bbox is {_shown(values.get('bbox'))}, not four finite numbers x, y, w, h"
            self._report("box-not-finite", message, annotation_id=identity)
        return AnnotationEntry(
            id=identity,
            image_id=_as_id(values.get("image_id"), NO_ID),
            category_id=_as_id(values.get("category_id"), NO_ID),
            bbox=box or NOT_A_BOX,
            iscrowd=_flag(values.get("iscrowd")),
            difficult=_flag(values.get("difficult")),
        )

    def _image(self, row: int, values: dict[str, Any]) -> ImageEntry:
        identity = self._identity(row, values, "images")
        name = values.get("file_name")
        if not isinstance(name, str):
            message = f"image {identity}: file_name is {_shown(name)}, not a name"
            self._report("malformed", message, image=str(identity))
            name = f"{row}"
        sizes = [values.get("width"), values.get("height")]
        width, height = (
            int(size) if isinstance(size, int | float) and 0 < size < 2**31 else 0 for size in sizes
        )
        return ImageEntry(id=identity, file_name=name, width=width, height=height)

    def _category(self, row: int, values: dict[str, Any]) -> CategoryEntry:
        identity = self._identity(row, values, "categories")
        name = values.get("name")
        if not isinstance(name, str):
            self._report("malformed", f"category {identity}: name is {_shown(name)}, not a name")
            name = f"category {identity}"
        return CategoryEntry(id=identity, name=name)

    def _identity(self, row: int, values: dict[str, Any], key: str) -> int | str:
        identity = _as_id(values.get("id"), NO_ID)
        if identity != NO_ID:
            return identity
        place = f"{key}[{row}]"
        shown = _shown(values.get("id"))
        self._report("malformed", f"{place}: its id is {shown}; give it one of its own")
        return place

    def _report_duplicates(self, ids: Ids, key: str, is_annotation: bool = False) -> None:
        for identity, count in duplicates(ids):
            where = f"{count} {key} have the id {identity!r}; ids must be unique"
            self._report("duplicate-id", where, annotation_id=identity if is_annotation else None)

    def _report_overflow(self, columns: AnnotationColumns) -> None:
        """Tell boxes whose sides overflow when added up; others were told when they were read."""
        told = {one.annotation_id for one in self.findings if one.kind == "box-not-finite"}
        for row in np.flatnonzero(~np.isfinite(columns.boxes).all(axis=1)):
            if (identity := columns.ids[[row]].tolist()[0]) not in told:
                self._report("box-not-finite", "its sides overflow", annotation_id=identity)

    def _report(
        self,
        kind: str,
        message: str,
        *,
        image: str | None = None,
        annotation_id: int | str | None = None,
    ) -> None:
        ensure_within_limit("malformed_entries", len(self.findings) + 1, self.path)
        self.findings.append(Finding(kind, message, str(self.path), image, annotation_id))


def _all_of(rows: range, entries: list[Entry]) -> list[Entry]:
    """The entries, if they are as many as there should be."""
    if len(entries) != len(rows):
        raise MisjudgedError
    return entries


def duplicates(ids: Ids) -> list[tuple[int | str, int]]:
    """The ids that occur more than once, with how often."""
    if ids.dtype != object:
        if (ids[1:] > ids[:-1]).all():
            return []  # in order, as many files have them: the cheapest proof
        ordered = np.sort(ids)
        if not (ordered[1:] == ordered[:-1]).any():
            return []
        values, counts = np.unique(ids, return_counts=True)
        return list(zip(values[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True))
    counted: dict[int | str, int] = {}
    for identity in ids.tolist():
        counted[identity] = counted.get(identity, 0) + 1
    return [(identity, count) for identity, count in counted.items() if count > 1]


def rows_of(ids: Ids, known: Ids) -> NDArray[np.int64]:
    """For each id the row of `known` that has it first, or -1."""
    if ids.dtype != object and known.dtype != object:
        if not len(known):
            return np.full(len(ids), -1, np.int64)
        if known.min() >= 0 and known.max() < 8 * len(known) + 2**20:
            return _rows_by_table(ids, known)
        order = np.argsort(known, kind="stable")
        place = np.minimum(np.searchsorted(known[order], ids), len(known) - 1)
        rows = order[place]
        return np.where(known[rows] == ids, rows, -1)
    first: dict[Any, int] = {}
    for row, identity in enumerate(known.tolist()):
        first.setdefault(identity, row)
    return np.fromiter((first.get(one, -1) for one in ids.tolist()), np.int64, len(ids))


def _rows_by_table(ids: Ids, known: Ids) -> NDArray[np.int64]:
    """The same for ids that are small numbers, as they mostly are: one look-up instead of many."""
    table = np.full(int(known.max()) + 2, -1, np.int64)
    table[known[::-1]] = np.arange(len(known))[::-1]  # backwards: the first one stays
    if len(ids) and (ids.min() < 0 or ids.max() >= len(table)):
        ids = np.where((ids >= 0) & (ids < len(table)), ids, len(table) - 1)
    rows: NDArray[np.int64] = table[ids]
    return rows


def _has_doubtful(names: list[str]) -> bool:
    """Whether any name might be unsafe, by one look at all of them."""
    text = "\n".join(names)
    marks = ("..", "\\", "\0", ":", "\n/", "/\n", "\n\n")
    at_the_ends = not text or text[0] in "/\n" or text[-1] in "/\n"
    return at_the_ends or any(mark in text for mark in marks)


def _values(entry: bytes) -> dict[str, Any]:
    """What is read of an entry, each value decoded by itself; as bytes where that fails."""
    try:
        spans = members(entry, READ_KEYS)
    except UNDECODABLE:
        return {}
    return {key: _value(entry[slice(*span)]) for key, span in spans.items()}


def _value(text: bytes) -> Any:
    try:
        return json.loads(text)  # unlike others it knows NaN
    except (ValueError, RecursionError):
        return text


def _four_numbers(value: Any) -> tuple[float, float, float, float] | None:
    if not isinstance(value, list) or len(value) != 4:
        return None
    if not all(isinstance(side, int | float) and not isinstance(side, bool) for side in value):
        return None
    try:
        x, y, w, h = (float(side) for side in value)
    except OverflowError:
        return None
    return (x, y, w, h) if all(map(math.isfinite, (x, y, w, h))) else None


def _as_id(value: Any, otherwise: str) -> int | str:
    """An id, also where it is a whole number written as a float, as tables export them."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int | str) and not isinstance(value, bool) else otherwise


def _flag(value: Any) -> int:
    return int(bool(value)) if isinstance(value, bool | int | float) else 0


def _shown(value: Any) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
