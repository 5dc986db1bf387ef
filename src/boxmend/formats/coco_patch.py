"""COCO documents with a few values changed, entries taken out or put in, and all else as it was."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from boxmend.dataset import ADDED, UNKNOWN, Dataset
from boxmend.formats import coco_compose
from boxmend.formats.coco_json import (
    Entries,
    array_span,
    members,
    separator,
    with_values,
    without_entries,
)
from boxmend.formats.coco_source import CocoSource
from boxmend.formats.documents import DECIMALS, Document, Edit, numbers, splice

STALE = b'{"stale": ["segmentation"]}'  # value of the key `boxmend` where a box left its outline
_TOKEN = rb"([^\s,\[\]{}]+)"
_BBOX = re.compile(rb'"bbox"\s*:\s*\[\s*' + rb"\s*,\s*".join([_TOKEN] * 4) + rb"\s*\]")
_CATEGORY = re.compile(rb'"category_id"\s*:\s*' + _TOKEN)
_AREA = re.compile(rb'"area"\s*:\s*' + _TOKEN)
_TOKENS = re.compile(_TOKEN)
_EMPTY_OUTLINE = re.compile(rb'"segmentation"\s*:\s*(?:\[\s*\]|null)\s*[,}]')
_BBOX_THEN_AREA = re.compile(  # what stands around the five numbers, in the usual order of keys
    rb'("bbox"\s*:\s*\[\s*)[^\s,\]]+(\s*,\s*)[^\s,\]]+(\s*,\s*)[^\s,\]]+(\s*,\s*)[^\s,\]]+'
    rb'(\s*\][^{}]*?"area"\s*:\s*)[^\s,}]+'
)
BoxTokens = list[bytes | None]
"""A new box as text: x, y, width and height, None where that one stays; and the area."""


def is_coco(dataset: Dataset) -> bool:
    """Whether all of a dataset was read from COCO documents."""
    sources = dataset.sources
    return bool(sources) and all(isinstance(source, CocoSource) for source in sources)


def documents(dataset: Dataset, segmentation: str) -> Iterator[Document]:
    """One document for each source; one for all where they come from several addresses."""
    patches = [
        Patch(dataset, index, source, segmentation)
        for index, source in enumerate(dataset.sources)
        if isinstance(source, CocoSource)
    ]
    if len({source.group for source in dataset.sources}) > 1:
        yield Document(coco_compose.joined_name(dataset), _joined(dataset, patches))
        return
    for patch in patches:
        categories = categories_with(dataset, patch)
        yield Document(
            patch.source.path.name, splice(patch.source.data, sorted(patch.edits(categories)))
        )


def losses_by_joining(dataset: Dataset) -> list[str]:
    """What is lost where several COCO files become one: all but the first one's other keys."""
    if len({source.group for source in dataset.sources}) < 2:
        return []
    sources = [source for source in dataset.sources if isinstance(source, CocoSource)]
    kept = _other_values(sources[0])
    return [
        f"{key!r} of {source.path.name}"
        for source in sources[1:]
        for key, value in _other_values(source).items()
        if kept.get(key) != value
    ]


def _other_values(source: CocoSource) -> dict[str, bytes]:
    spans = members(source.data)
    names = spans.keys() - {"images", "annotations", "categories"}
    return {key: source.data[slice(*spans[key])] for key in sorted(names)}


def categories_with(dataset: Dataset, patch: "Patch") -> dict[int, int | str]:
    """The category id of every label: the source's own, and new ones where it lacks the name."""
    source = patch.source
    own = dict(zip(source.label_names, source.category_ids, strict=True))
    numbers = [identity for identity in source.category_ids if isinstance(identity, int)]
    following = max(numbers, default=0) + 1
    ids: dict[int, int | str] = {}
    for label, name in enumerate(dataset.label_names):
        if name not in own:
            own[name] = following
            following += 1
        ids[label] = own[name]
    return ids


