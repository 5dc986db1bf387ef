"""Change box, area and category of COCO annotations quickly, by a pattern on their bytes.

Most documents write all their annotations in the same layout. The pattern of one annotation patches
all that match it; `document.find_members` handles the others.
"""

import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from boxmend.data.formats.coco.document import UNDECODABLE, append_members, find_all_members
from boxmend.data.formats.documents import format_numbers

BoxTexts = list[bytes | None]
"""A new box as texts: x, y, width and height (None if unchanged), and the area."""
NUMBER = rb"-?[0-9][0-9.eE+-]*+"
STRING = rb'"[^"\\]*+"'
POLYGONS = rb"(?>\[[0-9eE.,+\-\s\[\]]*\])"
RUN_LENGTHS = rb'\{(?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+\}'  # a mask, without nested objects
OUTLINE = rb"(?:" + POLYGONS + rb"|" + RUN_LENGTHS + rb"|null)"
OUTLINE_KEY, NOTE_KEY = "segmentation", "boxmend"
STALE_NOTE = b'{"stale": ["segmentation"]}'  # for a box that no longer fits its outline
MAX_EXAMPLES = 16  # entries to learn a pattern from; the first may have a layout of its own
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
    value. An entry that matches has exactly these keys, each once, and numbers where numbers are
    replaced, so no further check is needed.
    """

    def __init__(self, entry: bytes, *, drops_outlines: bool):
        self._drops_outlines = drops_outlines
        self._groups: dict[str, int] = {}  # the index of each key's group
        pattern = self._make_pattern(entry)
        self._match = re.compile(pattern).fullmatch if pattern is not None else None
        self._note = append_members(entry, {NOTE_KEY: STALE_NOTE}).new if pattern else b""

    @property
    def is_usable(self) -> bool:
        """Return whether the entry has a layout that a pattern can describe."""
        return self._match is not None

    def _make_pattern(self, entry: bytes) -> bytes | None:
        """Return a pattern with groups for the values to replace and for the bytes between."""
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
        end_group = b")(" + re.escape(entry[position:]) + b")"  # a note comes before it
        return pattern + end_group if "bbox" in self._groups else None

    def _make_part(self, key: str, value: bytes) -> bytes | None:
        """Return the pattern of one value; None if its type cannot be matched safely."""
        if key == NOTE_KEY:
            return None
        if key == "bbox":
            box = _BOX.fullmatch(value)
            if box is None:
                return None
            self._groups[key] = self._next_group()
            self._groups["last of bbox"] = self._groups[key] + 6
            return (rb")(" + NUMBER + rb")(").join(re.escape(text) for text in box.groups())
        kinds = {"area": NUMBER, "category_id": NUMBER, OUTLINE_KEY: OUTLINE}
        if key in kinds:
            self._groups[key] = self._next_group()
            return rb")(" + kinds[key] + rb")(" if re.fullmatch(kinds[key], value) else None
        if _NUMBER.fullmatch(value):
            return NUMBER
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
            self._fill_box(texts, box)
        if category is not None:
            if "category_id" not in groups:
                return None
            texts[groups["category_id"]] = category
        return b"".join(texts)

    def _fill_box(self, texts: list[bytes], box: BoxTexts) -> None:
        """Replace the box in `texts`, and the values that depend on it: outline or flag, area."""
        groups = self._groups
        group = groups["bbox"]
        for text in box[:4]:
            if text is not None:
                texts[group] = text
            group += 2
        outline = groups.get(OUTLINE_KEY)
        if outline is not None and not _is_empty(texts[outline]):
            if not self._drops_outlines:
                texts[-1] = self._note + texts[-1]
                return
            texts[outline] = b"[]"
        if "area" in groups and box[4] is not None:
            texts[groups["area"]] = box[4]


def learn_template(examples: Iterable[bytes], *, drops_outlines: bool) -> Template:
    """Return a pattern of the first example that has one; without any it matches no entry."""
    for entry in examples:
        template = Template(entry, drops_outlines=drops_outlines)
        if template.is_usable:
            return template
    return Template(b"", drops_outlines=drops_outlines)


def _is_empty(outline: bytes) -> bool:
    """Return whether an outline that the pattern matched has no content."""
    return outline == b"null" or not outline[1:-1].strip()
