"""A COCO document as it was read: its bytes and the positions of its entries."""

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
    find_array,
    find_members,
    read_all_members,
)
from boxmend.data.types import Ids

KNOWN_KEYS = {
    "annotations": {"id", "image_id", "category_id", "bbox", "area", "iscrowd", "difficult"},
    "images": {"id", "file_name", "width", "height"},
    "categories": {"id", "name"},
}
"""Keys that columns and ATTRIBUTES hold; a conversion to another format loses all other keys."""


@dataclass(eq=False, repr=False)
class CocoSource(Source):
    """A COCO document: its bytes and the spans of its entries."""

    data: bytes = field(repr=False)
    category_ids: list[int | str]  # in the order of label_names
    category_names: list[str]  # as in the document, where names may repeat
    image_ids: Ids  # as in the document
    annotation_ids: Ids
    is_crowd: NDArray[np.bool_]
    is_difficult: NDArray[np.bool_]
    spans: dict[str, EntrySpans] = field(repr=False)  # of the entries, by list
    is_outlined: NDArray[np.bool_]  # whether the box is that around the segmentation
    place: str  # of the patched document in an output folder
    image_folder: str | None  # likewise, of the images; None for `images`
    writes_outlined: bool = False  # whether a written document gets these boxes

    @property
    def annotations(self) -> EntrySpans:
        """Return the spans of the annotations."""
        return self.spans["annotations"]

    @property
    def images(self) -> EntrySpans:
        """Return the spans of the images."""
        return self.spans["images"]

    @property
    def categories(self) -> EntrySpans:
        """Return the spans of the categories."""
        return self.spans["categories"]

    def document(self, row: int) -> Path:
        """Return the path of the COCO file."""
        return self.path

    def image_id(self, row: int) -> str:
        """Return the id of image `row` as a text."""
        return str(self.image_ids[row])

    def entry(self, entries: EntrySpans, row: int) -> bytes:
        """Return the bytes of one entry."""
        return self.data[entries.starts[row] : entries.ends[row]]

    def attributes(self, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Return pose, truncated and occluded of annotations that have these keys."""
        attributes = []
        for row in rows.tolist():
            entry = self.entry(self.annotations, row)
            try:
                spans = find_members(entry, ATTRIBUTES)
                texts = {key: entry[slice(*span)] for key, span in spans.items()}
                attributes.append({key: msgspec.json.decode(text) for key, text in texts.items()})
            except UNDECODABLE:  # the reader reported it as a finding
                attributes.append({})
        return attributes

    def extras(self) -> dict[str, int]:
        """Count the keys with values that columns and ATTRIBUTES do not hold."""
        counts: Counter[str] = Counter()
        for key, entries in (
            ("annotations", self.annotations),
            ("images", self.images),
            ("categories", self.categories),
        ):
            ignored = KNOWN_KEYS[key] | (set(ATTRIBUTES) if key == "annotations" else set())
            for row in range(len(entries)):
                try:
                    values = read_all_members(self.entry(entries, row))
                except UNDECODABLE:
                    counts[f"malformed entry of {key}"] += 1
                    continue
                counts.update(
                    f"{key}.{name}"
                    for name, value in values.items()
                    if name not in ignored and not _is_empty(value)
                )
        for name in ("info", "licenses"):
            span = find_array(self.data, name)
            if span and not _is_empty(self.data[slice(*span)]):
                counts[name] += 1
        return dict(counts)


def _is_empty(value: bytes) -> bool:
    return value in (b"null", b"[]", b"{}", b'""')
