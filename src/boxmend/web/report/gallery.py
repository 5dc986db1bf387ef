"""The gallery: every annotation that a run changed, in columns, as the page reads them.

If the truth is known, the gallery also has the wrong labels that the run missed, and each row has a
mark that compares its label with the truth.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxmend.data.boxes import compute_iou
from boxmend.data.dataset import UNKNOWN
from boxmend.data.types import Box, Floats, Rows
from boxmend.repair.changes import Changes
from boxmend.runs.judgement import Judgement
from boxmend.runs.opening import OpenRun
from boxmend.scoring.truth import KnownTruth
from boxmend.web.report.record import RunRecord
from boxmend.web.text import display_text
from boxmend.web.thumbnails import Request, Thumbnails

Column = list[Any]

MAX_REASON_CHARACTERS = 500  # a reason has two label names


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
    around = _enclosing_boxes([boxes[gallery.rows] for boxes in _boxes_of(gallery).values()])
    images = dataset.image_rows[gallery.rows]
    starts = np.flatnonzero(np.diff(images, prepend=-2))
    ends = [*starts[1:], len(images)][: len(starts)]
    requests = []
    for start, end in zip(starts, ends, strict=True):
        image = int(images[start])
        boxes: list[Box] = [_box(sides) for sides in around[start:end].tolist()]
        requests.append(Request(dataset.images.paths[image] if image != UNKNOWN else "", boxes))
    return requests


def columns(gallery: Gallery, pictures: Iterable[Thumbnails]) -> dict[str, Any]:
    """Return the gallery as columns for the page; repeated texts are in lists of their own.

    `pictures` are those of `requests_of`. Numbers are rounded to visible precision; None stands for
    an unknown value.
    """
    opened, rows = gallery.opened, gallery.rows
    dataset = opened.dataset
    images = dataset.image_rows[rows]
    own, of_row = np.unique(images, return_inverse=True)
    names = [dataset.images.file_names[row] if row != UNKNOWN else "" for row in own.tolist()]
    reasons, reason_of = _distinct(_reasons(opened, gallery.changes, rows))
    table: dict[str, Any] = {
        "labels": [display_text(name) for name in dataset.label_names],
        "files": [display_text(name) for name in names],
        "reasons": reasons,
        "id": [display_text(str(number)) for number in dataset.annotation_ids[rows].tolist()],
        "file": of_row.tolist(),
        "old": dataset.labels[rows].tolist(),
        "new": opened.settlement.labels[rows].tolist(),
        "verdict": opened.settlement.verdicts[rows].tolist(),
        "moved": opened.settlement.is_moved[rows].astype(int).tolist(),
        "loss": _round(opened.settlement.losses[rows], 3),
        "threshold": _round(opened.settlement.thresholds[rows], 3),
        "confidence": _round(opened.settlement.confidences[rows], 3),
        "iou": _round(opened.settlement.iou[rows], 3),
        "reason": reason_of,
        "boxes": {name: _flat(boxes[rows]) for name, boxes in _boxes_of(gallery).items()},
        **_picture_columns(np.bincount(of_row).tolist(), pictures),
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
        "before": _round(np.where(is_known, before, np.nan), 3),
        "after": _round(np.where(is_known, after, np.nan), 3),
    }


def _picture_columns(numbers: Sequence[int], pictures: Iterable[Thumbnails]) -> dict[str, Column]:
    """Return the window and picture of every row, or its problem, and the picture of every image.

    `numbers` are the numbers of rows of each image.
    """
    windows: Column = []
    names: list[str | None] = []
    problems: list[str] = []
    whole: list[str | None] = []  # by image, as "files" are
    sizes: Column = []
    for n, thumbnails in zip(numbers, pictures, strict=True):
        windows += [side for window in thumbnails.windows for side in window] or [0] * 4 * n
        names += thumbnails.names or [None] * n
        problems += [thumbnails.problem] * n
        whole.append(thumbnails.whole or None)
        sizes += thumbnails.size
    distinct_problems, problem_of = _distinct([display_text(problem) for problem in problems])
    return {
        "windows": windows,
        "pictures": names,
        "problems": distinct_problems,
        "problem": problem_of,
        "whole": whole,
        "sizes": sizes,
    }


def _enclosing_boxes(boxes: Sequence[Floats]) -> Floats:
    """Return the smallest box [g, 4] around several boxes of each row; unknown sides are NaN."""
    stacked = np.stack(boxes)  # [b, g, 4]
    low = np.fmin.reduce(stacked[..., :2])
    high = np.fmax.reduce(stacked[..., 2:])
    return np.concatenate([low, high], axis=1)


def _box(sides: list[float]) -> Box:
    x1, y1, x2, y2 = sides
    return x1, y1, x2, y2


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


def _distinct(texts: list[str]) -> tuple[list[str], list[int]]:
    """Return the distinct texts in their order, and the index of each text among them."""
    number = {text: k for k, text in enumerate(dict.fromkeys(texts))}
    return list(number), [number[text] for text in texts]


def _round(values: Floats, decimals: int) -> Column:
    is_known = np.isfinite(values)
    numbers = np.where(is_known, values, 0).round(decimals).tolist()
    pairs = zip(numbers, is_known.tolist(), strict=True)
    return [number if known else None for number, known in pairs]


def _flat(boxes: Floats) -> Column:
    """Return the sides of all boxes in one list [4g], to a tenth of a pixel."""
    return _round(boxes.reshape(-1), 1)