@dataclass
class Patch:
    """The changes that a dataset makes to one of its COCO sources."""

    dataset: Dataset
    index: int
    source: CocoSource
    segmentation: str
    is_joined: bool = False  # then ids are written as the dataset has them

    def __post_init__(self) -> None:
        mine = np.flatnonzero(self.dataset.source_of == self.index)
        is_added = self.dataset.source_rows[mine] == ADDED
        self.rows = mine[~is_added]  # rows of the dataset that the document holds already
        self.added = mine[is_added]
        self.source_rows = self.dataset.source_rows[self.rows]
        self.images = np.flatnonzero(self.dataset.images.sources == self.index)

    def edits(self, categories: dict[int, int | str]) -> Iterator[Edit]:
        """All that has to change in the document, in no order."""
        source = self.source
        yield from self.changed_entries(categories)
        removed = np.ones(len(source.annotations), np.bool_)
        removed[self.source_rows] = False
        new = [self.new_annotation(row, categories) for row in self.added.tolist()]
        yield from self._array_edits("annotations", source.annotations, removed, new)
        removed = np.ones(len(source.images), np.bool_)
        removed[self.dataset.images.rows[self.images]] = False
        yield from self._array_edits("images", source.images, removed, [])
        new = self.new_categories(categories)
        removed = np.zeros(len(source.categories), np.bool_)
        yield from self._array_edits("categories", source.categories, removed, new)

    def _array_edits(
        self, key: str, entries: Entries, removed: NDArray[np.bool_], new: list[bytes]
    ) -> Iterator[Edit]:
        if not new and not removed.any():
            return
        between = separator(self.source.data, entries)
        added = between.join(new)
        if len(entries):
            if new and not removed.all():
                added = between + added
            yield from without_entries(entries, removed, added)
            return
        span = array_span(self.source.data, key)
        if span is None:
            raise ValueError(f"{self.source.path}: the document has no list {key!r} to add to")
        yield Edit(*span, b"[" + added + b"]")

    def changed_entries(self, categories: dict[int, int | str]) -> Iterator[Edit]:
        """The new bytes of every annotation that changed, in the order of the document."""
        new = _xywh(self.dataset.boxes[self.rows])
        is_same = np.round(_xywh(self.source.boxes[self.source_rows]), DECIMALS) == np.round(
            new, DECIMALS
        )
        is_same |= ~np.isfinite(new)
        is_moved = ~is_same.all(axis=1)
        is_relabelled, is_flagged = self._is_relabelled(), self._is_flagged()
        chosen = np.flatnonzero(is_moved | is_relabelled | is_flagged | self.is_joined)
        boxes = _box_tokens(new[chosen], is_same[chosen], is_moved[chosen])
        json_ids = {label: _json(identity) for label, identity in categories.items()}
        labels = self.dataset.labels[self.rows[chosen]].tolist()
        relabelled = (is_relabelled[chosen] | self.is_joined).tolist()
        special = (is_flagged[chosen] | self.is_joined).tolist()
        data, entries = self.source.data, self.source.annotations
        ends = entries.ends[self.source_rows[chosen]].tolist()
        for k, start in enumerate(entries.starts[self.source_rows[chosen]].tolist()):
            entry = data[start : ends[k]]
            category = json_ids.get(labels[k]) if relabelled[k] else None
            patched = None if special[k] else _patched_quickly(entry, boxes[k], category)
            if patched is None:
                values = self._other_changes(int(chosen[k])) if special[k] else {}
                if category is not None:
                    values["category_id"] = category
                patched = self._patched(entry, values, boxes[k])
            yield Edit(start, ends[k], patched)

    def _is_relabelled(self) -> NDArray[np.bool_]:
        own = {name: label for label, name in enumerate(self.source.label_names)}
        absent = len(own)  # differs from every label of the source
        labels = [own.get(name, absent) for name in self.dataset.label_names]
        now = np.array([*labels, UNKNOWN], np.int64)[self.dataset.labels[self.rows]]
        is_relabelled: NDArray[np.bool_] = now != self.source.labels[self.source_rows]
        return is_relabelled

    def _is_flagged(self) -> NDArray[np.bool_]:
        crowd = self.dataset.is_crowd[self.rows] != self.source.is_crowd[self.source_rows]
        difficult = (
            self.dataset.is_difficult[self.rows] != self.source.is_difficult[self.source_rows]
        )
        is_flagged: NDArray[np.bool_] = crowd | difficult
        return is_flagged

    def _other_changes(self, k: int) -> dict[str, bytes]:
        """Flags, and in a joined document ids, that differ from what the entry says."""
        row, source_row = self.rows[k], self.source_rows[k]
        values = {}
        for key, now, before in (
            ("iscrowd", self.dataset.is_crowd, self.source.is_crowd),
            ("difficult", self.dataset.is_difficult, self.source.is_difficult),
        ):
            if now[row] != before[source_row]:
                values[key] = _json(int(now[row]))
        if self.is_joined:
            if self.dataset.annotation_ids[row] != self.source.annotation_ids[source_row]:
                values["id"] = _json(self.dataset.annotation_ids[row])
            image = int(self.dataset.image_rows[row])
            if image != UNKNOWN:
                values["image_id"] = _json(self.dataset.images.ids[image])
        return values

    def _patched(self, entry: bytes, values: dict[str, bytes], box: BoxTokens | None) -> bytes:
        """The entry with any values changed; exact whatever the entry looks like."""
        spans = members(entry)
        if box is not None:
            has_outline = "segmentation" in spans and not _is_empty(
                entry[slice(*spans["segmentation"])]
            )
            values["bbox"] = _with_tokens(entry[slice(*spans["bbox"])], box[:4])
            if has_outline and self.segmentation == "flag":
                values["boxmend"] = STALE
            elif has_outline:
                values["segmentation"] = b"[]"
            if "area" in spans and "boxmend" not in values:
                values["area"] = box[4] or b"0"
        return with_values(entry, values)

    def new_annotation(self, row: int, categories: dict[int, int | str]) -> bytes:
        """The entry of an annotation that was added."""
        image = int(self.dataset.image_rows[row])
        if self.is_joined:
            image_id = self.dataset.images.ids[image]
        else:
            image_id = self.source.image_ids[self.dataset.images.rows[image]]
        category = categories[int(self.dataset.labels[row])]
        return coco_compose.annotation_entry(self.dataset, row, image_id, category)

    def new_categories(self, categories: dict[int, int | str]) -> list[bytes]:
        """Entries for the labels in use that the document does not know."""
        used = set(self.dataset.labels[np.concatenate([self.rows, self.added])].tolist())
        return [
            coco_compose.category_entry(categories[label], self.dataset.label_names[label])
            for label in sorted(used - {UNKNOWN})
            if self.dataset.label_names[label] not in self.source.label_names
        ]


