"""COCO documents with a few values changed, entries taken out or put in, and all else as it was."""

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import ADDED, UNKNOWN, Dataset, Note, as_ids, separate_ids
from boxmend.data.formats.coco import composing, quick
from boxmend.data.formats.coco.composing import NOTE_KEY, encoded, plain_id
from boxmend.data.formats.coco.document import (
    UNDECODABLE,
    all_spans,
    array_span,
    members,
    new_members,
    separator,
    with_values,
    without_entries,
)
from boxmend.data.formats.coco.quick import BoxTexts
from boxmend.data.formats.coco.source import CocoSource
from boxmend.data.formats.documents import DECIMALS, Document, Edit, EditTuple, apply_edits
from boxmend.data.types import Ids
from boxmend.errors import DataError, UsageError

TOLERANCE = 0.5 * 10.0**-DECIMALS  # sides that differ by less are the same
OUTLINE = "segmentation"
STALE = b'{"stale": ["segmentation"]}'  # the note where a box left its outline
NOTHING = b"null"  # a reference that is to mean nothing in a joined document either
_TOKENS = re.compile(rb"[^\s,\[\]{}]+")


class _Flags(msgspec.Struct):
    # What boxmend says of an annotation, under the key `boxmend`.

    stale: list[str] = []


def is_coco(dataset: Dataset) -> bool:
    """Whether all of a dataset was read from COCO documents."""
    sources = dataset.sources
    return bool(sources) and all(isinstance(source, CocoSource) for source in sources)


def is_joined(dataset: Dataset) -> bool:
    """Whether a dataset comes from several addresses, so that its documents become one."""
    return len({source.group for source in dataset.sources}) > 1


def patches(dataset: Dataset, segmentation: str) -> list["Patch"]:
    """The changes to each source of a dataset that was read from COCO documents."""
    return [
        Patch(dataset, index, source, segmentation)
        for index, source in enumerate(dataset.sources)
        if isinstance(source, CocoSource)
    ]


def build_documents(dataset: Dataset, segmentation: str) -> Iterator[Document]:
    """One document for each source, under its own name."""
    for patch in patches(dataset, segmentation):
        edits = patch.edits(categories_with(dataset, patch), {})
        yield Document(patch.source.path.name, apply_edits(patch.source.data, edits))


