"""Compare two datasets: which annotations differ, how, and by how much.

Images are paired by name. Annotations are paired by id if ids have a meaning in both datasets,
else within their image: equal ones first, then by position, then by overlap.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxmend.data.boxes import compute_iou, is_close
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.describing import describe
from boxmend.data.diff.images import number_image_pairs, pair_images
from boxmend.data.diff.pairing import Side, pair_annotations
from boxmend.data.types import Box, Rows

SAME_FORMAT_TOLERANCE_PIXELS = 1e-6  # rounding of sums and differences
CONVERTED_TOLERANCE_PIXELS = 0.01  # a conversion between formats may move a side by this much


@dataclass(frozen=True, slots=True)
class Difference:
    """An annotation that differs between a first ("old") and a second ("new") dataset.

    `kinds` holds "removed" or "added", or one or more of "label", "box" and "flags". The old values
    are None for an added annotation, the new values for a removed one.
    """

    kinds: tuple[str, ...]
    image: str | None
    annotation_id: int | str | None
    new_annotation_id: int | str | None
    old_label: str | None
    new_label: str | None
    old_box: Box | None
    new_box: Box | None
    iou: float | None = None
    flags: tuple[str, ...] = ()
    """Changed flags of the new annotation: "crowd", "not crowd", "difficult", "not difficult"."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of `compare`; an annotation with a changed label and box counts in both."""

    __repr__ = describe

    same: int
    label_changed: int
    box_changed: int
    flags_changed: int
    added: int
    removed: int
    images_only_in_a: tuple[str, ...]
    images_only_in_b: tuple[str, ...]
    differences: list[Difference] = field(repr=False)

    @property
    def is_identical(self) -> bool:
        """Return whether both datasets have the same images and annotations."""
        return not (self.differences or self.images_only_in_a or self.images_only_in_b)

    def to_json(self) -> dict[str, Any]:
        """Return numbers, texts and lists for JSON; None for numbers that are not finite."""
        counts = ("same", "label_changed", "box_changed", "flags_changed", "added", "removed")
        return {
            **{name: getattr(self, name) for name in counts},
            "images_only_in_a": list(self.images_only_in_a),
            "images_only_in_b": list(self.images_only_in_b),
            "differences": [_to_plain(difference) for difference in self.differences],
        }


def compare(a: Dataset, b: Dataset) -> Comparison:
    """Pair the images and annotations of two datasets and list the differences by image.

    A box has changed if a side moved by more than a millionth of a pixel, or a hundredth if the
    datasets have different formats. `compare` changes neither dataset.
    """
    images = pair_images(a.images, b.images)
    sides = _make_sides(a, b, images)
    tolerance = CONVERTED_TOLERANCE_PIXELS
    if _formats(a) == _formats(b):
        tolerance = SAME_FORMAT_TOLERANCE_PIXELS
    old, new = pair_annotations(*sides, tolerance)
    changes = _Changes.find(a, b, sides, (old, new), tolerance)
    removed, added = _other_rows(len(a), old), _other_rows(len(b), new)
    differences = [
        *changes.list_differences(a, b),
        *_list_one_sided(a, removed, "removed"),
        *_list_one_sided(b, added, "added"),
    ]
    order = _sort_by_image(a, b, images, (changes.old, removed, added))
    return Comparison(
        same=len(old) - len(changes.old),
        label_changed=int(changes.label.sum()),
        box_changed=int(changes.box.sum()),
        flags_changed=int((changes.crowd | changes.difficult).sum()),
        added=len(added),
        removed=len(removed),
        images_only_in_a=_names(a, _other_rows(len(a.images), images[0])),
        images_only_in_b=_names(b, _other_rows(len(b.images), images[1])),
        differences=[differences[k] for k in order.tolist()],
    )


@dataclass(frozen=True)
class _Changes:
    """The pairs that differ, with a mask for each kind of difference."""

    old: Rows
    new: Rows
    label: NDArray[np.bool_]
    box: NDArray[np.bool_]
    crowd: NDArray[np.bool_]
    difficult: NDArray[np.bool_]

    @classmethod
    def find(
        cls,
        a: Dataset,
        b: Dataset,
        sides: tuple[Side, Side],
        pairs: tuple[Rows, Rows],
        tolerance: float,
    ) -> "_Changes":
        old, new = pairs
        label = sides[0].labels[old] != sides[1].labels[new]
        box = ~is_close(a.boxes[old], b.boxes[new], tolerance)
        crowd = a.is_crowd[old] != b.is_crowd[new]
        difficult = a.is_difficult[old] != b.is_difficult[new]
        rows = np.flatnonzero(label | box | crowd | difficult)
        return cls(old[rows], new[rows], label[rows], box[rows], crowd[rows], difficult[rows])

    def list_differences(self, a: Dataset, b: Dataset) -> list[Difference]:
        iou = compute_iou(a.boxes[self.old], b.boxes[self.new])
        is_finite = np.isfinite(a.boxes[self.old]) & np.isfinite(b.boxes[self.new])
        iou[~np.logical_and.reduce(is_finite, axis=1)] = np.nan
        rows = zip(
            self._kinds(),
            _image_names(a, self.old),
            a.annotation_ids[self.old].tolist(),
            b.annotation_ids[self.new].tolist(),
            _label_names(a, self.old),
            _label_names(b, self.new),
            map(tuple, a.boxes[self.old].tolist()),
            map(tuple, b.boxes[self.new].tolist()),
            (None if math.isnan(value) else value for value in iou.tolist()),
            self._flags(b),
            strict=True,
        )
        return [Difference(*row) for row in rows]

    def _kinds(self) -> list[tuple[str, ...]]:
        flags = self.crowd | self.difficult
        codes = (self.label * 1 + self.box * 2 + flags * 4).tolist()
        names = ("label", "box", "flags")
        kinds = [tuple(name for k, name in enumerate(names) if c >> k & 1) for c in range(8)]
        return [kinds[c] for c in codes]

    def _flags(self, b: Dataset) -> list[tuple[str, ...]]:
        flags: list[tuple[str, ...]] = [()] * len(self.new)
        for k in np.flatnonzero(self.crowd | self.difficult).tolist():
            row = self.new[k]
            crowd = ("crowd" if b.is_crowd[row] else "not crowd",) if self.crowd[k] else ()
            difficult = ("difficult" if b.is_difficult[row] else "not difficult",)
            flags[k] = crowd + (difficult if self.difficult[k] else ())
        return flags


