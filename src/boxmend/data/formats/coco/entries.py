"""Decode the entries of a COCO document into columns; malformed values become findings."""

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
    MisreadError,
    Parsed,
    ensure_count,
    find_members,
    iterate_chunks,
)
from boxmend.data.formats.coco.values import (
    decode_value,
    quote,
    surround,
    to_box,
    to_flag,
    to_id,
)
from boxmend.data.types import Ids

NO_ID = "\0no id"  # a value that no document has, for missing or invalid ids
NAN_BOX = (math.nan, math.nan, math.nan, math.nan)


class AnnotationEntry(msgspec.Struct, gc=False):
    """The values of an annotation that are read; the others stay in its bytes."""

    id: int | str
    image_id: int | str
    category_id: int | str
    bbox: tuple[float, float, float, float]
    iscrowd: int | bool | None = 0
    difficult: int | bool | None = 0


class PlainAnnotation(msgspec.Struct, gc=False):
    """The same with the types of nearly all files; distinguishing other types costs time."""

    id: int
    image_id: int
    category_id: int
    bbox: tuple[float, float, float, float]
    iscrowd: int = 0
    difficult: int = 0


class ImageEntry(msgspec.Struct, gc=False):
    """The values of an image that are read."""

    id: int | str
    file_name: str
    width: int | None = 0
    height: int | None = 0


class CategoryEntry(msgspec.Struct):
    """The values of a category that are read."""

    id: int | str
    name: str


READ_KEYS = {
    key for kind in (AnnotationEntry, ImageEntry, CategoryEntry) for key in kind.__struct_fields__
} | {"segmentation"}


@dataclass
class AnnotationColumns:
    """The annotations of one document, in its order."""

    ids: Ids
    image_ids: Ids
    category_ids: Ids
    boxes: NDArray[np.float64]  # [n, 4] xyxy
    is_crowd: NDArray[np.bool_]
    is_difficult: NDArray[np.bool_]
    is_outlined: NDArray[np.bool_]  # [n] whether the box is that around the segmentation


