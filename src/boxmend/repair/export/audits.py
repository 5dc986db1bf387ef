"""Fixes of an audit as a bundle: what is left for review, what would be changed, or the likeliest.

An annotation is handed over once, whatever fixes it has: as it should be, with its reasons. One
that should go stays as it is, and the reason says so. One that is missing is a new box.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from boxmend.auditing.fixes.choosing import PRECISION, ChosenFixes, choose, rank_ids
from boxmend.auditing.fixes.run_fixes import read_run_fixes
from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.auditing.fixes.verdicts import latest_verdicts, read_verdicts
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats, Mask, Rows
from boxmend.errors import DataError
from boxmend.repair.export.bundle import (
    Bundle,
    Item,
    box_of,
    ensure_writable,
    gathered,
    identity_of,
    other_item,
    region_of,
    share_of,
)
from boxmend.runs.folder import Run

LIKELY = 0.5  # an annotation that is rather right than wrong is worth nobody's time
REMOVALS = (Kind.SPURIOUS, Kind.DUPLICATE)


def audited(
    run: Run, dataset: Dataset, most: int | None, changes: bool, whole_images: bool
) -> Bundle:
    """The fixes of an audit that nobody has judged yet, by image.

    By default those that `apply` would leave for review and that are rather wrong than right; or
    those that it would make; or the `most` probable ones.
    """
    fixes = read_run_fixes(run, dataset)
    answers = latest_verdicts(read_verdicts(run.path))
    chosen = choose(fixes, answers, PRECISION)
    is_open = np.array([one not in answers for one in fixes.ids], np.bool_)
    is_open &= _is_winning(fixes, chosen.p_fix)
    at = _selected(fixes, chosen, is_open, most, changes)
    if not len(at):
        left = f"none of the {chosen.num_left:,} fixes left for review" if chosen.num_left else ""
        why = (
            f"{left} is of an annotation that is rather wrong than right" if left else "all is done"
        )
        raise DataError(
            f"{run.path}: there is nothing to hand over: {why}; --most N gives the N most probable "
            "fixes that nobody has judged, --changes those that `boxmend apply` would make"
        )
    bundle = gathered(dataset, _items(dataset, fixes, chosen.p_fix, at, whole_images))
    if most is not None or changes:
        return bundle
    return replace(bundle, num_unasked=chosen.num_left - len(at))


def _selected(
    fixes: Fixes, chosen: ChosenFixes, is_open: Mask, most: int | None, changes: bool
) -> Rows:
    if most is not None:
        at = np.flatnonzero(is_open)
        order = np.lexsort((rank_ids(fixes.ids)[at], -fixes.p_wrong[at]))
        return np.sort(at[order[:most]])
    is_taken = np.zeros(len(fixes), np.bool_)
    is_taken[chosen.rows] = True
    if changes:
        return np.flatnonzero(is_open & is_taken)
    return np.flatnonzero(is_open & ~is_taken & (fixes.p_wrong >= LIKELY))


def _is_winning(fixes: Fixes, p_fix: Floats) -> Mask:
    """[f] Of an annotation either its likeliest removal, or its changes: not both at once."""
    is_removal = np.isin(fixes.kinds, REMOVALS)
    best: dict[int, tuple[float, bool, int]] = {}
    for k, row in enumerate(fixes.rows.tolist()):
        if row != UNKNOWN:
            rank = float(p_fix[k]), not is_removal[k], -k
            best[row] = max(best.get(row, rank), rank)
    is_winning = np.ones(len(fixes), np.bool_)
    for k, row in enumerate(fixes.rows.tolist()):
        if row != UNKNOWN:
            _, is_change, negative = best[row]
            is_winning[k] = not is_removal[k] if is_change else k == -negative
    return is_winning


def _items(
    dataset: Dataset, fixes: Fixes, p_fix: Floats, at: Rows, whole_images: bool
) -> dict[int, list[Item]]:
    of_row: dict[int, list[int]] = defaultdict(list)
    items: dict[int, list[Item]] = defaultdict(list)
    for k in at.tolist():
        of_row[int(fixes.rows[k])].append(k)
    new = of_row.pop(UNKNOWN, [])
    wanted = set(of_row)
    if whole_images:
        is_wanted = np.isin(dataset.image_rows, fixes.image_rows[at])
        wanted |= set(np.flatnonzero(is_wanted & (dataset.image_rows != UNKNOWN)).tolist())
    ensure_writable(dataset, np.array(sorted(wanted), np.int64))
    for row in sorted(wanted):
        ks = of_row.get(row)
        item = other_item(dataset, row) if ks is None else _suspect(dataset, fixes, p_fix, ks)
        items[int(dataset.image_rows[row])].append(item)
    for number, k in enumerate(new):
        item = _suspect(dataset, fixes, p_fix, [k], region=f"missing-{number}")
        items[int(fixes.image_rows[k])].append(item)
    return items


def _suspect(
    dataset: Dataset, fixes: Fixes, p_fix: Floats, ks: list[int], region: str = ""
) -> Item:
    first, row = ks[0], int(fixes.rows[ks[0]])
    label, box = int(fixes.old_labels[first]), fixes.old_boxes[first]
    for k in ks:
        if fixes.kinds[k] in (Kind.WRONG_LABEL, Kind.MISSING):
            label = int(fixes.new_labels[k])
        if fixes.kinds[k] in (Kind.BAD_BOX, Kind.MISSING):
            box = fixes.new_boxes[k]
    doubt = max(float(fixes.p_wrong[k]) for k in ks)
    is_missing = row == UNKNOWN
    return Item(
        row=row,
        annotation_id=None if is_missing else identity_of(dataset, row),
        status="suspect",
        old_label=int(fixes.old_labels[first]),
        old_box=box_of(box if is_missing else fixes.old_boxes[first]),
        label=label,
        box=box_of(box),
        score=share_of(min(float(p_fix[k]) for k in ks)),
        doubt=share_of(doubt),
        suspicion=share_of(doubt),
        reason="; ".join(_reason(fixes, k) for k in ks),
        fixes=tuple(fixes.ids[k] for k in ks),
        kinds=tuple(Kind(int(fixes.kinds[k])).words for k in ks),
        region=region or region_of(row),
    )


def _reason(fixes: Fixes, k: int) -> str:
    kind = Kind(int(fixes.kinds[k]))
    advice = ", to be removed" if kind in REMOVALS else ""
    return f"{kind.words}{advice}: {fixes.reasons[k]}"
