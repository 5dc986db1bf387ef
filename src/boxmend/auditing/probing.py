"""Probe an audit: plant known errors in memory, and measure how many of them it finds.

Some annotations are disturbed, equally many for each kind of error, and the disturbed dataset is
audited like any other. A small dataset is probed several times with different errors; of a large
one, part of the images is enough. The disturbed datasets are not written to disk.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from boxmend.auditing.fixes.choosing import wilson_interval
from boxmend.auditing.fixes.table import GOOD_IOU, KINDS, Fixes, Kind
from boxmend.auditing.missing import MISSING
from boxmend.data.boxes import compute_iou
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats, Mask, Rows


@dataclass(frozen=True)
class ProbeConstants:
    """Constants of planted errors, and of which count as found; lengths are in sides of a box."""

    min_annotations: int = 50  # fewer are too few to probe
    planted_per_kind: int = 200  # errors; more add time, but no precision
    max_rounds: int = 10
    max_annotations: int = 100_000  # to probe; of larger datasets only some images are probed
    called_min_probability: float = 0.5  # of an annotation that counts as found
    bad_box_max_shift_sides: float = 0.4  # of an edge of a planted bad box
    duplicate_max_shift_sides: float = 0.05  # of an edge of a planted duplicate
    bad_box_tries: int = 10  # to make a box bad


PROBE = ProbeConstants()


@dataclass(frozen=True, eq=False)
class Planted:
    """A disturbed dataset and its planted errors."""

    dataset: Dataset
    rows: dict[Kind, Rows]  # of the disturbed dataset; for MISSING those of the original
    original: Dataset


@dataclass(frozen=True)
class ProbeCounts:
    """Counts of planted errors of a kind, of errors found, and of those with a right fix."""

    planted: int
    found: int
    right: int

    def to_json(self) -> dict[str, Any]:
        """Return counts, and shares with their 95% intervals."""
        return {
            "planted": self.planted,
            "found": self.found,
            "right": self.right,
            "found_share": _share_with_interval(self.found, self.planted),
            "right_share": _share_with_interval(self.right, self.found),
        }


def count_rounds(share: float, num_annotations: int) -> int:
    """Return how many rounds plant enough errors of each kind."""
    each = share * num_annotations / len(KINDS)
    return int(np.clip(np.ceil(PROBE.planted_per_kind / max(each, 1)), 1, PROBE.max_rounds))


def select_images(dataset: Dataset, random: np.random.Generator) -> Rows | None:
    """Return the images of a large dataset to probe, ascending; None for all of a small one."""
    if len(dataset) <= PROBE.max_annotations:
        return None
    known = dataset.image_rows[dataset.image_rows != UNKNOWN]
    numbers = np.bincount(known, minlength=len(dataset.images))
    order = order_by_name(dataset.images.file_names)[random.permutation(len(numbers))]
    enough = int(np.searchsorted(np.cumsum(numbers[order]), PROBE.max_annotations, side="right"))
    selected: Rows = np.sort(order[: max(enough, 1)])
    return selected


def plant_errors(
    dataset: Dataset, is_fine: Mask, share: float, random: np.random.Generator
) -> Planted:
    """Disturb a share of the annotations of a dataset, equally many for each kind of error.

    Only annotations that seem to be right (`is_fine` [n]) are disturbed, since the true label and
    box of the others are not known.
    """
    eligible = random.permutation(_sort_by_place(dataset, np.flatnonzero(is_fine)))
    number = max(round(share * len(eligible) / len(KINDS)), 1)
    parts = np.split(eligible[: number * len(KINDS)], range(number, number * len(KINDS), number))
    wrong, bad, gone, models, doubled = parts
    labels, boxes = dataset.labels.copy(), dataset.boxes.copy()
    others = random.integers(1, max(len(dataset.label_names), 2), size=len(wrong))
    names = order_by_name(dataset.label_names)
    labels[wrong] = names[(np.argsort(names)[labels[wrong]] + others) % len(names)]
    boxes[bad] = _make_bad_boxes(dataset.boxes[bad], random)
    images, spurious = _place_at_random(dataset, models, random)
    again = _shift_edges(dataset.boxes[doubled], PROBE.duplicate_max_shift_sides, random)
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


def order_by_name(names: Sequence[str]) -> Rows:
    """Return rows sorted by name, so that the order in the source files does not matter."""
    return np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)


def _sort_by_place(dataset: Dataset, rows: Rows) -> Rows:
    """Return rows of annotations sorted by the names of their images and by their boxes."""
    place = np.argsort(order_by_name(dataset.images.file_names))[dataset.image_rows[rows]]
    return rows[np.lexsort((*dataset.boxes[rows].T, place))]


def check_fixes(planted: Planted, fixes: Fixes) -> dict[Kind, ProbeCounts]:
    """Return by kind how many of the planted errors the fixes of the disturbed dataset find."""
    called = fixes.take(fixes.p_wrong >= PROBE.called_min_probability)
    return {
        kind: _count_found_missing(planted, called)
        if kind == Kind.MISSING
        else _count_found(planted, called, kind)
        for kind in KINDS
    }


def _count_found(planted: Planted, called: Fixes, kind: Kind) -> ProbeCounts:
    rows = planted.rows[kind]
    own = called.take(called.kinds == kind)
    fix_of = {row: k for k, row in enumerate(own.rows.tolist())}
    if kind == Kind.DUPLICATE:  # a fix may remove either of the two
        fix_of |= {row: k for k, row in enumerate(own.kept_rows.tolist())}
    places = np.array([fix_of.get(row, -1) for row in rows.tolist()], np.int64)
    is_found = places >= 0
    fixed = own.take(places[is_found])
    before = _find_original_rows(planted, kind)[is_found]
    if kind == Kind.WRONG_LABEL:
        is_right = fixed.new_labels == planted.original.labels[before]
    elif kind == Kind.BAD_BOX:
        # The original box may be imprecise, too, so a right fix only has to be closer to it.
        original = planted.original.boxes[before]
        is_right = compute_iou(fixed.new_boxes, original) > compute_iou(fixed.old_boxes, original)
    else:
        is_right = np.ones(len(fixed), np.bool_)
    return ProbeCounts(len(rows), int(is_found.sum()), int(is_right.sum()))


def _find_original_rows(planted: Planted, kind: Kind) -> Rows:
    """Return rows of the original dataset for planted wrong labels and bad boxes; 0 for others."""
    gone = planted.rows[Kind.MISSING]
    rows = planted.rows[kind]
    if kind not in (Kind.WRONG_LABEL, Kind.BAD_BOX):
        return np.zeros(len(rows), np.int64)
    left = np.setdiff1d(np.arange(len(planted.original)), gone)
    return left[rows]


def _count_found_missing(planted: Planted, called: Fixes) -> ProbeCounts:
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
    return ProbeCounts(len(gone), found, right)


def _make_bad_boxes(boxes: Floats, random: np.random.Generator) -> Floats:
    """Return boxes with edges moved until they are bad; after the last try some are not."""
    moved = _shift_edges(boxes, PROBE.bad_box_max_shift_sides, random)
    for _ in range(PROBE.bad_box_tries):
        is_good = compute_iou(boxes, moved) >= GOOD_IOU
        moved[is_good] = _shift_edges(boxes[is_good], PROBE.bad_box_max_shift_sides, random)
    return moved


def _shift_edges(boxes: Floats, reach: float, random: np.random.Generator) -> Floats:
    """Return boxes with every edge moved by up to `reach` sides."""
    sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    moved: Floats = boxes + (2 * random.random(boxes.shape) - 1) * reach * sides
    return moved


def _place_at_random(
    dataset: Dataset, rows: Rows, random: np.random.Generator
) -> tuple[Rows, Floats]:
    """Return image rows and boxes: these annotations, moved to random places of these images."""
    sizes = dataset.images.sizes
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