class IdColumn:
    """A column of ids filled chunk by chunk: integers until another type occurs."""

    def __init__(self, length: int):
        self.values: Ids = np.empty(length, np.int64)

    def put(self, rows: slice, ids: list[Any], is_plain: bool) -> None:
        """Set the ids at `rows`; with `is_plain` all are integers, which may not fit 64 bits."""
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
    """The reader of one document, with its findings so far."""

    parsed: Parsed
    path: Path
    takes_polygons: bool = False  # where an annotation has no box
    findings: list[Finding] = field(default_factory=list)
    outlined_rows: list[int] = field(default_factory=list)

    def read_all(self) -> tuple[list[ImageEntry], list[CategoryEntry], AnnotationColumns]:
        """Read images, categories and annotations."""
        return self.read_images(), self.read_categories(), self.read_annotations()

    def read_annotations(self) -> AnnotationColumns:
        """Read the annotations."""
        n = len(self.parsed.spans["annotations"])
        boxes = np.empty((n, 4))
        is_crowd, is_difficult = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        ids, image_ids, category_ids = IdColumn(n), IdColumn(n), IdColumn(n)
        for rows, portion, entries in self._decode_annotations():
            chunk = slice(rows.start, rows.stop)
            is_plain = type(entries[0]) is PlainAnnotation
            ids.put(chunk, [entry.id for entry in entries], is_plain)
            image_ids.put(chunk, [entry.image_id for entry in entries], is_plain)
            category_ids.put(chunk, [entry.category_id for entry in entries], is_plain)
            sides = chain.from_iterable([entry.bbox for entry in entries])
            boxes[chunk] = np.fromiter(sides, np.float64, 4 * len(rows)).reshape(-1, 4)
            if any(flags := [entry.iscrowd for entry in entries]):
                is_crowd[chunk] = flags
            if b"difficult" in portion or b"\\" in portion:  # else no key can have that name
                is_difficult[chunk] = [bool(entry.difficult) for entry in entries]
        with np.errstate(over="ignore"):
            boxes[:, 2:] += boxes[:, :2]
        columns = AnnotationColumns(
            ids=ids.values,
            image_ids=image_ids.values,
            category_ids=category_ids.values,
            boxes=boxes,
            is_crowd=is_crowd,
            is_difficult=is_difficult,
            is_outlined=np.isin(np.arange(n), self.outlined_rows),
        )
        if self.outlined_rows:
            message = f"{len(self.outlined_rows):,} boxes are those around segmentation polygons"
            self._report("polygon", message)
        self._report_duplicates(columns.ids, "annotations")
        self._report_overflow(columns)
        return columns

    def read_images(self) -> list[ImageEntry]:
        """Read the images with their names as written, which may be unsafe."""
        portions = self._decode_chunks("images", ImageEntry, self._repair_image)
        images = [image for _, portion in portions for image in portion]
        self._report_duplicates(as_ids([image.id for image in images]), "images")
        return images

    def read_categories(self) -> list[CategoryEntry]:
        """Read the categories."""
        portions = self._decode_chunks("categories", CategoryEntry, self._repair_category)
        categories = [category for _, portion in portions for category in portion]
        self._report_duplicates(as_ids([category.id for category in categories]), "categories")
        return categories

    def _decode_annotations(
        self,
    ) -> Iterator[tuple[range, bytes, list[PlainAnnotation] | list[AnnotationEntry]]]:
        """Decode the annotations chunk by chunk, with the plain type if a chunk fits it."""
        decoder = msgspec.json.Decoder(list[PlainAnnotation])
        general = msgspec.json.Decoder(list[AnnotationEntry])
        for rows, portion in iterate_chunks(self.parsed, "annotations"):
            try:
                yield rows, portion, _ensure_complete(rows, decoder.decode(portion))
                continue
            except UNDECODABLE:
                ensure_count(portion, len(rows))
            try:
                yield rows, portion, general.decode(portion)
            except UNDECODABLE:
                repair = (AnnotationEntry, self._repair_annotation)
                entries = [self._decode_entry("annotations", row, *repair) for row in rows]
                yield rows, portion, entries

    def _decode_chunks(
        self, key: str, kind: type[Entry], repair: Callable[[int, dict[str, Any]], Entry]
    ) -> Iterator[tuple[range, list[Entry]]]:
        """Decode an array chunk by chunk, and entry by entry if a chunk does not fit the type."""
        decoder = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]  # a type at run time
        for rows, portion in iterate_chunks(self.parsed, key):
            try:
                yield rows, _ensure_complete(rows, decoder.decode(portion))
            except UNDECODABLE:
                ensure_count(portion, len(rows))
                yield rows, [self._decode_entry(key, row, kind, repair) for row in rows]

    def _decode_entry(
        self,
        key: str,
        row: int,
        kind: type[Entry],
        repair: Callable[[int, dict[str, Any]], Entry],
    ) -> Entry:
        try:
            return msgspec.json.decode(self.parsed.entry(key, row), type=kind)
        except UNDECODABLE:
            return repair(row, _decode_values(self.parsed.original(key, row)))

    def _repair_annotation(self, row: int, values: dict[str, Any]) -> AnnotationEntry:
        """Build an annotation from the valid values of a malformed entry."""
        identity = self._read_id(row, values, "annotations")
        box = to_box(values.get("bbox"))
        around = surround(values.get("segmentation")) if box is None else None
        if around is not None and self.takes_polygons:
            self.outlined_rows.append(row)
            box = around
        if box is None:
            message = f"bbox is {quote(values.get('bbox'))}, not four finite numbers x, y, w, h"
            kind = "box-not-finite"
            if around is not None:  # a polygon where a box is expected, as in YOLO
                message += "; pass --polygons box (polygons='box') to box its segmentation"
                kind = "malformed"
            self._report(kind, message, annotation_id=identity)
        return AnnotationEntry(
            id=identity,
            image_id=to_id(values.get("image_id"), NO_ID),
            category_id=to_id(values.get("category_id"), NO_ID),
            bbox=box or NAN_BOX,
            iscrowd=to_flag(values.get("iscrowd")),
            difficult=to_flag(values.get("difficult")),
        )

    def _repair_image(self, row: int, values: dict[str, Any]) -> ImageEntry:
        identity = self._read_id(row, values, "images")
        name = values.get("file_name")
        if not isinstance(name, str):
            message = f"image {identity}: file_name is {quote(name)}, not a name"
            self._report("malformed", message, image=str(identity))
            name = f"{row}"
        sizes = [values.get("width"), values.get("height")]
        width, height = (
            int(size) if isinstance(size, int | float) and 0 < size < 2**31 else 0 for size in sizes
        )
        return ImageEntry(id=identity, file_name=name, width=width, height=height)

    def _repair_category(self, row: int, values: dict[str, Any]) -> CategoryEntry:
        identity = self._read_id(row, values, "categories")
        name = values.get("name")
        if not isinstance(name, str):
            self._report("malformed", f"category {identity}: name is {quote(name)}, not a name")
            name = f"category {identity}"
        return CategoryEntry(id=identity, name=name)

    def _read_id(self, row: int, values: dict[str, Any], key: str) -> int | str:
        identity = to_id(values.get("id"), NO_ID)
        if identity != NO_ID:
            return identity
        place = f"{key}[{row}]"
        value = quote(values.get("id"))
        message = f"{place}: its id is {value}; assign a unique id"
        self._report_entry("malformed", message, key, place)
        return place

    def _report_duplicates(self, ids: Ids, key: str) -> None:
        for identity, count in find_duplicates(ids):
            message = f"{count} {key} have the id {identity!r}; ids must be unique"
            self._report_entry("duplicate-id", message, key, identity)

    def _report_entry(self, kind: str, message: str, key: str, identity: int | str) -> None:
        """Report an error about an entry of the list `key`."""
        image = str(identity) if key == "images" else None
        annotation_id = identity if key == "annotations" else None
        self._report(kind, message, image=image, annotation_id=annotation_id)

    def _report_overflow(self, columns: AnnotationColumns) -> None:
        """Report boxes with x + width or y + height too large; NaN is reported already."""
        for row in np.flatnonzero(np.isinf(columns.boxes).any(axis=1)):
            identity = columns.ids[[row]].tolist()[0]
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


