"""Derive changes from the fixes of an audit and people's verdicts on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from boxmend.auditing.fixes.choosing import (
    DEFAULT_PRECISION,
    KINDS_BY_OPTION,
    choose_fixes,
    count_yields,
)
from boxmend.auditing.fixes.run_fixes import read_run_fixes
from boxmend.auditing.fixes.table import BOX_DECIMALS, Fixes, Kind
from boxmend.auditing.fixes.verdicts import VERDICTS_FILE, Verdict, latest_verdicts, read_verdicts
from boxmend.data.boxes import clip_boxes, compute_iou
from boxmend.data.dataset import Dataset
from boxmend.data.files.text import escape_surrogates
from boxmend.data.types import Floats, Mask, Rows
from boxmend.errors import DataError
from boxmend.repair.changes import ApplySettings, Changes, TakenFixes
from boxmend.runs.folder import Run
from boxmend.runs.settling import SAME_SIDE_PIXELS

REMOVALS = (Kind.SPURIOUS, Kind.DUPLICATE)


def changes_from_fixes(run: Run, dataset: Dataset, settings: ApplySettings) -> Changes:
    """Return the changes of the chosen fixes of a run; verdicts of people have priority."""
    answers = latest_verdicts(read_verdicts(run.path))
    path = run.path / VERDICTS_FILE
    return changes_from_table(read_run_fixes(run, dataset), answers, dataset, settings, path)


def changes_from_table(
    fixes: Fixes,
    answers: Mapping[str, Verdict],
    dataset: Dataset,
    settings: ApplySettings,
    verdicts_path: Path,
) -> Changes:
    """Return the changes of the fixes that are chosen; `answers` are people's verdicts by fix.

    `verdicts_path` is for messages.
    """
    precision = DEFAULT_PRECISION if settings.precision is None else settings.precision
    kinds = tuple(settings.only or KINDS_BY_OPTION)
    chosen = choose_fixes(fixes, answers, precision, kinds)
    proposed = replace(fixes.take(chosen.rows), p_fix=chosen.p_fix[chosen.rows])
    verdicts = [answers.get(fix_id) for fix_id in proposed.ids]
    is_given = np.array([_has_label_and_box(verdict) for verdict in verdicts], np.bool_)
    is_given = is_given.reshape(-1, 2)
    taken = TakenFixes(
        fixes=_apply_answers(verdicts_path, dataset, proposed, verdicts),
        is_accepted=np.array([verdict is not None for verdict in verdicts], np.bool_),
        is_removal=np.isin(proposed.kinds, REMOVALS) & ~is_given.any(axis=1),
        expected_precision=chosen.expected_precision,
        num_left=chosen.num_left,
        num_likely=chosen.num_likely,
        yields=count_yields(fixes, answers, kinds),
        num_stale=len(answers.keys() - set(fixes.ids)),
    )
    return _combine(dataset, taken, is_given)


def _combine(dataset: Dataset, taken: TakenFixes, is_given: Mask) -> Changes:
    """Combine the fixes of each annotation into one change; added annotations come last.

    Labels and boxes that people gave (`is_given`, [t, 2]) have priority. Removed annotations are
    discarded.
    """
    fixes = taken.fixes
    is_new = np.isin(fixes.kinds, (Kind.MISSING,))
    # Arrays by row of the dataset, extended by the added annotations, which count as unchanged.
    rows = fixes.rows.copy()
    rows[is_new] = len(dataset) + np.arange(is_new.sum())
    old_labels = np.append(dataset.labels, fixes.new_labels[is_new])
    old_boxes = np.concatenate([dataset.boxes, fixes.new_boxes[is_new]])
    labels, boxes = old_labels.copy(), old_boxes.copy()
    is_change = ~is_new & ~taken.is_removal
    for is_label in (is_change & (fixes.kinds == Kind.WRONG_LABEL), is_change & is_given[:, 0]):
        labels[rows[is_label]] = fixes.new_labels[is_label]
    for is_box in (is_change & (fixes.kinds == Kind.BAD_BOX), is_change & is_given[:, 1]):
        boxes[rows[is_box]] = fixes.new_boxes[is_box]
    is_removed = np.zeros(len(labels), np.bool_)
    is_removed[rows[taken.is_removal]] = True
    changed, first = np.unique(rows, return_index=True)
    fixes_by_row = _group_by_row(rows)
    return Changes(
        rows=changed,
        image_rows=fixes.image_rows[first],
        is_relabelled=(labels != old_labels)[changed] & ~is_removed[changed],
        is_moved=(boxes != old_boxes).any(axis=1)[changed] & ~is_removed[changed],
        is_discarded=is_removed[changed],
        labels=labels[changed],
        boxes=boxes[changed],
        iou=compute_iou(old_boxes[changed], boxes[changed]),
        confidences=np.array(
            [_min_probability(fixes, fixes_by_row[row]) for row in changed.tolist()], np.float64
        ),
        reasons=[
            "; ".join(fixes.reasons[k] for k in fixes_by_row[row]) for row in changed.tolist()
        ],
        discarded="drop",
        num_judged=int((~dataset.is_ignored).sum()),
        taken=taken,
    )


def _apply_answers(
    path: Path, dataset: Dataset, proposed: Fixes, answers: Sequence[Verdict | None]
) -> Fixes:
    """Return fixes with people's labels and boxes, rounded boxes, and full reasons."""
    names = {escape_surrogates(name): label for label, name in enumerate(dataset.label_names)}
    labels, boxes = proposed.new_labels.copy(), proposed.new_boxes.copy()
    for k, answer in enumerate(answers):
        if answer is not None and answer.label is not None:
            if (name := escape_surrogates(answer.label)) not in names:
                raise DataError(
                    f"{path}: gives fix {proposed.ids[k]} the label {name!r}, which the dataset "
                    "does not have; undo that verdict, or add the label to the dataset and audit "
                    "again"
                )
            labels[k] = names[name]
        if answer is not None and answer.box is not None:
            boxes[k] = answer.box
    boxes = _clip_and_round(dataset, proposed, boxes)
    is_new = np.isin(proposed.kinds, (Kind.BAD_BOX, Kind.MISSING))
    is_new |= np.array([_has_label_and_box(answer)[1] for answer in answers], np.bool_)
    is_empty = is_new & ~(boxes[:, 2:] > boxes[:, :2]).all(axis=1)
    if is_empty.any():
        raise DataError(
            f"{path.parent}: the box of fix {proposed.ids[int(np.argmax(is_empty))]} lies outside "
            "its image; undo the verdict on it, or audit again"
        )
    reasons = [
        _reason(reason, answer) for reason, answer in zip(proposed.reasons, answers, strict=True)
    ]
    return replace(proposed, new_labels=labels, new_boxes=boxes, reasons=reasons)


