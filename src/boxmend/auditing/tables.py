"""From opinions to the table of fixes, with reasons in words."""

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
    """Which fixes are listed."""

    min_p_wrong: float = 0.05  # below it nothing is listed
    min_p_bad_box: float = 0.5  # a box that is probably good had better stay
    same_box_iou: float = 0.98  # above it a new box is the old one, rounded


LISTING = ListingConstants()


def fixes_of(
    dataset: Dataset, rows: Rows, opinion: AuditOpinion, evidence: Evidence
) -> list[Fixes]:
    """Fixes of annotations; `rows` of the dataset are those of the opinion, one by one."""
    return [
        _wrong_labels(dataset, rows, opinion, evidence),
        _bad_boxes(dataset, rows, opinion, evidence),
        _spurious(dataset, rows, opinion, evidence),
        _duplicates(dataset, rows, opinion),
    ]


def columns_of(opinion: AuditOpinion) -> dict[Kind, Floats]:
    """How probable every kind of error is, for every annotation of an opinion."""
    there = opinion.p_there
    duplicate = np.zeros(len(there))
    duplicate[opinion.repeats.rows] = opinion.repeats.p_duplicate
    return {
        Kind.WRONG_LABEL: there * opinion.labels.p_wrong,
        Kind.BAD_BOX: there * opinion.boxes.p_bad,
        Kind.SPURIOUS: opinion.presence.p_spurious,
        Kind.DUPLICATE: duplicate,
    }


def _wrong_labels(dataset: Dataset, rows: Rows, opinion: AuditOpinion, evidence: Evidence) -> Fixes:
    p_wrong = columns_of(opinion)[Kind.WRONG_LABEL]
    at = np.flatnonzero((p_wrong >= LISTING.min_p_wrong) & (opinion.labels.labels != NONE))
    new, old = opinion.labels.labels[at], dataset.labels[rows[at]]
    for_new, for_old = evidence.of(at, new), evidence.of(at, old)
    names = dataset.label_names
    reasons = [
        f"seen as {names[a]} ({x:.2f}) rather than {names[b]} ({z:.2f})"
        for a, b, x, z in zip(new, old, for_new, for_old, strict=True)
    ]
    fixes = _propose_fixes(dataset, Kind.WRONG_LABEL, rows[at], p_wrong[at], reasons)
    fixes.new_labels[:] = new
    fixes.p_fix[:] = opinion.p_there[at] * opinion.labels.p_fix[at]
    return fixes


def _bad_boxes(dataset: Dataset, rows: Rows, opinion: AuditOpinion, evidence: Evidence) -> Fixes:
    p_wrong = columns_of(opinion)[Kind.BAD_BOX]
    boxes = clip_to_images(dataset, dataset.image_rows[rows], opinion.boxes.boxes)
    is_moved = compute_iou(boxes, dataset.boxes[rows]) < LISTING.same_box_iou
    at = np.flatnonzero((p_wrong >= LISTING.min_p_bad_box) & is_moved & is_box(boxes))
    apart = compute_iou(dataset.boxes[rows[at]], evidence.boxes[at])
    reasons = [f"overlaps what was seen there by {one:.2f}" for one in apart.tolist()]
    fixes = _propose_fixes(dataset, Kind.BAD_BOX, rows[at], p_wrong[at], reasons)
    fixes.new_boxes[:] = boxes[at]
    fixes.p_fix[:] = opinion.p_there[at] * opinion.boxes.p_fix[at]
    fixes.iou_gain[:] = opinion.p_there[at] * opinion.boxes.iou_gain[at]
    return fixes


def _spurious(dataset: Dataset, rows: Rows, opinion: AuditOpinion, evidence: Evidence) -> Fixes:
    p_wrong = opinion.presence.p_spurious
    at = np.flatnonzero(p_wrong >= LISTING.min_p_wrong)
    reasons = [
        f"hardly anything was seen there ({one:.2f})" if one >= 0.005 else "nothing was seen there"
        for one in evidence.support[at].tolist()
    ]
    return _make_removals(_propose_fixes(dataset, Kind.SPURIOUS, rows[at], p_wrong[at], reasons))


