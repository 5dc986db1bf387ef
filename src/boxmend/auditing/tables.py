"""Make the table of fixes, with reasons for people, from the judgement of annotations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from boxmend.auditing.evidence import NONE, Detected, Evidence
from boxmend.auditing.fixes.table import BOX_DECIMALS, Fixes, Kind, is_box
from boxmend.auditing.judging import AuditOpinion
from boxmend.data.boxes import clip_boxes, compute_iou
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats, Rows


@dataclass(frozen=True)
class ListingConstants:
    """Thresholds of the fixes that a table lists."""

    min_p_wrong: float = 0.05  # of a listed fix
    min_p_bad_box: float = 0.5  # of a listed bad box; a box that is probably good is kept
    same_box_iou: float = 0.98  # above it the new box is the old one, rounded


LISTING = ListingConstants()


def make_fixes(
    dataset: Dataset, rows: Rows, opinion: AuditOpinion, evidence: Evidence
) -> list[Fixes]:
    """Return fixes of wrong labels, bad boxes, spurious annotations and duplicates.

    `rows` are those of the dataset, in the order of the opinion.
    """
    return [
        _make_label_fixes(dataset, rows, opinion, evidence),
        _make_box_fixes(dataset, rows, opinion, evidence),
        _make_spurious_fixes(dataset, rows, opinion, evidence),
        _make_duplicate_fixes(dataset, rows, opinion),
    ]


def compute_p_wrong(opinion: AuditOpinion) -> dict[Kind, Floats]:
    """Return the probability [n] of every kind of error, for every annotation of an opinion."""
    there = opinion.p_there
    duplicate = np.zeros(len(there))
    duplicate[opinion.repeats.rows] = opinion.repeats.p_duplicate
    return {
        Kind.WRONG_LABEL: there * opinion.labels.p_wrong,
        Kind.BAD_BOX: there * opinion.boxes.p_bad,
        Kind.SPURIOUS: opinion.presence.p_spurious,
        Kind.DUPLICATE: duplicate,
    }


def _make_label_fixes(
    dataset: Dataset, rows: Rows, opinion: AuditOpinion, evidence: Evidence
) -> Fixes:
    p_wrong = compute_p_wrong(opinion)[Kind.WRONG_LABEL]
    at = np.flatnonzero((p_wrong >= LISTING.min_p_wrong) & (opinion.labels.labels != NONE))
    new, old = opinion.labels.labels[at], dataset.labels[rows[at]]
    for_new, for_old = evidence.for_labels(at, new), evidence.for_labels(at, old)
    names = dataset.label_names
    reasons = [
        f"detected as {names[better]} ({p_better:.2f}) rather than {names[label]} ({p_label:.2f})"
        for better, label, p_better, p_label in zip(new, old, for_new, for_old, strict=True)
    ]
    fixes = _start_fixes(dataset, Kind.WRONG_LABEL, rows[at], p_wrong[at], reasons)
    fixes.new_labels[:] = new
    fixes.p_fix[:] = opinion.p_there[at] * opinion.labels.p_fix[at]
    return fixes


def _make_box_fixes(
    dataset: Dataset, rows: Rows, opinion: AuditOpinion, evidence: Evidence
) -> Fixes:
    p_wrong = compute_p_wrong(opinion)[Kind.BAD_BOX]
    boxes = clip_to_images(dataset, dataset.image_rows[rows], opinion.boxes.boxes)
    is_moved = compute_iou(boxes, dataset.boxes[rows]) < LISTING.same_box_iou
    at = np.flatnonzero((p_wrong >= LISTING.min_p_bad_box) & is_moved & is_box(boxes))
    overlap = compute_iou(dataset.boxes[rows[at]], evidence.boxes[at])
    reasons = [f"has an IoU of {iou:.2f} with the detected box" for iou in overlap.tolist()]
    fixes = _start_fixes(dataset, Kind.BAD_BOX, rows[at], p_wrong[at], reasons)
    fixes.new_boxes[:] = boxes[at]
    fixes.p_fix[:] = opinion.p_there[at] * opinion.boxes.p_fix[at]
    fixes.iou_gain[:] = opinion.p_there[at] * opinion.boxes.iou_gain[at]
    return fixes


def _make_spurious_fixes(
    dataset: Dataset, rows: Rows, opinion: AuditOpinion, evidence: Evidence
) -> Fixes:
    p_wrong = opinion.presence.p_spurious
    at = np.flatnonzero(p_wrong >= LISTING.min_p_wrong)
    reasons = [
        f"hardly anything is detected there ({support:.2f})"
        if support >= 0.005
        else "nothing is detected there"
        for support in evidence.support[at].tolist()
    ]
    return _make_removals(_start_fixes(dataset, Kind.SPURIOUS, rows[at], p_wrong[at], reasons))


def _make_duplicate_fixes(dataset: Dataset, rows: Rows, opinion: AuditOpinion) -> Fixes:
    repeats = opinion.repeats
    at = np.flatnonzero(repeats.p_duplicate >= LISTING.min_p_wrong)
    own, kept = rows[repeats.rows[at]], rows[repeats.kept[at]]
    shared = compute_iou(dataset.boxes[own], dataset.boxes[kept])
    reasons = [
        f"has an IoU of {iou:.2f} with annotation {dataset.annotation_ids[row]} of the same label"
        for row, iou in zip(kept.tolist(), shared.tolist(), strict=True)
    ]
    fixes = _make_removals(
        _start_fixes(dataset, Kind.DUPLICATE, own, repeats.p_duplicate[at], reasons)
    )
    fixes.kept_rows[:] = kept
    return fixes


def make_missing_fixes(dataset: Dataset, detected: Detected, opinion: AuditOpinion) -> Fixes:
    """Return fixes that add annotations."""
    missing = opinion.missing
    rows = missing.detections
    names = dataset.label_names
    image_rows, labels = detected.image_rows[rows], detected.labels[rows]
    boxes = clip_to_images(dataset, image_rows, detected.boxes[rows])
    number = len(rows)
    unknown = np.full(number, UNKNOWN)
    columns = (dataset.images.ids[image_rows], labels, *boxes.T)
    ids = [
        f"missing:{image}:{names[label]}:{x1:.0f},{y1:.0f},{x2:.0f},{y2:.0f}"
        for image, label, x1, y1, x2, y2 in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]
    fixes = Fixes(
        ids=ids if len(set(ids)) == number else list(_make_distinct(ids)),
        kinds=np.full(number, Kind.MISSING, np.int8),
        rows=unknown.copy(),
        image_rows=image_rows.copy(),
        old_labels=unknown.copy(),
        new_labels=labels.copy(),
        old_boxes=np.full((number, 4), np.nan),
        new_boxes=boxes,
        kept_rows=unknown.copy(),
        p_wrong=missing.p_missing.copy(),
        p_fix=missing.p_fix.copy(),
        iou_gain=np.zeros(number),
        reasons=[
            f"detected as {names[label]} ({score:.2f}), but not annotated"
            for label, score in zip(labels.tolist(), detected.scores[rows].tolist(), strict=True)
        ],
    )
    return fixes.take(is_box(boxes))  # rounding leaves slivers without area


def join_fixes(parts: Sequence[Fixes]) -> Fixes:
    """Return all fixes in one table, sorted by falling probability and then by id."""
    columns: dict[str, Any] = {}
    for name in Fixes.__dataclass_fields__:
        pieces = [getattr(part, name) for part in parts]
        is_list = isinstance(pieces[0], list)
        columns[name] = list(chain(*pieces)) if is_list else np.concatenate(pieces)
    fixes = Fixes(**columns)
    by_name = np.array(sorted(range(len(fixes)), key=fixes.ids.__getitem__), np.int64)
    return fixes.take(by_name[np.argsort(-fixes.p_fix[by_name], kind="stable")])


def clip_to_images(dataset: Dataset, image_rows: Rows, boxes: Floats) -> Floats:
    """Return boxes clipped to their images, and rounded as in the file of fixes."""
    clipped = clip_boxes(boxes, dataset.images.sizes[image_rows])
    rounded: Floats = np.round(clipped, BOX_DECIMALS)
    return rounded


def _start_fixes(
    dataset: Dataset, kind: Kind, rows: Rows, p_wrong: Floats, reasons: list[str]
) -> Fixes:
    """Return fixes of annotations that do not change anything yet."""
    word = kind.words.replace(" ", "-")
    return Fixes(
        ids=[f"{word}:{name}" for name in dataset.annotation_ids[rows].tolist()],
        kinds=np.full(len(rows), kind, np.int8),
        rows=rows.copy(),
        image_rows=dataset.image_rows[rows],
        old_labels=dataset.labels[rows],
        new_labels=dataset.labels[rows],
        old_boxes=dataset.boxes[rows],
        new_boxes=dataset.boxes[rows],
        kept_rows=np.full(len(rows), UNKNOWN),
        p_wrong=p_wrong.copy(),
        p_fix=p_wrong.copy(),
        iou_gain=np.zeros(len(rows)),
        reasons=reasons,
    )


def _make_removals(fixes: Fixes) -> Fixes:
    fixes.new_labels[:] = UNKNOWN
    fixes.new_boxes[:] = np.nan
    return fixes


def _make_distinct(names: Sequence[str]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}:{seen[name]}"