def _joined(dataset: Dataset, patches: list[Patch]) -> Iterator[bytes]:
    """The first document with the entries of the others put behind its own."""
    first, *others = patches
    categories = categories_with(dataset, first)
    edits = list(first.edits(categories))
    names = coco_compose.unique_file_names(dataset)
    for key in ("images", "annotations", "categories"):
        entries: Entries = getattr(first.source, key)
        new: list[bytes] = []
        for other in others:
            other.is_joined = True
            new += _entries_for_joining(key, other, categories, names)
        if key == "categories":
            new = list(dict.fromkeys(new))
        _append(first.source, entries, key, new, edits)
    return splice(first.source.data, sorted(edits))


def _entries_for_joining(
    key: str, patch: Patch, categories: dict[int, int | str], names: list[str]
) -> list[bytes]:
    if key == "annotations":
        entries = [new for _, _, new in patch.changed_entries(categories)]
        return entries + [patch.new_annotation(row, categories) for row in patch.added.tolist()]
    if key == "images":
        images = patch.dataset.images
        return [
            with_values(
                patch.source.entry(patch.source.images, int(images.rows[row])),
                {"id": _json(images.ids[row]), "file_name": _json(names[row])},
            )
            for row in patch.images.tolist()
        ]
    known = set(patch.dataset.sources[0].label_names)
    return [
        coco_compose.category_entry(categories[label], name)
        for label, name in enumerate(patch.dataset.label_names)
        if name not in known
    ]


