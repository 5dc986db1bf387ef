"""The quick way to change box, area and category of a COCO annotation: by a pattern on its bytes.

Most documents lay out all their annotations alike. What matches the pattern of one of them is
patched by it; everything else goes the way of `document.members`.
"""

import re

import numpy as np
from numpy.typing import NDArray

from boxmend.data.formats.coco.document import UNDECODABLE, all_spans
from boxmend.data.formats.documents import format_numbers

BoxTexts = list[bytes | None]
"""A new box as text: x, y, width and height, None where that one stays; and the area."""
NUMBER = rb"-?[0-9][0-9.eE+-]*+"
STRING = rb'"[^"\\]*+"'
_NUMBER, _STRING = re.compile(NUMBER), re.compile(STRING)
_BOX = re.compile(rb"(\[\s*)" + NUMBER + (rb"(\s*,\s*)" + NUMBER) * 3 + rb"(\s*\])")


def box_texts(
    xywh: NDArray[np.float64], is_same: NDArray[np.bool_], is_moved: NDArray[np.bool_]
) -> tuple[BoxTexts, list[int]]:
    """The texts of the boxes that moved, five by five, and where those of each row begin.

    One long list and no list for each box: a million small ones would keep the garbage
    collector busier than the work itself. Rows that did not move begin at -1.
    """
    moved = np.flatnonzero(is_moved)
    sides = np.nan_to_num(xywh[moved])
    texts: BoxTexts = list(format_numbers(np.column_stack([sides, sides[:, 2] * sides[:, 3]])))
    rows, columns = np.nonzero(is_same[moved])
    for place in (5 * rows + columns).tolist():
        texts[place] = None
    first = np.full(len(xywh), -1)
    first[moved] = 5 * np.arange(len(moved))
    return texts, first.tolist()


class Template:
    """The layout that the annotations of a document share, as one pattern.

    It is learned from one entry: its keys in their order, what stands between them, and of what
    kind each value is. Whatever matches it as a whole is a flat object with just these keys, each
    once, with numbers where numbers are replaced; so there is nothing more to check.
    """

    def __init__(self, entry: bytes):
        self._places: dict[str, int] = {}  # which group holds what
        pattern = self._pattern(entry)
        self._match = re.compile(pattern).fullmatch if pattern is not None else None

    def _pattern(self, entry: bytes) -> bytes | None:
        """A pattern with a group for each number to replace, and for all that is between them."""
        try:
            spans = sorted(all_spans(entry).items(), key=lambda item: item[1])
        except UNDECODABLE:
            return None
        pattern, position = b"(", 0
        for key, (start, end) in spans:
            part = self._part(key, entry[start:end])
            if part is None:
                return None
            pattern += re.escape(entry[position:start]) + part
            position = end
        return pattern + re.escape(entry[position:]) + b")" if "bbox" in self._places else None

    def _part(self, key: str, value: bytes) -> bytes | None:
        """The pattern of one value; None where its kind is one that hides too much."""
        replaced = rb")(" + NUMBER + rb")("  # ends what is before, and begins what is behind
        if key == "bbox":
            box = _BOX.fullmatch(value)
            if box is None:
                return None
            self._places[key] = self._next_place()
            self._places["last of bbox"] = self._places[key] + 6
            return replaced.join(re.escape(text) for text in box.groups())
        if _NUMBER.fullmatch(value):
            if key not in ("area", "category_id"):
                return NUMBER
            self._places[key] = self._next_place()
            return replaced
        if key in ("area", "category_id"):
            return None
        if _STRING.fullmatch(value):
            return STRING
        return re.escape(value) if value in (b"[]", b"null") else None

    def _next_place(self) -> int:
        return max(self._places.values(), default=-1) + 2

    def filled(
        self, data: bytes, span: tuple[int, int], box: BoxTexts | None, category: bytes | None
    ) -> bytes | None:
        """The entry at `span` with box, area and category new; None if it is laid out otherwise."""
        found = self._match(data, *span) if self._match is not None else None
        if found is None:
            return None
        texts, places = list(found.groups()), self._places
        if box is not None:
            place = places["bbox"]
            for text in box[:4]:
                if text is not None:
                    texts[place] = text
                place += 2
            if "area" in places and box[4] is not None:
                texts[places["area"]] = box[4]
        if category is not None:
            if "category_id" not in places:
                return None
            texts[places["category_id"]] = category
        return b"".join(texts)
