"""Probe an audit: plant known errors in memory, and measure how many of them it finds.

`data.noise` plants errors of every kind into annotations that seem to be right, in two mixes: one
at random, the other where real errors sit (look-alikes, small objects, parts of objects and
clutter). Each disturbed dataset is audited like any other. A small dataset is probed several times
with different errors; of a large one, part of the images is enough. Nothing is written to disk.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from boxmend.auditing.fixes.choosing import wilson_interval
from boxmend.auditing.fixes.table import GOOD_IOU, KINDS, Fixes, Kind
from boxmend.auditing.missing import MISSING
from boxmend.data.boxes import compute_iou
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.detections import Detections
from boxmend.data.noise import NoiseSettings, disturb
from boxmend.data.noise.truth import Origin, Truth
from boxmend.data.types import Floats, Rows
from boxmend.errors import BoxmendError


@dataclass(frozen=True)
class ProbeConstants:
    """Constants of planted errors, and of which count as found."""

    min_annotations: int = 50  # fewer are too few to probe
    planted_per_cause: int = 125  # errors; more add time, but little precision
    max_rounds: int = 5  # of each mix
    max_annotations: int = 50_000  # to probe; of larger datasets only some images are probed
    called_min_probability: float = 0.5  # of an annotation that counts as found


PROBE = ProbeConstants()


@dataclass(frozen=True)
class ErrorMix:
    """Errors that are planted together, one cause for each kind."""

    causes: Mapping[Kind, str]
    choices: tuple[Callable[[float], NoiseSettings], ...]
    """Settings by the rate of each kind. Later ones lack what the dataset may not allow."""


def _at_random(rate: float) -> NoiseSettings:
    """Return noise that meets all classes, objects and places alike."""
    return NoiseSettings(
        f"symmetric:{rate!r}", missing=rate, spurious=rate, duplicate=rate, gross_boxes=rate
    )


def _as_in_practice(rate: float) -> NoiseSettings:
    """Return noise where annotators err: look-alikes, small objects, parts and clutter."""
    return NoiseSettings(
        look_alikes=rate,
        missing=rate,
        missing_order="small",
        spurious=rate,
        spurious_at="part,clutter",
        duplicate=rate,
        gross_boxes=rate,
    )


MIXES = (
    ErrorMix(
        {
            Kind.WRONG_LABEL: "any other class",
            Kind.BAD_BOX: "grossly off",
            Kind.MISSING: "any object",
            Kind.SPURIOUS: "at random places",
            Kind.DUPLICATE: "drawn twice",
        },
        (_at_random, lambda rate: replace(_at_random(rate), labels=None)),
    ),
    ErrorMix(
        {
            Kind.WRONG_LABEL: "a class that looks alike",
            Kind.BAD_BOX: "grossly off",
            Kind.MISSING: "mostly small objects",
            Kind.SPURIOUS: "on parts and clutter",
            Kind.DUPLICATE: "drawn twice",
        },
        (
            _as_in_practice,
            lambda rate: replace(_as_in_practice(rate), look_alikes=0.0),
            lambda rate: replace(_as_in_practice(rate), spurious_at="part"),
            lambda rate: replace(_as_in_practice(rate), look_alikes=0.0, spurious_at="part"),
        ),
    ),
)


@dataclass(frozen=True, eq=False)
class Planted:
    """A disturbed dataset, and the planted errors with what was there before."""

    dataset: Dataset
    original: Dataset
    rows: Mapping[Kind, Rows]
    """Rows of the disturbed dataset; for MISSING those of the original."""
    labels: Rows
    """[n] Label before, of each row of the disturbed dataset."""
    boxes: Floats
    """[n, 4] Box before."""


@dataclass(frozen=True)
class ProbeCounts:
    """Counts of planted errors, of errors found, and of those with a right fix."""

    planted: int = 0
    found: int = 0
    right: int = 0

    def __add__(self, other: "ProbeCounts") -> "ProbeCounts":
        return ProbeCounts(
            self.planted + other.planted, self.found + other.found, self.right + other.right
        )

    def to_json(self) -> dict[str, Any]:
        """Return counts, and shares with their 95% intervals."""
        return {
            "planted": self.planted,
            "found": self.found,
            "right": self.right,
            "found_share": _share_with_interval(self.found, self.planted),
            "right_share": _share_with_interval(self.right, self.found),
        }


Probe = Mapping[Kind, Mapping[str, ProbeCounts]]
"""Counts by kind and cause of the planted errors."""


def add_probes(probes: Iterable[Probe]) -> dict[Kind, dict[str, ProbeCounts]]:
    """Return the sums of several probes."""
    sums: dict[Kind, dict[str, ProbeCounts]] = {}
    for probe in probes:
        for kind, causes in probe.items():
            own = sums.setdefault(kind, {})
            for cause, counts in causes.items():
                own[cause] = own.get(cause, ProbeCounts()) + counts
    return sums


def sum_causes(causes: Mapping[str, ProbeCounts]) -> ProbeCounts:
    """Return the counts of all causes of one kind together."""
    return sum(causes.values(), ProbeCounts())


def describe_probe(probe: Probe) -> dict[str, Any]:
    """Return plain data: the counts of each kind, and among them those of each cause."""
    return {
        kind.words: {
            **sum_causes(causes).to_json(),
            "causes": {cause: counts.to_json() for cause, counts in causes.items()},
        }
        for kind, causes in probe.items()
    }


def compute_rate(share: float, num_annotations: int) -> float:
    """Return the rate of each kind of error, so that all kinds together disturb this share."""
    return max(share / len(KINDS), 1 / num_annotations)


def count_rounds(rate: float, num_annotations: int) -> int:
    """Return how many rounds of each mix plant enough errors of each cause."""
    each = max(rate * num_annotations, 1)
    return int(np.clip(np.ceil(PROBE.planted_per_cause / each), 1, PROBE.max_rounds))


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


def order_by_name(names: Sequence[str]) -> Rows:
    """Return rows sorted by name, so that the order in the source files does not matter."""
    return np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)


def plant_errors(
    scene: tuple[Dataset, Rows, Detections], mix: ErrorMix, rate: float, seed: int
) -> Planted | None:
    """Disturb a dataset by a mix of errors, each kind at this rate.

    Only the annotations at the given rows, which seem to be right, are disturbed, since the true
    label and box of the others are not known. Return None if the dataset allows no mix: a dataset
    may have one class, and a detector may confuse nothing.
    """
    dataset, eligible, detections = scene
    for choose in mix.choices:
        settings = replace(choose(rate), seed=seed)
        try:
            noisy = disturb(dataset, settings, detections, eligible)
        except BoxmendError:
            continue
        return _list_planted(dataset, noisy.dataset, noisy.truth)
    return None


def _list_planted(original: Dataset, disturbed: Dataset, truth: Truth) -> Planted:
    is_there = ~truth.is_missing
    origins, labels, boxes = truth.origins[is_there], truth.labels[is_there], truth.boxes[is_there]
    is_kept = origins == Origin.KEPT
    is_moved = is_kept & truth.box_changed[is_there]
    is_bad = is_moved.copy()
    is_bad[is_moved] = compute_iou(disturbed.boxes[is_moved], boxes[is_moved]) < GOOD_IOU
    return Planted(
        dataset=disturbed,
        original=original,
        rows={
            Kind.WRONG_LABEL: np.flatnonzero(is_kept & truth.label_changed[is_there]),
            Kind.BAD_BOX: np.flatnonzero(is_bad),
            Kind.MISSING: np.flatnonzero(truth.is_missing),
            Kind.SPURIOUS: np.flatnonzero(origins == Origin.SPURIOUS),
            Kind.DUPLICATE: np.flatnonzero(origins == Origin.DUPLICATE),
        },
        labels=labels,
        boxes=boxes,
    )


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
    fixed, before = own.take(places[is_found]), rows[is_found]
    if kind == Kind.WRONG_LABEL:
        is_right = fixed.new_labels == planted.labels[before]
    elif kind == Kind.BAD_BOX:
        # The box before may be imprecise, too, so a right fix only has to be closer to it.
        boxes = planted.boxes[before]
        is_right = compute_iou(fixed.new_boxes, boxes) > compute_iou(fixed.old_boxes, boxes)
    else:
        is_right = np.ones(len(fixed), np.bool_)
    return ProbeCounts(len(rows), int(is_found.sum()), int(is_right.sum()))


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


def _share_with_interval(number: int, total: int) -> dict[str, float] | None:
    if not total:
        return None
    measured = wilson_interval(number, total)
    return {"value": number / total, "low": measured.low, "high": measured.high}
