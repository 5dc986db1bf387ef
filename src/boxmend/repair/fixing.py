"""Fixes of an audit as changes of a dataset, with what people said of them put in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.auditing.fixes.choosing import KIND_OF_WORD, PRECISION, choose
from boxmend.auditing.fixes.of_runs import fixes_of
from boxmend.auditing.fixes.table import BOX_DECIMALS, Fixes, Kind
from boxmend.auditing.fixes.verdicts import VERDICTS_FILE, Verdict, read_verdicts, standing
from boxmend.data.boxes import clip_boxes, overlaps
from boxmend.data.dataset import Dataset, Note
from boxmend.data.files.text import valid_text
from boxmend.data.types import Floats, Mask, Rows
from boxmend.errors import DataError
from boxmend.repair.changes import ApplySettings, Changes, mended
from boxmend.runs.folder import Run
from boxmend.runs.settling import SAME_SIDE

REMOVALS = (Kind.SPURIOUS, Kind.DUPLICATE)


@dataclass(frozen=True, eq=False)
class Taken:
    """The fixes that are made, with people's labels and boxes where they gave others."""

    fixes: Fixes  # [t]
    p_fix: Floats  # [t] after the verdicts
    answers: list[Verdict | None]  # [t] of people who accepted them; None where nobody has
    expected_precision: float | None
    num_left: int  # for review
    num_stale: int  # verdicts on fixes that the table does not have

    @property
    def is_removal(self) -> Mask:
        """[t] An annotation goes; not so where people gave it a label or a box instead."""
        is_plain = np.array([one is None or one.is_plain for one in self.answers], np.bool_)
        is_removal: Mask = np.isin(self.fixes.kinds, REMOVALS) & is_plain
        return is_removal

    @property
    def is_addition(self) -> Mask:
        """[t] An annotation that was missing comes."""
        is_addition: Mask = np.isin(self.fixes.kinds, (Kind.MISSING,))
        return is_addition

    def to_json(self) -> dict[str, Any]:
        """Give the counts and the expected precision as plain data."""
        precision = self.expected_precision
        return {
            "fixes_taken": len(self.fixes),
            "expected_precision": None if precision is None else round(precision, 4),
            "left_for_review": self.num_left,
            "accepted_by_people": sum(one is not None for one in self.answers),
            "added": int(self.is_addition.sum()),
            "removed": int(self.is_removal.sum()),
        }


def taken_of(run: Run, dataset: Dataset, settings: ApplySettings) -> Taken:
    """Choose from the table of fixes of a run, people's verdicts first."""
    settings.check_for_fixes()
    fixes = fixes_of(run, dataset)
    answers = standing(read_verdicts(run.path))
    precision = PRECISION if settings.precision is None else settings.precision
    chosen = choose(fixes, answers, precision, tuple(settings.only or KIND_OF_WORD))
    taken = fixes.take(chosen.rows)
    return Taken(
        fixes=_as_answered(run.path / VERDICTS_FILE, dataset, taken, answers),
        p_fix=chosen.p_fix[chosen.rows],
        answers=[answers.get(one) for one in taken.ids],
        expected_precision=chosen.expected_precision,
        num_left=chosen.num_left,
        num_stale=len(answers.keys() - set(fixes.ids)),
    )


def changes_of(dataset: Dataset, taken: Taken) -> Changes:
    """What becomes of the annotations that are there: one row each, whatever fixes it has.

    Where people said something of a label or a box, that holds. Removed ones are discarded.
    """
    fixes, is_addition, is_removal = taken.fixes, taken.is_addition, taken.is_removal
    labels, boxes = dataset.labels.copy(), dataset.boxes.copy()
    given = np.array([_given(one) for one in taken.answers], np.bool_).reshape(-1, 2)
    is_change = ~is_addition & ~is_removal
    for is_label in (is_change & (fixes.kinds == Kind.WRONG_LABEL), is_change & given[:, 0]):
        labels[fixes.rows[is_label]] = fixes.new_labels[is_label]
    for is_box in (is_change & (fixes.kinds == Kind.BAD_BOX), is_change & given[:, 1]):
        boxes[fixes.rows[is_box]] = fixes.new_boxes[is_box]
    is_gone = np.zeros(len(dataset), np.bool_)
    is_gone[fixes.rows[is_removal]] = True
    rows = np.unique(fixes.rows[~is_addition])
    told = {row: _told(taken, of) for row, of in _by_row(fixes.rows, ~is_addition).items()}
    return Changes(
        rows=rows,
        is_relabelled=(labels != dataset.labels)[rows] & ~is_gone[rows],
        is_moved=(boxes != dataset.boxes).any(axis=1)[rows] & ~is_gone[rows],
        is_discarded=is_gone[rows],
        labels=labels[rows],
        boxes=boxes[rows],
        iou=overlaps(dataset.boxes[rows], boxes[rows]),
        confidences=np.array([told[row][0] for row in rows.tolist()], np.float64),
        reasons=[told[row][1] for row in rows.tolist()],
    )


