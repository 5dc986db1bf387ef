"""The probe: errors planted in memory, with known answers, tell how many an audit finds.

Some annotations are disturbed, an equal part of them in each way, and the disturbed dataset is
audited like any other. Small datasets are probed several times, each time elsewhere; of large ones
a part of the images is enough. Nothing of it is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from boxmend.auditing.fixes.choosing import wilson_interval
from boxmend.auditing.fixes.table import GOOD_IOU, KINDS, Fixes, Kind
from boxmend.auditing.missing import MISSING
from boxmend.auditing.ordering import image_sizes
from boxmend.data.boxes import compute_iou
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats, Mask, Rows


@dataclass(frozen=True)
class ProbeConstants:
    """What is planted, and what counts as found; sides are shares of a box's side."""

    min_annotations: int = 50  # with fewer there is nothing to learn from planting
    planted_per_kind: int = 200  # errors; more add time, not precision
    max_rounds: int = 10
    max_annotations: int = 100_000  # of larger datasets so many are probed
    called_min_probability: float = 0.5  # from which on an annotation is called wrong
    bad_box_max_shift_sides: float = 0.4  # of an edge of a planted bad box
    duplicate_max_shift_sides: float = 0.05  # likewise of a planted duplicate
    bad_box_tries: int = 10  # at a box that is bad enough


PROBE = ProbeConstants()


@dataclass(frozen=True, eq=False)
class Planted:
    """A disturbed dataset, and what is wrong with it on purpose."""

    dataset: Dataset
    rows: dict[Kind, Rows]  # of the disturbed dataset; of MISSING those of the original
    original: Dataset


@dataclass(frozen=True)
class Findings:
    """How many planted errors of a kind were found, and how many of those mended rightly."""

    planted: int
    found: int
    right: int

    def to_json(self) -> dict[str, Any]:
        """Give counts, and shares with their 95 % intervals."""
        return {
            "planted": self.planted,
            "found": self.found,
            "right": self.right,
            "found_share": _share_with_interval(self.found, self.planted),
            "right_share": _share_with_interval(self.right, self.found),
        }


def rounds_of(share: float, num_annotations: int) -> int:
    """How often a dataset is probed: until enough errors of each kind were planted."""
    each = share * num_annotations / len(KINDS)
    return int(np.clip(np.ceil(PROBE.planted_per_kind / max(each, 1)), 1, PROBE.max_rounds))


def images_to_probe(dataset: Dataset, random: np.random.Generator) -> Rows | None:
    """Images of a large dataset that are enough to probe, ascending; None where it is not large."""
    if len(dataset) <= PROBE.max_annotations:
        return None
    known = dataset.image_rows[dataset.image_rows != UNKNOWN]
    numbers = np.bincount(known, minlength=len(dataset.images))
    order = by_name(dataset.images.file_names)[random.permutation(len(numbers))]
    enough = int(np.searchsorted(np.cumsum(numbers[order]), PROBE.max_annotations, side="right"))
    found: Rows = np.sort(order[: max(enough, 1)])
    return found


def plant(dataset: Dataset, is_fine: Mask, share: float, random: np.random.Generator) -> Planted:
    """Disturb a share of the annotations of a dataset, an equal part in each way.

    Only those that seem to be fine, [n], are disturbed: of others the answer is not known.
    """
    eligible = random.permutation(_by_place(dataset, np.flatnonzero(is_fine)))
    number = max(round(share * len(eligible) / len(KINDS)), 1)
    parts = np.split(eligible[: number * len(KINDS)], range(number, number * len(KINDS), number))
    wrong, bad, gone, models, doubled = parts
    labels, boxes = dataset.labels.copy(), dataset.boxes.copy()
    others = random.integers(1, max(len(dataset.label_names), 2), size=len(wrong))
    names = by_name(dataset.label_names)
    labels[wrong] = names[(np.argsort(names)[labels[wrong]] + others) % len(names)]
    boxes[bad] = _bad(dataset.boxes[bad], random)
    images, spurious = _elsewhere(dataset, models, random)
    again = _off(dataset.boxes[doubled], PROBE.duplicate_max_shift_sides, random)
    is_left = np.ones(len(dataset), np.bool_)
    is_left[gone] = False
    place = np.cumsum(is_left) - 1
    disturbed = replace(dataset, labels=labels, boxes=boxes, notes={}).take(is_left)
    first = len(disturbed)
    disturbed = disturbed.add(
        np.concatenate([images, dataset.image_rows[doubled]]),
        np.concatenate([dataset.labels[models], dataset.labels[doubled]]),
        np.concatenate([spurious, again]),
    )
    return Planted(
        disturbed,
        {
            Kind.WRONG_LABEL: place[wrong] if len(dataset.label_names) > 1 else wrong[:0],
            Kind.BAD_BOX: place[bad],
            Kind.MISSING: gone,
            Kind.SPURIOUS: first + np.arange(len(models)),
            Kind.DUPLICATE: first + len(models) + np.arange(len(doubled)),
        },
        dataset,
    )


