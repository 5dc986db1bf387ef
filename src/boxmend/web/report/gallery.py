"""The gallery: every annotation that a run changed, in columns, as the page reads them.

Where the truth is known there are also the wrong labels that were missed, and each row says what
became of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxmend.data.boxes import overlaps
from boxmend.data.dataset import UNKNOWN
from boxmend.data.types import Box, Floats, Rows
from boxmend.repair.changes import Changes
from boxmend.runs.judgement import Judgement
from boxmend.runs.opening import OpenRun
from boxmend.scoring.truth import KnownTruth
from boxmend.web.report.record import RunRecord
from boxmend.web.text import shown
from boxmend.web.thumbnails import Request, Thumbnails

Column = list[Any]

LONGEST_REASON = 500  # characters; it names two labels


class Mark(IntEnum):
    """What the truth says of a label's verdict; the page has a word for each."""

    RIGHT = 0  # kept, and right; or no truth is known
    MENDED = 1  # relabelled, from wrong to right
    HARMED = 2  # relabelled, from right to wrong
    STILL_WRONG = 3  # relabelled, from wrong to wrong
    MISSED = 4  # wrong, and not doubted
    DOUBTED_RIGHTLY = 5  # unsure, and wrong
    DOUBTED_WRONGLY = 6  # unsure, and right


@dataclass(frozen=True, eq=False)
class Gallery:
    """The rows of a dataset that are shown, image by image, with what the truth says of them."""

    opened: OpenRun
    changes: Changes
    rows: Rows  # [g]
    marks: NDArray[np.int8]  # [g] Mark
    truth: KnownTruth | None

    def __len__(self) -> int:
        return len(self.rows)


def gallery_of(record: RunRecord) -> Gallery:
    """Choose what is shown: what changed and, where the truth is known, what was missed."""
    opened, truth = record.opened, record.truth
    marks = marks_of(opened, truth)
    rows = np.flatnonzero(opened.settlement.is_changed | (marks == Mark.MISSED))
    order = np.argsort(opened.dataset.image_rows[rows], kind="stable")
    return Gallery(opened, record.changes, rows[order], marks[rows[order]], truth)


def marks_of(opened: OpenRun, truth: KnownTruth | None) -> NDArray[np.int8]:
    """[n] Hold the verdict on each label against the truth."""
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
    """Ask for a picture of each row: an image each, in order, with all that is to be seen there."""
    dataset = gallery.opened.dataset
    around = _around([boxes[gallery.rows] for boxes in _boxes_of(gallery).values()])
    images = dataset.image_rows[gallery.rows]
    starts = np.flatnonzero(np.diff(images, prepend=-2))
    ends = [*starts[1:], len(images)][: len(starts)]
    requests = []
    for start, end in zip(starts, ends, strict=True):
        image = int(images[start])
        boxes: list[Box] = [_box(one) for one in around[start:end].tolist()]
        requests.append(Request(dataset.images.paths[image] if image != UNKNOWN else "", boxes))
    return requests


def columns(gallery: Gallery, pictures: Iterable[Thumbnails]) -> dict[str, Any]:
    """Put all that the page shows of the gallery into columns, texts that recur into lists.

    `pictures` are those of `requests_of`. Numbers are rounded to what can be seen; None is what is
    not known.
    """
    opened, rows = gallery.opened, gallery.rows
    dataset = opened.dataset
    images = dataset.image_rows[rows]
    own, of_row = np.unique(images, return_inverse=True)
    names = [dataset.images.file_names[one] if one != UNKNOWN else "" for one in own.tolist()]
    reasons, reason_of = _recurring(_reasons(opened, gallery.changes, rows))
    table: dict[str, Any] = {
        "labels": [shown(name) for name in dataset.label_names],
        "files": [shown(name) for name in names],
        "reasons": reasons,
        "id": [shown(str(one)) for one in dataset.annotation_ids[rows].tolist()],
        "file": of_row.tolist(),
        "old": dataset.labels[rows].tolist(),
        "new": opened.settlement.labels[rows].tolist(),
        "verdict": opened.settlement.verdicts[rows].tolist(),
        "moved": opened.settlement.is_moved[rows].astype(int).tolist(),
        "loss": _rounded(opened.settlement.losses[rows], 3),
        "threshold": _rounded(opened.settlement.thresholds[rows], 3),
        "confidence": _rounded(opened.settlement.confidences[rows], 3),
        "iou": _rounded(opened.settlement.iou[rows], 3),
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
    before, after = (overlaps(boxes, truth.boxes[rows]) for boxes in (old, new))
    return {
        "mark": gallery.marks.tolist(),
        "truth": truth.labels[rows].tolist(),
        "before": _rounded(np.where(is_known, before, np.nan), 3),
        "after": _rounded(np.where(is_known, after, np.nan), 3),
    }


def _picture_columns(numbers: Sequence[int], pictures: Iterable[Thumbnails]) -> dict[str, Column]:
    """The window and the picture of every row, or the problem; the whole of every image.

    `numbers` are those of rows, by image.
    """
    windows: Column = []
    names: list[str | None] = []
    problems: list[str] = []
    whole: list[str | None] = []  # by image, as "files" are
    sizes: Column = []
    for n, one in zip(numbers, pictures, strict=True):
        windows += [side for window in one.windows for side in window] or [0] * 4 * n
        names += one.names or [None] * n
        problems += [one.problem] * n
        whole.append(one.whole or None)
        sizes += one.size
    listed, problem_of = _recurring([shown(problem) for problem in problems])
    return {
        "windows": windows,
        "pictures": names,
        "problems": listed,
        "problem": problem_of,
        "whole": whole,
        "sizes": sizes,
    }


def _around(boxes: Sequence[Floats]) -> Floats:
    """[g, 4] The smallest box around several; a side that none has is NaN."""
    stacked = np.stack(boxes)  # [b, g, 4]
    low = np.fmin.reduce(stacked[..., :2])
    high = np.fmax.reduce(stacked[..., 2:])
    return np.concatenate([low, high], axis=1)


def _box(sides: list[float]) -> Box:
    x1, y1, x2, y2 = sides
    return x1, y1, x2, y2


def _reasons(opened: OpenRun, changes: Changes, rows: Rows) -> list[str]:
    """Why each row is as it is: the reason of its change, or what was not sure of it."""
    settlement = opened.settlement
    told = dict(zip(changes.rows.tolist(), changes.reasons, strict=True))
    reasons = []
    for row in rows.tolist():
        parts = [told[row]] if row in told else []
        if settlement.is_unsure[row]:
            name = opened.dataset.label_names[opened.dataset.labels[row]]
            parts.insert(0, f"label: unsure of {name} {settlement.votes(row)}, kept")
        reasons.append(shown("; ".join(parts), LONGEST_REASON))
    return reasons


def _recurring(texts: list[str]) -> tuple[list[str], list[int]]:
    """The different texts in the order in which they come, and which of them each one is."""
    number = {text: k for k, text in enumerate(dict.fromkeys(texts))}
    return list(number), [number[text] for text in texts]


def _rounded(values: Floats, decimals: int) -> Column:
    is_known = np.isfinite(values)
    plain = np.where(is_known, values, 0).round(decimals).tolist()
    return [one if known else None for one, known in zip(plain, is_known.tolist(), strict=True)]


def _flat(boxes: Floats) -> Column:
    """[4g] The sides of all boxes one after the other, to a tenth of a pixel."""
    return _rounded(boxes.reshape(-1), 1)
