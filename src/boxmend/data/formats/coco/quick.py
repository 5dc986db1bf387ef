"""Change box, area and category of COCO annotations quickly, by a pattern on their bytes.

Most documents write all their annotations in the same layout. The pattern of one annotation patches
all that match it; `document.find_members` handles the others.
"""

import re

import numpy as np
from numpy.typing import NDArray

from boxmend.data.formats.coco.document import UNDECODABLE, find_all_members
from boxmend.data.formats.documents import format_numbers

BoxTexts = list[bytes | None]
"""A new box as texts: x, y, width and height (None if unchanged), and the area."""
NUMBER = rb"-?[0-9][0-9.eE+-]*+"
STRING = rb'"[^"\\]*+"'
_NUMBER, _STRING = re.compile(NUMBER), re.compile(STRING)
_BOX = re.compile(rb"(\[\s*)" + NUMBER + (rb"(\s*,\s*)" + NUMBER) * 3 + rb"(\s*\])")


def format_boxes(
    xywh: NDArray[np.float64], is_same: NDArray[np.bool_], is_moved: NDArray[np.bool_]
) -> tuple[BoxTexts, list[int]]:
    """Return the texts of the moved boxes, five each, and the first index of each row.

    Rows that did not move have the index -1. A single list is much faster than a million small
    lists, which the garbage collector would scan.
    """
    moved = np.flatnonzero(is_moved)
    sides = np.nan_to_num(xywh[moved])
    texts: BoxTexts = list(format_numbers(np.column_stack([sides, sides[:, 2] * sides[:, 3]])))
    rows, columns = np.nonzero(is_same[moved])
    for index in (5 * rows + columns).tolist():
        texts[index] = None
    first = np.full(len(xywh), -1)
    first[moved] = 5 * np.arange(len(moved))
    return texts, first.tolist()


class Template:
    """A pattern of the layout that the annotations of a document share.

    It comes from one entry: the keys in their order, the bytes between them, and the type of each
    value. An entry that matches is a flat object with exactly these keys, each once, and with
    numbers where numbers are replaced, so no further check is needed.
    """

    def __init__(self, entry: bytes):
        self._groups: dict[str, int] = {}  # the index of each key's group
        pattern = self._make_pattern(entry)
        self._match = re.compile(pattern).fullmatch if pattern is not None else None

    def _make_pattern(self, entry: bytes) -> bytes | None:
        """Return a pattern with groups for the numbers to replace and for the bytes between."""
        try:
            spans = sorted(find_all_members(entry).items(), key=lambda item: item[1])
        except UNDECODABLE:
            return None
        pattern, position = b"(", 0
        for key, (start, end) in spans:
            part = self._make_part(key, entry[start:end])
            if part is None:
                return None
            pattern += re.escape(entry[position:start]) + part
            position = end
        return pattern + re.escape(entry[position:]) + b")" if "bbox" in self._groups else None

    def _make_part(self, key: str, value: bytes) -> bytes | None:
        """Return the pattern of one value; None if its type cannot be matched safely."""
        replaced = rb")(" + NUMBER + rb")("  # between the groups before and after it
        if key == "bbox":
            box = _BOX.fullmatch(value)
            if box is None:
                return None
            self._groups[key] = self._next_group()
            self._groups["last of bbox"] = self._groups[key] + 6
            return replaced.join(re.escape(text) for text in box.groups())
        if _NUMBER.fullmatch(value):
            if key not in ("area", "category_id"):
                return NUMBER
            self._groups[key] = self._next_group()
            return replaced
        if key in ("area", "category_id"):
            return None
        if _STRING.fullmatch(value):
            return STRING
        return re.escape(value) if value in (b"[]", b"null") else None

    def _next_group(self) -> int:
        return max(self._groups.values(), default=-1) + 2

    def fill(
        self, data: bytes, span: tuple[int, int], box: BoxTexts | None, category: bytes | None
    ) -> bytes | None:
        """Return the entry at `span` with new box, area and category; None without a match."""
        match = self._match(data, *span) if self._match is not None else None
        if match is None:
            return None
        texts, groups = list(match.groups()), self._groups
        if box is not None:
            group = groups["bbox"]
            for text in box[:4]:
                if text is not None:
                    texts[group] = text
                group += 2
            if "area" in groups and box[4] is not None:
                texts[groups["area"]] = box[4]
        if category is not None:
            if "category_id" not in groups:
                return None
            texts[groups["category_id"]] = category
        return b"".join(texts)