def _reason(reason: str, answer: Verdict | None) -> str:
    """Return the reason of a fix together with people's answer."""
    if answer is None:
        return reason
    changes = [f"label {answer.label}"] if answer.label is not None else []
    changes += ["another box"] if answer.box is not None else []
    return f"{reason}; accepted{' with ' + ' and '.join(changes) if changes else ''}"


def _clip_and_round(dataset: Dataset, taken: Fixes, boxes: Floats) -> Floats:
    """Return boxes with changed sides clipped to the image and rounded; others stay as they are."""
    inside = clip_boxes(boxes, dataset.images.sizes[taken.image_rows]).round(BOX_DECIMALS)
    old = np.full_like(boxes, np.nan)
    old[taken.rows >= 0] = dataset.boxes[taken.rows[taken.rows >= 0]]
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(boxes - old) < SAME_SIDE_PIXELS, old, inside)


def _has_label_and_box(answer: Verdict | None) -> tuple[bool, bool]:
    """Return whether a verdict has a label, and whether it has a box."""
    return answer is not None and answer.label is not None, (
        answer is not None and answer.box is not None
    )


def _group_by_row(rows: Rows) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for k, row in enumerate(rows.tolist()):
        groups.setdefault(row, []).append(k)
    return groups


def _min_probability(fixes: Fixes, members: Sequence[int]) -> float:
    return round(min(float(fixes.p_fix[k]) for k in members), 4)