def _duplicates(dataset: Dataset, rows: Rows, opinion: AuditOpinion) -> Fixes:
    repeats = opinion.repeats
    at = np.flatnonzero(repeats.p_duplicate >= LISTING.min_p_wrong)
    own, kept = rows[repeats.rows[at]], rows[repeats.kept[at]]
    shared = compute_iou(dataset.boxes[own], dataset.boxes[kept])
    reasons = [
        f"overlaps annotation {dataset.annotation_ids[row]} of the same label by {one:.2f}"
        for row, one in zip(kept.tolist(), shared.tolist(), strict=True)
    ]
    fixes = _make_removals(
        _propose_fixes(dataset, Kind.DUPLICATE, own, repeats.p_duplicate[at], reasons)
    )
    fixes.kept_rows[:] = kept
    return fixes


def missing_of(dataset: Dataset, detected: Detected, opinion: AuditOpinion) -> Fixes:
    """Fixes that add annotations."""
    found = opinion.missing
    at = found.detections
    names, image_rows, labels = dataset.label_names, detected.image_rows[at], detected.labels[at]
    boxes = clip_to_images(dataset, image_rows, detected.boxes[at])
    number = len(at)
    nowhere = np.full(number, UNKNOWN)
    columns = (dataset.images.ids[image_rows], labels, *boxes.T)
    ids = [
        f"missing:{image}:{names[label]}:{x1:.0f},{y1:.0f},{x2:.0f},{y2:.0f}"
        for image, label, x1, y1, x2, y2 in zip(*(one.tolist() for one in columns), strict=True)
    ]
    fixes = Fixes(
        ids=ids if len(set(ids)) == number else list(_distinct(ids)),
        kinds=np.full(number, Kind.MISSING, np.int8),
        rows=nowhere.copy(),
        image_rows=image_rows.copy(),
        old_labels=nowhere.copy(),
        new_labels=labels.copy(),
        old_boxes=np.full((number, 4), np.nan),
        new_boxes=boxes,
        kept_rows=nowhere.copy(),
        p_wrong=found.p_missing.copy(),
        p_fix=found.p_fix.copy(),
        iou_gain=np.zeros(number),
        reasons=[
            f"{names[label]} seen with {score:.2f}, and no annotation of it"
            for label, score in zip(labels.tolist(), detected.scores[at].tolist(), strict=True)
        ],
    )
    return fixes.take(is_box(boxes))  # a sliver has no area with the digits that are written


def join_fixes(parts: Sequence[Fixes]) -> Fixes:
    """Return all fixes in one table, sorted by probability and then by name."""
    columns: dict[str, Any] = {}
    for name in Fixes.__dataclass_fields__:
        pieces = [getattr(one, name) for one in parts]
        is_list = isinstance(pieces[0], list)
        columns[name] = list(chain(*pieces)) if is_list else np.concatenate(pieces)
    fixes = Fixes(**columns)
    by_name = np.array(sorted(range(len(fixes)), key=fixes.ids.__getitem__), np.int64)
    return fixes.take(by_name[np.argsort(-fixes.p_fix[by_name], kind="stable")])


def clip_to_images(dataset: Dataset, image_rows: Rows, boxes: Floats) -> Floats:
    """Clip boxes to their images, and round them as in the file of fixes."""
    found: Floats = np.round(clip_boxes(boxes, dataset.images.sizes[image_rows]), BOX_DECIMALS)
    return found


def _propose_fixes(
    dataset: Dataset, kind: Kind, rows: Rows, p_wrong: Floats, reasons: list[str]
) -> Fixes:
    """Return fixes of annotations, still without a change."""
    word = kind.words.replace(" ", "-")
    return Fixes(
        ids=[f"{word}:{one}" for one in dataset.annotation_ids[rows].tolist()],
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


def _distinct(names: Sequence[str]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}:{seen[name]}"