def _list_one_sided(dataset: Dataset, rows: Rows, kind: str) -> list[Difference]:
    """Return the differences of annotations that only one dataset has."""
    columns = zip(
        _image_names(dataset, rows),
        dataset.annotation_ids[rows].tolist(),
        _label_names(dataset, rows),
        map(tuple, dataset.boxes[rows].tolist()),
        strict=True,
    )
    if kind == "removed":
        return [
            Difference((kind,), image, identity, None, label, None, box, None)
            for image, identity, label, box in columns
        ]
    return [
        Difference((kind,), image, None, identity, None, label, None, box)
        for image, identity, label, box in columns
    ]


def _make_sides(a: Dataset, b: Dataset, images: tuple[Rows, Rows]) -> tuple[Side, Side]:
    """Return both datasets for pairing, with common numbers for labels and images."""
    names = dict.fromkeys([*a.label_names, *b.label_names])
    number = {name: k for k, name in enumerate(names)}
    has_ids = all(
        _formats(dataset) == {"coco"} and dataset.annotation_ids.dtype != object
        for dataset in (a, b)
    )
    sides = []
    for dataset, rows in zip((a, b), images, strict=True):
        numbers = np.array([number[name] for name in dataset.label_names] + [UNKNOWN], np.int64)
        ids = dataset.annotation_ids if has_ids else None
        pairs = number_image_pairs(dataset, rows)
        labels = numbers[dataset.labels]  # UNKNOWN picks the last
        sides.append(Side(pairs, labels, dataset.boxes, ids))
    return sides[0], sides[1]


def _sort_by_image(
    a: Dataset, b: Dataset, images: tuple[Rows, Rows], rows: tuple[Rows, Rows, Rows]
) -> Rows:
    """Sort changed, removed and added annotations by image: in the order of `a`, then of `b`."""
    changed, removed, added = rows
    rank = np.append(len(a.images) + np.arange(len(b.images)), len(a.images) + len(b.images))
    rank[images[1]] = images[0]
    old = np.concatenate([changed, removed])
    old_ranks = np.where(a.image_rows[old] == UNKNOWN, rank[-1], a.image_rows[old])
    is_added = np.repeat([False, True], [len(old), len(added)])
    ranks = np.concatenate([old_ranks, rank[b.image_rows[added]]])
    return np.lexsort((np.concatenate([old, added]), is_added, ranks))


def _formats(dataset: Dataset) -> set[str]:
    return {source.format for source in dataset.sources}


def _other_rows(n: int, rows: Rows) -> Rows:
    """Return the rows below `n` that are not in `rows`."""
    is_other = np.ones(n, np.bool_)
    is_other[rows] = False
    return np.flatnonzero(is_other)


def _names(dataset: Dataset, rows: Rows) -> tuple[str, ...]:
    names, ids = dataset.images.file_names, dataset.images.ids
    return tuple(names[row] or str(ids[row]) for row in rows.tolist())


def _image_names(dataset: Dataset, rows: Rows) -> Sequence[str | None]:
    names = [*_names(dataset, np.arange(len(dataset.images))), None]  # UNKNOWN picks the last
    return [names[image] for image in dataset.image_rows[rows].tolist()]


def _label_names(dataset: Dataset, rows: Rows) -> Sequence[str | None]:
    names = [*dataset.label_names, None]
    return [names[label] for label in dataset.labels[rows].tolist()]


def _to_plain(difference: Difference) -> dict[str, Any]:
    plain = {name: getattr(difference, name) for name in Difference.__slots__}
    for name in ("kinds", "flags"):
        plain[name] = list(plain[name])
    for name in ("old_box", "new_box"):
        if plain[name] is not None:
            plain[name] = [side if math.isfinite(side) else None for side in plain[name]]
    return plain


__all__ = ["Comparison", "Difference", "compare"]