def _append(
    source: CocoSource, entries: Entries, key: str, new: list[bytes], edits: list[Edit]
) -> None:
    """Put entries behind an array that may already have an edit at its end."""
    if not new:
        return
    between = separator(source.data, entries)
    text = between.join(new)
    if not len(entries):
        span = array_span(source.data, key)
        if span is None:
            raise ValueError(f"{source.path}: the document has no list {key!r} to add to")
        edits.append(Edit(*span, b"[" + text + b"]"))
        return
    end = int(entries.ends[-1])
    at_end = [edit for edit in edits if edit.end == end]
    if at_end:
        edits.remove(at_end[0])
        start, _, before = at_end[0]
        edits.append(Edit(start, end, before + (between if before else b"") + text))
    else:
        edits.append(Edit(end, end, between + text))


def _box_tokens(
    xywh: NDArray[np.float64], is_same: NDArray[np.bool_], is_moved: NDArray[np.bool_]
) -> list[BoxTokens | None]:
    """The texts of the boxes that moved; None for the others."""
    tokens: list[BoxTokens | None] = [None] * len(xywh)
    moved = np.flatnonzero(is_moved)
    sides = np.nan_to_num(xywh[moved])
    texts: BoxTokens = list(numbers(np.column_stack([sides, sides[:, 2] * sides[:, 3]])))
    for j, k in enumerate(moved.tolist()):
        tokens[k] = texts[5 * j : 5 * j + 5]
    for k, side in zip(*(found.tolist() for found in np.nonzero(is_same)), strict=True):
        if (box := tokens[k]) is not None:
            box[side] = None
    return tokens


def _patched_quickly(entry: bytes, box: BoxTokens | None, category: bytes | None) -> bytes | None:
    """The entry with box, area and category changed, or None where that needs a closer look.

    In an object with no object inside and no backslash, a quoted key followed by a colon can be
    nothing but a key of that object; and where it stands only once, it is the one.
    """
    if entry.count(b"{") != 1 or b"\\" in entry:
        return None
    edits: list[Edit] = []
    if box is not None:
        if entry.count(b'"bbox"') != 1 or entry.count(b'"area"') > 1 or _has_outline(entry):
            return None
        if category is None and None not in box:
            around = _BBOX_THEN_AREA.search(entry)
            if around is not None:
                return _filled(entry, around, box)
        found = _BBOX.search(entry)
        if found is None:
            return None
        edits += [
            Edit(*found.span(k + 1), text) for k, text in enumerate(box[:4]) if text is not None
        ]
        if (found := _AREA.search(entry)) is not None and box[4] is not None:
            edits.append(Edit(*found.span(1), box[4]))
    if category is not None:
        found = _CATEGORY.search(entry)
        if found is None or entry.count(b'"category_id"') != 1:
            return None
        edits.append(Edit(*found.span(1), category))
    return b"".join(splice(entry, sorted(edits)))


def _filled(entry: bytes, around: re.Match[bytes], box: BoxTokens) -> bytes:
    """The entry with all five numbers new: what was around them, and they between."""
    key, first, second, third, to_area = around.groups()
    x, y, w, h, area = box
    start, end = around.span()
    texts = (entry[:start], key, x, first, y, second, w, third, h, to_area, area, entry[end:])
    return b"".join(texts)  # type: ignore[arg-type]  # the caller has seen that none is None


def _has_outline(entry: bytes) -> bool:
    """Whether a flat entry has a segmentation, or something that might be one."""
    if b'"segmentation"' not in entry or b'"segmentation": []' in entry:
        return entry.count(b'"segmentation"') > 1
    return _EMPTY_OUTLINE.search(entry) is None or entry.count(b'"segmentation"') != 1


def _is_empty(value: bytes) -> bool:
    return not msgspec.json.decode(value)


def _xywh(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)


def _with_tokens(array: bytes, tokens: BoxTokens) -> bytes:
    """An array of four numbers with some of them replaced."""
    spans = [match.span(1) for match in _TOKENS.finditer(array)]
    if len(spans) != 4:  # it was no box; it becomes one
        return b"[" + b", ".join(token or b"0" for token in tokens) + b"]"
    edits = [
        Edit(*span, token) for span, token in zip(spans, tokens, strict=True) if token is not None
    ]
    return b"".join(splice(array, edits))


def _json(value: object) -> bytes:
    plain = value.item() if isinstance(value, np.generic) else value
    return msgspec.json.encode(plain)