def assign_annotation_ids(dataset: Dataset) -> Ids:
    """The annotation ids that a reader will see of the documents as they are written.

    Each of several documents keeps its own; reading them together keeps them apart again.
    """
    if len(dataset.sources) == 1 or is_joined(dataset):
        return dataset.annotation_ids
    rows, columns = [], []
    for patch in patches(dataset, "flag"):
        kept = patch.source.annotation_ids[patch.source_rows].tolist()
        rows.append(np.concatenate([patch.rows, patch.added]))
        columns.append(as_ids(kept + dataset.annotation_ids[patch.added].tolist()))
    apart = separate_ids(columns, [source.name for source in dataset.sources])
    ids = np.empty(len(dataset), object)
    for mine, column in zip(rows, apart, strict=True):
        ids[mine] = column
    return as_ids(ids.tolist())


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
        if len(self.rows) and np.bincount(self.source_rows).max() > 1:
            raise UsageError(
                f"{self.source.path}: the dataset holds an annotation twice; add a copy instead"
            )

    def edits(
        self, categories: dict[int, int | str], more: dict[str, list[bytes]]
    ) -> Iterator[EditTuple]:
        """All that has to change in the document, in order; `more` entries go behind its own."""
        new = {
            "annotations": self.new_annotations(categories) + more.get("annotations", []),
            "images": more.get("images", []),
            "categories": more.get("categories", self.new_categories(categories)),
        }
        kept = {
            "annotations": self.source_rows,
            "images": self.dataset.images.rows[self.images],
            "categories": np.arange(len(self.source.categories)),
        }
        for key in sorted(new, key=self._position):
            edits = list(self._array_edits(key, kept[key], new[key]))
            changed = self.changed_entries(categories) if key == "annotations" else iter(())
            yield from heapq.merge(changed, edits) if edits else changed

    def _position(self, key: str) -> int:
        """Where a list stands in the document; behind everything where it lacks the list."""
        entries = self.source.spans[key]
        if len(entries):
            return int(entries.starts[0])
        span = array_span(self.source.data, key)
        return span[0] if span else len(self.source.data)

    def _array_edits(self, key: str, kept: NDArray[np.int64], new: list[bytes]) -> Iterator[Edit]:
        """Take all but the kept entries out of a list, and put new ones at its end."""
        entries = self.source.spans[key]
        removed = np.ones(len(entries), np.bool_)
        removed[kept] = False
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
            yield new_members(self.source.data, {key: b"[" + added + b"]"})
        else:
            yield Edit(*span, b"[" + added + b"]")

    def changed_entries(self, categories: dict[int, int | str]) -> Iterator[EditTuple]:
        """The new bytes of every annotation that changed, in the order of the document."""
        new, is_same = self._sides()
        is_moved = np.asarray(~is_same.all(axis=1))
        composing.ensure_finite(self.dataset, self.rows[is_moved])
        is_relabelled, is_flagged = self._is_relabelled(), self._is_flagged()
        chosen = np.flatnonzero(is_moved | is_relabelled | is_flagged | self.is_joined)
        chosen = chosen[np.argsort(self.source_rows[chosen], kind="stable")]
        texts, first = quick.box_texts(new[chosen], is_same[chosen], is_moved[chosen])
        json_ids = {label: encoded(identity) for label, identity in categories.items()}
        json_ids[UNKNOWN] = NOTHING
        labels = self.dataset.labels[self.rows[chosen]].tolist()
        relabelled = (is_relabelled[chosen] | self.is_joined).tolist()
        special = (is_flagged[chosen] | self.is_joined).tolist()
        data, entries = self.source.data, self.source.annotations
        ends = entries.ends[self.source_rows[chosen]].tolist()
        template = quick.Template(self.source.entry(entries, 0) if len(chosen) else b"")
        starts = entries.starts[self.source_rows[chosen]].tolist()
        for k, span in enumerate(zip(starts, ends, strict=True)):
            category = json_ids[labels[k]] if relabelled[k] else None
            box = texts[first[k] : first[k] + 5] if first[k] >= 0 else None
            patched = None if special[k] else template.filled(data, span, box, category)
            if patched is None:
                patched = self._patched(int(chosen[k]), data[slice(*span)], box, category)
            yield *span, patched

    def _sides(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The boxes as x, y, width and height, and which of these are as the document says."""
        now, before = self.dataset.boxes[self.rows], self.source.boxes[self.source_rows]
        with np.errstate(over="ignore", invalid="ignore"):
            sides = _xywh(now)
            is_same = np.abs(sides - _xywh(before)) < TOLERANCE
        is_same |= (now == before).all(axis=1)[:, None]  # also where they are not finite
        is_same |= (np.isnan(now) & np.isnan(before)).all(axis=1)[:, None]
        return sides, is_same

    def _is_relabelled(self) -> NDArray[np.bool_]:
        own = {name: label for label, name in enumerate(self.source.label_names)}
        absent = len(own)  # differs from every label of the source
        labels = [own.get(name, absent) for name in self.dataset.label_names]
        now = np.array([*labels, UNKNOWN], np.int64)[self.dataset.labels[self.rows]]
        is_relabelled: NDArray[np.bool_] = now != self.source.labels[self.source_rows]
        return is_relabelled

    def _is_flagged(self) -> NDArray[np.bool_]:
        """What changed beyond label and box: crowd and difficult flags, and notes."""
        crowd = self.dataset.is_crowd[self.rows] != self.source.is_crowd[self.source_rows]
        difficult = (
            self.dataset.is_difficult[self.rows] != self.source.is_difficult[self.source_rows]
        )
        is_flagged: NDArray[np.bool_] = crowd | difficult
        if notes := self.dataset.notes:
            ids = self.dataset.annotation_ids[self.rows].tolist()
            is_flagged |= np.array([identity in notes for identity in ids], np.bool_)
        return is_flagged

    def _patched(self, k: int, entry: bytes, box: BoxTexts | None, category: bytes | None) -> bytes:
        """The entry with any values changed; exact whatever the entry looks like."""
        values = self._other_changes(k)
        if category is not None:
            values["category_id"] = category
        try:
            if box is not None:
                values |= self._box_values(entry, box)
            if note := self.dataset.notes.get(self._identity(k)):
                values[NOTE_KEY] = _noted(values.get(NOTE_KEY) or _member(entry, NOTE_KEY), note)
            return with_values(entry, values)
        except UNDECODABLE as error:
            identity = self.source.annotation_ids[self.source_rows[k]]
            raise DataError(
                f"{self.source.path}: annotation {identity} cannot be changed, it is malformed: "
                f"{error}"
            ) from error

    def _identity(self, k: int) -> int | str:
        return plain_id(self.dataset.annotation_ids[self.rows[k]])

    def _other_changes(self, k: int) -> dict[str, bytes]:
        """Flags, and in a joined document ids, that differ from what the entry says."""
        row, source_row = self.rows[k], self.source_rows[k]
        values = {}
        for key, now, before in (
            ("iscrowd", self.dataset.is_crowd, self.source.is_crowd),
            ("difficult", self.dataset.is_difficult, self.source.is_difficult),
        ):
            if now[row] != before[source_row]:
                values[key] = encoded(int(now[row]))
        if self.is_joined:
            if self.dataset.annotation_ids[row] != self.source.annotation_ids[source_row]:
                values["id"] = encoded(plain_id(self.dataset.annotation_ids[row]))
            image = int(self.dataset.image_rows[row])
            values["image_id"] = NOTHING
            if image != UNKNOWN:
                values["image_id"] = encoded(plain_id(self.dataset.images.ids[image]))
        return values

    def _box_values(self, entry: bytes, box: BoxTexts) -> dict[str, bytes]:
        """The box, and what has to follow it: outline or flag, and area."""
        spans = members(entry, ("bbox", "area", "segmentation", NOTE_KEY))
        texts = {key: entry[slice(*span)] for key, span in spans.items()}
        values = {"bbox": _with_tokens(texts.get("bbox", b""), box[:4])}
        has_outline = not _is_empty(texts.get("segmentation", b"null"))
        is_kept = has_outline and self.segmentation == "flag"
        if is_kept or NOTE_KEY in texts:
            values[NOTE_KEY] = _flagged(texts.get(NOTE_KEY), is_kept)
        if has_outline and not is_kept:
            values["segmentation"] = b"[]"
        if "area" in texts and not is_kept and box[4] is not None:
            values["area"] = box[4]
        return values

    def new_annotations(self, categories: dict[int, int | str]) -> list[bytes]:
        """The entries of the annotations that were added."""
        composing.ensure_finite(self.dataset, self.added)
        return [self._new_annotation(row, categories) for row in self.added.tolist()]

    def _new_annotation(self, row: int, categories: dict[int, int | str]) -> bytes:
        image = int(self.dataset.image_rows[row])
        if self.is_joined:
            image_id = self.dataset.images.ids[image]
        else:
            image_id = self.source.image_ids[self.dataset.images.rows[image]]
        if (label := int(self.dataset.labels[row])) == UNKNOWN:
            identity = self.dataset.annotation_ids[row]
            raise UsageError(f"{self.source.path}: the added annotation {identity} has no label")
        more: dict[str, Any] = {"difficult": 1} if self.dataset.is_difficult[row] else {}
        more |= composing.noted(self.dataset, row)
        return composing.annotation_entry(self.dataset, row, image_id, categories[label], more)

    def new_categories(self, categories: dict[int, int | str]) -> list[bytes]:
        """Entries for the labels in use that the document does not know."""
        used = set(self.dataset.labels[np.concatenate([self.rows, self.added])].tolist())
        return [
            composing.category_entry(categories[label], self.dataset.label_names[label])
            for label in sorted(used - {UNKNOWN})
            if self.dataset.label_names[label] not in self.source.label_names
        ]


def _is_empty(value: bytes) -> bool:
    try:
        return not msgspec.json.decode(value)
    except UNDECODABLE:  # something is in it, even if it cannot be told what
        return False


def _flagged(value: bytes | None, is_stale: bool) -> bytes:
    """The value of the key `boxmend`: whether the segmentation is stale, beside all it says."""
    if value is None:
        return STALE
    try:
        told = msgspec.json.decode(value, type=_Flags).stale
    except UNDECODABLE:
        told = []
    if is_stale == (OUTLINE in told):
        return value
    now = [*told, OUTLINE] if is_stale else [one for one in told if one != OUTLINE]
    try:
        return with_values(value, {"stale": encoded(now)})
    except UNDECODABLE:  # no object: nothing that boxmend wrote
        return STALE


def _member(entry: bytes, key: str) -> bytes | None:
    span = members(entry, (key,)).get(key)
    return None if span is None else entry[slice(*span)]


def _noted(value: bytes | None, note: Note) -> bytes:
    """The value of the key `boxmend` with a note in it, beside all else that it says."""
    if value is None:
        return composing.spaced(note)
    try:
        spans = all_spans(value)
    except UNDECODABLE:  # no object: nothing that boxmend wrote
        return composing.spaced(note)
    told = {key: encoded(one) for key, one in note.items()}
    edits = [Edit(*spans[key], new) for key, new in told.items() if key in spans]
    if added := {key: new for key, new in told.items() if key not in spans}:
        edits.append(new_members(value, added))
    return b"".join(apply_edits(value, sorted(edits)))


def _xywh(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)


def _with_tokens(array: bytes, tokens: BoxTexts) -> bytes:
    """An array of four numbers with some of them replaced."""
    try:
        msgspec.json.decode(array, type=tuple[float, float, float, float])
    except UNDECODABLE:  # it was no box; it becomes one
        return b"[" + b", ".join(token or b"0" for token in tokens) + b"]"
    spans = [match.span() for match in _TOKENS.finditer(array)]
    edits = [
        Edit(*span, token) for span, token in zip(spans, tokens, strict=True) if token is not None
    ]
    return b"".join(apply_edits(array, edits))
