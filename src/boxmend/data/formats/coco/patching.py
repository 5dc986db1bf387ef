"""Patch COCO documents: change values, remove or add entries, and keep all other bytes."""

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import ADDED, UNKNOWN, Dataset, Note, as_ids
from boxmend.data.formats.coco import composing, quick
from boxmend.data.formats.coco.composing import NOTE_KEY, encode_value, to_plain_id
from boxmend.data.formats.coco.document import (
    UNDECODABLE,
    append_members,
    find_all_members,
    find_array,
    find_members,
    find_separator,
    remove_entries,
    replace_values,
)
from boxmend.data.formats.coco.quick import OUTLINE_KEY, STALE_NOTE, BoxTexts
from boxmend.data.formats.coco.source import CocoSource
from boxmend.data.formats.documents import DECIMALS, Document, Edit, EditTuple, apply_edits
from boxmend.data.joining import separate_ids
from boxmend.data.types import Ids
from boxmend.errors import DataError, UsageError

TOLERANCE_PIXELS = 0.5 * 10.0**-DECIMALS  # sides that differ by less are equal
UNKNOWN_REFERENCE = b"null"  # for an unknown image or category in a joined document
_TOKENS = re.compile(rb"[^\s,\[\]{}]+")


class _Flags(msgspec.Struct):
    # The value of the key `boxmend` of an annotation.

    stale: list[str] = []


def is_coco(dataset: Dataset) -> bool:
    """Return whether all sources of a dataset are COCO documents."""
    sources = dataset.sources
    return bool(sources) and all(isinstance(source, CocoSource) for source in sources)


def is_joined(dataset: Dataset) -> bool:
    """Return whether a dataset has several addresses, so that its documents become one."""
    return len({source.group for source in dataset.sources}) > 1


def make_patches(dataset: Dataset, segmentation: str) -> list["Patch"]:
    """Return the patch of each source of a dataset that was read from COCO documents."""
    return [
        Patch(dataset, index, source, segmentation)
        for index, source in enumerate(dataset.sources)
        if isinstance(source, CocoSource)
    ]


def build_documents(dataset: Dataset, segmentation: str) -> Iterator[Document]:
    """Yield one document per source, at its own place."""
    for patch in make_patches(dataset, segmentation):
        edits = patch.make_edits(assign_category_ids(dataset, patch), {})
        yield Document(patch.source.place, apply_edits(patch.source.data, edits))


def assign_annotation_ids(dataset: Dataset) -> Ids:
    """Return the annotation ids that a reader of the written documents will get.

    Each document keeps its ids; reading several documents together makes them unique.
    """
    if len(dataset.sources) == 1 or is_joined(dataset):
        return dataset.annotation_ids
    rows, columns = [], []
    for patch in make_patches(dataset, "flag"):
        kept = patch.source.annotation_ids[patch.source_rows].tolist()
        rows.append(np.concatenate([patch.rows, patch.added]))
        columns.append(as_ids(kept + dataset.annotation_ids[patch.added].tolist()))
    unique = separate_ids(columns, [source.name for source in dataset.sources])
    ids = np.empty(len(dataset), object)
    for source_rows, column in zip(rows, unique, strict=True):
        ids[source_rows] = column
    return as_ids(ids.tolist())


def assign_category_ids(dataset: Dataset, patch: "Patch") -> dict[int, int | str]:
    """Return the category id of every label: that of the source, or a new one."""
    source = patch.source
    known = dict(zip(source.label_names, source.category_ids, strict=True))
    numbers = [identity for identity in source.category_ids if isinstance(identity, int)]
    next_number = max(numbers, default=0) + 1
    ids: dict[int, int | str] = {}
    for label, name in enumerate(dataset.label_names):
        if name not in known:
            known[name] = next_number
            next_number += 1
        ids[label] = known[name]
    return ids