def fixed(dataset: Dataset, taken: Taken, changes: Changes, format: str) -> Dataset:
    """A copy of a dataset with the fixes made, and a note for every one that stays or comes."""
    is_new = taken.is_addition
    new = taken.fixes.take(is_new)
    larger = dataset.add(new.image_rows, new.new_labels, new.new_boxes)
    notes: dict[int | str, Note] = {
        identity: {"confidence": told[0], "reason": told[1]}
        for identity, told in zip(
            larger.annotation_ids[len(dataset) :].tolist(),
            (_told(taken, [k]) for k in np.flatnonzero(is_new).tolist()),
            strict=True,
        )
    }
    larger = replace(larger, notes={**dataset.notes, **notes})
    return mended(larger, changes, format, "drop")  # ids of what goes are not given anew


def reason_of(taken: Taken, k: int) -> str:
    """Why the fix at `k` is made, in words."""
    reason, answer = taken.fixes.reasons[k], taken.answers[k]
    if answer is None:
        return reason
    said = [f"label {answer.label}"] if answer.label is not None else []
    said += ["another box"] if answer.box is not None else []
    return f"{reason}; accepted{' with ' + ' and '.join(said) if said else ''}"


def _as_answered(
    path: Path, dataset: Dataset, taken: Fixes, answers: Mapping[str, Verdict]
) -> Fixes:
    """The fixes with people's labels and boxes, and with boxes as they are written."""
    names = {valid_text(name): label for label, name in enumerate(dataset.label_names)}
    labels, boxes = taken.new_labels.copy(), taken.new_boxes.copy()
    for k, identity in enumerate(taken.ids):
        answer = answers.get(identity)
        if answer is None:
            continue
        if answer.label is not None:
            if (name := valid_text(answer.label)) not in names:
                raise DataError(
                    f"{path}: gives fix {identity} the label {name!r}, which the dataset does not "
                    "have; undo that verdict, or add the label to the dataset and audit again"
                )
            labels[k] = names[name]
        if answer.box is not None:
            boxes[k] = answer.box
    boxes = _tidied(dataset, taken, boxes)
    is_new = np.isin(taken.kinds, (Kind.BAD_BOX, Kind.MISSING))
    is_new |= np.array([_given(answers.get(one))[1] for one in taken.ids], np.bool_)
    is_empty = is_new & ~(boxes[:, 2:] > boxes[:, :2]).all(axis=1)
    if is_empty.any():
        raise DataError(
            f"{path.parent}: the box of fix {taken.ids[int(np.argmax(is_empty))]} lies outside of "
            "its image; undo the verdict on it, or audit again"
        )
    return replace(taken, new_labels=labels, new_boxes=boxes)


def _tidied(dataset: Dataset, taken: Fixes, boxes: Floats) -> Floats:
    """Sides that move cut at the border of the image and rounded; others as they are annotated."""
    inside = clip_boxes(boxes, dataset.images.sizes[taken.image_rows]).round(BOX_DECIMALS)
    old = np.full_like(boxes, np.nan)
    old[taken.rows >= 0] = dataset.boxes[taken.rows[taken.rows >= 0]]
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(boxes - old) < SAME_SIDE, old, inside)


def _given(answer: Verdict | None) -> tuple[bool, bool]:
    return answer is not None and answer.label is not None, (
        answer is not None and answer.box is not None
    )


def _by_row(rows: Rows, is_wanted: Mask) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for k in np.flatnonzero(is_wanted).tolist():
        found.setdefault(int(rows[k]), []).append(k)
    return found


def _told(taken: Taken, of: Sequence[int]) -> tuple[float, str]:
    """The least probability of some fixes, and all their reasons."""
    probability = min(float(taken.p_fix[k]) for k in of)
    return round(probability, 4), "; ".join(reason_of(taken, k) for k in of)