def by_name(names: Sequence[str]) -> Rows:
    """Rows in the order of their names, which documents do not decide."""
    return np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)


def _by_place(dataset: Dataset, rows: Rows) -> Rows:
    """Rows in the order of their images' names and of their boxes."""
    place = np.argsort(by_name(dataset.images.file_names))[dataset.image_rows[rows]]
    return rows[np.lexsort((*dataset.boxes[rows].T, place))]


def check_fixes(planted: Planted, fixes: Fixes) -> dict[Kind, Findings]:
    """Compare the fixes of a disturbed dataset with the planted errors."""
    called = fixes.take(fixes.p_wrong >= PROBE.called_min_probability)
    return {
        kind: _missing_found(planted, called)
        if kind == Kind.MISSING
        else _count_found(planted, called, kind)
        for kind in KINDS
    }


def _count_found(planted: Planted, called: Fixes, kind: Kind) -> Findings:
    rows = planted.rows[kind]
    own = called.take(called.kinds == kind)
    fix_of = {row: k for k, row in enumerate(own.rows.tolist())}
    if kind == Kind.DUPLICATE:  # either of the two may go
        fix_of |= {row: k for k, row in enumerate(own.kept_rows.tolist())}
    at = np.array([fix_of.get(row, -1) for row in rows.tolist()], np.int64)
    is_found = at >= 0
    fixed = own.take(at[is_found])
    before = _originals(planted, kind)[is_found]
    if kind == Kind.WRONG_LABEL:
        is_right = fixed.new_labels == planted.original.labels[before]
    elif kind == Kind.BAD_BOX:
        first = planted.original.boxes[before]  # which may be off, too: nearer is all there is
        is_right = compute_iou(fixed.new_boxes, first) > compute_iou(fixed.old_boxes, first)
    else:
        is_right = np.ones(len(fixed), np.bool_)
    return Findings(len(rows), int(is_found.sum()), int(is_right.sum()))


def _originals(planted: Planted, kind: Kind) -> Rows:
    """Rows of the original for planted errors that change an annotation; others have none."""
    gone = planted.rows[Kind.MISSING]
    rows = planted.rows[kind]
    if kind not in (Kind.WRONG_LABEL, Kind.BAD_BOX):
        return np.zeros(len(rows), np.int64)
    left = np.setdiff1d(np.arange(len(planted.original)), gone)
    return left[rows]


def _missing_found(planted: Planted, called: Fixes) -> Findings:
    gone, original = planted.rows[Kind.MISSING], planted.original
    own = called.take(called.kinds == Kind.MISSING)
    found = right = 0
    by_image: dict[int, list[int]] = {}
    for k, image in enumerate(own.image_rows.tolist()):
        by_image.setdefault(image, []).append(k)
    for row in gone.tolist():
        near = by_image.get(int(original.image_rows[row]), [])
        boxes = np.repeat(original.boxes[row][None], len(near), axis=0)
        hits = np.array(near, np.int64)[
            compute_iou(boxes, own.new_boxes[near]) >= MISSING.found_min_iou
        ]
        found += len(hits) > 0
        right += bool((own.new_labels[hits] == original.labels[row]).any())
    return Findings(len(gone), found, right)


def _bad(boxes: Floats, random: np.random.Generator) -> Floats:
    """Boxes moved until they are bad; the last try counts whatever it is."""
    moved = _off(boxes, PROBE.bad_box_max_shift_sides, random)
    for _ in range(PROBE.bad_box_tries):
        is_good = compute_iou(boxes, moved) >= GOOD_IOU
        moved[is_good] = _off(boxes[is_good], PROBE.bad_box_max_shift_sides, random)
    return moved


def _off(boxes: Floats, reach: float, random: np.random.Generator) -> Floats:
    """Boxes with every edge moved by up to `reach` of the side."""
    sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    moved: Floats = boxes + (2 * random.random(boxes.shape) - 1) * reach * sides
    return moved


def _elsewhere(dataset: Dataset, rows: Rows, random: np.random.Generator) -> tuple[Rows, Floats]:
    """Boxes of the same sizes at random places of images that have annotations."""
    sizes = image_sizes(dataset)
    images = random.permutation(dataset.image_rows[rows])
    sides = dataset.boxes[rows, 2:] - dataset.boxes[rows, :2]
    room = np.maximum(sizes[images] - sides, 0)
    low = random.random(sides.shape) * room
    return images, np.concatenate([low, low + sides], axis=1)


def _share_with_interval(number: int, total: int) -> dict[str, float] | None:
    if not total:
        return None
    measured = wilson_interval(number, total)
    return {"value": number / total, "low": measured.low, "high": measured.high}