@dataclass
class Patch:
    """The changes that a dataset makes to one of its COCO sources."""

    dataset: Dataset
    index: int
    source: CocoSource
    segmentation: str
    is_joined: bool = False  # if so, the dataset's ids are written

    def __post_init__(self) -> None:
        rows = np.flatnonzero(self.dataset.source_of == self.index)
        is_added = self.dataset.source_rows[rows] == ADDED
        self.rows = rows[~is_added]  # rows of the dataset that are in the document
        self.added = rows[is_added]
        self.source_rows = self.dataset.source_rows[self.rows]
        self.images = np.flatnonzero(self.dataset.images.sources == self.index)
        if len(self.rows) and np.bincount(self.source_rows).max() > 1:
            raise UsageError(
                f"{self.source.path}: the dataset has an annotation twice; add a new one instead"
            )

    def make_edits(
        self, categories: dict[int, int | str], appended: dict[str, list[bytes]]
    ) -> Iterator[EditTuple]:
        """Yield all edits of the document in order; `appended` entries go to the ends of lists."""
        annotations = self.build_new_annotations(categories) + appended.get("annotations", [])
        new = {
            "annotations": annotations,
            "images": appended.get("images", []),
            "categories": appended.get("categories", self.build_new_categories(categories)),
        }
        kept = {
            "annotations": self.source_rows,
            "images": self.dataset.images.rows[self.images],
            "categories": np.arange(len(self.source.categories)),
        }
        for key in sorted(new, key=self._find_list):
            edits = list(self._make_list_edits(key, kept[key], new[key]))
            changed = self.build_changed_entries(categories) if key == "annotations" else iter(())
            yield from heapq.merge(changed, edits) if edits else changed

    def _find_list(self, key: str) -> int:
        """Return the position of a list in the document, or its end if it lacks the list."""
        entries = self.source.spans[key]
        if len(entries):
            return int(entries.starts[0])
        span = find_array(self.source.data, key)
        return span[0] if span else len(self.source.data)

    def _make_list_edits(
        self, key: str, kept: NDArray[np.int64], new: list[bytes]
    ) -> Iterator[Edit]:
        """Yield the edits that remove all but the kept entries of a list and append new ones."""
        entries = self.source.spans[key]
        removed = np.ones(len(entries), np.bool_)
        removed[kept] = False
        if not new and not removed.any():
            return
        between = find_separator(self.source.data, entries)
        added = between.join(new)
        if len(entries):
            if new and not removed.all():
                added = between + added
            yield from remove_entries(entries, removed, added)
            return
        span = find_array(self.source.data, key)
        if span is None:
            yield append_members(self.source.data, {key: b"[" + added + b"]"})
        else:
            yield Edit(*span, b"[" + added + b"]")

    def build_changed_entries(self, categories: dict[int, int | str]) -> Iterator[EditTuple]:
        """Yield the new bytes of every changed annotation, in the order of the document."""
        new, is_same = self._compare_sides()
        is_moved = np.asarray(~is_same.all(axis=1))
        is_outlined = self.source.is_outlined[self.source_rows]  # no part of a box to keep
        is_moved |= is_outlined & self.source.writes_outlined
        is_same[is_moved & is_outlined] = False
        composing.ensure_finite(self.dataset, self.rows[is_moved])
        is_relabelled, is_flagged = self._mark_relabelled(), self._mark_flagged()
        chosen = np.flatnonzero(is_moved | is_relabelled | is_flagged | self.is_joined)
        chosen = chosen[np.argsort(self.source_rows[chosen], kind="stable")]
        texts, first = quick.format_boxes(new[chosen], is_same[chosen], is_moved[chosen])
        json_ids = {label: encode_value(identity) for label, identity in categories.items()}
        json_ids[UNKNOWN] = UNKNOWN_REFERENCE
        labels = self.dataset.labels[self.rows[chosen]].tolist()
        relabelled = (is_relabelled[chosen] | self.is_joined).tolist()
        needs_full_patch = (is_flagged[chosen] | self.is_joined).tolist()
        data, entries = self.source.data, self.source.annotations
        ends = entries.ends[self.source_rows[chosen]].tolist()
        examples = range(min(quick.MAX_EXAMPLES, len(entries)) if len(chosen) else 0)
        template = quick.learn_template(
            (self.source.entry(entries, row) for row in examples),
            drops_outlines=self.segmentation == "drop",
        )
        starts = entries.starts[self.source_rows[chosen]].tolist()
        for k, span in enumerate(zip(starts, ends, strict=True)):
            category = json_ids[labels[k]] if relabelled[k] else None
            box = texts[first[k] : first[k] + 5] if first[k] >= 0 else None
            patched = None if needs_full_patch[k] else template.fill(data, span, box, category)
            if patched is None:
                patched = self._patch_entry(int(chosen[k]), data[slice(*span)], box, category)
            yield *span, patched

    def _compare_sides(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the boxes as x, y, width and height, and a mask of unchanged values."""
        now, before = self.dataset.boxes[self.rows], self.source.boxes[self.source_rows]
        with np.errstate(over="ignore", invalid="ignore"):
            sides = _xywh(now)
            is_same = np.abs(sides - _xywh(before)) < TOLERANCE_PIXELS
        is_same |= (now == before).all(axis=1)[:, None]  # includes infinite values
        is_same |= (np.isnan(now) & np.isnan(before)).all(axis=1)[:, None]
        return sides, is_same

    def _mark_relabelled(self) -> NDArray[np.bool_]:
        source_labels = {name: label for label, name in enumerate(self.source.label_names)}
        absent = len(source_labels)  # differs from every label of the source
        labels = [source_labels.get(name, absent) for name in self.dataset.label_names]
        now = np.array([*labels, UNKNOWN], np.int64)[self.dataset.labels[self.rows]]
        is_relabelled: NDArray[np.bool_] = now != self.source.labels[self.source_rows]
        return is_relabelled

    def _mark_flagged(self) -> NDArray[np.bool_]:
        """Mark annotations with changed crowd or difficult flags, or with notes."""
        crowd = self.dataset.is_crowd[self.rows] != self.source.is_crowd[self.source_rows]
        difficult = (
            self.dataset.is_difficult[self.rows] != self.source.is_difficult[self.source_rows]
        )
        is_flagged: NDArray[np.bool_] = crowd | difficult
        if notes := self.dataset.notes:
            ids = self.dataset.annotation_ids[self.rows].tolist()
            is_flagged |= np.array([identity in notes for identity in ids], np.bool_)
        return is_flagged

    def _patch_entry(
        self, k: int, entry: bytes, box: BoxTexts | None, category: bytes | None
    ) -> bytes:
        """Return the entry with its changed values; works for every layout of an entry."""
        values = self._encode_other_changes(k)
        if category is not None:
            values["category_id"] = category
        try:
            if box is not None:
                is_unchanged = self._has_source_box(k)
                values |= self._encode_box(entry, box, is_unchanged)
            if note := self.dataset.notes.get(self._get_id(k)):
                current = values.get(NOTE_KEY) or _get_member(entry, NOTE_KEY)
                values[NOTE_KEY] = _add_note(current, note)
            return replace_values(entry, values)
        except UNDECODABLE as error:
            identity = self.source.annotation_ids[self.source_rows[k]]
            raise DataError(
                f"{self.source.path}: annotation {identity} is malformed and cannot be changed "
                f"({error}); correct it"
            ) from error

    def _get_id(self, k: int) -> int | str:
        return to_plain_id(self.dataset.annotation_ids[self.rows[k]])

    def _encode_other_changes(self, k: int) -> dict[str, bytes]:
        """Return changed flags, and in a joined document the ids."""
        row, source_row = self.rows[k], self.source_rows[k]
        values = {}
        for key, now, before in (
            ("iscrowd", self.dataset.is_crowd, self.source.is_crowd),
            ("difficult", self.dataset.is_difficult, self.source.is_difficult),
        ):
            if now[row] != before[source_row]:
                values[key] = encode_value(int(now[row]))
        if self.is_joined:
            if self.dataset.annotation_ids[row] != self.source.annotation_ids[source_row]:
                values["id"] = encode_value(to_plain_id(self.dataset.annotation_ids[row]))
            image = int(self.dataset.image_rows[row])
            values["image_id"] = UNKNOWN_REFERENCE
            if image != UNKNOWN:
                values["image_id"] = encode_value(to_plain_id(self.dataset.images.ids[image]))
        return values

    def _has_source_box(self, k: int) -> bool:
        """Return whether a box to write is the one around the segmentation, as it was read."""
        now, before = self.dataset.boxes[self.rows[k]], self.source.boxes[self.source_rows[k]]
        return bool((now == before).all())

    def _encode_box(self, entry: bytes, box: BoxTexts, is_unchanged: bool) -> dict[str, bytes]:
        """Return the box and the values that depend on it: outline or flag, and area."""
        if is_unchanged:
            return {"bbox": _replace_tokens(b"", box[:4])}
        spans = find_members(entry, ("bbox", "area", "segmentation", NOTE_KEY))
        texts = {key: entry[slice(*span)] for key, span in spans.items()}
        values = {"bbox": _replace_tokens(texts.get("bbox", b""), box[:4])}
        has_outline = not _is_empty(texts.get("segmentation", b"null"))
        is_kept = has_outline and self.segmentation == "flag"
        if is_kept or NOTE_KEY in texts:
            values[NOTE_KEY] = _set_stale(texts.get(NOTE_KEY), is_kept)
        if has_outline and not is_kept:
            values["segmentation"] = b"[]"
        if "area" in texts and not is_kept and box[4] is not None:
            values["area"] = box[4]
        return values

    def build_new_annotations(self, categories: dict[int, int | str]) -> list[bytes]:
        """Return the entries of the new annotations."""
        composing.ensure_finite(self.dataset, self.added)
        return [self._build_new_annotation(row, categories) for row in self.added.tolist()]

    def _build_new_annotation(self, row: int, categories: dict[int, int | str]) -> bytes:
        image = int(self.dataset.image_rows[row])
        if self.is_joined:
            image_id = self.dataset.images.ids[image]
        else:
            image_id = self.source.image_ids[self.dataset.images.rows[image]]
        if (label := int(self.dataset.labels[row])) == UNKNOWN:
            identity = self.dataset.annotation_ids[row]
            raise UsageError(
                f"{self.source.path}: the new annotation {identity} has no label; assign one"
            )
        more: dict[str, Any] = {"difficult": 1} if self.dataset.is_difficult[row] else {}
        more |= composing.make_note(self.dataset, row)
        return composing.encode_annotation(self.dataset, row, image_id, categories[label], more)

    def build_new_categories(self, categories: dict[int, int | str]) -> list[bytes]:
        """Return entries for the labels in use that the document lacks."""
        used = set(self.dataset.labels[np.concatenate([self.rows, self.added])].tolist())
        return [
            composing.encode_category(categories[label], self.dataset.label_names[label])
            for label in sorted(used - {UNKNOWN})
            if self.dataset.label_names[label] not in self.source.label_names
        ]


def _is_empty(value: bytes) -> bool:
    try:
        return not msgspec.json.decode(value)
    except UNDECODABLE:  # malformed, but not empty
        return False


def _set_stale(value: bytes | None, is_stale: bool) -> bytes:
    """Return the value of the key `boxmend` with the segmentation marked as stale or not."""
    if value is None:
        return STALE_NOTE
    try:
        stale = msgspec.json.decode(value, type=_Flags).stale
    except UNDECODABLE:
        stale = []
    if is_stale == (OUTLINE_KEY in stale):
        return value
    stale = [*stale, OUTLINE_KEY] if is_stale else [key for key in stale if key != OUTLINE_KEY]
    try:
        return replace_values(value, {"stale": encode_value(stale)})
    except UNDECODABLE:  # not an object, so boxmend did not write it
        return STALE_NOTE


def _get_member(entry: bytes, key: str) -> bytes | None:
    span = find_members(entry, (key,)).get(key)
    return None if span is None else entry[slice(*span)]


def _add_note(value: bytes | None, note: Note) -> bytes:
    """Return the value of the key `boxmend` with a note added to its other members."""
    if value is None:
        return composing.encode_object(note)
    try:
        spans = find_all_members(value)
    except UNDECODABLE:  # not an object, so boxmend did not write it
        return composing.encode_object(note)
    members = {key: encode_value(content) for key, content in note.items()}
    edits = [Edit(*spans[key], new) for key, new in members.items() if key in spans]
    if added := {key: new for key, new in members.items() if key not in spans}:
        edits.append(append_members(value, added))
    return b"".join(apply_edits(value, sorted(edits)))


def _xywh(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)


def _replace_tokens(array: bytes, tokens: BoxTexts) -> bytes:
    """Return an array of four numbers with some of them replaced."""
    try:
        msgspec.json.decode(array, type=tuple[float, float, float, float])
    except UNDECODABLE:  # the old value is not a box
        return b"[" + b", ".join(token or b"0" for token in tokens) + b"]"
    spans = [match.span() for match in _TOKENS.finditer(array)]
    edits = [
        Edit(*span, token) for span, token in zip(spans, tokens, strict=True) if token is not None
    ]
    return b"".join(apply_edits(array, edits))
