"""What COCO documents say of an annotation's size, to the last bit, and how they number classes.

Scores ask for it: COCO parts sizes by `area`, the pixels of the outline, and a Dataset's x2 - x1
may differ from the width that was read by a last bit.
"""

from typing import Any

import msgspec
import numpy as np

from boxmend.data.dataset import ADDED, Dataset
from boxmend.data.formats.coco.document import CHUNK, UNDECODABLE
from boxmend.data.formats.coco.source import CocoSource
from boxmend.data.types import Floats


class _Measures(msgspec.Struct, gc=False):
    bbox: tuple[float, float, float, float]
    area: float | None = None


_one = msgspec.json.Decoder(_Measures)
_many = msgspec.json.Decoder(list[_Measures])


def measure_annotations(dataset: Dataset) -> tuple[Floats, Floats]:
    """Areas [n], and widths and heights [n, 2], of the annotations.

    They are those of the COCO document where it gives them and the box was not changed since; an
    area that is missing, negative or not finite is width times height, and so is that of any
    other format.
    """
    sizes: Floats = dataset.boxes[:, 2:] - dataset.boxes[:, :2]
    areas = np.full(len(dataset), np.nan)
    for index, source in enumerate(dataset.sources):
        if isinstance(source, CocoSource):
            mine = np.flatnonzero((dataset.source_of == index) & (dataset.source_rows != ADDED))
            rows = dataset.source_rows[mine]
            is_same = (dataset.boxes[mine] == source.boxes[rows]).all(axis=1)
            mine, rows = mine[is_same], rows[is_same]
            told = _measured(source)[rows]  # [k, 3]
            is_told = np.isfinite(told[:, :2]).all(axis=1)
            sizes[mine[is_told]] = told[is_told, :2]
            areas[mine] = told[:, 2]
    with np.errstate(invalid="ignore", over="ignore"):
        is_area = np.isfinite(areas) & (areas >= 0)
        return np.where(is_area, areas, sizes.prod(axis=1)), sizes


def get_category_ids(dataset: Dataset) -> tuple[int | str, ...]:
    """COCO's numbers of the labels: those of the sources, else label + 1.

    Of several sources the first to name a label counts; a number that is taken is not used again.
    """
    known: dict[str, int | str] = {}
    for source in dataset.sources:
        if isinstance(source, CocoSource):
            for name, number in zip(source.label_names, source.category_ids, strict=True):
                if number not in known.values():
                    known.setdefault(name, number)
    if not known:
        return tuple(range(1, len(dataset.label_names) + 1))
    following = max((one for one in known.values() if isinstance(one, int)), default=0) + 1
    for name in dataset.label_names:
        if name not in known:
            known[name], following = following, following + 1
    return tuple(known[name] for name in dataset.label_names)


def find_ambiguous_category_ids(dataset: Dataset) -> set[int | str]:
    """Numbers that mean one class in one document and another class in another."""
    meanings: dict[int | str, str] = {}
    contested = set()
    for source in dataset.sources:
        if isinstance(source, CocoSource):
            for name, number in zip(source.label_names, source.category_ids, strict=True):
                if meanings.setdefault(number, name) != name:
                    contested.add(number)
    return contested


def find_ambiguous_image_ids(dataset: Dataset) -> set[int | str]:
    """Ids that mean one image in one document and another image in another."""
    images = dataset.images
    seen: set[int | str] = set()
    contested: set[int | str] = set()
    for index, source in enumerate(dataset.sources):
        if isinstance(source, CocoSource):
            ids = set(source.image_ids[images.rows[images.sources == index]].tolist())
            contested |= ids & seen
            seen |= ids
    return contested


def _measured(source: CocoSource) -> Floats:
    """Width, height and area [n, 3] of all entries of a document; NaN where one tells none."""
    entries, n = source.annotations, len(source.annotations)
    measured = np.full((n, 3), np.nan)
    for first in range(0, n, CHUNK):
        rows = range(first, min(first + CHUNK, n))
        portion = source.data[entries.starts[first] : entries.ends[rows[-1]]]
        try:
            found: list[Any] = _many.decode(b"[" + portion + b"]")
        except UNDECODABLE:
            found = [_single(source.entry(entries, row)) for row in rows]
        measured[rows.start : rows.stop] = [
            (np.nan,) * 3
            if one is None
            else (*one.bbox[2:], np.nan if one.area is None else one.area)
            for one in found
        ]
    return measured


def _single(entry: bytes) -> _Measures | None:
    try:
        return _one.decode(entry)
    except UNDECODABLE:
        return None