def _ensure_complete(rows: range, entries: list[Entry]) -> list[Entry]:
    """Return the entries; raise a MisreadError if their number is wrong."""
    if len(entries) != len(rows):
        raise MisreadError
    return entries


def find_duplicates(ids: Ids) -> list[tuple[int | str, int]]:
    """Return the ids that occur more than once, with their counts."""
    if ids.dtype != object:
        if (ids[1:] > ids[:-1]).all():
            return []  # sorted, as in many files, which is the fastest check
        ordered = np.sort(ids)
        if not (ordered[1:] == ordered[:-1]).any():
            return []
        values, counts = np.unique(ids, return_counts=True)
        return list(zip(values[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True))
    counter: dict[int | str, int] = {}
    for identity in ids.tolist():
        counter[identity] = counter.get(identity, 0) + 1
    return [(identity, count) for identity, count in counter.items() if count > 1]


def find_rows(ids: Ids, known: Ids) -> NDArray[np.int64]:
    """Return for each id the first row of `known` with that id, or -1."""
    if ids.dtype != object and known.dtype != object:
        if not len(known):
            return np.full(len(ids), -1, np.int64)
        if known.min() >= 0 and known.max() < 8 * len(known) + 2**20:
            return _find_rows_by_table(ids, known)
        order = np.argsort(known, kind="stable")
        ranks = np.minimum(np.searchsorted(known[order], ids), len(known) - 1)
        rows = order[ranks]
        return np.where(known[rows] == ids, rows, -1)
    first: dict[Any, int] = {}
    for row, identity in enumerate(known.tolist()):
        first.setdefault(identity, row)
    return np.fromiter((first.get(identity, -1) for identity in ids.tolist()), np.int64, len(ids))


def _find_rows_by_table(ids: Ids, known: Ids) -> NDArray[np.int64]:
    """Find rows with a table, which is faster for small integers."""
    table = np.full(int(known.max()) + 2, -1, np.int64)
    table[known[::-1]] = np.arange(len(known))[::-1]  # in reverse, so that the first row stays
    if len(ids) and (ids.min() < 0 or ids.max() >= len(table)):
        ids = np.where((ids >= 0) & (ids < len(table)), ids, len(table) - 1)
    rows: NDArray[np.int64] = table[ids]
    return rows


def _decode_values(entry: bytes) -> dict[str, Any]:
    """Decode each value of an entry by itself; keep its bytes if that fails."""
    try:
        spans = find_members(entry, READ_KEYS)
    except UNDECODABLE:
        return {}
    return {key: decode_value(entry[slice(*span)]) for key, span in spans.items()}
