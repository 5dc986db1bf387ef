"""Exact sizes of annotations in COCO documents, and their category ids.

Evaluation needs both: COCO groups objects by `area`, the pixels of the outline, and a Dataset's
x2 - x1 may differ from the width in the document by a last bit.
"""

from typing import Any

import msgspec
import numpy as np

from boxmend.data.dataset import ADDED, Dataset
from boxmend.data.formats.coco.document import ENTRIES_PER_CHUNK, UNDECODABLE
from boxmend.data.formats.coco.source import CocoSource
from boxmend.data.types import Floats


class _Measures(msgspec.Struct, gc=False):
    bbox: tuple[float, float, float, float] | None = None  # a box around the segmentation
    area: float | None = None


_entry_decoder = msgspec.json.Decoder(_Measures)
_list_decoder = msgspec.json.Decoder(list[_Measures])


def measure_annotations(dataset: Dataset) -> tuple[Floats, Floats]:
    """Return areas [n], and widths and heights [n, 2], of the annotations.

    They come from the COCO document if it has them and the box did not change since. An area that
    is missing, negative or not finite is replaced by width times height, as in other formats.
    """
    sizes: Floats = dataset.boxes[:, 2:] - dataset.boxes[:, :2]
    areas = np.full(len(dataset), np.nan)
    for index, source in enumerate(dataset.sources):
        if isinstance(source, CocoSource):
            is_from_source = (dataset.source_of == index) & (dataset.source_rows != ADDED)
            rows = np.flatnonzero(is_from_source)
            source_rows = dataset.source_rows[rows]
            is_same = (dataset.boxes[rows] == source.boxes[source_rows]).all(axis=1)
            rows, source_rows = rows[is_same], source_rows[is_same]
            measures = _read_measures(source)[source_rows]  # [k, 3]
            is_known = np.isfinite(measures[:, :2]).all(axis=1)
            sizes[rows[is_known]] = measures[is_known, :2]
            areas[rows] = measures[:, 2]
    with np.errstate(invalid="ignore", over="ignore"):
        is_area = np.isfinite(areas) & (areas >= 0)
        return np.where(is_area, areas, sizes.prod(axis=1)), sizes


def get_category_ids(dataset: Dataset) -> tuple[int | str, ...]:
    """Return the COCO category ids of the labels: those of the sources, else label + 1.

    If several sources have a label, the id of the first one counts. No id is used twice.
    """
    known: dict[str, int | str] = {}
    for source in dataset.sources:
        if isinstance(source, CocoSource):
            for name, number in zip(source.label_names, source.category_ids, strict=True):
                if number not in known.values():
                    known.setdefault(name, number)
    if not known:
        return tuple(range(1, len(dataset.label_names) + 1))
    numbers = [number for number in known.values() if isinstance(number, int)]
    next_number = max(numbers, default=0) + 1
    for name in dataset.label_names:
        if name not in known:
            known[name], next_number = next_number, next_number + 1
    return tuple(known[name] for name in dataset.label_names)


def find_ambiguous_category_ids(dataset: Dataset) -> set[int | str]:
    """Return the category ids that have different names in different documents."""
    meanings: dict[int | str, str] = {}
    ambiguous = set()
    for source in dataset.sources:
        if isinstance(source, CocoSource):
            for name, number in zip(source.label_names, source.category_ids, strict=True):
                if meanings.setdefault(number, name) != name:
                    ambiguous.add(number)
    return ambiguous


def find_ambiguous_image_ids(dataset: Dataset) -> set[int | str]:
    """Return the image ids that several documents use for different images."""
    images = dataset.images
    seen: set[int | str] = set()
    ambiguous: set[int | str] = set()
    for index, source in enumerate(dataset.sources):
        if isinstance(source, CocoSource):
            ids = set(source.image_ids[images.rows[images.sources == index]].tolist())
            ambiguous |= ids & seen
            seen |= ids
    return ambiguous


def _read_measures(source: CocoSource) -> Floats:
    """Return width, height and area [n, 3] of all entries of a document; NaN if missing."""
    entries, n = source.annotations, len(source.annotations)
    measures = np.full((n, 3), np.nan)
    for first in range(0, n, ENTRIES_PER_CHUNK):
        rows = range(first, min(first + ENTRIES_PER_CHUNK, n))
        portion = source.data[entries.starts[first] : entries.ends[rows[-1]]]
        try:
            decoded: list[Any] = _list_decoder.decode(b"[" + portion + b"]")
        except UNDECODABLE:
            decoded = [_decode_entry(source.entry(entries, row)) for row in rows]
        measures[rows.start : rows.stop] = [
            (np.nan,) * 3
            if entry is None
            else (*(entry.bbox or (np.nan,) * 4)[2:], np.nan if entry.area is None else entry.area)
            for entry in decoded
        ]
    return measures


def _decode_entry(entry: bytes) -> _Measures | None:
    try:
        return _entry_decoder.decode(entry)
    except UNDECODABLE:
        return None
