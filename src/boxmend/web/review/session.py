"""The session: the fixes of a run, what was said of them, and what that comes to.

Verdicts are in the file of the run before anybody is told of them. What others write into it
meanwhile is taken up.
"""

import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from boxmend.auditing.fixes.choosing import PRECISION, ChosenFixes, choose, measure_precision
from boxmend.auditing.fixes.table import BOX_DECIMALS, Fixes, Kind
from boxmend.auditing.fixes.verdicts import (
    SKIP,
    VERDICTS_FILE,
    Verdict,
    append_verdicts,
    latest_verdicts,
    read_verdicts,
)
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats, Rows
from boxmend.errors import UsageError

NUM_DOUBTFUL = 200  # that the page is given at once; they are chosen anew as verdicts come in
FULL_GAIN = 0.5  # of the IoU: so much is worth as much as a right label
SAME = 0.001  # pixels
OUTSIDE = 1.0  # pixels that a box may lie outside of its image, by rounding


class Answer(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What the page says of a fix, by numbers alone."""

    row: int
    answer: Literal["accept", "reject", "skip", "undo"]
    label: int | None = None
    box: tuple[float, float, float, float] | None = None
    mode: Literal["queue", "sample", "doubtful", "pattern"] = "queue"


class Posted(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What the page sends: how many verdicts it knows of, and new ones."""

    seen: int
    verdicts: list[Answer]


class ReviewSession:
    """The fixes of a run under review; safe to use from several threads."""

    def __init__(
        self, run_path: Path, dataset: Dataset, fixes: Fixes, who: str | None = None
    ) -> None:
        self.run_path, self.dataset, self.fixes = run_path, dataset, fixes
        self._who = who
        self._row_of = {one: row for row, one in enumerate(fixes.ids)}
        self._label_of = {name: label for label, name in enumerate(dataset.label_names)}
        self._lock = threading.RLock()
        self._size = 0
        self._verdicts: list[Verdict] = []
        self._of_fix: dict[str, list[Verdict]] = {}
        self._latest: dict[str, Verdict] = {}
        self._chosen: ChosenFixes | None = None
        self._figures: dict[str, Any] | None = None
        self.num_given = 0  # by this session: what was taken back counts, too
        self._catch_up()

    def decide(self, answers: Sequence[Answer]) -> None:
        """Write what was answered by one write; a UsageError for an answer that makes no sense."""
        verdicts = [self._verdict(one) for one in answers]
        with self._lock:
            self._catch_up()
            # What others wrote in between makes the file longer, and is taken up next time.
            self._size += append_verdicts(self.run_path, verdicts)
            self._add(verdicts)
            self.num_given += len(verdicts)

    def news(self, seen: int) -> dict[str, Any]:
        """What stands of the fixes that verdicts after the first `seen` are about, and figures."""
        with self._lock:
            self._catch_up()
            is_reset = not 0 < seen <= len(self._verdicts)
            since = self._verdicts[0 if is_reset else seen :]
            fixes = dict.fromkeys(one.fix for one in since)
            told = [self._told(fix) for fix in fixes if fix in self._row_of]
            return {
                "seen": len(self._verdicts),
                "is_reset": is_reset,
                "verdicts": told,
                "figures": self.figures(),
            }

    def figures(self) -> dict[str, Any]:
        """How far the review is, what would be taken, and how precise a random sample was."""
        with self._lock:
            if self._figures is None:
                self._figures = self._computed()
            return self._figures

    def _computed(self) -> dict[str, Any]:
        chosen = self._choose()
        known = [one for fix, one in self._latest.items() if fix in self._row_of]
        measured = measure_precision(self.fixes, self._verdicts)
        return {
            "number": len(self.fixes),
            "decided": len(known),
            "accepted": sum(one.answer == "accept" and one.is_plain for one in known),
            "changed": sum(not one.is_plain for one in known),
            "rejected": sum(one.answer == "reject" for one in known),
            "precision": PRECISION,
            "taken": len(chosen.rows),
            "expected": chosen.expected_precision,
            "left": chosen.num_left,
            "measured": {name: list(one) for name, one in measured.items()},
        }

    def doubtful(self) -> list[int]:
        """The open fixes that are most worth a look, the best first.

        A look at a fix that would not be taken wins a repair as often as the fix is right; at one
        that would, it saves as often as it is wrong. Both are largest next to the threshold. A
        better box counts by what it gains.
        """
        with self._lock:
            chosen = self._choose()
            is_open = np.array([one not in self._latest for one in self.fixes.ids], np.bool_)
        is_taken = np.zeros(len(self.fixes), np.bool_)
        is_taken[chosen.rows] = True
        worth = np.where(is_taken, 1 - chosen.p_fix, chosen.p_fix) * effects(self.fixes)
        order = np.argsort(-worth, kind="stable")
        rows: list[int] = order[is_open[order]][:NUM_DOUBTFUL].tolist()
        return rows

    def _choose(self) -> ChosenFixes:
        if self._chosen is None:
            self._chosen = choose(self.fixes, self._latest, PRECISION)
        return self._chosen

    def _verdict(self, answer: Answer) -> Verdict:
        if not 0 <= answer.row < len(self.fixes):
            raise UsageError(f"there is no fix {answer.row}")
        label = answer.label
        if label is not None and not 0 <= label < len(self.dataset.label_names):
            raise UsageError(f"there is no class {label}")
        if answer.box is not None:
            self._check_box(answer.row, answer.box)
        if label == self.fixes.new_labels[answer.row]:
            label = None  # as proposed: no other class was meant
        try:
            return Verdict(
                fix=self.fixes.ids[answer.row],
                answer=answer.answer,
                label=None if label is None else self.dataset.label_names[label],
                box=None if self._is_proposed(answer.row, answer.box) else answer.box,
                who=self._who,
                when=datetime.now(UTC).isoformat(timespec="seconds") if self._who else None,
                mode=answer.mode,
            )
        except ValueError as error:
            raise UsageError(str(error)) from error

    def _is_proposed(self, row: int, box: Sequence[float] | None) -> bool:
        """Whether a box is the proposed one, as by an edge that was moved and moved back."""
        proposed = self.fixes.new_boxes[row].round(BOX_DECIMALS)  # so the page has it
        return box is not None and bool(np.abs(proposed - box).max() < SAME)

    def _check_box(self, row: int, box: Sequence[float]) -> None:
        image = int(self.fixes.image_rows[row])
        width, height = self.dataset.images.widths[image], self.dataset.images.heights[image]
        limits = (width or np.inf, height or np.inf) * 2
        is_inside = all(
            -OUTSIDE <= side <= limit + OUTSIDE for side, limit in zip(box, limits, strict=True)
        )
        x1, y1, x2, y2 = np.clip(box, 0, limits).round(BOX_DECIMALS).tolist()  # as it is written
        if not (is_inside and x1 < x2 and y1 < y2):
            raise UsageError(f"the box {list(box)} is not in the image, or has no area")

    def _told(self, fix: str) -> dict[str, Any]:
        """What stands of a fix; a skip is told while nothing else was said."""
        one = self._latest.get(fix)
        lines = self._of_fix[fix]
        row = self._row_of[fix]
        if one is None:
            is_skipped = lines[-1].answer == SKIP
            return {"row": row, "answer": SKIP if is_skipped else None, "mode": lines[-1].mode}
        return {
            "row": row,
            "answer": one.answer,
            "label": None if one.label is None else self._label_of.get(one.label, UNKNOWN),
            "box": one.box,
            "mode": one.mode,
        }

    def _catch_up(self) -> None:
        """Take up what others wrote into the file, or took out of it."""
        size = self._size_now()
        if size == self._size:
            return
        verdicts = read_verdicts(self.run_path)
        self._verdicts, self._of_fix, self._latest = [], {}, {}
        self._add(verdicts)
        self._size = size

    def _add(self, verdicts: Iterable[Verdict]) -> None:
        self._chosen = self._figures = None
        changed = dict[str, None]()  # in the order in which they were given
        for one in verdicts:
            self._verdicts.append(one)
            self._of_fix.setdefault(one.fix, []).append(one)
            changed[one.fix] = None
        for fix in changed:
            self._latest.pop(fix, None)
            self._latest |= latest_verdicts(self._of_fix[fix])

    def _size_now(self) -> int:
        try:
            return (self.run_path / VERDICTS_FILE).stat().st_size
        except OSError:
            return 0


def effects(fixes: Fixes) -> Floats:
    """[f] What a fix is worth if it is right, from 0 to 1: all, but for boxes their gain."""
    gains = np.clip(np.nan_to_num(fixes.iou_gain) / FULL_GAIN, 0, 1)
    worth: Floats = np.where(fixes.kinds == Kind.BAD_BOX, gains, 1.0)
    return worth


def sample_order(fixes: Fixes) -> Rows:
    """The fixes that would be taken without any verdict, in a random order that stays the same.

    It depends on nothing but the names of the fixes, so that a sample goes on after a pause. Where
    none would be taken it is of all fixes.
    """
    taken = choose(fixes, {}, PRECISION).rows
    rows = taken if len(taken) else np.arange(len(fixes))
    lots = [_lot(fixes.ids[row]) for row in rows.tolist()]
    order = sorted(range(len(lots)), key=lots.__getitem__)
    drawn: Rows = rows[np.array(order, np.int64)]
    return drawn


def _lot(fix: str) -> bytes:
    return blake2b(fix.encode("utf-8", "backslashreplace"), digest_size=16).digest()
