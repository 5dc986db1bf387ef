"""Derive verdicts on fixes from the boxes that a tool returns.

An unchanged suggestion accepts its fixes, the original label and box reject them, and another label
or box accepts them with that change. Deleting a box accepts its removal, or rejects a missing
annotation. Changes without a fix are counted and ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.auditing.fixes.verdicts import ACCEPT, REJECT, Verdict
from boxmend.data.boxes import clip_boxes
from boxmend.data.types import Box
from boxmend.repair.importing.tasks import ExportedRegion, ReturnedRegion, ReviewedImage

SAME_SIDE_PIXELS = 0.5  # a smaller move of a side is rounding by the tool
REMOVALS = (Kind.SPURIOUS, Kind.DUPLICATE)


@dataclass(frozen=True, eq=False)
class AnswerIndex:
    """The table of fixes by id and the labels by their names in the tool."""

    fixes: Fixes
    row_of_fix: Mapping[str, int]
    label_of_name: Mapping[str, int]
    label_names: list[str]
    removals: Mapping[int, int]  # row of the dataset -> the fix that removes it
    counts: Counter[str]  # changes that are not verdicts, by reason


def make_answer_index(fixes: Fixes, label_names: list[str], written: list[str]) -> AnswerIndex:
    """Return the index of a table of fixes; `written` are the label names in the tool."""
    is_removal = np.isin(fixes.kinds, REMOVALS)
    return AnswerIndex(
        fixes=fixes,
        row_of_fix={fix_id: k for k, fix_id in enumerate(fixes.ids)},
        label_of_name={name: label for label, name in enumerate(written)},
        label_names=label_names,
        removals={int(fixes.rows[k]): k for k in np.flatnonzero(is_removal).tolist()},
        counts=Counter(),
    )


def image_verdicts(index: AnswerIndex, image: ReviewedImage) -> Iterator[Verdict]:
    """Yield the verdicts on the fixes of one image."""
    returned = dict[str, ReturnedRegion]()
    for region in image.regions:
        if region.key:
            returned.setdefault(region.key, region)  # a later one is a copy that people made
    num_returned = sum(exported.region in returned for exported in image.exported)
    index.counts["drawn"] += len(image.regions) - num_returned
    for exported in image.exported:
        region_or_none = returned.get(exported.region)
        if not exported.fixes:
            _count_other(index, image, exported, region_or_none)
            continue
        known = [index.row_of_fix[fix] for fix in exported.fixes if fix in index.row_of_fix]
        index.counts["stale"] += len(exported.fixes) - len(known)
        if not known:
            continue
        for k, answer, label, box in _answers(index, image, known, region_or_none):
            name = None if label is None else index.label_names[label]
            yield Verdict(index.fixes.ids[k], answer, name, box, image.who, image.when, "import")


Answer = tuple[int, str, int | None, Box | None]  # fix, answer, other label, other box


def _answers(
    index: AnswerIndex, image: ReviewedImage, ks: list[int], region: ReturnedRegion | None
) -> Iterator[Answer]:
    fixes, kind = index.fixes, Kind(int(index.fixes.kinds[ks[0]]))
    if region is None:
        yield from _answer_deletion(index, ks)
        return
    label = index.label_of_name.get(region.label)
    if label is None or region.box is None or not _is_inside(region.box, image.size):
        index.counts["unreadable"] += 1
        return
    box = region.box
    if kind == Kind.MISSING:
        new = fixes.new_labels[ks[0]], _box(fixes.new_boxes[ks[0]])
        is_same = _is_same(box, new[1], image.size)
        yield ks[0], ACCEPT, None if label == new[0] else label, None if is_same else box
        return
    old_label, old_box = int(fixes.old_labels[ks[0]]), _box(fixes.old_boxes[ks[0]])
    other_label = None if label == old_label else label
    other_box = None if _is_same(box, old_box, image.size) else box
    if kind in REMOVALS:
        is_kept = other_label is None and other_box is None
        yield ks[0], REJECT if is_kept else ACCEPT, other_label, other_box
        return
    yield from _answer_changes(index, image, ks, (label, other_label), (box, other_box))


def _answer_changes(
    index: AnswerIndex,
    image: ReviewedImage,
    ks: list[int],
    labels: tuple[int, int | None],
    boxes: tuple[Box, Box | None],
) -> Iterator[Answer]:
    """Yield answers about label and box.

    Each pair has the returned value, and again the returned value, or None if it is the original
    one. A changed value without a fix of its own is added to the answer to the other fix.
    """
    fixes, kinds = index.fixes, {int(index.fixes.kinds[k]) for k in ks}
    (label, other_label), (box, other_box) = labels, boxes
    for k in ks:
        if fixes.kinds[k] == Kind.WRONG_LABEL:
            extra_box = None if Kind.BAD_BOX in kinds else other_box
            is_new = label == fixes.new_labels[k]
            if not is_new and other_label is None and extra_box is None:
                yield k, REJECT, None, None
            else:
                yield k, ACCEPT, None if is_new else label, extra_box
        else:
            extra_label = None if Kind.WRONG_LABEL in kinds else other_label
            is_new = _is_same(box, _box(fixes.new_boxes[k]), image.size)
            if not is_new and other_box is None and extra_label is None:
                yield k, REJECT, None, None
            else:
                final_box = _box(fixes.old_boxes[k]) if other_box is None else box
                yield k, ACCEPT, extra_label, None if is_new else final_box


def _answer_deletion(index: AnswerIndex, ks: list[int]) -> Iterator[Answer]:
    kind, row = Kind(int(index.fixes.kinds[ks[0]])), int(index.fixes.rows[ks[0]])
    if kind == Kind.MISSING:
        yield ks[0], REJECT, None, None
    elif kind in REMOVALS:
        yield ks[0], ACCEPT, None, None
    elif row in index.removals:  # the audit proposed to remove it, but as a less probable fix
        yield index.removals[row], ACCEPT, None, None
    else:
        index.counts["deleted"] += 1


def _count_other(
    index: AnswerIndex,
    image: ReviewedImage,
    exported: ExportedRegion,
    region: ReturnedRegion | None,
) -> None:
    """Count a change of an annotation that was not a suspect."""
    if region is None:
        index.counts["deleted"] += 1
        return
    label = index.label_of_name.get(region.label)
    is_same_label = label is not None and index.label_names[label] == exported.old_label
    is_same_box = (
        region.box is not None
        and exported.old_box is not None
        and _is_same(region.box, exported.old_box, image.size)
    )
    index.counts["others_changed"] += not (is_same_label and is_same_box)


def _is_same(box: Box, other: Box, size: tuple[float, float]) -> bool:
    """Return whether two boxes are equal within the precision of people, after clipping."""
    return bool(np.abs(_clip(box, size) - _clip(other, size)).max() <= SAME_SIDE_PIXELS)


def _is_inside(box: Box, size: tuple[float, float]) -> bool:
    """Return whether a part of a box lies inside its image."""
    x1, y1, x2, y2 = _clip(box, size).tolist()
    return bool(x1 < x2 and y1 < y2)


def _clip(box: Box, size: tuple[float, float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return clip_boxes(np.array(box, np.float64), np.array(size, np.float64))


def _box(sides: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Box:
    x1, y1, x2, y2 = sides.tolist()
    return x1, y1, x2, y2
