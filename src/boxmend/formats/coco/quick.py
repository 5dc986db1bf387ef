"""The quick way to change box, area and category of a COCO annotation: by patterns on its bytes.

It is taken only where a glance shows that it is exact: in an object with no object inside and
no backslash, a quoted key followed by a colon can be nothing but a key of that object, and
where it stands only once, it is the one. Everything else goes the way of `document.members`.
"""

import re

import numpy as np
from numpy.typing import NDArray

from boxmend.formats.documents import numbers

BoxTexts = list[bytes | None]
"""A new box as text: x, y, width and height, None where that one stays; and the area."""
_NUMBER = rb"([-+.0-9eE]+)"
_BBOX = re.compile(rb'"bbox"\s*:\s*\[\s*' + rb"\s*,\s*".join([_NUMBER] * 4) + rb"\s*\]")
_AREA = re.compile(rb'"area"\s*:\s*' + _NUMBER)
_CATEGORY = re.compile(rb'"category_id"\s*:\s*(-?[0-9]+|"[^"]*")\s*[,}]')
_EMPTY_OUTLINE = re.compile(rb'"segmentation"\s*:\s*(?:\[\s*\]|null)\s*[,}]')


def box_texts(
    xywh: NDArray[np.float64], is_same: NDArray[np.bool_], is_moved: NDArray[np.bool_]
) -> tuple[BoxTexts, list[int]]:
    """The texts of the boxes that moved, five by five, and where those of each row begin.

    One long list and no list for each box: a million small ones would keep the garbage
    collector busier than the work itself. Rows that did not move begin at -1.
    """
    moved = np.flatnonzero(is_moved)
    sides = np.nan_to_num(xywh[moved])
    texts: BoxTexts = list(numbers(np.column_stack([sides, sides[:, 2] * sides[:, 3]])))
    rows, columns = np.nonzero(is_same[moved])
    for place in (5 * rows + columns).tolist():
        texts[place] = None
    first = np.full(len(xywh), -1)
    first[moved] = 5 * np.arange(len(moved))
    return texts, first.tolist()


class Template:
    """The layout that most annotations of a document share, as one pattern.

    It is learned from one entry: the order of its keys and what stands between the numbers. An
    entry that does not match is looked at more closely.
    """

    def __init__(self, entry: bytes):
        colon = b": " if b'"bbox": ' in entry else b":"
        self._comma = b", " if b", " in entry else b","
        token = rb"[-+.0-9eE]+"
        box = rb'"bbox"' + colon + rb"\[)(" + (rb")" + self._comma + rb"(").join([token] * 4)
        area = rb'"area"' + colon + rb")" + token + rb"("
        self._is_area_first = 0 <= entry.find(b'"area"') < entry.find(b'"bbox"')
        first, second = (area, box) if self._is_area_first else (box, area)
        first += rb")(\]" if first is box else b""
        second += rb")(\]" if second is box else b""
        self._match = re.compile(rb"(.*" + first + rb".*" + second + rb".*)", re.DOTALL).fullmatch

    def filled(self, entry: bytes, box: BoxTexts) -> bytes | None:
        """The entry with a new box and area, or None where it is not of this layout."""
        found = self._match(entry)
        if found is None:
            return None
        comma, area = self._comma, box[4] or b"0"
        if self._is_area_first:
            head, middle, x, y, w, h, tail = found.groups()
            head, middle = head + area + middle, b""
        else:
            head, x, y, w, h, middle, tail = found.groups()
            middle += area
        x, y, w, h = box[0] or x, box[1] or y, box[2] or w, box[3] or h
        return b"".join((head, x, comma, y, comma, w, comma, h, middle, tail))


def patched(
    entry: bytes, box: BoxTexts | None, category: bytes | None, template: Template
) -> bytes | None:
    """The entry with box, area and category changed, or None where that needs a closer look."""
    if entry.count(b"{") != 1 or b"\\" in entry:
        return None
    if box is not None:
        if entry.count(b'"bbox"') != 1 or entry.count(b'"area"') > 1 or _has_outline(entry):
            return None
        moved = template.filled(entry, box) or _with_box(entry, box)
        if moved is None:
            return None
        entry = moved
    if category is not None:
        found = _CATEGORY.search(entry)
        if found is None or entry.count(b'"category_id"') != 1:
            return None
        entry = entry[: found.start(1)] + category + entry[found.end(1) :]
    return entry


def _with_box(entry: bytes, box: BoxTexts) -> bytes | None:
    """The same as `Template.filled`, for any layout."""
    found = _BBOX.search(entry)
    if found is None:
        return None
    for k in (3, 2, 1, 0):  # from behind, so that positions stay
        start, end = found.span(k + 1)
        entry = entry[:start] + (box[k] or entry[start:end]) + entry[end:]
    if b'"area"' in entry:
        area = _AREA.search(entry)
        if area is None:  # it may be a string, and then who knows what
            return None
        entry = entry[: area.start(1)] + (box[4] or b"0") + entry[area.end(1) :]
    return entry


def _has_outline(entry: bytes) -> bool:
    """Whether a flat entry has a segmentation, or something that might be one."""
    if b'"segmentation"' not in entry or b'"segmentation": []' in entry:
        return entry.count(b'"segmentation"') > 1
    return _EMPTY_OUTLINE.search(entry) is None or entry.count(b'"segmentation"') != 1
