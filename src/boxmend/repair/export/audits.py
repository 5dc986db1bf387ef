"""Export fixes of an audit: those left for review, those that `apply` makes, or the N likeliest.

An annotation with several fixes is exported once, with all changes and reasons. An annotation that
should be removed is exported unchanged, and the reason says so. A missing one is a new box.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from boxmend.auditing.fixes.choosing import DEFAULT_PRECISION, ChosenFixes, choose_fixes, rank_ids
from boxmend.auditing.fixes.run_fixes import read_run_fixes
from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.auditing.fixes.verdicts import latest_verdicts, read_verdicts
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats, Mask, Rows
from boxmend.errors import DataError
from boxmend.repair.export.bundle import (
    Bundle,
    Item,
    annotation_id_of,
    ensure_writable,
    make_bundle,
    other_item,
    region_id,
    round_box,
    round_share,
)
from boxmend.runs.folder import Run

MIN_P_WRONG = 0.5  # of exported annotations; the others are probably right
REMOVALS = (Kind.SPURIOUS, Kind.DUPLICATE)


def audit_bundle(
    run: Run, dataset: Dataset, most: int | None, changes: bool, whole_images: bool
) -> Bundle:
    """Return the fixes of an audit without a verdict, by image.

    By default these are the fixes that `apply` leaves for review and whose annotation is probably
    wrong; with `changes` those that it makes; with `most` that many of the most probable ones.
    """
    fixes = read_run_fixes(run, dataset)
    answers = latest_verdicts(read_verdicts(run.path))
    chosen = choose_fixes(fixes, answers, DEFAULT_PRECISION)
    is_open = np.array([fix_id not in answers for fix_id in fixes.ids], np.bool_)
    is_open &= _is_preferred(fixes, chosen.p_fix)
    selected = _select(fixes, chosen, is_open, most, changes)
    if not len(selected):
        why = (
            f"none of the {chosen.num_left:,} fixes left for review has an annotation that is "
            "probably wrong"
            if chosen.num_left
            else "no fix is left for review"
        )
        raise DataError(
            f"{run.path}: there is nothing to export: {why}; use --most N for the N most probable "
            "fixes without a verdict, or --changes for those that `boxmend apply` makes"
        )
    bundle = make_bundle(dataset, _items(dataset, fixes, chosen.p_fix, selected, whole_images))
    if most is not None or changes:
        return bundle
    return replace(bundle, num_improbable=chosen.num_left - len(selected))


def _select(
    fixes: Fixes, chosen: ChosenFixes, is_open: Mask, most: int | None, changes: bool
) -> Rows:
    if most is not None:
        rows = np.flatnonzero(is_open)
        order = np.lexsort((rank_ids(fixes.ids)[rows], -fixes.p_wrong[rows]))
        return np.sort(rows[order[:most]])
    is_taken = np.zeros(len(fixes), np.bool_)
    is_taken[chosen.rows] = True
    if changes:
        return np.flatnonzero(is_open & is_taken)
    return np.flatnonzero(is_open & ~is_taken & (fixes.p_wrong >= MIN_P_WRONG))


def _is_preferred(fixes: Fixes, p_fix: Floats) -> Mask:
    """Return a mask [f] with either the most probable removal of each annotation or its changes."""
    is_removal = np.isin(fixes.kinds, REMOVALS)
    best: dict[int, tuple[float, bool, int]] = {}
    for k, row in enumerate(fixes.rows.tolist()):
        if row != UNKNOWN:
            rank = float(p_fix[k]), not is_removal[k], -k
            best[row] = max(best.get(row, rank), rank)
    is_preferred = np.ones(len(fixes), np.bool_)
    for k, row in enumerate(fixes.rows.tolist()):
        if row != UNKNOWN:
            _, is_change, negative = best[row]
            is_preferred[k] = not is_removal[k] if is_change else k == -negative
    return is_preferred


def _items(
    dataset: Dataset, fixes: Fixes, p_fix: Floats, selected: Rows, whole_images: bool
) -> dict[int, list[Item]]:
    fixes_of_row: dict[int, list[int]] = defaultdict(list)
    items: dict[int, list[Item]] = defaultdict(list)
    for k in selected.tolist():
        fixes_of_row[int(fixes.rows[k])].append(k)
    missing = fixes_of_row.pop(UNKNOWN, [])
    wanted = set(fixes_of_row)
    if whole_images:
        is_wanted = np.isin(dataset.image_rows, fixes.image_rows[selected])
        wanted |= set(np.flatnonzero(is_wanted & (dataset.image_rows != UNKNOWN)).tolist())
    ensure_writable(dataset, np.array(sorted(wanted), np.int64))
    for row in sorted(wanted):
        ks = fixes_of_row.get(row)
        item = other_item(dataset, row) if ks is None else _suspect(dataset, fixes, p_fix, ks)
        items[int(dataset.image_rows[row])].append(item)
    for number, k in enumerate(missing):
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
        annotation_id=None if is_missing else annotation_id_of(dataset, row),
        status="suspect",
        old_label=int(fixes.old_labels[first]),
        old_box=round_box(box if is_missing else fixes.old_boxes[first]),
        label=label,
        box=round_box(box),
        score=round_share(min(float(p_fix[k]) for k in ks)),
        doubt=round_share(doubt),
        suspicion=round_share(doubt),
        reason="; ".join(_reason(fixes, k) for k in ks),
        fixes=tuple(fixes.ids[k] for k in ks),
        kinds=tuple(Kind(int(fixes.kinds[k])).words for k in ks),
        region=region or region_id(row),
    )


def _reason(fixes: Fixes, k: int) -> str:
    kind = Kind(int(fixes.kinds[k]))
    advice = ", to be removed" if kind in REMOVALS else ""
    return f"{kind.words}{advice}: {fixes.reasons[k]}"
