"""The gallery of an audit: one row per fix, as the page reads it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from boxmend.auditing.fixes.choosing import KINDS_BY_OPTION, YIELD_PRECISIONS
from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.auditing.fixes.verdicts import ACCEPT, Verdict
from boxmend.data.dataset import UNKNOWN
from boxmend.data.types import Floats, Rows
from boxmend.web.report.audits.record import AuditRecord
from boxmend.web.report.gallery_columns import (
    MAX_REASON_CHARACTERS,
    Column,
    enclose_boxes,
    file_columns,
    flatten_boxes,
    list_distinct,
    picture_columns,
    request_pictures,
    round_values,
)
from boxmend.web.text import display_text
from boxmend.web.thumbnails import Request, Thumbnails

MAX_SHOWN = 20_000  # fixes; the page stays fast with so many
OPTION_OF = {kind: option for option, kind in KINDS_BY_OPTION.items()}


class FixAnswer(IntEnum):
    """What people say about a fix; the page has a text for each."""

    OPEN = 0
    ACCEPTED = 1
    REJECTED = 2
    CHANGED = 3  # accepted with another label or box


class FixMark(IntEnum):
    """A fix compared with the truth; the page has a text for each."""

    UNKNOWN = 0  # it counts neither as right nor as wrong
    RIGHT = 1
    WRONG = 2


@dataclass(frozen=True, eq=False)
class AuditGallery:
    """The fixes of an audit that the gallery shows, image by image."""

    record: AuditRecord
    rows: Rows  # [g] of the table of fixes

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def fixes(self) -> Fixes:
        """The fixes [g]."""
        return self.record.fixes.take(self.rows)


def audit_gallery_of(record: AuditRecord) -> AuditGallery:
    """Choose the fixes to show: all, or the most probable ones of very many."""
    fixes = record.fixes
    order = np.lexsort((-fixes.p_wrong, record.levels))[:MAX_SHOWN]
    order = np.sort(order)  # the table is sorted by falling probability
    by_image = np.argsort(fixes.image_rows[order], kind="stable")
    return AuditGallery(record, order[by_image])


def request_audit_pictures(gallery: AuditGallery) -> list[Request]:
    """Request a picture of each fix, image by image, that shows all boxes of the fix."""
    around = enclose_boxes(list(_boxes_of(gallery).values()))
    return request_pictures(gallery.record.dataset, gallery.fixes.image_rows, around)


def audit_columns(gallery: AuditGallery, pictures: Iterable[Thumbnails]) -> dict[str, Any]:
    """Return the gallery as columns for the page; `pictures` are those that were requested."""
    record, rows, fixes = gallery.record, gallery.rows, gallery.fixes
    dataset, chosen = record.dataset, record.chosen
    files = file_columns(dataset, fixes.image_rows)
    reasons, reason_of = list_distinct(
        [display_text(reason, MAX_REASON_CHARACTERS) for reason in fixes.reasons]
    )
    table: dict[str, Any] = {
        "kinds": [kind.words for kind in Kind],
        "options": [OPTION_OF[kind] for kind in Kind],
        "precisions": list(YIELD_PRECISIONS),
        "labels": [display_text(name) for name in dataset.label_names],
        **files,
        "reasons": reasons,
        "reason": reason_of,
        "fix": [display_text(name) for name in fixes.ids],
        "id": _ids(record, fixes.rows),
        "kept": _ids(record, fixes.kept_rows),
        "kind": fixes.kinds.tolist(),
        "old": fixes.old_labels.tolist(),
        "new": fixes.new_labels.tolist(),
        "p_wrong": round_values(chosen.p_wrong[rows], 3),
        "p_fix": round_values(chosen.p_fix[rows], 3),
        "gain": round_values(np.where(fixes.kinds == Kind.BAD_BOX, fixes.iou_gain, np.nan), 3),
        "level": record.levels[rows].tolist(),
        "own_level": record.own_levels[rows].tolist(),
        "answer": [_answer(record.latest.get(name)) for name in fixes.ids],
        "boxes": {name: flatten_boxes(boxes) for name, boxes in _boxes_of(gallery).items()},
        **picture_columns(files["file"], pictures),
    }
    return table | _truth_columns(gallery)


def _boxes_of(gallery: AuditGallery) -> dict[str, Floats]:
    """Return the boxes [g, 4] of each layer; a proposed box that is the annotated one is NaN."""
    fixes, dataset = gallery.fixes, gallery.record.dataset
    is_same = (fixes.new_boxes == fixes.old_boxes).all(axis=1)
    known = np.concatenate([dataset.boxes, np.full((1, 4), np.nan)])  # UNKNOWN is the last row
    boxes = {
        "annotated": fixes.old_boxes,
        "matched": known[fixes.kept_rows],
        "final": np.where(is_same[:, None], np.nan, fixes.new_boxes),
    }
    truth = gallery.record.truth
    if truth is not None:
        boxes["true"] = np.concatenate([truth.boxes, np.full((1, 4), np.nan)])[fixes.rows]
    return boxes


def _truth_columns(gallery: AuditGallery) -> dict[str, Column]:
    record, fixes = gallery.record, gallery.fixes
    if record.truth is None or record.is_right is None or record.is_counted is None:
        return {}
    marks = np.where(record.is_right, FixMark.RIGHT, FixMark.WRONG)
    marks[~record.is_counted] = FixMark.UNKNOWN
    labels = np.append(record.truth.labels, UNKNOWN)
    return {"mark": marks[gallery.rows].tolist(), "truth": labels[fixes.rows].tolist()}


def _answer(verdict: Verdict | None) -> FixAnswer:
    if verdict is None:
        return FixAnswer.OPEN
    if verdict.answer != ACCEPT:
        return FixAnswer.REJECTED
    return FixAnswer.ACCEPTED if verdict.is_plain else FixAnswer.CHANGED


def _ids(record: AuditRecord, rows: Rows) -> list[str]:
    """Return the ids of annotations, and an empty text where there is none."""
    ids = record.dataset.annotation_ids
    return ["" if row == UNKNOWN else display_text(str(ids[row])) for row in rows.tolist()]
