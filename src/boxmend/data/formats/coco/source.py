"""A COCO document as it was read: the bytes beside what they mean."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import ATTRIBUTES, Source
from boxmend.data.formats.coco.document import (
    UNDECODABLE,
    EntrySpans,
    all_members,
    array_span,
    members,
)
from boxmend.data.types import Ids

KNOWN_KEYS = {
    "annotations": {"id", "image_id", "category_id", "bbox", "area", "iscrowd", "difficult"},
    "images": {"id", "file_name", "width", "height"},
    "categories": {"id", "name"},
}
"""Keys that columns and ATTRIBUTES stand for; others are lost when converting to another format."""


@dataclass(eq=False)
class CocoSource(Source):
    """A COCO document: its bytes, and where its entries lie in them."""

    data: bytes = field(repr=False)
    category_ids: list[int | str]  # of label_names, one by one
    category_names: list[str]  # as they stand in the document, where several may share one
    image_ids: Ids  # as they stand in the document
    annotation_ids: Ids
    is_crowd: NDArray[np.bool_]
    is_difficult: NDArray[np.bool_]
    spans: dict[str, EntrySpans] = field(repr=False)  # where the entries lie, list by list

    @property
    def annotations(self) -> EntrySpans:
        """Where the annotations lie."""
        return self.spans["annotations"]

    @property
    def images(self) -> EntrySpans:
        """Where the images lie."""
        return self.spans["images"]

    @property
    def categories(self) -> EntrySpans:
        """Where the categories lie."""
        return self.spans["categories"]

    def document(self, row: int) -> Path:
        """The one file there is."""
        return self.path

    def entry(self, entries: EntrySpans, row: int) -> bytes:
        """The bytes of one entry."""
        return self.data[entries.starts[row] : entries.ends[row]]

    def attributes(self, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Pose, truncated and occluded, where an annotation has such keys."""
        found = []
        for row in rows.tolist():
            entry = self.entry(self.annotations, row)
            try:
                spans = members(entry, ATTRIBUTES)
                texts = {key: entry[slice(*span)] for key, span in spans.items()}
                found.append({key: msgspec.json.decode(text) for key, text in texts.items()})
            except UNDECODABLE:  # told as a finding when it was read
                found.append({})
        return found

    def extras(self) -> dict[str, int]:
        """Keys that say something beyond the columns, with how often."""
        counts: Counter[str] = Counter()
        for key, entries in (
            ("annotations", self.annotations),
            ("images", self.images),
            ("categories", self.categories),
        ):
            ignored = KNOWN_KEYS[key] | (set(ATTRIBUTES) if key == "annotations" else set())
            for row in range(len(entries)):
                try:
                    values = all_members(self.entry(entries, row))
                except UNDECODABLE:
                    counts[f"malformed entry of {key}"] += 1
                    continue
                counts.update(
                    f"{key}.{name}"
                    for name, value in values.items()
                    if name not in ignored and not _says_nothing(value)
                )
        for name in ("info", "licenses"):
            found = array_span(self.data, name)
            if found and not _says_nothing(self.data[slice(*found)]):
                counts[name] += 1
        return dict(counts)


def _says_nothing(value: bytes) -> bool:
    return value in (b"null", b"[]", b"{}", b'""')
