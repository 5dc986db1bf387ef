"""What the boxes that came back say of the fixes they were handed over for.

A box as suggested accepts its fixes, a box as it was rejects them, another label or box is
accepted with that. To delete a box accepts its removal, and rejects one that was missing. What no
fix was proposed for is counted and not taken over.
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
from boxmend.repair.importing.tasks import Handed, Region, Seen

SAME_SIDE_PIXELS = 0.5  # pixels; people who move a side move it by more
REMOVALS = (Kind.SPURIOUS, Kind.DUPLICATE)


@dataclass(frozen=True, eq=False)
class AnswerIndex:
    """What verdicts are read against: the table, by id, and the labels as the tool has them."""

    fixes: Fixes
    of_fix: Mapping[str, int]
    of_label: Mapping[str, int]
    label_names: list[str]
    removals: Mapping[int, int]  # by row of the dataset: the fix that removes it
    counts: Counter[str]  # what became of what is no verdict


def answer_index(fixes: Fixes, label_names: list[str], written: list[str]) -> AnswerIndex:
    """Lay out a table for reading verdicts; `written` are the label names in the tool."""
    is_removal = np.isin(fixes.kinds, REMOVALS)
    return AnswerIndex(
        fixes=fixes,
        of_fix={one: k for k, one in enumerate(fixes.ids)},
        of_label={name: label for label, name in enumerate(written)},
        label_names=label_names,
        removals={int(fixes.rows[k]): k for k in np.flatnonzero(is_removal).tolist()},
        counts=Counter(),
    )


def verdicts_of(index: AnswerIndex, seen: Seen) -> Iterator[Verdict]:
    """The verdicts on the fixes of one image."""
    back = dict[str, Region]()
    for one in seen.regions:
        if one.key:
            back.setdefault(one.key, one)  # a copy that people made of it comes behind it
    index.counts["drawn"] += len(seen.regions) - sum(one.region in back for one in seen.handed)
    for handed in seen.handed:
        region = back.get(handed.region)
        if not handed.fixes:
            _count_other(index, seen, handed, region)
            continue
        known = [index.of_fix[one] for one in handed.fixes if one in index.of_fix]
        index.counts["stale"] += len(handed.fixes) - len(known)
        if not known:
            continue
        for k, answer, label, box in _answers(index, seen, known, region):
            name = None if label is None else index.label_names[label]
            yield Verdict(index.fixes.ids[k], answer, name, box, seen.who, seen.when, "import")


Answer = tuple[int, str, int | None, Box | None]  # fix, answer, other label, other box


def _answers(
    index: AnswerIndex, seen: Seen, ks: list[int], region: Region | None
) -> Iterator[Answer]:
    fixes, kind = index.fixes, Kind(int(index.fixes.kinds[ks[0]]))
    if region is None:
        yield from _of_deleted(index, ks)
        return
    label = index.of_label.get(region.label)
    if label is None or region.box is None or not _is_inside(region.box, seen.size):
        index.counts["unreadable"] += 1
        return
    box = region.box
    if kind == Kind.MISSING:
        new = fixes.new_labels[ks[0]], _box(fixes.new_boxes[ks[0]])
        is_same = _is_same(box, new[1], seen.size)
        yield ks[0], ACCEPT, None if label == new[0] else label, None if is_same else box
        return
    old_label, old_box = int(fixes.old_labels[ks[0]]), _box(fixes.old_boxes[ks[0]])
    other_label = None if label == old_label else label
    other_box = None if _is_same(box, old_box, seen.size) else box
    if kind in REMOVALS:
        is_kept = other_label is None and other_box is None
        yield ks[0], REJECT if is_kept else ACCEPT, other_label, other_box
        return
    yield from _of_changed(index, seen, ks, (label, other_label), (box, other_box))


def _of_changed(
    index: AnswerIndex,
    seen: Seen,
    ks: list[int],
    labels: tuple[int, int | None],
    boxes: tuple[Box, Box | None],
) -> Iterator[Answer]:
    """Answers about label and box; each pair is what came back, and None where that is as it was.

    What no fix is about goes along with the other fix.
    """
    fixes, kinds = index.fixes, {int(index.fixes.kinds[k]) for k in ks}
    (label, other_label), (box, other_box) = labels, boxes
    for k in ks:
        if fixes.kinds[k] == Kind.WRONG_LABEL:
            along = None if Kind.BAD_BOX in kinds else other_box
            is_new = label == fixes.new_labels[k]
            if not is_new and other_label is None and along is None:
                yield k, REJECT, None, None
            else:
                yield k, ACCEPT, None if is_new else label, along
        else:
            also = None if Kind.WRONG_LABEL in kinds else other_label
            is_new = _is_same(box, _box(fixes.new_boxes[k]), seen.size)
            if not is_new and other_box is None and also is None:
                yield k, REJECT, None, None
            else:
                stays = _box(fixes.old_boxes[k]) if other_box is None else box
                yield k, ACCEPT, also, None if is_new else stays


def _of_deleted(index: AnswerIndex, ks: list[int]) -> Iterator[Answer]:
    kind, row = Kind(int(index.fixes.kinds[ks[0]])), int(index.fixes.rows[ks[0]])
    if kind == Kind.MISSING:
        yield ks[0], REJECT, None, None
    elif kind in REMOVALS:
        yield ks[0], ACCEPT, None, None
    elif row in index.removals:  # the audit thought of it, too, if with less weight
        yield index.removals[row], ACCEPT, None, None
    else:
        index.counts["deleted"] += 1


def _count_other(index: AnswerIndex, seen: Seen, handed: Handed, region: Region | None) -> None:
    """Note what people did to an annotation that was only given along."""
    if region is None:
        index.counts["deleted"] += 1
        return
    label = index.of_label.get(region.label)
    is_same_label = label is not None and index.label_names[label] == handed.old_label
    is_same_box = (
        region.box is not None
        and handed.old_box is not None
        and _is_same(region.box, handed.old_box, seen.size)
    )
    index.counts["others_changed"] += not (is_same_label and is_same_box)


def _is_same(box: Box, other: Box, size: tuple[float, float]) -> bool:
    """Whether two boxes are the same to people; tools cut them at the border of the image."""
    return bool(np.abs(_cut(box, size) - _cut(other, size)).max() <= SAME_SIDE_PIXELS)


def _is_inside(box: Box, size: tuple[float, float]) -> bool:
    """Whether some of a box lies on its image; of one beside it nothing could be written."""
    x1, y1, x2, y2 = _cut(box, size).tolist()
    return bool(x1 < x2 and y1 < y2)


def _cut(box: Box, size: tuple[float, float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return clip_boxes(np.array(box, np.float64), np.array(size, np.float64))


def _box(sides: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Box:
    x1, y1, x2, y2 = sides.tolist()
    return x1, y1, x2, y2
