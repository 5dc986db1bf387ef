"""The gallery: every annotation that a run changed, in columns, as the page reads them.

If the truth is known, the gallery also has the wrong labels that the run missed, and each row has a
mark that compares its label with the truth.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxmend.data.boxes import compute_iou
from boxmend.data.types import Floats, Rows
from boxmend.repair.changes import Changes
from boxmend.runs.judgement import Judgement
from boxmend.runs.opening import OpenRun
from boxmend.scoring.truth import KnownTruth
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
from boxmend.web.report.record import RunRecord
from boxmend.web.text import display_text
from boxmend.web.thumbnails import Request, Thumbnails


class Mark(IntEnum):
    """A label's verdict compared with the truth; the page has a text for each."""

    RIGHT = 0  # kept and right; or the truth is unknown
    MENDED = 1  # relabelled, from wrong to right
    HARMED = 2  # relabelled, from right to wrong
    STILL_WRONG = 3  # relabelled, from wrong to wrong
    MISSED = 4  # wrong and kept
    DOUBTED_RIGHTLY = 5  # unsure and wrong
    DOUBTED_WRONGLY = 6  # unsure and right


@dataclass(frozen=True, eq=False)
class Gallery:
    """The rows of a dataset that the gallery shows, image by image, with their marks."""

    opened: OpenRun
    changes: Changes
    rows: Rows  # [g]
    marks: NDArray[np.int8]  # [g] Mark
    truth: KnownTruth | None

    def __len__(self) -> int:
        return len(self.rows)


def gallery_of(record: RunRecord) -> Gallery:
    """Choose the rows to show: the changed ones and, if the truth is known, the missed ones."""
    opened, truth = record.opened, record.truth
    marks = marks_of(opened, truth)
    rows = np.flatnonzero(opened.settlement.is_changed | (marks == Mark.MISSED))
    order = np.argsort(opened.dataset.image_rows[rows], kind="stable")
    return Gallery(opened, record.changes, rows[order], marks[rows[order]], truth)


def marks_of(opened: OpenRun, truth: KnownTruth | None) -> NDArray[np.int8]:
    """Return a mark [n] that compares the verdict on each label with the truth."""
    verdicts, old = opened.settlement.verdicts, opened.dataset.labels
    marks = np.full(len(old), Mark.RIGHT, np.int8)
    if truth is None:
        return marks
    was_wrong, is_wrong = truth.is_wrong(old), truth.is_wrong(opened.settlement.labels)
    is_relabelled, is_unsure = verdicts == Judgement.RELABELLED, verdicts == Judgement.DISCARDED
    marks[was_wrong & ~opened.dataset.is_ignored] = Mark.MISSED
    marks[is_unsure] = np.where(was_wrong, Mark.DOUBTED_RIGHTLY, Mark.DOUBTED_WRONGLY)[is_unsure]
    changed = np.where(is_wrong, Mark.HARMED, Mark.MENDED)
    changed[was_wrong & is_wrong] = Mark.STILL_WRONG
    marks[is_relabelled] = changed[is_relabelled]
    return marks


def requests_of(gallery: Gallery) -> list[Request]:
    """Request a picture of each row, image by image, that shows all boxes of the row."""
    dataset = gallery.opened.dataset
    around = enclose_boxes([boxes[gallery.rows] for boxes in _boxes_of(gallery).values()])
    return request_pictures(dataset, dataset.image_rows[gallery.rows], around)


def columns(gallery: Gallery, pictures: Iterable[Thumbnails]) -> dict[str, Any]:
    """Return the gallery as columns for the page; repeated texts are in lists of their own.

    `pictures` are those of `requests_of`. Numbers are rounded to visible precision; None stands for
    an unknown value.
    """
    opened, rows = gallery.opened, gallery.rows
    dataset = opened.dataset
    files = file_columns(dataset, dataset.image_rows[rows])
    reasons, reason_of = list_distinct(_reasons(opened, gallery.changes, rows))
    table: dict[str, Any] = {
        "labels": [display_text(name) for name in dataset.label_names],
        **files,
        "reasons": reasons,
        "id": [display_text(str(number)) for number in dataset.annotation_ids[rows].tolist()],
        "old": dataset.labels[rows].tolist(),
        "new": opened.settlement.labels[rows].tolist(),
        "verdict": opened.settlement.verdicts[rows].tolist(),
        "moved": opened.settlement.is_moved[rows].astype(int).tolist(),
        "loss": round_values(opened.settlement.losses[rows], 3),
        "threshold": round_values(opened.settlement.thresholds[rows], 3),
        "confidence": round_values(opened.settlement.confidences[rows], 3),
        "iou": round_values(opened.settlement.iou[rows], 3),
        "reason": reason_of,
        "boxes": {name: flatten_boxes(boxes[rows]) for name, boxes in _boxes_of(gallery).items()},
        **picture_columns(files["file"], pictures),
    }
    return table | ({} if gallery.truth is None else _truth_columns(gallery, gallery.truth))


def _boxes_of(gallery: Gallery) -> dict[str, Floats]:
    opened = gallery.opened
    boxes = {
        "annotated": opened.dataset.boxes,
        "matched": opened.settlement.matched_boxes,
        "final": opened.settlement.boxes,
    }
    return boxes if gallery.truth is None else boxes | {"true": gallery.truth.boxes}


def _truth_columns(gallery: Gallery, truth: KnownTruth) -> dict[str, Column]:
    rows, opened = gallery.rows, gallery.opened
    is_known = ~truth.is_spurious[rows]
    old, new = opened.dataset.boxes[rows], opened.settlement.boxes[rows]
    before, after = (compute_iou(boxes, truth.boxes[rows]) for boxes in (old, new))
    return {
        "mark": gallery.marks.tolist(),
        "truth": truth.labels[rows].tolist(),
        "before": round_values(np.where(is_known, before, np.nan), 3),
        "after": round_values(np.where(is_known, after, np.nan), 3),
    }


def _reasons(opened: OpenRun, changes: Changes, rows: Rows) -> list[str]:
    """Return the reason of each row: of its change, or why the run was unsure of it."""
    settlement = opened.settlement
    reason_of = dict(zip(changes.rows.tolist(), changes.reasons, strict=True))
    reasons = []
    for row in rows.tolist():
        parts = [reason_of[row]] if row in reason_of else []
        if settlement.is_unsure[row]:
            name = opened.dataset.label_names[opened.dataset.labels[row]]
            parts.insert(0, f"label: unsure of {name} {settlement.votes(row)}, kept")
        reasons.append(display_text("; ".join(parts), MAX_REASON_CHARACTERS))
    return reasons
